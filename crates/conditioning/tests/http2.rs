//! Actions of a client of HTTP/2 that are allowed, and those that are too many.

use std::time::{Duration, Instant};

use conditioning::http2::{Abuse, Excess, ResetLimits, StreamEvent};

/// How many of `event` one client may send within a window, and what it is told then.
fn allowed(mut abuse: Abuse, event: StreamEvent, now: Instant) -> (u32, Option<Excess>) {
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
    let fresh = Abuse::new(ResetLimits::default());
    for (event, most, excess) in [
        (StreamEvent::Reset, 200, Excess::Resets),
        (StreamEvent::Provoked, 50, Excess::Provoked),
        (StreamEvent::Settings, 32, Excess::Settings),
        (StreamEvent::Ping, 64, Excess::Pings),
        (StreamEvent::EmptyData, 64, Excess::EmptyData),
        (StreamEvent::Adjustment, 200, Excess::Adjustments),
        (StreamEvent::Continuation(0), 16, Excess::Continuation),
        (StreamEvent::Headers(1 << 14), 16, Excess::Continuation),
        (StreamEvent::Continuation(u32::MAX), 0, Excess::Continuation),
    ] {
        assert_eq!(allowed(fresh, event, now), (most, Some(excess)), "{event:?}");
    }
    for event in [StreamEvent::Opened, StreamEvent::Progress, StreamEvent::HeadersEnd] {
        assert_eq!(allowed(fresh, event, now), (u32::MAX, None), "{event:?}");
    }
}

/// CVE-2023-44487: open and reset, without end. One that resets a few of many is not disturbed.
#[test]
fn resets_are_judged_by_what_was_opened() {
    let now = Instant::now();
    let mut rapid = Abuse::new(ResetLimits::default());
    let ended = (0..1000).find(|_| {
        rapid.note(StreamEvent::Opened, now).unwrap();
        rapid.note(StreamEvent::Reset, now).is_err()
    });
    assert_eq!(ended, Some(200));
    let mut busy = Abuse::new(ResetLimits::default());
    for _ in 0..1000 {
        for event in [StreamEvent::Opened, StreamEvent::Opened, StreamEvent::Opened, StreamEvent::Reset] {
            assert_eq!(busy.note(event, now), Ok(()));
        }
    }
}

/// Each window begins anew; a block of headers is one whatever the time.
#[test]
fn windows_pass() {
    let start = Instant::now();
    let mut abuse = Abuse::new(ResetLimits::default());
    for window in 0..5 {
        let now = start + window * Duration::from_secs(10);
        for _ in 0..64 {
            assert_eq!(abuse.note(StreamEvent::Ping, now), Ok(()));
        }
        assert_eq!(abuse.note(StreamEvent::Ping, now + Duration::from_millis(9_999)), Err(Excess::Pings));
    }
    assert_eq!(abuse.note(StreamEvent::Headers(260_000), start), Ok(()));
    let later = start + Duration::from_secs(1000);
    assert_eq!(abuse.note(StreamEvent::Continuation(6000), later), Err(Excess::Continuation));
    assert_eq!(abuse.note(StreamEvent::HeadersEnd, later), Ok(()));
    assert_eq!(abuse.note(StreamEvent::Headers(6000), later), Ok(()));
}

/// One byte in each frame, and DATA for streams that were reset, end; whoever sends little at a time does not.
#[test]
fn data_is_judged_by_what_is_wanted_of_it() {
    let now = Instant::now();
    let fresh = Abuse::new(ResetLimits::default());
    for (event, most) in [
        (StreamEvent::Data { useful: 0, all: 16_393 }, 127),
        (StreamEvent::Data { useful: 0, all: 10 }, 209_715),
        (StreamEvent::Data { useful: 1, all: 10 }, 349_525),
        (StreamEvent::Data { useful: 2, all: 11 }, 699_050),
    ] {
        let mut abuse = fresh;
        let ended = (0..1_000_000).find(|_| abuse.note(event, now).is_err());
        assert_eq!(ended, Some(most), "{event:?}");
        assert_eq!(abuse.note(event, now), Err(Excess::UselessData));
        assert_eq!(abuse.note(event, now + Duration::from_secs(10)), Ok(()), "another window");
    }
    let mut small = fresh;
    for _ in 0..1_000_000 {
        assert_eq!(small.note(StreamEvent::Data { useful: 3, all: 12 }, now), Ok(()));
    }
}

/// A download is acknowledged by many small frames.
#[test]
fn adjustments_go_with_progress() {
    let now = Instant::now();
    let mut abuse = Abuse::new(ResetLimits::default());
    for _ in 0..1000 {
        abuse.note(StreamEvent::Progress, now).unwrap();
        for _ in 0..100 {
            assert_eq!(abuse.note(StreamEvent::Adjustment, now), Ok(()));
        }
    }
}
