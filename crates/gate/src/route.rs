//! Whose a request is: policies first, then filters, then the routes of its listener.
//!
//! Runs in: the gate. Sees: checked heads. Never: sends a connection anywhere.

use std::time::Instant;

use request::head::RequestHead;
use wire::NO_PARTITION;

use crate::connection::{Connection, Seen, Source};
use crate::gate::Gate;
use crate::listener::RouteTarget;
use crate::refusal::Refusal;

impl Connection {
    /// What becomes of a whole head.
    pub fn route(&self, gate: &Gate, raw: &[u8], head: &RequestHead<'_>, now: Instant) -> Seen {
        let listener = gate.listener(self.local);
        let counted = listener.as_ref().is_some_and(|listener| !listener.shared.get());
        if let Err(fault) = gate.policies().examine(raw) {
            return Seen::Refused(Refusal::Head(worker::refused::refusal(fault)), NO_PARTITION);
        }
        if counted && let Some(refusal) = self.over_rate(gate, now) {
            return Seen::Refused(refusal, NO_PARTITION);
        }
        // Those who come from the network: what a filter let pass would have been redirected before.
        if !self.filtered
            && gate.has_multiple_protocols()
            && let Some(port) = listener.as_ref().and_then(|listener| listener.redirect(head))
        {
            return Seen::Refused(Refusal::Redirect(port), NO_PARTITION);
        }
        if !self.filtered && gate.filters().is_some() {
            return Seen::Unfiltered { length: raw.len() };
        }
        let Some(listener) = listener else {
            // A guarded server has closed the socket by which it came.
            return Seen::Refused(Refusal::Unavailable, NO_PARTITION);
        };
        self.route_to(listener.target(head), counted, now)
    }

    /// Why the client may not make one more request now.
    fn over_rate(&self, gate: &Gate, now: Instant) -> Option<Refusal> {
        let client = self.peer.ip();
        match &self.source {
            Source::Client => (!gate.policies().within_rate(client, now)).then_some(Refusal::TooMany),
            Source::Worker(partition) => {
                (!partition.may_return(gate.policies(), client, now)).then_some(Refusal::TooManyThere)
            }
            // It was counted before it went to them.
            Source::Filter => None,
        }
    }

    /// What becomes of a connection that is for `target`.
    pub fn route_to(&self, target: Option<RouteTarget>, counted: bool, now: Instant) -> Seen {
        match target {
            None => Seen::Refused(Refusal::NoSuchSite, NO_PARTITION),
            Some(target) if target.partition.is_removed() => Seen::Refused(Refusal::NoSuchSite, NO_PARTITION),
            Some(target) if target.partition.is_broken() => Seen::Refused(Refusal::Broken, target.site),
            Some(target) if target.partition.is_without_room() => Seen::Refused(Refusal::NoRoom, target.site),
            Some(target) if counted && target.partition.has_banned(self.peer.ip(), now) => Seen::Banned,
            Some(target) if counted && !target.partition.within_rate(self.peer.ip(), now) => {
                Seen::Refused(Refusal::TooManyThere, target.site)
            }
            Some(target) => Seen::Whole { partition: target.partition, counted },
        }
    }
}
