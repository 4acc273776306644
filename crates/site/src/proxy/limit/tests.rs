use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use tokio::time::advance;

use super::*;
use crate::http::body::ResponseBody;

const ONE: BackendId = BackendId::Target(1);
const OTHER: BackendId = BackendId::Target(2);

fn client(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Without shares.
fn open(places: u32) -> ConcurrencyLimit {
    let limit = ConcurrencyLimit::new(places);
    let all = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
    limit.set_policy(Priority::Recency, ShareLimits::default(), Exempt(all.to_vec()));
    limit
}

fn all_of(limit: &ConcurrencyLimit, backend: BackendId, from: &str) -> Vec<Permit> {
    std::iter::from_fn(|| limit.try_acquire(backend, client(from)).ok()).collect()
}

/// Polls once.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn each_that_hangs_gets_half_of_what_is_left() {
    let limit = open(64);
    let [first, second, third] =
        [ONE, BackendId::Service(1), OTHER].map(|backend| all_of(&limit, backend, "192.0.2.1"));
    assert_eq!((first.len(), second.len(), third.len()), (32, 16, 8));
    assert_eq!(limit.try_acquire(ONE, client("192.0.2.1")).unwrap_err(), LimitRefusal::Busy { held: 32 });
    assert_eq!(limit.counts().unavailable, 4);
    drop(first);
    assert_eq!(all_of(&limit, ONE, "192.0.2.1").len(), 20);
}

#[test]
fn what_the_operator_says_counts() {
    let limit = open(64);
    limit.set(ONE, 3);
    limit.set(OTHER, 64);
    assert_eq!(all_of(&limit, ONE, "192.0.2.1").len(), 3);
    let second = all_of(&limit, OTHER, "192.0.2.1");
    assert_eq!(second.len(), 64);
    assert!(limit.try_acquire(BackendId::Target(3), client("192.0.2.1")).is_err());
    drop(second);
    assert!(limit.try_acquire(BackendId::Target(3), client("192.0.2.1")).is_ok());
}

#[test]
fn a_permit_lasts_as_long_as_the_answer() {
    let limit = open(64);
    limit.set(ONE, 1);
    let answer = |body| limit.try_acquire(ONE, client("192.0.2.1")).unwrap().keep(Response::new(body));
    let held = answer(ResponseBody::stream(http_body_util::Full::new(Bytes::from("x"))));
    assert!(limit.try_acquire(ONE, client("192.0.2.1")).is_err());
    drop(held);
    let _ours = answer(ResponseBody::Full(Bytes::from("x")));
    assert!(limit.try_acquire(ONE, client("192.0.2.1")).is_ok());
}

#[test]
fn a_range_gets_its_share_and_what_is_lent_and_others_find_a_place() {
    let limit = ConcurrencyLimit::new(4096);
    limit.set(ONE, 100);
    // 10 of a /24, and what is lent up to the last quarter.
    let greedy: Vec<Permit> = (0..200)
        .filter_map(|host| limit.try_acquire(ONE, client(&format!("198.51.100.{host}"))).ok())
        .collect();
    assert_eq!(greedy.len(), 75);
    assert_eq!(limit.counts().over_share, 125);
    // A lent place does not use up the share of the range around it, nor anybody else's.
    let near = all_of(&limit, ONE, "198.51.101.7");
    assert_eq!(near.len(), 5, "15 of a /16");
    let far = all_of(&limit, ONE, "203.0.113.9");
    assert_eq!(far.len(), 10);
}

#[test]
fn of_few_places_neighbours_have_one_each() {
    let limit = ConcurrencyLimit::new(64);
    limit.set(ONE, 8);
    let greedy = all_of(&limit, ONE, "198.51.100.1");
    assert_eq!(greedy.len(), 6, "one, and five are lent");
    let _both = ["198.51.101.1", "198.52.0.1"].map(|one| limit.try_acquire(ONE, client(one)).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_range_has_a_quarter_at_most_while_others_ask() {
    let limit = ConcurrencyLimit::new(64);
    // At last a route without `requests`, which has half of the places that are left.
    for (requests, quarter) in [(1, 1), (4, 1), (5, 1), (8, 2), (40, 10), (32, 8)] {
        if quarter == 8 {
            lock(&limit.state).backend(ONE).at_most = None;
        } else {
            limit.set(ONE, requests);
        }
        let other = limit.try_acquire(ONE, client("203.0.113.1")).unwrap();
        drop(other);
        assert_eq!(all_of(&limit, ONE, "198.51.100.1").len(), quarter, "of {requests}");
        // Some seconds later, nobody else is there who could miss them.
        advance(WAIT_MAX).await;
        let alone = all_of(&limit, ONE, "198.51.100.1").len();
        assert_eq!(alone, requests as usize - requests as usize / NOT_LENT, "of {requests}");
        advance(WAIT_MAX).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_beyond_a_quarter_keeps_nobody_else_from_a_place() {
    let limit = ConcurrencyLimit::new(64);
    limit.set(ONE, 8);
    let others = ["203.0.113.1", "192.0.2.1"].map(|one| limit.try_acquire(ONE, client(one)).unwrap());
    let two = all_of(&limit, ONE, "198.51.100.1");
    assert_eq!(two.len(), 2);
    let mut third = pin!(limit.acquire(ONE, client("198.51.100.1")));
    assert!(poll(third.as_mut()).is_pending());
    // A place becomes free, which is not for a third one of this range while others ask.
    drop(others);
    assert!(poll(third.as_mut()).is_pending());
    let near = limit.try_acquire(ONE, client("198.51.101.1")).unwrap();
    assert!(poll(third.as_mut()).is_pending());
    drop(two);
    assert!(poll(third.as_mut()).is_ready());
    drop(near);
}

#[test]
fn no_more_is_lent_than_memory_allows() {
    let limit = ConcurrencyLimit::new(8192);
    let greedy = all_of(&limit, ONE, "198.51.100.1");
    assert_eq!(greedy.len(), 409 + LENT_MAX);
}

#[test]
fn clients_behind_a_balancer_have_no_shares() {
    let limit = ConcurrencyLimit::new(64);
    limit.set(ONE, 10);
    assert_eq!(all_of(&limit, ONE, "::").len(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_range_served_longest_ago_is_next() {
    let limit = open(64);
    limit.set(ONE, 1);
    let mut held = limit.acquire(ONE, client("192.0.2.1")).await.unwrap();
    let addresses = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "203.0.113.1"];
    let mut waiting: Vec<_> =
        addresses.iter().map(|from| (*from, Box::pin(limit.acquire(ONE, client(from))))).collect();
    for (_, request) in &mut waiting {
        assert!(poll(request.as_mut()).is_pending());
    }
    assert_eq!((limit.counts().waiting, limit.counts().delayed), (4, 4));
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(held);
        let served =
            waiting.iter_mut().enumerate().find_map(|(at, (_, request))| match poll(request.as_mut()) {
                Poll::Ready(permit) => Some((at, permit.unwrap())),
                Poll::Pending => None,
            });
        let (at, permit) = served.unwrap();
        held = permit;
        order.push(waiting.remove(at).0);
    }
    assert_eq!(order, ["198.51.100.1", "203.0.113.1", "198.51.100.2", "198.51.100.3"]);
    assert_eq!(limit.counts().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn who_goes_leaves_the_queue_and_who_waits_too_long_is_told() {
    let limit = open(64);
    limit.set(ONE, 1);
    let held = limit.acquire(ONE, client("192.0.2.1")).await.unwrap();
    {
        let mut gone = pin!(limit.acquire(ONE, client("192.0.2.2")));
        assert!(poll(gone.as_mut()).is_pending());
    }
    assert_eq!(limit.counts().waiting, 0);
    let begun = Instant::now();
    let late = limit.acquire(ONE, client("192.0.2.3")).await;
    assert_eq!(late.unwrap_err(), LimitRefusal::Busy { held: 1 });
    assert_eq!(begun.elapsed(), WAIT_MAX);
    assert_eq!((limit.counts().waiting, limit.counts().unavailable), (0, 1));
    // One whose place comes just as it goes does not take it with it.
    let mut gone = Box::pin(limit.acquire(ONE, client("192.0.2.4")));
    assert!(poll(gone.as_mut()).is_pending());
    drop(held);
    drop(gone);
    assert!(limit.try_acquire(ONE, client("192.0.2.5")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_range_has_its_share_of_the_queue() {
    let limit = ConcurrencyLimit::new(200);
    limit.set(ONE, 1);
    let _held = limit.acquire(ONE, client("192.0.2.1")).await.unwrap();
    let queue = |from: &'static str| {
        let mut all: Vec<_> = (0..100).map(|_| Box::pin(limit.acquire(ONE, client(from)))).collect();
        all.retain_mut(|request| poll(request.as_mut()).is_pending());
        all
    };
    let greedy = queue("198.51.100.1");
    let others = queue("203.0.113.1");
    assert_eq!((greedy.len(), others.len()), (10, 10));
    drop(greedy);
    assert_eq!(limit.counts().waiting, 10);
}

#[tokio::test(start_paused = true)]
async fn what_waits_takes_places_of_the_worker() {
    let limit = open(64);
    let _held = all_of(&limit, ONE, "192.0.2.1");
    let mut waiting: Vec<_> = (0..64).map(|_| Box::pin(limit.acquire(ONE, client("192.0.2.1")))).collect();
    waiting.retain_mut(|request| poll(request.as_mut()).is_pending());
    assert_eq!(waiting.len(), 16);
    assert_eq!(all_of(&limit, OTHER, "192.0.2.1").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_lent_place_whose_client_stands_still_is_taken_back() {
    let limit = ConcurrencyLimit::new(64);
    limit.set(ONE, 2);
    // One is its share, the other lent.
    let _share = limit.acquire(ONE, client("198.51.100.1")).await.unwrap();
    let lent = limit.acquire(ONE, client("198.51.100.1")).await.unwrap();
    let stall = lent.stall().unwrap().clone();
    let body = ResponseBody::stream(http_body_util::Full::new(Bytes::from("x")));
    let mut answer = lent.keep(Response::new(body));
    assert!(answer.extensions().get::<Stall>().is_some());
    let mut other = Box::pin(limit.acquire(ONE, client("203.0.113.1")));
    assert!(poll(other.as_mut()).is_pending());
    // Its client takes something now and then.
    for _ in 0..4 {
        advance(Duration::from_secs(2)).await;
        assert!(poll(other.as_mut()).is_pending());
        let mut context = Context::from_waker(Waker::noop());
        let _ = std::pin::Pin::new(answer.body_mut()).poll_frame(&mut context);
    }
    assert!(stall.since().is_some());
    drop(other);
    let mut other = Box::pin(limit.acquire(ONE, client("203.0.113.1")));
    assert!(poll(other.as_mut()).is_pending());
    let given_up = async {
        std::future::poll_fn(|cx| stall.poll_given_up(cx, Side::Answer)).await;
        drop(answer);
    };
    let (served, ()) = tokio::join!(other, given_up);
    assert!(served.is_ok());
    assert_eq!(limit.counts().unavailable, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lent_while_somebody_waits_within_a_share() {
    let limit = ConcurrencyLimit::new(64);
    limit.set(ONE, 4);
    let mut greedy = all_of(&limit, ONE, "198.51.100.1");
    assert_eq!(greedy.len(), 3, "one is its share, two are lent");
    let _other = limit.acquire(ONE, client("203.0.113.1")).await.unwrap();
    let mut next = Box::pin(limit.acquire(ONE, client("192.0.2.1")));
    assert!(poll(next.as_mut()).is_pending());
    drop(greedy.pop());
    assert!(limit.try_acquire(ONE, client("198.51.100.1")).is_err());
    assert!(poll(next.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_rush_is_told() {
    let limit = open(1024);
    let all = all_of(&limit, ONE, "192.0.2.1");
    assert_eq!(all.len(), 512);
    drop(all);
    limit.fallen().notified().await;
}
