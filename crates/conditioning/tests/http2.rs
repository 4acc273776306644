//! What a client of HTTP/2 may do, and what is too much.

use std::time::{Duration, Instant};

use conditioning::http2::{Abuse, Event, Excess, Limits};

/// How many of `event` one client may send within a window, and what it is told then.
fn allowed(mut abuse: Abuse, event: Event, now: Instant) -> (u32, Option<Excess>) {
    for count in 0..100_000 {
        if let Err(excess) = abuse.note(event, now) {
            return (count, Some(excess));
        }
    }
    (u32::MAX, None)
}

#[test]
fn each_flood_ends() {
    let now = Instant::now();
    let fresh = Abuse::new(Limits::default());
    for (event, most, excess) in [
        (Event::Reset, 200, Excess::Resets),
        (Event::Provoked, 50, Excess::Provoked),
        (Event::Settings, 32, Excess::Settings),
        (Event::Ping, 64, Excess::Pings),
        (Event::EmptyData, 64, Excess::EmptyData),
        (Event::Adjustment, 200, Excess::Adjustments),
        (Event::Continuation(0), 16, Excess::Continuation),
        (Event::Headers(1 << 14), 16, Excess::Continuation),
        (Event::Continuation(u32::MAX), 0, Excess::Continuation),
    ] {
        assert_eq!(allowed(fresh, event, now), (most, Some(excess)), "{event:?}");
    }
    for event in [Event::Opened, Event::Progress, Event::HeadersEnd] {
        assert_eq!(allowed(fresh, event, now), (u32::MAX, None), "{event:?}");
    }
}

/// CVE-2023-44487: open and reset, without end. One that resets a few of many is not disturbed.
#[test]
fn resets_are_judged_by_what_was_opened() {
    let now = Instant::now();
    let mut rapid = Abuse::new(Limits::default());
    let ended = (0..1000).find(|_| {
        rapid.note(Event::Opened, now).unwrap();
        rapid.note(Event::Reset, now).is_err()
    });
    assert_eq!(ended, Some(200));
    let mut busy = Abuse::new(Limits::default());
    for _ in 0..1000 {
        for event in [Event::Opened, Event::Opened, Event::Opened, Event::Reset] {
            assert_eq!(busy.note(event, now), Ok(()));
        }
    }
}

/// Each window begins anew; a block of headers is one whatever the time.
#[test]
fn windows_pass() {
    let start = Instant::now();
    let mut abuse = Abuse::new(Limits::default());
    for window in 0..5 {
        let now = start + window * Duration::from_secs(10);
        for _ in 0..64 {
            assert_eq!(abuse.note(Event::Ping, now), Ok(()));
        }
        assert_eq!(abuse.note(Event::Ping, now + Duration::from_millis(9_999)), Err(Excess::Pings));
    }
    assert_eq!(abuse.note(Event::Headers(260_000), start), Ok(()));
    let later = start + Duration::from_secs(1000);
    assert_eq!(abuse.note(Event::Continuation(6000), later), Err(Excess::Continuation));
    assert_eq!(abuse.note(Event::HeadersEnd, later), Ok(()));
    assert_eq!(abuse.note(Event::Headers(6000), later), Ok(()));
}

/// One byte in each frame, and DATA for streams that were reset, end; whoever sends little at a time does not.
#[test]
fn data_is_judged_by_what_is_wanted_of_it() {
    let now = Instant::now();
    let fresh = Abuse::new(Limits::default());
    for (event, most) in [
        (Event::Data { useful: 0, all: 16_393 }, 127),
        (Event::Data { useful: 0, all: 10 }, 209_715),
        (Event::Data { useful: 1, all: 10 }, 349_525),
        (Event::Data { useful: 2, all: 11 }, 699_050),
    ] {
        let mut abuse = fresh;
        let ended = (0..1_000_000).find(|_| abuse.note(event, now).is_err());
        assert_eq!(ended, Some(most), "{event:?}");
        assert_eq!(abuse.note(event, now), Err(Excess::UselessData));
        assert_eq!(abuse.note(event, now + Duration::from_secs(10)), Ok(()), "another window");
    }
    let mut small = fresh;
    for _ in 0..1_000_000 {
        assert_eq!(small.note(Event::Data { useful: 3, all: 12 }, now), Ok(()));
    }
}

/// A download is acknowledged by many small frames.
#[test]
fn adjustments_go_with_progress() {
    let now = Instant::now();
    let mut abuse = Abuse::new(Limits::default());
    for _ in 0..1000 {
        abuse.note(Event::Progress, now).unwrap();
        for _ in 0..100 {
            assert_eq!(abuse.note(Event::Adjustment, now), Ok(()));
        }
    }
}
