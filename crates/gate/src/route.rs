//! Whose a request is: policies first, then filters, then the routes of its listener.
//!
//! Runs in: the gate. Sees: checked heads. Never: sends a connection anywhere.

use std::time::Instant;

use request::head::RequestHead;
use wire::NO_PARTITION;

use crate::connection::{BytesSource, GateConnection, PeekResult};
use crate::gate::Gate;
use crate::listener::RouteTarget;
use crate::refusal::GateRefusal;

impl GateConnection {
    /// Decides about a whole head.
    pub fn route(&self, gate: &Gate, raw: &[u8], head: &RequestHead<'_>, now: Instant) -> PeekResult {
        let listener = gate.listener(self.local);
        let counted = listener.as_ref().is_some_and(|listener| !listener.shared.get());
        if let Err(fault) = gate.policies().examine(raw) {
            return PeekResult::Refused(GateRefusal::Head(worker::refused::refusal(fault)), NO_PARTITION);
        }
        if counted && let Some(refusal) = self.over_rate(gate, now) {
            return PeekResult::Refused(refusal, NO_PARTITION);
        }
        // Those who come from the network: what a filter let pass would have been redirected before.
        if !self.filtered
            && gate.has_multiple_protocols()
            && let Some(port) = listener.as_ref().and_then(|listener| listener.redirect(head))
        {
            return PeekResult::Refused(GateRefusal::Redirect(port), NO_PARTITION);
        }
        if !self.filtered && gate.filters().is_some() {
            return PeekResult::Unfiltered { length: raw.len() };
        }
        let Some(listener) = listener else {
            // A guarded server has closed the socket by which it came.
            return PeekResult::Refused(GateRefusal::Unavailable, NO_PARTITION);
        };
        self.route_to(listener.target(head), counted, now)
    }

    /// Why the client may not make one more request now.
    fn over_rate(&self, gate: &Gate, now: Instant) -> Option<GateRefusal> {
        let client = self.peer.ip();
        match &self.source {
            BytesSource::Client => {
                (!gate.policies().within_rate(client, now)).then_some(GateRefusal::TooMany)
            }
            BytesSource::Worker(partition) => {
                (!partition.may_return(gate.policies(), client, now)).then_some(GateRefusal::TooManyThere)
            }
            // It was counted before it went to them.
            BytesSource::Filter => None,
        }
    }

    /// Decides about a connection that is for `target`.
    pub fn route_to(&self, target: Option<RouteTarget>, counted: bool, now: Instant) -> PeekResult {
        match target {
            None => PeekResult::Refused(GateRefusal::NoSuchSite, NO_PARTITION),
            Some(target) if target.partition.is_removed() => {
                PeekResult::Refused(GateRefusal::NoSuchSite, NO_PARTITION)
            }
            Some(target) if target.partition.is_broken() => {
                PeekResult::Refused(GateRefusal::Broken, target.site)
            }
            Some(target) if target.partition.is_without_room() => {
                PeekResult::Refused(GateRefusal::NoRoom, target.site)
            }
            Some(target) if counted && target.partition.has_banned(self.peer.ip(), now) => PeekResult::Banned,
            Some(target) if counted && !target.partition.within_rate(self.peer.ip(), now) => {
                PeekResult::Refused(GateRefusal::TooManyThere, target.site)
            }
            Some(target) => PeekResult::Whole { partition: target.partition, counted },
        }
    }
}
