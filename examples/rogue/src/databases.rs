//! What a service asks of a data proxy, and what a data proxy answers.
//!
//! Runs in: `rogue`, in the place of a service or of a data proxy. Sees: what is answered. Never: reads it.

use std::os::fd::AsFd;

use wire::data::{
    CALLS_MAX, CallFault, DataProxyToService, PARAMETERS_BYTES_MAX, PART_MAX, ResultWriter,
    ServiceToDataProxy, ValueRef,
};
use wire::{Bytes, Text};

use crate::deeds::{BETWEEN_MS, TOO_MANY};
use crate::hands::{encoded, flood, send, send_wrong, wrong};
use crate::place::Place;

/// LIMIT: calls that nobody reads the answers of.
const UNREAD: u32 = 3_000;

/// As a service: another's token, calls that were not granted, parameters that are none, more than may be under way,
/// and no answer is read.
pub fn service_to_data_proxies(place: &mut Place) {
    // The token of the first channel on every one: on the others it is that of somebody else.
    let Some((_, token)) = place.proxies.first() else { return };
    for (channel, _) in &place.proxies {
        send(channel, &encoded(&ServiceToDataProxy::Login { token: token.clone() }), &[]);
        place.breathe();
        for (id, name) in (0..).zip(["secrets", "withdraw", "nothing", "", "SELECT 1", "users\0", "PRAGMA x"])
        {
            send(channel, &encoded(&call(id, name, &[])), &[]);
        }
        // A type that there is not, a length that is not there, text that is none.
        for (id, values) in (100..).zip([&[9][..], &[3, 255, 255, 255, 127], &[3, 1, 0, 0, 0, 255], &[1, 0]])
        {
            send(channel, &encoded(&call(id, "users", values)), &[]);
        }
        let part = || Bytes(vec![0; PART_MAX]);
        let first =
            ServiceToDataProxy::Call { id: 200, name: Text::new("users"), complete: false, values: part() };
        send(channel, &encoded(&first), &[]);
        for _ in 0..=PARAMETERS_BYTES_MAX / PART_MAX + 2 {
            send(
                channel,
                &encoded(&ServiceToDataProxy::More { id: 200, complete: false, values: part() }),
                &[],
            );
            place.breathe();
        }
        (0..u32::MAX).step_by(1 << 27).for_each(|id| {
            send(channel, &encoded(&ServiceToDataProxy::Cancel { id }), &[]);
        });
    }
    place.tell("data: what was not granted, and values that are none");
    let mut values = Vec::new();
    ValueRef::Int(1000).put(&mut values);
    for number in 0..UNREAD {
        for (channel, _) in &place.proxies {
            send(channel, &encoded(&call(1000 + number % (2 * CALLS_MAX as u32), "numbers", &values)), &[]);
        }
        if number.is_multiple_of(100) {
            place.live(BETWEEN_MS);
        }
    }
    place.tell("data: calls whose answers nobody reads");
}

/// As a service: what costs its channel.
pub fn enough_of_data_proxies(place: &mut Place) {
    let good = encoded(&call(1, "users", &[]));
    for (channel, _) in &place.proxies {
        wrong(&good).iter().for_each(|one| send_wrong(channel, one, place.pipe()));
        flood(channel, TOO_MANY, &[place.pipe()]);
    }
}

fn call(id: u32, name: &str, values: &[u8]) -> ServiceToDataProxy {
    ServiceToDataProxy::Call { id, name: Text::new(name), complete: true, values: Bytes(values.to_vec()) }
}

/// As a data proxy: answers that nobody asked for, results that are none, and messages that are none.
pub fn data_proxy_to_services(place: &mut Place) {
    for channel in &place.clients {
        send(channel, &encoded(&DataProxyToService::Welcome {}), &[]);
        send(channel, &encoded(&DataProxyToService::Welcome {}), &[]);
    }
    // Calls have come meanwhile.
    place.live(500);
    let mut endless = Vec::new();
    ResultWriter::columns(&["id"], &mut endless);
    (0..2000).for_each(|_| ResultWriter::row(&mut endless));
    let results = [vec![], vec![255; PART_MAX], endless, vec![1, 0, 9]];
    for channel in &place.clients {
        for (id, results) in (0..).zip(results.iter().cycle().take(40)) {
            let results = || Bytes(results.clone());
            send(channel, &encoded(&DataProxyToService::Part { id, results: results() }), &[]);
            send(channel, &encoded(&DataProxyToService::Done { id, results: results() }), &[]);
            let reason = Text::new("\x1b[2Jforged-by-rogue");
            send(channel, &encoded(&DataProxyToService::Failed { id, fault: CallFault::Late, reason }), &[]);
        }
        place.breathe();
    }
    place.tell("data: answers that nobody asked for, and results that are none");
    place.live(BETWEEN_MS);
    let good = encoded(&DataProxyToService::Done { id: 0, results: Bytes(vec![]) });
    for channel in &place.clients {
        for one in wrong(&good) {
            send_wrong(channel.as_fd(), &one, place.pipe());
        }
        flood(channel, TOO_MANY, &[place.pipe()]);
    }
    place.tell("data: messages that are none");
}
