//! Waiting items: whose turn is next, who is named when there is too much, and what is forgotten.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use conditioning::{
    Bans, DelayQueue, Exempt, IpNetwork, Priority, Queue, Rate, RateDecision, ShareLimits, Shares,
};

const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Shares of so many connections of which none is held.
fn shares_of(capacity: u32) -> Shares {
    Shares::new(ShareLimits::default(), capacity, Exempt::default())
}

fn popped<T>(queue: &mut Queue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.pop()).map(|waiting| waiting.item).collect()
}

#[test]
fn a_range_that_was_served_without_waiting_comes_later() {
    let later = Instant::now() + SECOND;
    for (priority, order) in [(Priority::Recency, ["second", "first"]), (Priority::Fifo, ["first", "second"])]
    {
        let mut queue = Queue::new(priority);
        queue.push(ip("10.0.0.1"), later, "first");
        queue.push(ip("11.0.0.1"), later, "second");
        queue.served(ip("10.0.0.1"));
        assert_eq!(popped(&mut queue), order, "{priority:?}");
    }
}

#[test]
fn a_range_that_was_served_is_the_last_that_goes_on_after_a_delay() {
    let (later, mut shares) = (Instant::now() + SECOND, shares_of(100));
    let mut delayed = DelayQueue::default();
    assert!(delayed.is_empty());
    delayed.push(ip("10.0.0.1"), later, "first");
    delayed.push(ip("11.0.0.1"), later, "second");
    assert!(!delayed.is_empty());
    delayed.served(ip("10.0.0.1"));
    let order = std::iter::from_fn(|| delayed.pop_admitted(&mut shares)).map(|waiting| waiting.item);
    assert_eq!(order.collect::<Vec<_>>(), ["second", "first"]);
    assert_eq!(shares.held(), 2, "both are counted in");
}

#[test]
fn one_that_is_delayed_can_be_taken_out_and_leaves_no_deadline() {
    let now = Instant::now();
    let mut delayed = DelayQueue::new();
    let first = delayed.push(ip("10.0.0.1"), now + SECOND, "first");
    let second = delayed.push(ip("10.0.0.1"), now + SECOND * 2, "second");
    assert_eq!((delayed.len(), delayed.next_deadline()), (2, Some(now + SECOND)));
    assert_eq!(delayed.remove(first).map(|waiting| waiting.item), Some("first"));
    assert!(delayed.remove(first).is_none());
    assert_eq!(delayed.next_deadline(), Some(now + SECOND * 2));
    assert!(delayed.expired(now + SECOND).is_none());
    assert_eq!(delayed.remove(second).map(|waiting| waiting.item), Some("second"));
    assert_eq!((delayed.next_deadline(), delayed.delayed_total, delayed.over_share), (None, 2, 0));
}

#[test]
fn the_ranges_of_most_that_wait_are_named() {
    let later = Instant::now() + SECOND;
    let (mut queue, mut delayed) = (Queue::new(Priority::Recency), DelayQueue::new());
    assert!(queue.ranges(9).is_empty() && delayed.ranges(9).is_empty());
    for item in 0..30 {
        queue.push(ip("192.0.2.1"), later, item);
        delayed.push(ip("198.51.100.7"), later, item);
    }
    queue.push(ip("10.0.0.1"), later, 99);
    let named = |ranges: Vec<(conditioning::AddressRange, u32)>| -> Vec<(String, u32)> {
        ranges.into_iter().map(|(range, count)| (range.to_string(), count)).collect()
    };
    assert_eq!(named(queue.ranges(9)), [("192.0.2.1/32".to_owned(), 30)]);
    assert_eq!(named(delayed.ranges(9)), [("198.51.100.7/32".to_owned(), 30)]);
    assert!(queue.ranges(0).is_empty() && delayed.ranges(0).is_empty());
}

#[test]
fn in_order_of_arrival_one_without_room_is_passed_by_and_keeps_its_place() {
    let (later, mut shares) = (Instant::now() + SECOND, shares_of(4));
    assert!(shares.admit(ip("10.0.0.9")).is_ok());
    let mut queue = Queue::new(Priority::Fifo);
    queue.push(ip("10.0.0.1"), later, "full");
    queue.push(ip("11.0.0.1"), later, "second");
    queue.push(ip("12.0.0.1"), later, "third");
    let next =
        |queue: &mut Queue<_>, shares: &mut Shares| queue.pop_admitted(shares).map(|waiting| waiting.item);
    assert_eq!(next(&mut queue, &mut shares), Some("second"));
    shares.release(ip("10.0.0.9"));
    assert_eq!(next(&mut queue, &mut shares), Some("full"));
    assert_eq!(next(&mut queue, &mut shares), Some("third"));
    assert_eq!(next(&mut queue, &mut shares), None);
    assert_eq!((queue.len(), queue.is_empty(), shares.held()), (0, true, 3));
}

#[test]
fn one_whose_time_is_over_at_this_moment_has_waited_too_long() {
    let now = Instant::now();
    let mut queue = Queue::new(Priority::Recency);
    let key = queue.push(ip("10.0.0.1"), now, ());
    assert_eq!(queue.get(key).map(|waiting| waiting.deadline), Some(now));
    assert!(queue.expired(now - Duration::from_nanos(1)).is_none());
    assert!(queue.expired(now).is_some());
    assert!(queue.expired(now).is_none());
}

#[test]
fn a_small_table_of_rates_forgets_the_client_that_was_idle_longest() {
    let now = Instant::now();
    let mut rate = Rate::new(1, 1).remembering(2);
    for client in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        assert_eq!(rate.ask(ip(client), now), RateDecision::Low);
    }
    assert_eq!(rate.ask(ip("192.0.2.3"), now), RateDecision::Over);
    assert_eq!(rate.ask(ip("192.0.2.2"), now), RateDecision::Over);
    assert_eq!(rate.ask(ip("192.0.2.1"), now), RateDecision::Low, "its bucket was forgotten");
    assert_eq!(rate.over_rate, 2);
}

#[test]
fn what_is_heard_of_a_client_is_counted_from_now_on() {
    let now = Instant::now();
    let mut rate = Rate::new(1, 10);
    assert_eq!(rate.used(ip("192.0.2.1"), now), Duration::ZERO);
    rate.record(ip("192.0.2.1"), SECOND * 3, now);
    assert_eq!(rate.used(ip("192.0.2.1"), now), SECOND * 3);
    assert_eq!(rate.used(ip("192.0.2.1"), now + SECOND), SECOND * 2);
    rate.record(ip("192.0.2.1"), SECOND * 60, now);
    assert_eq!(rate.used(ip("192.0.2.1"), now), SECOND * 10, "no more than a bucket");
}

#[test]
fn a_ban_ends_at_its_moment_and_offences_do_not_prolong_it() {
    let (now, client) = (Instant::now(), ip("192.0.2.1"));
    let mut bans = Bans::new(1, SECOND, Exempt::default());
    assert!(bans.offences(client, now));
    assert!(!bans.offences(client, now + SECOND / 2), "it is banned already");
    assert_eq!((bans.banned_now(now), bans.banned_now(now + SECOND)), (1, 0));
    assert!(bans.is_banned(client, now + SECOND / 2) && !bans.is_banned(client, now + SECOND));
    assert!(bans.offences(client, now + SECOND), "an offence at the end of a ban is a new one");
    assert_eq!((bans.bans, bans.banned), (2, 1));
}

/// A network with a mistake in it would exempt nobody, or too many.
#[test]
fn a_network_is_taken_in_one_spelling() {
    for (text, same) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("192.0.2.1", "192.0.2.1/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/0", "::/0"),
    ] {
        assert_eq!(text.parse::<IpNetwork>().expect(text).to_string(), same);
    }
    for (text, reason) in [
        ("10.0.0.1/8", "it has bits beyond its prefix; did you mean 10.0.0.0/8?"),
        ("10.0.0.0/33", "`33` is no number of bits from 0 to 32"),
        ("::/129", "`129` is no number of bits from 0 to 128"),
        ("10.0.0.0/+8", "`+8` is no number of bits from 0 to 32"),
        ("10.0.0.0/", "`` is no number of bits from 0 to 32"),
        ("10.0/8", "`10.0` is no address; a network is written like 10.0.0.0/8 or 2001:db8::/32"),
    ] {
        assert_eq!(text.parse::<IpNetwork>().expect_err(text).to_string(), reason);
    }
}

#[test]
fn a_network_contains_its_addresses_and_no_others() {
    for (network, address, inside) in [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("10.0.0.0/8", "::a00:1", false),
        ("0.0.0.0/0", "255.1.2.3", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("2001:db8::/33", "2001:db8:7fff::1", true),
        ("2001:db8::/33", "2001:db8:8000::1", false),
        ("::/0", "2001:db8::1", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.0", false),
    ] {
        let network: IpNetwork = network.parse().expect(network);
        assert_eq!(network.contains(ip(address)), inside, "{network} {address}");
    }
}
