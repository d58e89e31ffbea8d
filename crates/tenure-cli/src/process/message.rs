//! What tenure and the guardian say to each other: one fixed datagram each.

use tenure::Instant;

pub(crate) const SIZE: usize = 16;

/// From tenure to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start CMD, unless this deadline has passed by then.
    Go(Instant),
    /// Everything must be dead by then.
    Deadline(Instant),
    /// CMD was asked to end, for the lease ends: nothing of it may outlive that, wherever it went.
    Stopping,
}

/// From the guardian to tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The guardian is armed, and CMD, which has this number, forked and held.
    Held(i32),
    /// CMD could not be executed, for this reason (errno).
    NotExecuted(i32),
    /// The deadline had passed as CMD was to start, so it was not.
    TooLate,
    /// CMD ended with this wait status; whether the guardian had killed it by then.
    Ended { status: i32, killed: bool },
    /// Nothing is left of CMD's work.
    Empty,
    /// CMD was stopped by this signal. It may have been continued since.
    Stopped(i32),
}

impl Order {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            Order::Go(deadline) => pack(1, 0, deadline.as_nanos()),
            Order::Deadline(deadline) => pack(2, 0, deadline.as_nanos()),
            Order::Stopping => pack(3, 0, 0),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Order> {
        match unpack(bytes)? {
            (1, _, nanos) => Some(Order::Go(Instant::from_nanos(nanos))),
            (2, _, nanos) => Some(Order::Deadline(Instant::from_nanos(nanos))),
            (3, ..) => Some(Order::Stopping),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            Report::Held(cmd) => pack(1, cmd, 0),
            Report::NotExecuted(errno) => pack(2, errno, 0),
            Report::TooLate => pack(3, 0, 0),
            Report::Ended { status, killed } => pack(4, status, killed.into()),
            Report::Empty => pack(5, 0, 0),
            Report::Stopped(signal) => pack(6, signal, 0),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Report> {
        match unpack(bytes)? {
            (1, cmd, _) => Some(Report::Held(cmd)),
            (2, errno, _) => Some(Report::NotExecuted(errno)),
            (3, ..) => Some(Report::TooLate),
            (4, status, killed) => Some(Report::Ended { status, killed: killed != 0 }),
            (5, ..) => Some(Report::Empty),
            (6, signal, _) => Some(Report::Stopped(signal)),
            _ => None,
        }
    }
}

fn pack(kind: u32, small: i32, large: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..8].copy_from_slice(&small.to_ne_bytes());
    bytes[8..].copy_from_slice(&large.to_ne_bytes());
    bytes
}

fn unpack(bytes: &[u8]) -> Option<(u32, i32, u64)> {
    let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
    Some((
        u32::from_ne_bytes(bytes[..4].try_into().ok()?),
        i32::from_ne_bytes(bytes[4..8].try_into().ok()?),
        u64::from_ne_bytes(bytes[8..].try_into().ok()?),
    ))
}
