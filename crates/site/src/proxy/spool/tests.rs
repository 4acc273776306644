//! Bodies that wait in the file, and the ranges that give way.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::task::Poll;

use conditioning::{Exempt, ShareLimits};

use super::blocks::Blocks;
use super::part::STAY_TIME;
use super::*;

fn file() -> (OwnedFd, File) {
    let file = tempfile::tempfile().unwrap();
    (file.try_clone().unwrap().into(), file)
}

/// A file of so many bytes, with the shares that there are without a configuration.
fn spool_of(file: Option<OwnedFd>, bytes: u64) -> Spool {
    Spool::new(file, bytes, ShareLimits::default(), Exempt::default())
}

fn client(last: u8) -> IpAddr {
    IpAddr::from([10, last, 0, 1])
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_BYTES]
}

fn all(part: &mut SpooledBody) -> Vec<u8> {
    let mut all = Vec::new();
    while part.left() > 0 {
        all.extend_from_slice(&part.next().unwrap());
    }
    all
}

#[test]
fn what_was_written_is_read_whoever_writes_in_between() {
    let (own, other) = file();
    let spool = spool_of(Some(own), 64 << 20);
    let mut parts = Vec::new();
    for number in 0..3_u8 {
        parts.push((spool.begin(client(number)), Vec::new()));
    }
    for step in 0..40_u8 {
        // One after the other at first, then by turns: blocks of a body lie apart and together.
        let (part, expected) = &mut parts[usize::from(if step < 20 { step / 7 } else { step % 3 })];
        part.push(&block(step)).unwrap();
        expected.extend_from_slice(&block(step));
    }
    for (part, expected) in &mut parts {
        part.push(b"end").unwrap();
        expected.extend_from_slice(b"end");
        assert!(all(part) == *expected && part.keep().is_ok());
    }
    assert_eq!(other.metadata().unwrap().size(), 42 * BLOCK_BYTES as u64 + 3);
    assert_eq!(spool.taken(), 43 * BLOCK_BYTES as u64);
    drop(parts);
    assert_eq!(spool.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_file_is_as_long_as_bodies_need_it_and_a_while_longer() {
    let (own, other) = file();
    let spool = spool_of(Some(own), 1 << 30);
    let cutting = spool.clone();
    let cutting = async move { cutting.cut_unneeded().await };
    let uploads = async {
        let size = || other.metadata().unwrap().size() / BLOCK_BYTES as u64;
        let fill = |blocks: usize| {
            let mut part = spool.begin(client(1));
            (0..blocks).for_each(|_| part.push(&block(1)).unwrap());
            part
        };
        for _ in 0..3 {
            drop(fill(600));
            assert_eq!(size(), 600);
            tokio::time::sleep(STAY_TIME / 2).await;
        }
        let needed = fill(20);
        tokio::time::sleep(3 * STAY_TIME).await;
        assert_eq!(size(), 20);
        drop(needed);
        tokio::time::sleep(3 * STAY_TIME).await;
        assert_eq!(size(), 16);
        drop(fill(17));
        assert_eq!(size(), 17);
        tokio::time::sleep(3 * STAY_TIME).await;
        assert_eq!(size(), 16);
    };
    tokio::select! {
        () = cutting => {}
        () = uploads => {}
    }
}

#[test]
fn a_long_file_is_cut_in_steps() {
    let mut blocks = Blocks::new(Some(file().0), 10_000);
    let taken = (0..1000).map(|_| blocks.take().unwrap()).collect();
    blocks.give_back(taken);
    assert!(!blocks.cut());
    let steps = (0..).take_while(|_| blocks.cut()).count();
    assert!(steps == 3 && !blocks.is_long());
}

#[test]
fn pieces_of_any_length_are_one_body_which_can_be_read_again() {
    let spool = spool_of(Some(file().0), 64 << 20);
    let mut parts = [1, 2, 3].map(|number| (spool.begin(client(number)), Vec::new()));
    let lengths = [1, 70_000, 16 << 10, 0, BLOCK_BYTES - 1, BLOCK_BYTES, 300_000, 5];
    for (step, length) in lengths.into_iter().cycle().take(40).enumerate() {
        let (part, expected) = &mut parts[step * step % 3];
        let piece = (0..length).map(|at| (at * 7 + step) as u8).collect::<Vec<_>>();
        part.push(&piece).unwrap();
        expected.extend_from_slice(&piece);
    }
    for (part, expected) in &mut parts {
        assert!(all(part) == *expected);
        part.rewind();
        assert!(all(part) == *expected);
    }
    drop(parts);
    assert_eq!(spool.taken(), 0);
}

#[test]
fn the_file_is_as_long_as_it_may_be_and_no_longer() {
    let spool = spool_of(Some(file().0), 3 * BLOCK_BYTES as u64 + 1);
    let mut part = spool.begin(client(1));
    for byte in 0..3 {
        part.push(&block(byte)).unwrap();
    }
    // Nobody else has anything that could be taken.
    assert!(matches!(part.push(b"a"), Err(Lack::Full)));
    assert!(matches!(spool.begin(client(1)).push(b"a"), Err(Lack::Full)));
    drop(part);
    spool.begin(client(1)).push(b"a").unwrap();
}

#[test]
fn the_heaviest_range_gives_way_and_no_other() {
    let spool = spool_of(Some(file().0), 4 * 16 * BLOCK_BYTES as u64);
    let fill = |of: u8, blocks: usize| {
        let mut part = spool.begin(client(of));
        (0..blocks).for_each(|_| part.push(&block(of)).unwrap());
        part
    };
    let (small, one, two) = (fill(1, 15), fill(2, 33), fill(2, 16));
    let mut new = fill(3, 1);
    new.push(&block(3)).unwrap();
    // The oldest of those that hold the most.
    assert!(one.keep().is_err() && small.keep().is_ok() && two.keep().is_ok() && new.keep().is_ok());
    assert_eq!(spool.taken(), (15 + 16 + 2) * BLOCK_BYTES as u64);
    assert_eq!(all(&mut new), [block(3), block(3)].concat());
}

#[test]
fn what_its_server_has_heard_of_does_not_give_way() {
    let spool = spool_of(Some(file().0), 2 * BLOCK_BYTES as u64);
    let mut heard = spool.begin(client(1));
    heard.push(&block(1)).unwrap();
    heard.push(&block(1)).unwrap();
    assert!(heard.keep().is_ok());
    assert!(matches!(spool.begin(client(2)).push(b"a"), Err(Lack::Full)));
    assert_eq!(all(&mut heard), [block(1), block(1)].concat());
}

#[test]
fn neighbours_of_one_range_take_nothing_from_each_other() {
    let spool = spool_of(Some(file().0), 2 * BLOCK_BYTES as u64);
    let fill = |last: u8| {
        let mut part = spool.begin(IpAddr::from([10, 1, 0, last]));
        part.push(&block(last)).map(|()| part)
    };
    let first = [fill(1).unwrap(), fill(2).unwrap()];
    for last in 3..9 {
        assert!(matches!(fill(last), Err(Lack::Full)));
    }
    // Another range takes from it, and then has as much: neither takes from the other.
    let mut other = spool.begin(client(2));
    other.push(&block(2)).unwrap();
    assert_eq!(first.map(|part| part.keep().is_ok()), [false, true]);
    assert_eq!(spool.taken(), BLOCK_BYTES as u64);
    assert_eq!(all(&mut other), block(2));
}

#[test]
fn what_servers_have_heard_of_weighs_as_well() {
    let spool = spool_of(Some(file().0), 8 * 16 * BLOCK_BYTES as u64);
    let fill = |of: u8, blocks: usize| {
        let mut part = spool.begin(client(of));
        (0..blocks).for_each(|_| part.push(&block(of)).unwrap());
        part
    };
    let (heard, small) = (fill(1, 80), fill(2, 48));
    assert!(heard.keep().is_ok());
    // All that the heaviest range has is with servers: it takes nothing from others for that.
    assert!(matches!(spool.begin(client(1)).push(b"a"), Err(Lack::Full)));
    assert!(small.keep().is_ok());
}

#[test]
fn a_range_has_a_share_of_what_cannot_be_taken_back() {
    let spool = spool_of(Some(file().0), 40 * BLOCK_BYTES as u64);
    let pass_on = |address: [u8; 4], blocks: usize| {
        let mut part = spool.begin(address.into());
        (0..blocks).for_each(|_| part.push(&block(1)).unwrap());
        part.keep().map(|()| part)
    };
    // One body in any case, and what leaves a quarter.
    let mut held = vec![pass_on([10, 0, 0, 1], 10).unwrap()];
    held.extend((0..20).map(|last| pass_on([10, 0, 0, last], 1).unwrap()));
    for last in [1, 77] {
        assert!(matches!(pass_on([10, 0, 0, last], 1), Err(Lack::Share)));
    }
    assert_eq!(spool.taken(), 30 * BLOCK_BYTES as u64);
    // The rest is for others: their shares, a tenth, or one body of any length.
    held.push(pass_on([11, 0, 0, 1], 3).unwrap());
    held.push(pass_on([11, 0, 0, 2], 1).unwrap());
    assert!(matches!(pass_on([11, 0, 0, 2], 1), Err(Lack::Share)));
    held.push(pass_on([12, 0, 0, 1], 6).unwrap());
    assert_eq!(spool.taken(), 40 * BLOCK_BYTES as u64);
    drop(held);
    assert!(spool.taken() == 0 && pass_on([10, 0, 0, 1], 40).is_ok());
}

#[test]
fn without_a_file_or_with_one_that_cannot_be_written_there_is_no_room() {
    assert!(matches!(spool_of(None, 1 << 20).begin(client(1)).push(b"a"), Err(Lack::Disk(_))));
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    let spool = spool_of(Some(full.into()), 1 << 20);
    let mut part = spool.begin(client(1));
    assert!(matches!(part.push(b"a"), Err(Lack::Disk(error)) if error.raw_os_error() == Some(28)));
    drop(part);
    assert_eq!(spool.taken(), 0);
}

#[tokio::test]
async fn one_that_was_given_up_hears_of_it() {
    let spool = spool_of(Some(file().0), BLOCK_BYTES as u64);
    let mut heaviest = spool.begin(client(1));
    heaviest.push(&block(1)).unwrap();
    let mut lost = Box::pin(heaviest.lost());
    let now = std::future::poll_fn(|cx| Poll::Ready(lost.as_mut().poll(cx).is_ready())).await;
    assert!(!now);
    let mut other = spool.begin(client(2));
    other.push(&block(2)).unwrap();
    lost.await;
    assert_eq!(all(&mut other), block(2));
}
