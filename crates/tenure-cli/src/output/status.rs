//! `--status-fd`: a line of JSON for each change of state. Names and values are a contract.

use super::text;
use crate::exit::{Exit, Failure};
use crate::process;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure::{Clock, Event, Loss, Name, State};

/// Lines that wait for a slow reader; what is beyond them is not written.
const LINES: usize = 64;
/// How long the end of a run waits for a reader.
const LAST: Duration = Duration::from_millis(200);

/// Where the lines go. Neither a reader who has gone nor one who does not read ends a run or
/// holds it up: a thread of its own writes.
#[derive(Clone)]
pub(crate) struct Status(Option<Arc<Lines>>);

struct Lines {
    name: Name,
    to_writer: Mutex<Option<SyncSender<String>>>,
    written: Mutex<Receiver<()>>,
    said: Mutex<Said>,
}

/// What was said of the present lease.
#[derive(Default)]
struct Said {
    at_risk: bool,
    stopping: bool,
    lost: bool,
}

/// Takes the descriptor that the command line names, so that CMD does not get it. Before
/// anything else is opened, which could get its number.
pub(crate) fn take(number: i32) -> Option<OwnedFd> {
    let taken = process::take_for_writing(number);
    if let Err(error) = &taken {
        super::say(format!("--status-fd {number} cannot be written to, so no status is: {error}"));
    }
    taken.ok()
}

impl Status {
    /// After the signals were blocked, for the thread inherits that.
    pub(crate) fn new(descriptor: Option<OwnedFd>, name: &Name) -> Status {
        let start = |descriptor| {
            let (to_writer, lines) = sync_channel::<String>(LINES);
            let (done, written) = sync_channel(1);
            let mut file = File::from(descriptor);
            let write = move || {
                let _ = lines.iter().try_for_each(|line| file.write_all(line.as_bytes()));
                let _ = done.send(());
            };
            std::thread::Builder::new().name("tenure-status".to_owned()).spawn(write).ok()?;
            Some(Arc::new(Lines {
                name: name.clone(),
                to_writer: Mutex::new(Some(to_writer)),
                written: Mutex::new(written),
                said: Mutex::default(),
            }))
        };
        Status(descriptor.and_then(start))
    }

    /// What happens to the lease. Never blocks.
    pub(crate) fn follow(&self, event: &Event) {
        let Some(lines) = &self.0 else { return };
        let mut said = lines.said.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Waiting { busy, .. } => lines.write("waiting", super::json::busy(busy)),
            Event::Acquired { claim, token, waited } => {
                *said = Said::default();
                let fields = json!({
                    "owner": claim.owner.to_string(),
                    "token": token.as_u64(),
                    "waited_ms": super::json::milliseconds(*waited),
                });
                lines.write("held", fields);
            }
            Event::Heartbeat { .. } if std::mem::take(&mut said.at_risk) => lines.write("held", json!({})),
            Event::HeartbeatFailed { error, .. } if !std::mem::replace(&mut said.at_risk, true) => {
                lines.write("at_risk", json!({ "error": error.to_string() }));
            }
            Event::Stopping { .. } => lines.stopping(&mut said),
            Event::Lost { loss, .. } => lines.lost(&mut said, loss),
            Event::Released { .. } => lines.write("released", json!({})),
            _ => {}
        }
    }

    /// How the lease stands as the work is over: whoever noticed it may not have told yet.
    pub(crate) fn settle(&self, state: &State) {
        let Some(lines) = &self.0 else { return };
        let mut said = lines.said.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            State::Stopping { .. } => lines.stopping(&mut said),
            State::Lost(loss) => lines.lost(&mut said, loss),
            _ => {}
        }
    }

    /// The last line: who ended the run, and how. `asked`: the signal that tenure got.
    pub(crate) fn end(self, result: &Result<Exit, Failure>, asked: Option<&'static str>) {
        let Some(lines) = self.0 else { return };
        let (exit, message) = match result {
            Ok(exit) => (*exit, None),
            Err(failure) => (failure.exit, Some(&failure.message)),
        };
        let by = match exit {
            Exit::Success | Exit::Command(_) | Exit::Signal(_) if asked.is_some() => "signal",
            Exit::Success | Exit::NotHeld | Exit::Command(_) | Exit::Signal(_) => "command",
            Exit::NotAcquired(_) => "conflict",
            Exit::Lost => "lease",
            Exit::Unavailable | Exit::Rejected => "store",
            Exit::NotExecutable | Exit::NotFound => "start",
            Exit::Usage | Exit::Internal => "tenure",
        };
        let fields = json!({ "by": by, "asked": asked, "exit_code": exit.code(), "message": message });
        lines.write("ended", fields);
        // Without more to come the writer ends.
        *lines.to_writer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let written = lines.written.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(LAST);
    }
}

impl Lines {
    fn stopping(&self, said: &mut Said) {
        // Late, it is no news any more.
        if !said.lost && !std::mem::replace(&mut said.stopping, true) {
            self.write("stopping", json!({}));
        }
    }

    fn lost(&self, said: &mut Said, loss: &Loss) {
        if !std::mem::replace(&mut said.lost, true) {
            let error = loss.last_error.as_ref().map(ToString::to_string);
            self.write("lost", json!({ "reason": loss.reason.as_str(), "error": error }));
        }
    }

    fn write(&self, state: &str, fields: Value) {
        let mut line = json!({
            "name": self.name.as_str(),
            "at": text::time(Clock::system().wall()),
            "state": state,
        });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields);
        }
        if let Some(to_writer) = &*self.to_writer.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = to_writer.try_send(super::json::line(&line));
        }
    }
}
