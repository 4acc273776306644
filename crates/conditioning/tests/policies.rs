//! Queue, shares, rates, bans and paces, each against a model that counts by hand, with a clock of the test's own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use conditioning::{
    AddressRange, Bans, ClientOrigin, DelayQueue, Exempt, ItemKey, MinRate, Pace, Priority, Queue, Rate,
    ShareLimits, Shares,
};
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn exempt(text: &str) -> Exempt {
    Exempt(vec![text.parse().expect("a network")])
}

/// A few clients of few ranges.
fn client(number: u16) -> IpAddr {
    let number = u32::from(number);
    let bits = (number & 1) << 24 | (number >> 1 & 1) << 16 | (number >> 2 & 1) << 8 | number >> 3 & 3;
    match number & 32 {
        0 => Ipv4Addr::from_bits(0x0a00_0000 + bits).into(),
        _ => Ipv6Addr::from_bits(0x2001 << 112 | u128::from(bits) << 72).into(),
    }
}

/// Milliseconds, small enough for sums.
fn after(milliseconds: u16) -> Duration {
    Duration::from_millis(milliseconds.into())
}

#[derive(Clone, Debug)]
enum Wait {
    Push(u16, u16),
    Pop,
    PopAndPutBack,
    Remove(usize),
    Pass(u16),
    Served(u16),
}

fn waits() -> impl Strategy<Value = Vec<Wait>> {
    let step = prop_oneof![
        5 => (0_u16..64, 0_u16..500).prop_map(|(client, wait)| Wait::Push(client, wait)),
        3 => Just(Wait::Pop),
        2 => Just(Wait::PopAndPutBack),
        1 => any::<usize>().prop_map(Wait::Remove),
        2 => (0_u16..200).prop_map(Wait::Pass),
        1 => (0_u16..64).prop_map(Wait::Served),
    ];
    proptest::collection::vec(step, 0..400)
}

/// In order of arrival: name, deadline, item.
type Line = Vec<(ItemKey, Instant, usize)>;

fn check_queue(priority: Priority, steps: &[Wait]) {
    let mut now = Instant::now();
    let mut queue = Queue::new(priority);
    let mut line: Line = Vec::new();
    for (item, step) in steps.iter().enumerate() {
        match *step {
            Wait::Push(number, wait) => {
                let deadline = now + after(wait);
                line.push((queue.push(client(number), deadline, item), deadline, item));
            }
            Wait::Pop | Wait::PopAndPutBack => {
                let Some(next) = queue.pop() else {
                    assert!(line.is_empty());
                    continue;
                };
                let at = line.iter().position(|(_, _, item)| *item == next.item).expect("it waited");
                assert!(priority == Priority::Recency || at == 0);
                assert_eq!(line[at].1, next.deadline);
                if matches!(step, Wait::Pop) {
                    line.remove(at);
                } else {
                    let item = next.item;
                    line[at].0 = queue.requeue(next);
                    let again = queue.pop().expect("it was put back");
                    assert_eq!(again.item, item);
                    line[at].0 = queue.requeue(again);
                }
            }
            Wait::Remove(at) if !line.is_empty() => {
                let (key, _, item) = line.remove(at % line.len());
                assert_eq!(queue.remove(key).map(|waiting| waiting.item), Some(item));
                assert!(queue.get(key).is_none() && queue.remove(key).is_none());
            }
            Wait::Pass(time) => {
                now += after(time);
                while let Some(late) = queue.expired(now) {
                    let at = line.iter().position(|(_, _, item)| *item == late.item).expect("it waited");
                    assert!(line[at].1 <= now);
                    line.remove(at);
                }
            }
            Wait::Served(number) => queue.served(client(number)),
            Wait::Remove(_) => {}
        }
        assert_eq!(queue.len(), line.len());
        assert_eq!(queue.next_deadline(), line.iter().map(|(_, deadline, _)| *deadline).min());
    }
}

/// How many connections each prefix has, counted one by one.
struct Naive {
    limits: ShareLimits,
    capacity: u32,
    reserves: bool,
    held: Vec<IpAddr>,
}

impl Naive {
    fn full(&self, address: IpAddr) -> Option<AddressRange> {
        let limits = if address.is_ipv4() { self.limits.v4 } else { self.limits.v6 };
        let all = self.held.len() as u32;
        let crowded = self.reserves && all >= self.capacity - self.capacity / 10;
        limits.into_iter().enumerate().find_map(|(at, (bits, share))| {
            let range = ClientOrigin::from(address).range(bits);
            let held = self.held.iter().filter(|other| range.contains(**other)).count() as u32;
            let most = (self.capacity * u32::from(share) / 1000).max(1);
            (held >= most || at == 0 && crowded && held > 0).then_some(range)
        })
    }
}

/// One step: who comes, or the number of one that goes.
type Traffic = Vec<(bool, u16)>;

fn check_shares(capacity: u32, reserves: bool, traffic: &Traffic) {
    let limits = ShareLimits::default();
    let mut shares = Shares::new(limits, if reserves { 9 } else { capacity }, exempt("11.0.0.0/16"));
    if reserves {
        shares.serving(capacity);
    }
    let mut naive = Naive { limits, capacity, reserves, held: Vec::new() };
    for &(comes, number) in traffic {
        let address = client(number % 64);
        if ip("11.0.0.0") <= address && address < ip("11.1.0.0") {
            assert_eq!((shares.may(address), shares.admit(address)), (true, Ok(())));
            shares.release(address);
        } else if comes {
            let full = naive.full(address);
            assert_eq!(shares.may(address), full.is_none());
            assert_eq!(shares.admit(address).err(), full);
            naive.held.extend(full.is_none().then_some(address));
        } else if !naive.held.is_empty() {
            shares.release(naive.held.swap_remove(usize::from(number) % naive.held.len()));
        }
        assert_eq!(shares.held() as usize, naive.held.len());
    }
    for (range, count) in shares.ranges(usize::MAX) {
        assert_eq!(naive.held.iter().filter(|held| range.contains(**held)).count(), count as usize);
    }
    for address in naive.held {
        shares.release(address);
    }
    assert_eq!((shares.held(), shares.ranges(9)), (0, Vec::new()));
}

/// A delayed client may not go on, at any time; one that waits long enough for room gets it, and nobody is lost.
fn check_parked(capacity: u32, reserves: bool, traffic: &Traffic) {
    let mut shares = Shares::new(ShareLimits::default(), capacity, Exempt::default());
    if reserves {
        shares.serving(capacity);
    }
    let mut delayed = DelayQueue::new();
    let mut waiting: BTreeMap<usize, IpAddr> = BTreeMap::new();
    let mut held: Vec<IpAddr> = Vec::new();
    let later = Instant::now() + after(1000);
    for (item, &(comes, number)) in traffic.iter().enumerate() {
        let address = client(number % 64);
        if comes && shares.admit(address).is_ok() {
            held.push(address);
        } else if comes {
            delayed.push(address, later, item);
            waiting.insert(item, address);
        } else if !held.is_empty() {
            shares.release(held.swap_remove(usize::from(number) % held.len()));
            while let Some(next) = delayed.pop_admitted(&mut shares) {
                assert_eq!(waiting.remove(&next.item), Some(next.address));
                held.push(next.address);
            }
        }
        assert_eq!((delayed.len(), shares.held() as usize), (waiting.len(), held.len()));
        assert!(waiting.values().all(|address| !shares.may(*address)));
    }
    while let Some(address) = held.pop() {
        shares.release(address);
        while let Some(next) = delayed.pop_admitted(&mut shares) {
            assert_eq!(waiting.remove(&next.item), Some(next.address));
            held.push(next.address);
        }
    }
    assert!(waiting.is_empty() && delayed.is_empty());
}

/// Tokens in nanoseconds of filling, so that the sum is exact.
fn check_rate(per_second: u32, burst: u32, steps: &[(u16, u16)]) {
    let mut now = Instant::now();
    let mut rate = Rate::new(per_second, burst);
    let interval = 1_000_000_000 / u128::from(per_second);
    let capacity = interval * u128::from(burst);
    let mut buckets: BTreeMap<IpAddr, (u128, Instant)> = BTreeMap::new();
    let mut refused = 0;
    for &(number, wait) in steps {
        now += after(wait);
        let address = client(number % 64);
        let (tokens, at) = buckets.get(&address).copied().unwrap_or((capacity, now));
        let tokens = capacity.min(tokens + now.duration_since(at).as_nanos());
        let may = tokens >= interval;
        buckets.insert(address, (if may { tokens - interval } else { tokens }, now));
        assert_eq!(rate.take(address, now), may);
        refused += u64::from(!may);
    }
    assert_eq!(rate.over_rate, refused);
}

fn check_bans(limit: u32, steps: &[(u16, u16, bool)]) {
    let mut now = Instant::now();
    let time = Duration::from_secs(40);
    let mut bans = Bans::new(limit, time, exempt("11.0.0.0/16"));
    // Offences of the minute that is under way, and the end of the ban.
    let mut offenders: BTreeMap<IpAddr, (Vec<Instant>, Option<Instant>)> = BTreeMap::new();
    for &(number, wait, offends) in steps {
        now += after(wait) * 20;
        let address = client(number % 16);
        let (minute, until) = offenders.entry(address).or_default();
        let banned = until.is_some_and(|until| now < until);
        assert_eq!(bans.is_banned(address, now), banned);
        if !offends || exempt("11.0.0.0/16").contains(address) {
            continue;
        }
        if minute.first().is_some_and(|first| now.duration_since(*first) >= Duration::from_secs(60)) {
            minute.clear();
        }
        if !banned {
            minute.push(now);
        }
        let spoken = minute.len() as u32 >= limit;
        if spoken {
            (*minute, *until) = (Vec::new(), Some(now + time));
        }
        assert_eq!(bans.offences(address, now), spoken);
        let count = offenders.values().filter(|(_, until)| until.is_some_and(|until| now < until)).count();
        assert_eq!(bans.banned_now(now), count);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn queue_loses_none_and_knows_every_deadline(steps in waits()) {
        check_queue(Priority::Recency, &steps);
        check_queue(Priority::Fifo, &steps);
    }

    #[test]
    fn shares_are_as_counted(
        capacity in 1_u32..60, reserves: bool, traffic in proptest::collection::vec(any::<(bool, u16)>(), 0..300),
    ) {
        check_shares(capacity, reserves, &traffic);
    }

    #[test]
    fn parked_go_on_when_they_may(
        capacity in 1_u32..60, reserves: bool, traffic in proptest::collection::vec(any::<(bool, u16)>(), 0..300),
    ) {
        check_parked(capacity, reserves, &traffic);
    }

    #[test]
    fn rate_is_a_bucket_of_tokens(
        per_second in 1_u32..200,
        burst in 1_u32..20,
        steps in proptest::collection::vec((any::<u16>(), 0_u16..40), 0..300),
    ) {
        check_rate(per_second, burst, &steps);
    }

    #[test]
    fn bans_are_for_offences_within_a_minute(
        limit in 1_u32..5,
        steps in proptest::collection::vec((any::<u16>(), 0_u16..900, any::<bool>()), 0..300),
    ) {
        check_bans(limit, &steps);
    }
}

#[test]
fn limits_may_be_none() {
    let now = Instant::now();
    let (mut rate, mut bans) = (Rate::new(0, 0), Bans::new(0, after(1), Exempt::default()));
    for _ in 0..1000 {
        assert!(rate.take(ip("192.0.2.1"), now));
        assert!(!bans.offences(ip("192.0.2.1"), now));
    }
    let mut rate = Rate::new(1, 1).exempting(exempt("192.0.2.0/24"));
    assert!((0..9).all(|_| rate.take(ip("192.0.2.1"), now)));
    assert!(rate.take(ip("192.0.3.1"), now) && !rate.take(ip("192.0.3.1"), now));
    assert_eq!(MinRate::new(0, after(0)).timeout(0), None);
    assert!(!Pace::new(MinRate::new(0, after(0)), now).too_slow(now + after(u16::MAX)));
}

/// A client of a provider's /64 is one client, whatever the other half of its address.
#[test]
fn tables_have_a_limit_and_forget_the_idle() {
    let now = Instant::now();
    let mut rate = Rate::new(1, 1);
    assert!(rate.take(ip("2001:db8::1"), now) && !rate.take(ip("2001:db8::2"), now));
    for number in 0..65_536_u32 {
        assert!(rate.take(Ipv4Addr::from_bits(number).into(), now));
        if number % 1000 == 0 {
            assert!(!rate.take(ip("2001:db8::3"), now), "forgotten after {number}, though heard of often");
        }
    }
    assert!(rate.take(Ipv4Addr::from_bits(0).into(), now), "the idle are forgotten");
    assert!(!rate.take(Ipv4Addr::from_bits(65_535).into(), now));
}

/// One is always allowed, as is what is exempt.
#[test]
fn a_small_server_serves_every_range() {
    let mut shares = Shares::new(ShareLimits::default(), 3, exempt("192.0.2.0/24"));
    assert_eq!(shares.admit(ip("10.0.0.1")), Ok(()));
    let full = shares.admit(ip("10.9.9.9")).unwrap_err();
    assert_eq!(full.to_string(), "10.0.0.0/8");
    assert!((0..9).all(|_| shares.admit(ip("192.0.2.1")).is_ok()));
    shares.release(ip("192.0.2.1"));
    shares.release(ip("203.0.113.1"));
    assert_eq!(shares.held(), 1);
    // One that must be held is held, whatever its share.
    shares.hold(ip("10.0.0.2"));
    assert_eq!((shares.held(), shares.ranges(1)[0].1), (2, 2));
}

#[test]
fn parked_are_refused_in_the_end() {
    let now = Instant::now();
    let mut delayed = DelayQueue::new();
    let mut shares = Shares::new(ShareLimits::default(), 1, Exempt::default());
    assert!(shares.admit(ip("10.0.0.1")).is_ok());
    delayed.push(ip("10.0.0.2"), now + after(5), ());
    assert!(delayed.pop_admitted(&mut shares).is_none() && delayed.expired(now).is_none());
    assert!(delayed.expired(now + after(5)).is_some());
    assert_eq!((delayed.delayed_total, delayed.over_share, delayed.len()), (1, 1, 0));
}

/// However many come and go: names of those that have left are dropped, those of others are not.
#[test]
fn a_long_wait_is_not_forgotten() {
    let now = Instant::now();
    for priority in [Priority::Recency, Priority::Fifo] {
        let mut queue = Queue::new(priority);
        for number in 0..10 {
            queue.push(client(number), now + after(2000 + number), number);
        }
        for number in 0..1000 {
            let key = queue.push(client(number % 64), now + after(number), number);
            assert!(queue.remove(key).is_some());
            assert_eq!(queue.next_deadline(), Some(now + after(2000)));
            let late = queue.push(client(number % 64), now + after(5000), number);
            assert!(queue.remove(late).is_some());
        }
        assert!(std::iter::from_fn(|| queue.expired(now + after(3000))).count() == 10 && queue.is_empty());
    }
}

/// One piece after the other: to have been fast does not allow to be slow.
#[test]
fn a_transfer_is_judged_by_its_pieces() {
    let start = Instant::now();
    let rate = MinRate::new(1000, Duration::from_secs(5));
    assert!(rate.allowed(0, Duration::from_secs(5)) && !rate.allowed(0, Duration::from_millis(5001)));
    assert!(
        rate.allowed(1500, Duration::from_millis(6500)) && !rate.allowed(1500, Duration::from_millis(6501))
    );
    let mut pace = Pace::new(rate, start);
    pace.moved(1 << 30, start + after(1));
    assert!(!pace.too_slow(start + after(5001)) && pace.too_slow(start + after(5002)));
    pace.moved(2000, start + after(5000));
    assert_eq!(pace.deadline(), Some(start + after(7001)));
    // A wait of our own is not the client's fault.
    pace.excuse(start + after(60_000));
    assert!(!pace.too_slow(start + after(65_000)) && pace.too_slow(start + after(65_001)));
}

#[test]
fn the_last_tenth_is_for_ranges_that_hold_nothing() {
    let mut shares = Shares::new(ShareLimits::default(), 1000, Exempt::default());
    shares.serving(20);
    let from = |first: u8, second: u8| IpAddr::from([first, second, 0, 1]);
    // Five of each /8 may, of as many /16s; the fourth /8 meets the reserve.
    let admitted =
        |shares: &mut Shares, first| (0..9).filter(|at| shares.admit(from(first, *at)).is_ok()).count();
    assert_eq!([10, 11, 12, 13].map(|first| admitted(&mut shares, first)), [5, 5, 5, 3]);
    assert!(!shares.may(from(13, 200)) && shares.may(from(14, 0)));
    assert!(!shares.has_room(ClientOrigin::from(from(13, 0)).range(8)));
    assert!(
        shares.has_room(ClientOrigin::from(from(14, 0)).range(8))
            && shares.has_room(ClientOrigin::from(from(13, 0)).range(4))
    );
    assert_eq!([14, 15].map(|first| admitted(&mut shares, first)), [1, 1]);
    shares.release(from(10, 0));
    shares.release(from(11, 0));
    assert!(!shares.may(from(13, 200)));
    shares.release(from(12, 0));
    assert!(shares.may(from(13, 200)));
}

#[test]
fn a_ban_may_be_spoken_and_taken_back() {
    let (now, client, minute) = (Instant::now(), ip("192.0.2.1"), Duration::from_secs(60));
    let mut bans = Bans::new(0, Duration::ZERO, Exempt::default());
    bans.pardon(client, now);
    bans.ban(client, now + minute, now);
    assert!(bans.is_banned(client, now) && !bans.is_banned(client, now + minute));
    bans.pardon(client, now);
    assert!(!bans.is_banned(client, now));
    assert_eq!((bans.bans, bans.banned), (1, 1));
}
