//! A machine that stalls is no judge of leases of half a second.

use libtest_mimic::Failed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tenure::{Clock, Instant};

/// How late a timer may be before what happened meanwhile proves nothing: a
/// fifth of the shortest TTL, the interval of the cases' own beats.
const STALL: Duration = Duration::from_millis(100);
/// How often a trial is put at most; the last answer stands, whatever it is.
const ATTEMPTS: u32 = 4;

/// The watcher's last beat, and the end of the last stall.
static WATCH: Mutex<(Option<Instant>, Option<Instant>)> = Mutex::new((None, None));

/// Notices from now on when this process gets no processor.
pub(crate) fn watch_for_stalls() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (clock, beat) = (Clock::system(), Duration::from_millis(10));
            loop {
                let due = clock.now() + beat;
                clock.sleep_until(due).await;
                let now = clock.now();
                let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
                watch.0 = Some(now);
                if now - due > STALL {
                    watch.1 = Some(now);
                }
            }
        });
    });
}

/// Puts a trial, and puts it again, with its number, when it failed while the
/// machine stalled. Says so, since a trial that needs it often asks too much.
pub(crate) fn judge(what: &str, trial: impl Fn(u32) -> Result<(), Failed>) -> Result<(), Failed> {
    let clock = Clock::system();
    for attempt in 1.. {
        let start = clock.now();
        let outcome = catch_unwind(AssertUnwindSafe(|| trial(attempt)));
        let failed = match outcome {
            Ok(Ok(())) => break,
            Ok(Err(failed)) => failed,
            Err(panic) => Failed::from(message(&*panic)),
        };
        let (beat, stall) = *WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        // The watcher may itself be waiting for its turn to say so.
        let is_stalled = beat.is_some_and(|beat| clock.now() - beat > STALL);
        let stalled = is_stalled || stall.is_some_and(|stall| stall >= start);
        if !stalled || attempt == ATTEMPTS {
            return Err(failed);
        }
        eprintln!("{what}: the machine stalled, attempt {attempt} does not count: {failed:?}");
    }
    Ok(())
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}
