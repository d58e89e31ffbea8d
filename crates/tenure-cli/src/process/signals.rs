//! The signals that tenure passes on.

use super::unsafe_calls;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

const FORWARDED: [i32; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// To be passed on to CMD.
    Forward(rustix::process::Signal),
    /// A child ended.
    Child,
}

/// Listens from its creation on: what comes before it is asked for is not lost.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Signals that the caller ignores stay ignored.
    pub(crate) fn listen() -> io::Result<Signals> {
        FORWARDED
            .into_iter()
            .filter(|number| !unsafe_calls::is_ignored(*number))
            .chain([libc::SIGCHLD])
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)))
            .collect::<io::Result<_>>()
            .map(Signals)
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Arrived {
        std::future::poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(match rustix::process::Signal::from_named_raw(*number) {
                        Some(signal) if *number != libc::SIGCHLD => Arrived::Forward(signal),
                        _ => Arrived::Child,
                    });
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that asks tenure itself to end: while it waits there is no CMD to end.
    pub(crate) async fn asked_to_end(&mut self) -> i32 {
        loop {
            match self.next().await {
                Arrived::Forward(signal)
                    if [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]
                        .contains(&signal.as_raw()) =>
                {
                    return signal.as_raw();
                }
                _ => {}
            }
        }
    }
}

/// Ends this process by `signal`, so that whoever waits for it sees the same
/// end as without tenure. Without a core: the crash was CMD's.
///
/// Returns where that is impossible, as for PID 1.
pub(crate) fn die_of(signal: i32) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    unsafe_calls::raise_default(signal);
}
