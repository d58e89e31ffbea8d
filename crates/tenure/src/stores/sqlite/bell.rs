//! The doorbell of a waiting client: a socket on which it is told of its grants, and a
//! look at the names it waits for, in case their holder died and can tell nobody.

use super::client::Client;
use super::database::{Database, Fault, Lane};
use super::liveness::{Process, is_unlocked};
use super::transaction::{HandOver, Transaction, sql};
use crate::store::{Hint, Session};
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner};
use crate::words::token::Token;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, chmodat, unlinkat};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// How often the client that is next asks the kernel whether the holder lives, one
/// system call; and how often it looks into the database.
const PULSE: i64 = 10_000_000;
const NEXT: i64 = 100_000_000;
/// How often the others look, and how often the same thing is said again.
const OTHERS: i64 = 500_000_000;
/// C12: how many holders are watched at a time; the others are found by the looks.
const WATCHED: usize = 64;
/// C12: hints that nobody took yet.
const HINTS: usize = 1_024;

/// The socket of a client. Its path may be longer than a socket address can be, so the
/// way leads over the descriptor of its directory.
pub(super) fn socket_path(live: &OwnedFd, process: [u8; 16]) -> PathBuf {
    format!("/proc/self/fd/{}/{}", live.as_raw_fd(), Process::socket_name(process)).into()
}

/// Listens on a thread of its own until the receiver is dropped.
pub(super) fn listen(client: Arc<Client>) -> mpsc::Receiver<Hint> {
    let (hints, receiver) = mpsc::channel(HINTS);
    if !client.is_inherited() {
        let bell =
            move || Bell { hints, missed: false, said: HashMap::new(), holders: Vec::new(), client }.run();
        // Without the thread the entries are still attended to, twice a second.
        let _ = std::thread::Builder::new().name("tenure-sqlite-bell".to_owned()).spawn(bell);
    }
    receiver
}

struct Bell {
    client: Arc<Client>,
    hints: mpsc::Sender<Hint>,
    /// A hint found no room.
    missed: bool,
    /// Entries whose names were said to be worth a look, and when.
    said: HashMap<Owner, i64>,
    /// The liveness files of those whom this client is next to.
    holders: Vec<OwnedFd>,
}

impl Bell {
    fn run(mut self) {
        let socket = self.bind();
        let mut database = Database::new(self.client.clone(), Lane::Watch);
        let mut pause = 0;
        let mut due = self.client.host.now();
        while !self.hints.is_closed() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause.clamp(0, OTHERS) };
            let mut ready = socket.as_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
            // Woken early by a signal: the look is due when it is due.
            let _ = poll(ready.as_mut_slice(), Some(&timeout));
            let is_nudged = self.hear(socket.as_ref());
            let now = self.client.host.now();
            if is_nudged || now >= due || due - now > OTHERS || self.holders.iter().any(is_unlocked) {
                let is_next = self.look(&mut database);
                let cost = self.client.host.now() - now;
                // However much there is to look at: a tenth of a processor at most.
                due = now + (cost * 10).max(if is_next { NEXT } else { OTHERS });
            }
            pause = due - self.client.host.now();
            if !self.holders.is_empty() {
                pause = pause.min(PULSE);
            }
        }
    }

    fn bind(&self) -> Option<UnixDatagram> {
        let process = self.client.liveness().ok()?.process.id;
        let live = self.client.live().ok()?;
        let name = Process::socket_name(process);
        // Of an earlier receiver of this same client, whose thread is about to end.
        let _ = unlinkat(&live, &name, AtFlags::empty());
        let socket = UnixDatagram::bind(socket_path(&live, process)).ok()?;
        chmodat(&live, &name, self.client.place.file_mode(), AtFlags::empty()).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    }

    /// A grant counts only on the wait session that this client has now, and only until its
    /// deadline: a client that was stopped finds old messages when it wakes (C8). Whether this
    /// client told itself that it waits for one more name.
    fn hear(&mut self, socket: Option<&UnixDatagram>) -> bool {
        let mut is_nudged = false;
        let mut message = [0; 1024];
        while let Some(Ok(length)) = socket.map(|socket| socket.recv(&mut message)) {
            is_nudged |= length == 0;
            let Some(granted) = HandOver::decode(&message[..length]) else { continue };
            let host = &self.client.host;
            let grant = granted.grant(host);
            let mut known = self.client.known();
            if known.wait != Some(granted.session) || grant.trust.deadline() <= host.local(host.now()) {
                continue;
            }
            known.handed_over(granted.owner);
            drop(known);
            self.say(Hint::Granted(Claim { name: granted.name, owner: granted.owner }, grant));
        }
        is_nudged
    }

    fn say(&mut self, hint: Hint) {
        if self.missed && self.hints.try_send(Hint::LookAll).is_ok() {
            self.missed = false;
        }
        if let Err(TrySendError::Full(_)) = self.hints.try_send(hint) {
            self.missed = true;
        }
    }

    /// Looks at the names that are waited for; whether this client is next for one of them.
    fn look(&mut self, database: &mut Database) -> bool {
        self.holders.clear();
        let entries = self.client.known().waiting();
        let now = self.client.host.now();
        self.said.retain(|_, at| (now - *at).abs() < OTHERS);
        if entries.is_empty() {
            return false;
        }
        let looked = database.read(|transaction| {
            let looks = entries.iter().map(|(owner, name)| transaction.look(name, *owner));
            looks.collect::<Result<Vec<_>, Fault>>()
        });
        // What is wrong with the database is told by the calls.
        let Ok(looked) = looked else { return false };
        let mut is_next = false;
        for ((owner, name), look) in entries.into_iter().zip(looked) {
            is_next |= look.is_next;
            let live = self.client.live().ok().filter(|_| self.holders.len() < WATCHED);
            self.holders.extend(look.holder.and_then(|holder| holder.file(live.as_ref()?)));
            if look.is_news && self.said.insert(owner, now).is_none() {
                self.say(Hint::Look(name));
            }
        }
        is_next
    }
}

struct Look {
    is_next: bool,
    is_news: bool,
    /// Who holds it, where this client is next.
    holder: Option<Process>,
}

impl Transaction<'_> {
    fn look(&self, name: &Name, owner: Owner) -> Result<Look, Fault> {
        let next = self.first(sql!("first_live"), &[&name.as_str()], |row| row.get::<_, [u8; 16]>(0))?;
        let is_next = next == Some(owner.to_bytes());
        let lease = self.lease(name)?;
        // Granted, and the message was lost.
        let is_mine = lease.as_ref().is_some_and(|lease| lease.owner == Some(owner));
        let held = lease.as_ref().filter(|lease| self.is_held(lease));
        let holder = held.filter(|_| is_next).and_then(|held| held.life?.process);
        let is_free = held.is_none() && lease.as_ref().is_none_or(|lease| self.kept_back(lease).is_none());
        Ok(Look { is_next, is_news: is_mine || (is_free && (is_next || next.is_none())), holder })
    }
}

impl HandOver {
    const VERSION: u8 = 1;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut message = vec![HandOver::VERSION];
        message.extend(self.owner.to_bytes());
        message.extend(self.session.0);
        message.extend(self.token.as_u64().to_le_bytes());
        message.extend(self.ttl.to_le_bytes());
        message.extend(self.until.to_le_bytes());
        message.extend(self.name.as_str().as_bytes());
        message
    }

    pub(super) fn decode(message: &[u8]) -> Option<HandOver> {
        let (version, rest) = message.split_first_chunk()?;
        let (owner, rest) = rest.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        let (until, name) = rest.split_first_chunk()?;
        (*version == [HandOver::VERSION]).then_some(HandOver {
            name: Name::new(std::str::from_utf8(name).ok()?).ok()?,
            owner: Owner::from_bytes(*owner),
            token: Token::from_u64(u64::from_le_bytes(*token)),
            ttl: i64::from_le_bytes(*ttl),
            session: Session(*session),
            until: i64::from_le_bytes(*until),
            process: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any process that may write the directory can send to the socket.
        #[test]
        fn any_message_is_a_grant_or_nothing(message in proptest::collection::vec(any::<u8>(), 0..1_100)) {
            for message in [message.clone(), [vec![HandOver::VERSION], message].concat()] {
                if let Some(granted) = HandOver::decode(&message) {
                    prop_assert_eq!(granted.encode(), message);
                }
            }
        }

        #[test]
        fn what_is_sent_is_heard(
            bits in any::<([u8; 16], [u8; 16])>(),
            numbers in any::<(u64, i64, i64)>(),
            name in "[^\\x00-\\x1f\\x7f-\\x9f]{1,128}",
            cut in any::<proptest::sample::Index>(),
        ) {
            let sent = HandOver {
                name: Name::new(name).expect("a name"),
                owner: Owner::from_bytes(bits.0),
                token: Token::from_u64(numbers.0),
                ttl: numbers.1,
                session: Session(bits.1),
                until: numbers.2,
                process: None,
            };
            let message = sent.encode();
            prop_assert!(message.len() <= 1024, "the buffer that it is heard with holds it");
            // A part of a message is no message, or another name, but never a panic.
            let part = HandOver::decode(&message[..cut.index(message.len())]);
            prop_assert!(part.is_none_or(|part| part.name != sent.name));
            prop_assert_eq!(HandOver::decode(&message), Some(sent));
        }
    }
}
