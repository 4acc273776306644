//! What is done with each channel, in three stages: what must cost nothing, silence, and what costs this process.
//!
//! Runs in: `rogue`. Sees no untrusted bytes. Never: does a deed unsaid.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use wire::tls::{Holding, Verdict};
use wire::{
    AdminToLauncher, BUNDLES_MAX, Bundle, Bundles, Bytes, ChildToLauncher, Counters, FromWorker, Kind,
    NUMBERS_MAX, PREREAD_MAX, ProbeKind, Role, ToWorker,
};

use crate::batches;
use crate::databases;
use crate::descriptors;
use crate::hands::{encoded, flood, send, send_wrong, wrong};
use crate::helpers;
use crate::orders;
use crate::pages;
use crate::place::Place;

/// Milliseconds: how long the others have to settle, from one deed to the next, and of the silence.
const SETTLE_MS: u64 = 600;
pub const BETWEEN_MS: u64 = 15;
const SILENCE_MS: u64 = 2_500;
/// Connections in one message.
const CROWD: usize = BUNDLES_MAX - 1;
/// How long the admin role asks and does not read.
const ASKING: Duration = Duration::from_secs(60);
/// More than anybody puts up with.
pub const TOO_MANY: usize = 150;

/// All deeds of this process's role, one after the other.
pub fn all(mut place: Place) -> io::Result<()> {
    place.live(SETTLE_MS);
    control(&mut place);
    log(&mut place);
    to_sources(&mut place);
    match place.role {
        Role::Gate => gate_to_workers(&mut place),
        Role::Site => {
            site_to_workers(&mut place);
            helpers::site_to_helpers(&mut place);
        }
        Role::Logger => to_clients(&mut place),
        Role::Stapler => helpers::stapler_to_others(&mut place),
        Role::Signer => helpers::signer_to_sites(&mut place),
        Role::Connector => helpers::connector_to_site(&mut place),
        Role::Service => {
            databases::service_to_data_proxies(&mut place);
            pages::service_to_publisher(&mut place);
            orders::all(&mut place);
        }
        Role::Publisher => pages::publisher_to_services(&mut place),
        Role::DataProxy => {
            helpers::ask_connectors(&mut place);
            databases::data_proxy_to_services(&mut place);
        }
        _ => {}
    }
    place.tell("stage deeds");
    place.deaf = true;
    place.live(SILENCE_MS);
    place.tell("stage silence");
    place.deaf = place.role != Role::Gate;
    databases::enough_of_data_proxies(&mut place);
    enough(&mut place);
    place.tell("stage end");
    // Whoever is not ended by now goes on; the test sees that.
    place.live(60_000);
    Ok(())
}

/// Less nonsense than the launcher ends a process for.
fn control(place: &mut Place) {
    let counters = Counters { connections_now: u32::MAX, connections: u64::MAX, requests: u64::MAX };
    let good = encoded(&ChildToLauncher::Counters { counters });
    for one in wrong(&good) {
        send_wrong(&place.control, &one, place.pipe());
        place.live(BETWEEN_MS);
    }
    place.tell("control: wrong messages");
    send(&place.control, &encoded(&ChildToLauncher::Ready {}), &[]);
    (0..20).for_each(|_| send(&place.control, &good, &[]));
    place.tell("control: ready again, and counters that nobody asked for");
    if place.role == Role::Admin {
        // What it may ask for names a target; these do not exist. A status is its right, but not the answer's reading.
        let orders = [
            AdminToLauncher::Relaunch { ticket: 1, target: u32::MAX },
            AdminToLauncher::Probe { ticket: 2, target: u32::MAX, kind: ProbeKind::Attempts },
        ];
        orders.iter().for_each(|order| send(&place.control, &encoded(order), &[]));
        place.deaf = true;
        for ticket in 0..2_000 {
            send(&place.control, &encoded(&AdminToLauncher::Status { ticket: ticket % 3 }), &[]);
            if ticket % 100 == 0 {
                place.live(BETWEEN_MS);
            }
        }
        place.deaf = false;
        place.tell("control: orders for what does not exist, and a flood of them");
        return;
    }
    unasked(place);
    let orders = [
        AdminToLauncher::Status { ticket: 1 },
        AdminToLauncher::Relaunch { ticket: 2, target: 0 },
        AdminToLauncher::Probe { ticket: 3, target: 0, kind: ProbeKind::Attempts },
        AdminToLauncher::Stop { ticket: 4 },
    ];
    orders.iter().for_each(|order| send(&place.control, &encoded(order), &[]));
    place.live(BETWEEN_MS);
    place.tell("control: an administrator's orders");
}

/// Words that are another's to say, or that nobody asked for.
fn unasked(place: &mut Place) {
    let words = [
        ChildToLauncher::Certificate {
            site: 0,
            number: 0,
            verdict: Verdict::Good,
            holding: Holding::NOTHING,
        },
        ChildToLauncher::Certificate {
            site: u16::MAX,
            number: 7,
            verdict: Verdict::Mismatch,
            holding: Holding::NOTHING,
        },
        ChildToLauncher::StaplesEnd {},
        ChildToLauncher::Confirmed { ticket: 1 },
        ChildToLauncher::Committed {},
        ChildToLauncher::ChainCut { chain: u32::MAX },
        // It has said so before it was ready, or has never been one that may.
        ChildToLauncher::TakesRetire {},
        ChildToLauncher::LogWanted { site: u16::MAX },
    ];
    words.iter().for_each(|word| send(&place.control, &encoded(word), &[]));
    place.live(BETWEEN_MS);
    place.tell("control: verdicts, staples and confirmations that nobody asked for");
    allowed(place);
}

/// What a role may say, without end, of whatever there is.
fn allowed(place: &mut Place) {
    let word = |number: u16| match place.role {
        Role::Logger => Some(ChildToLauncher::LogWanted { site: 0 }),
        Role::Gate | Role::Site if number.is_multiple_of(2) => {
            Some(ChildToLauncher::Used { partition: number / 2 })
        }
        Role::Gate => Some(ChildToLauncher::Wanted { partition: number / 2 }),
        Role::Site | Role::Service => Some(ChildToLauncher::Idle {}),
        _ => None,
    };
    let words: Vec<_> = (0..2_000).chain([u16::MAX - 1, u16::MAX]).filter_map(word).collect();
    for (number, word) in words.iter().enumerate() {
        send(&place.control, &encoded(word), &[]);
        if number % 100 == 0 {
            place.live(BETWEEN_MS);
        }
    }
    place.tell("control: a flood of what is wanted, used and idle");
}

fn log(place: &mut Place) {
    let Some(log) = place.log.take() else { return };
    for (what, batch) in batches::wrong() {
        send(&log, &batch, &[]);
        place.live(BETWEEN_MS);
        place.tell(format_args!("log: {what}"));
    }
    for count in [1, 2, 253] {
        send(&log, &batches::flood(0), &vec![place.pipe(); count]);
    }
    for number in 0..200 {
        send(&log, &batches::flood(number), &[]);
        if number % 20 == 0 {
            place.live(BETWEEN_MS);
        }
    }
    place.tell("log: a flood");
    place.log = Some(log);
}

/// On the channels from gates and sites, as a worker; each forgives some nonsense.
fn to_sources(place: &mut Place) {
    for index in 0..place.sources.len() {
        let returns = |credits, done| encoded(&FromWorker::Returns { credits, done });
        let messages = wrong(&returns(0, vec![]));
        let source = copy(&place.sources[index]);
        let Ok(source) = source else { continue };
        for one in messages {
            send_wrong(&source, &one, place.pipe());
            place.live(BETWEEN_MS);
        }
        (0..3).for_each(|_| send(&source, &returns(u16::MAX, vec![]), &[]));
        let foreign = (0..NUMBERS_MAX as u64).map(|id| id + 1_000_000).collect();
        send(&source, &returns(0, foreign), &[]);
        hand_back(place, &source, index);
        place
            .tell(format_args!("source {index}: wrong messages, credits, ends, and connections handed back"));
    }
}

/// Hands back what is no connection, and connections more than once, also after their end was said.
fn hand_back(place: &mut Place, source: &OwnedFd, index: usize) {
    let back = |id, preread| encoded(&FromWorker::Back { id, preread: Bytes(preread) });
    send(source, &back(0, vec![]), &[]);
    let strange = [place.pipe(), place.control.as_fd(), source.as_fd(), rustix::stdio::stdin()];
    for descriptor in strange {
        send(source, &back(7, b"GET / HTTP/1.1\r\n".to_vec()), &[descriptor]);
    }
    for _ in 0..1_000 {
        send(source, &back(u64::MAX, vec![b'x'; 64]), &[place.pipe()]);
    }
    place.live(BETWEEN_MS);
    let kept: Vec<(u64, OwnedFd)> = (place.kept.iter())
        .filter(|(from, ..)| *from == index)
        .filter_map(|(_, bundle, stream)| Some((bundle.id, copy(stream).ok()?)))
        .collect();
    for (id, stream) in kept {
        // Its end is said, and it is kept and used nevertheless.
        let done = encoded(&FromWorker::Returns { credits: 0, done: vec![id, id] });
        send(source, &done, &[]);
        for preread in [vec![], vec![b'x'; PREREAD_MAX], b"GET /".to_vec(), vec![]] {
            send(source, &back(id, preread), &[stream.as_fd()]);
            place.live(BETWEEN_MS);
        }
    }
}

/// As a gate: on every channel what a connection may be, and on those to victims what costs the channel.
fn gate_to_workers(place: &mut Place) {
    for index in 0..place.lines.len() {
        strange_connections(place, index);
    }
    place.tell("workers: what is no connection");
    let victims: Vec<u16> = victims(place);
    for (deed, partition) in victims.into_iter().enumerate() {
        if let Some(index) = place.lines.iter().position(|line| line.partition == partition) {
            close_line(place, index, deed);
        }
    }
    place.tell("workers: what costs a channel");
}

/// The partitions whose hosts are called victims.
fn victims(place: &Place) -> Vec<u16> {
    let routes = place.routes.iter().filter(|(host, ..)| host.starts_with("victim"));
    let mut victims: Vec<u16> = routes.map(|(.., partition)| *partition).collect();
    victims.dedup();
    victims
}

fn site_to_workers(place: &mut Place) {
    for index in 0..place.lines.len() {
        strange_connections(place, index);
        close_line(place, index, [0, 7, 8, 10][index % 4]);
    }
    place.tell("workers: what is no connection, and what costs a channel");
}

/// What comes in a bundle in the place of a connection; the worker has given credits for them.
fn strange_connections(place: &mut Place, index: usize) {
    let (pipe, null) = (place.pipe(), rustix::stdio::stdin());
    let listener = place.listeners.first().map_or(null, AsFd::as_fd);
    let line = &place.lines[index];
    let mut used = 0;
    // What the worker answers on the last goes to the launcher, as if this process had said it.
    for descriptor in [pipe, null, listener, listener, place.control.as_fd()] {
        if line.credits > used {
            used += 1;
            send(&line.channel, &connection(0, vec![]), &[descriptor]);
        }
    }
    // As the site with a host's certificate says it: a client, which may be made up, on what is no pair.
    for kind in [Kind::RelayedTls10, Kind::RelayedTls11, Kind::RelayedTls2, Kind::Tls, Kind::Http2] {
        if line.credits > used {
            used += 1;
            let head = b"GET /made-up HTTP/1.1\r\nHost: main.test\r\nClient-Cert: :AAAA:\r\n\r\n";
            send(&line.channel, &of_kind(kind, 0, head.to_vec()), &[pipe]);
        }
    }
    place.lines[index].credits -= used;
    place.live(BETWEEN_MS);
}

/// One of the ways to lose a channel to a worker.
fn close_line(place: &mut Place, index: usize, deed: usize) {
    let messages = wrong(&connection(0, vec![]));
    let pipe = place.pipe();
    let channel = &place.lines[index].channel;
    let what = match (deed, messages.get(deed)) {
        // With one descriptor, or two of which the second is closed, the message is a good one.
        (_, Some(one)) if !matches!(one.descriptors, 1 | 2) => {
            send_wrong(channel, one, pipe);
            one.what
        }
        (7, _) => {
            // Credits come back with each message, so that only what comes faster is too much.
            let crowd = crowd();
            for _ in 0..50 {
                send(channel, &crowd, &[pipe; CROWD]);
            }
            "more connections than credits"
        }
        // A descriptor fewer than there are bundles.
        (9, _) => {
            send(channel, &crowd(), &[pipe; CROWD - 1]);
            "a bundle without a connection"
        }
        (8, _) => {
            send(channel, &connection(0, vec![]), &[]);
            "a bundle without a connection"
        }
        (10, _) => {
            let _ = shutdown(channel, Shutdown::Write);
            "the end of one direction"
        }
        _ => {
            let _ = shutdown(channel, Shutdown::Read);
            send(channel, &connection(0, vec![b'x'; PREREAD_MAX]), &[pipe]);
            "the end of the other direction"
        }
    };
    place.tell(format_args!("worker of partition {}: {what}", place.lines[index].partition));
    place.lines[index].credits = 0;
    place.live(BETWEEN_MS);
}

/// A message with so many connections that two of them take more than all credits, and one takes not quite all.
fn crowd() -> Vec<u8> {
    let peer = SocketAddr::from(([192, 0, 2, 2], 2));
    let bundle = |id| Bundle { id, peer, local: peer, kind: Kind::Plain, preread: Bytes(Vec::new()) };
    encoded(&ToWorker::Connections { bundles: Bundles((0..CROWD as u64).map(bundle).collect()) })
}

fn connection(id: u64, preread: Vec<u8>) -> Vec<u8> {
    of_kind(Kind::Plain, id, preread)
}

fn of_kind(kind: Kind, id: u64, preread: Vec<u8>) -> Vec<u8> {
    let peer = SocketAddr::from(([192, 0, 2, 2], 2));
    let bundle = Bundle { id, peer, local: peer, kind, preread: Bytes(preread) };
    encoded(&ToWorker::Connection { bundle })
}

/// As the logger: what is sent to those who only ever send, and descriptors with it.
fn to_clients(place: &mut Place) {
    for log in &place.logs {
        send(log, &[7; 1000], &[]);
        for _ in 0..300 {
            send(log, b"x", &[place.pipe(); 4]);
        }
        let _ = shutdown(log, Shutdown::Both);
    }
    place.tell("clients: what they do not expect");
}

/// So much of it that the peer has enough: of a worker's channel, then of this process.
fn enough(place: &mut Place) {
    descriptors::all(place);
    for source in &place.sources {
        flood(source, TOO_MANY, &[]);
        let _ = shutdown(source, Shutdown::Write);
    }
    place.live(300);
    if place.role == Role::Admin {
        return without_reading(place);
    }
    flood(&place.control, TOO_MANY, &[place.pipe()]);
    place.live(300);
}

/// As the admin role: asks for what it has a right to, and takes no answer.
fn without_reading(place: &mut Place) {
    let end = Instant::now() + ASKING;
    while Instant::now() < end {
        for ticket in 0..1_000 {
            send(&place.control, &encoded(&AdminToLauncher::Bans { ticket }), &[]);
        }
        place.breathe();
    }
}

fn copy(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    descriptor.try_clone()
}
