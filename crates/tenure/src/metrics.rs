//! The founding metrics, through the `metrics` facade: whoever installs a
//! recorder (Prometheus, OpenTelemetry...) gets them, nobody else pays.

use crate::words::event::Event;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

/// Leases granted and handed to their callers.
pub const LEASE_ACQUIRED: &str = "lease_acquired";
/// Leases that ended without a release, by `reason`.
pub const LEASE_LOST: &str = "lease_lost";
/// Seconds from sending a beat to its answer.
pub const HEARTBEAT_LATENCY: &str = "heartbeat_latency";

pub(crate) fn describe() {
    describe_counter!(LEASE_ACQUIRED, Unit::Count, "Leases granted and handed to their callers");
    describe_counter!(LEASE_LOST, Unit::Count, "Leases that ended without a release, by reason");
    describe_histogram!(HEARTBEAT_LATENCY, Unit::Seconds, "From sending a beat to its answer");
}

pub(crate) fn record(event: &Event) {
    match event {
        Event::Acquired { .. } => counter!(LEASE_ACQUIRED).increment(1),
        Event::Lost { loss, .. } => counter!(LEASE_LOST, "reason" => loss.reason.as_str()).increment(1),
        Event::Heartbeat { latency, .. } => histogram!(HEARTBEAT_LATENCY).record(latency.as_secs_f64()),
        _ => {}
    }
}
