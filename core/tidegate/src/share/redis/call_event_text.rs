//! What members publish to each other about their calls, as text.
//!
//! The first line is `events MEMBER NUMBER` or `gone MEMBER`. After the first one, each further
//! line is a message as JSON, of an adaptive limit or of a pool. The script publishes `gone`, too.

use super::super::resource::{CallEvents, SharedResource};
use tidegate_share::{LimitEvents, MAX_EVENTS, Placements};

/// What a member has published.
pub(super) enum Published<'a> {
    /// Message `number` of a member, with lines of JSON. Without lines, it shows that the member
    /// exists.
    Events { member: u64, number: u64, lines: std::str::Lines<'a> },
    /// A member has ended.
    Gone { member: u64 },
}

impl<'a> Published<'a> {
    /// Parses a text. Returns `None` if it is something else.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.lines();
        let mut fields = lines.next()?.split(' ');
        let kind = fields.next()?;
        let member = member_number(fields.next()?)?;
        match kind {
            "events" => Some(Self::Events { member, number: fields.next()?.parse().ok()?, lines }),
            "gone" => Some(Self::Gone { member }),
            _ => None,
        }
    }
}

/// Returns the number of a member with this name, or `None` if it is no such name.
pub(super) fn member_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.get(..16)?, 16).ok()
}

/// Returns the text of message `number` of a member.
pub(super) fn events_text(member: &str, number: u64, events: &[CallEvents]) -> String {
    let mut text = format!("events {member} {number}");
    for events in events {
        let line = match events {
            CallEvents::LimitEvents(limit_events) => serde_json::to_string(limit_events),
            CallEvents::Placements(placements) => serde_json::to_string(placements),
        };
        // Numbers can always be written.
        if let Ok(line) = line {
            text.push('\n');
            text.push_str(&line);
        }
    }
    text
}

/// Returns the text that tells that a member has ended.
pub(super) fn gone_text(member: &str) -> String {
    format!("gone {member}")
}

/// Parses a line about the calls of another member at `limit`. Returns `None` if it is malformed or
/// too long.
pub(super) fn parse_events(limit: &SharedResource, line: &str) -> Option<CallEvents> {
    match limit {
        SharedResource::Replicas(_) => {
            let placements: Placements = serde_json::from_str(line).ok()?;
            placements.is_valid().then_some(CallEvents::Placements(placements))
        }
        _ => {
            let limit_events: LimitEvents = serde_json::from_str(line).ok()?;
            (limit_events.events.len() <= MAX_EVENTS).then_some(CallEvents::LimitEvents(limit_events))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::schedule::LeaseKind;
    use tidegate_share::{MAX_PLACEMENTS, PlacementEvent, PlacementStep};

    const MEMBER: &str = "00000000000000ff0123456789abcdef";

    #[test]
    fn texts_are_parsed_as_they_were_written() {
        let event = PlacementEvent { call: 7, what: PlacementStep::Ended { accepted: true } };
        let placements = Placements { restarts: false, events: vec![event] };
        let limit_events = LimitEvents { restarts: true, sent_us: 5, ..LimitEvents::default() };
        let text = events_text(
            MEMBER,
            3,
            &[CallEvents::Placements(placements.clone()), CallEvents::LimitEvents(limit_events.clone())],
        );
        let Some(Published::Events { member: 255, number: 3, mut lines }) = Published::parse(&text) else {
            panic!("events: {text}")
        };
        let pool = SharedResource::Replicas(Weak::new());
        let limit = SharedResource::Calls(LeaseKind::Slots, Weak::new());
        let parsed = lines.next().and_then(|line| parse_events(&pool, line));
        assert!(matches!(parsed, Some(CallEvents::Placements(parsed)) if parsed == placements));
        let parsed = lines.next().and_then(|line| parse_events(&limit, line));
        assert!(matches!(parsed, Some(CallEvents::LimitEvents(parsed)) if parsed == limit_events));
        let gone = gone_text(MEMBER);
        assert!(matches!(Published::parse(&gone), Some(Published::Gone { member: 255 })));
    }

    #[test]
    fn malformed_texts_are_rejected() {
        for text in [
            "",
            "gone",
            "gone x",
            "gone 00ff",
            "events 00000000000000ff",
            "events 00000000000000ff -1",
            "8 1 4",
        ] {
            assert!(Published::parse(text).is_none(), "{text}");
        }
        let pool = SharedResource::Replicas(Weak::new());
        let event = PlacementEvent { call: 7, what: PlacementStep::Ended { accepted: true } };
        let events = vec![event; MAX_PLACEMENTS + 1];
        let long = serde_json::to_string(&Placements { restarts: false, events }).expect("text");
        for line in ["", "{", "{}", "[]", r#"{"events":[{"call":-1}]}"#, &long] {
            assert!(parse_events(&pool, line).is_none(), "{line}");
        }
    }
}
