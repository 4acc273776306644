//! What a service answers to orders of the administrator.
//!
//! Runs in: `rogue`, in the place of a service. Sees: no order; it reads none. Never: answers one as it should.

use std::os::fd::OwnedFd;

use wire::Text;
use wire::orders::{ORDER_ANSWER_MAX, ServiceToAdmin};

use crate::deeds::{BETWEEN_MS, TOO_MANY};
use crate::hands::{encoded, flood, send, send_wrong, wrong};
use crate::place::Place;

/// How many ways there are to answer, messages that are none included.
const WAYS: usize = 14;
/// LIMIT: how often it is looked whether another order has come.
const LOOKS: usize = 600;

/// If there are orders, waits for one for each way.
pub fn all(place: &mut Place) {
    for _ in 0..LOOKS {
        if !(1..WAYS).contains(&place.answered) {
            return;
        }
        place.live(BETWEEN_MS);
    }
}

/// Answers each order that has come, each in another way: by messages that are none, by several answers, by one that
/// drives a terminal, by an end, or not at all.
pub fn answer(place: &mut Place) {
    let come = place.orders.len();
    for (number, channel) in (place.answered..).zip(std::mem::take(&mut place.orders)) {
        answer_one(place, number, channel);
    }
    place.answered += come;
}

fn answer_one(place: &mut Place, number: usize, channel: OwnedFd) {
    let good = encoded(&ServiceToAdmin::Done { text: Text::new("done") });
    let kinds = wrong(&good);
    if let Some(one) = kinds.get(number) {
        send_wrong(&channel, one, place.pipe());
        place.tell(format_args!("order: answered by {}", one.what));
        return;
    }
    match number - kinds.len() {
        0 => drop(channel),
        1 => {
            let long = "\x1b[2J\n2026-01-01T00:00:00Z error [bulkheadd] forged-by-rogue\n"
                .repeat(ORDER_ANSWER_MAX / 64);
            send(&channel, &encoded(&ServiceToAdmin::Failed { reason: Text::new(&long) }), &[]);
        }
        2 => {
            (0..TOO_MANY).for_each(|_| send(&channel, &good, &[]));
            flood(&channel, TOO_MANY, &[place.pipe()]);
        }
        // Nobody may wait for it for ever.
        _ => place.listeners.push(channel),
    }
    place.tell(format_args!("order: answered in the way {number}"));
}
