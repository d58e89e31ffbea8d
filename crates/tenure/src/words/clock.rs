//! Time. The only file of the library that reads a clock or sleeps.
//!
//! `std::time::Instant` and tokio's timers stop while a Linux machine is
//! suspended; a lease does not. So deadlines live on `CLOCK_BOOTTIME`, which
//! counts suspend, and every sleep is cut into slices of at most a second,
//! after which that clock is read again.
#![allow(clippy::disallowed_methods, reason = "the one owner of clocks and sleeping")]

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// The longest that a sleeper trusts its timer before it reads the clock again.
const SLICE: Duration = Duration::from_secs(1);

/// An instant of the suspend-aware clock, in nanoseconds since boot.
///
/// Arithmetic saturates: an instant is never before boot, a difference never negative.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// An instant `nanos` after boot.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_nanos().try_into().unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration.as_nanos().try_into().unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

/// Where the time comes from: the system, or a test that moves it by hand.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Manual>>);

#[derive(Debug)]
struct Manual {
    now: Mutex<(Instant, SystemTime)>,
    moved: Notify,
}

impl Clock {
    /// `CLOCK_BOOTTIME` for instants, `CLOCK_REALTIME` for the wall.
    pub fn system() -> Clock {
        Clock(None)
    }

    /// A clock that stands still until [`advance`](Clock::advance) moves it.
    pub fn manual() -> Clock {
        let start = Instant::from_nanos(1_000_000_000_000);
        let wall = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        Clock(Some(Arc::new(Manual { now: Mutex::new((start, wall)), moved: Notify::new() })))
    }

    /// Whether both are the same clock.
    pub(crate) fn is(&self, other: &Clock) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Now, suspend counted.
    pub fn now(&self) -> Instant {
        match &self.0 {
            None => {
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
            }
            Some(manual) => lock(&manual.now).0,
        }
    }

    /// The wall clock: for tokens and for people, never for expiry.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            None => SystemTime::now(),
            Some(manual) => lock(&manual.now).1,
        }
    }

    /// The wall clock in microseconds since 1970; 0 before that.
    pub fn wall_us(&self) -> u64 {
        let since = self.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Moves a manual clock, both its faces, and wakes who sleeps on it.
    ///
    /// # Panics
    /// On the system's clock.
    pub fn advance(&self, by: Duration) {
        let manual = self.0.as_ref().expect("only a manual clock can be moved");
        {
            let mut now = lock(&manual.now);
            *now = (now.0 + by, now.1 + by);
        }
        manual.moved.notify_waiters();
    }

    /// Steps a manual clock's wall face alone, as an operator or NTP would.
    ///
    /// # Panics
    /// On the system's clock.
    pub fn set_wall(&self, wall: SystemTime) {
        let manual = self.0.as_ref().expect("only a manual clock can be moved");
        lock(&manual.now).1 = wall;
    }

    /// Sleeps until `deadline`; right within a second after the machine was suspended.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn sleep_until(&self, deadline: Instant) {
        loop {
            // Registered before the look, so a step in between is not missed.
            let moved = self.0.as_ref().map(|manual| manual.moved.notified());
            let left = deadline - self.now();
            if left.is_zero() {
                return;
            }
            match moved {
                Some(moved) => moved.await,
                None => tokio::time::sleep(left.min(SLICE)).await,
            }
        }
    }

    /// Sleeps for `duration`.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// The output of `work`, or `None` when it took longer than `limit`.
    ///
    /// # Cancel safety
    /// As safe as `work` is.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = work => Some(output),
            () = self.sleep(limit) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
