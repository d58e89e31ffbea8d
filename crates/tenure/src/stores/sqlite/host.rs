//! The machine that the processes share: its clock, its boot, and what is wrong with it.

use super::place::NO_DESCRIPTORS;
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Error, Result};
use rustix::io::Errno;
use std::fs;

/// The clock on which expiry is judged: `CLOCK_BOOTTIME` as the host counts it, so
/// that processes in different time namespaces agree, and which boot it counts from.
#[derive(Debug, Clone)]
pub(super) struct Host {
    clock: Clock,
    pub(super) boot: String,
    /// What this time namespace adds to the host's clock.
    pub(super) offset: i64,
}

impl Host {
    pub(super) fn of_this_machine(clock: Clock) -> Result<Host> {
        let read = |path| {
            fs::read_to_string(path).map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => Error::unavailable(NO_DESCRIPTORS),
                _ => Error::rejected(format!("{path} cannot be read ({error}): is /proc mounted?")),
            })
        };
        let boot = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        // The file is missing where the kernel has no time namespaces.
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        // It tells of the namespace for children, which is another one between unshare and exec.
        let link = |name| fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if link("time") != link("time_for_children") {
            return Err(Error::rejected(
                "this process has unshared its time namespace and not entered it: start the program anew in it",
            ));
        }
        Ok(Host::new(clock, boot, boottime_offset(&offsets)?))
    }

    pub(super) fn new(clock: Clock, boot: String, offset: i64) -> Host {
        Host { clock, boot, offset }
    }

    /// Now, in the host's nanoseconds.
    pub(super) fn now(&self) -> i64 {
        (self.clock.now().as_nanos() as i64).saturating_sub(self.offset)
    }

    /// The same instant on the clock of this process.
    pub(super) fn local(&self, stored: i64) -> Instant {
        Instant::from_nanos(stored.saturating_add(self.offset).max(0) as u64)
    }

    pub(super) fn wall_us(&self) -> i64 {
        self.clock.wall_us() as i64
    }
}

/// The line `boottime seconds nanoseconds` of timens_offsets; older kernels write 7 for the name.
fn boottime_offset(offsets: &str) -> Result<i64> {
    let Some(line) =
        offsets.lines().find(|line| matches!(line.split_whitespace().next(), Some("boottime" | "7")))
    else {
        return Ok(0);
    };
    let mut numbers = line.split_whitespace().skip(1).map(str::parse::<i64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(nanos))) => {
            Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
        }
        _ => Err(Error::rejected(format!(
            "/proc/self/timens_offsets says \"{line}\": two numbers are expected"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn any_offsets_are_read_or_refused(text in prop_oneof![
            any::<String>(),
            "((monotonic|boottime|1|7)[ \t]{1,3}-?[0-9]{0,25}[ \t]{0,3}-?[0-9]{0,25}\n?){0,3}",
        ]) {
            if let Err(error) = boottime_offset(&text) {
                prop_assert_eq!(error.kind(), crate::ErrorKind::Rejected);
            }
        }

        #[test]
        fn an_offset_is_read_as_the_kernel_writes_it(seconds in -4_000_000_000_i64..4_000_000_000, nanos in 0..1_000_000_000_i64) {
            let text = format!("monotonic {:11} {:9}\nboottime  {seconds:11} {nanos:9}\n", 5, 6);
            prop_assert_eq!(boottime_offset(&text).expect("two numbers"), seconds * 1_000_000_000 + nanos);
        }
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_taken_away() {
        let offsets = "monotonic           0         0\nboottime       -86400 500000000\n";
        assert_eq!(boottime_offset(offsets).expect("two numbers"), -86_399_500_000_000);
        assert_eq!(boottime_offset("1 0 0\n7 12 1\n").expect("two numbers"), 12_000_000_001);
        assert_eq!(boottime_offset("").expect("no namespaces"), 0);
        assert!(boottime_offset("boottime x 0").is_err());
        let clock = Clock::manual();
        let host = Host::new(clock.clone(), "boot".into(), -86_399_500_000_000);
        assert_eq!(host.local(host.now()), clock.now());
        assert_eq!(host.now(), 1_000_000_000_000 + 86_399_500_000_000);
        let inside = Host::new(clock.clone(), "boot".into(), 0);
        clock.advance(Duration::from_secs(1));
        assert_eq!(inside.now() - 1_000_000_000_000, 1_000_000_000);
    }
}
