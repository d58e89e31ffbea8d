//! Durations, times and contention, for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure::{Busy, Clock, Instant, Why};

/// `250ms`, `10s`, `1m30s`: no finer than people care.
pub(crate) fn duration(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(1) {
        Duration::from_millis(duration.as_millis() as u64)
    } else {
        Duration::from_secs(duration.as_secs())
    };
    tenure::duration(rounded)
}

/// RFC 3339, UTC, to the millisecond.
pub(crate) fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(representable(time)).to_string()
}

/// The same to the second.
pub(crate) fn time_to_the_second(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(representable(time)).to_string()
}

/// A store may tell any time; RFC 3339 ends with the year 9999.
fn representable(time: SystemTime) -> SystemTime {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    time.clamp(UNIX_EPOCH, last)
}

/// When `at` was, by the wall clock.
pub(crate) fn wall(at: Instant) -> SystemTime {
    let clock = Clock::system();
    let now = clock.now();
    if at > now { clock.wall() + (at - now) } else { clock.wall() - (now - at) }
}

/// The text with what could steer a terminal written as `\u{..}`, its lines kept: for text
/// that was put together from escaped and other parts.
pub(crate) fn inert(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\\' => shown.push(c),
            c => shown += &tenure::escaped(c.encode_utf8(&mut [0; 4])).to_string(),
        }
    }
    shown
}

/// Who has it, since when, for how long, and where we stand.
pub(crate) fn busy(busy: &Busy) -> String {
    let mut text = match &busy.why {
        Why::Held(holder) => format!(
            "held by {} since {}, {} left",
            holder.label,
            time_to_the_second(holder.since),
            duration(holder.left)
        ),
        Why::KeptBack(left) => {
            format!("held by nobody, kept back for another {} (hold-at-least)", duration(*left))
        }
        Why::Guarded(left) => {
            format!("the store restarted and grants nothing for another {}", duration(*left))
        }
        Why::Queued if busy.place.is_none() && busy.last_error.is_some() => {
            "the store does not answer".to_owned()
        }
        _ => "held by nobody, others wait for it".to_owned(),
    };
    match busy.place {
        Some(place) => text += &format!(", place {place} of {} in the queue", busy.waiting.max(place)),
        None if busy.waiting > 0 => text += &format!(", {} waiting", busy.waiting),
        None => {}
    }
    if let Some(error) = &busy.last_error {
        text += &format!(", last error: {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let shown = |ms| duration(Duration::from_millis(ms));
        assert_eq!(
            [shown(0), shown(250), shown(10_400), shown(90_000), shown(7_200_000)],
            ["0s", "250ms", "10s", "1m30s", "2h"]
        );
    }

    #[test]
    fn escaped_text_is_inert_and_stays_as_it_is() {
        assert_eq!(inert("a\x1b[2J\u{9b}\u{202e}\r\nb\\"), "a\\u{1b}[2J\\u{9b}\\u{202e}\\u{d}\nb\\");
        let escaped = tenure::escaped("a\x1b\\").to_string();
        assert_eq!(inert(&escaped), escaped);
    }

    #[test]
    fn any_time_of_a_store_can_be_shown() {
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(time(far), "9999-12-31T23:59:59.000Z");
        assert_eq!(time(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
