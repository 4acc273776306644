//! The cost of each policy for a connection: nanoseconds of processor time.
//!
//! Run by people: `cargo run --release -p conditioning --example costs`. It says whether all of them together take at
//! most two microseconds of a connection, and fails if not.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use conditioning::checks::{Setting, check};
use conditioning::{
    Bans, ClientOrigin, DelayQueue, Exempt, Priority, Queue, Rate, ShareLimits, Shares, Tree,
};

/// The time that all together may take.
const NANOSECONDS_MAX: f64 = 2000.0;
const ROUNDS: u32 = 1_000_000;
/// Connections that are held meanwhile, as many as a process can have.
const HELD: u32 = 20_000;

const HEAD: &[u8] = b"GET /articles/2026/11/a-page.html?from=front&page=2 HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://www.example.org/\r\nConnection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\nUpgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n\r\n";

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number.wrapping_mul(0x9e37_79b1)).into()
}

/// How long this process has run.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = status.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn measure(name: &str, mut operation: impl FnMut(u32)) -> f64 {
    let since = processor_time();
    (0..ROUNDS).for_each(&mut operation);
    let cost = (processor_time() - since).as_nanos() as f64 / f64::from(ROUNDS);
    println!("{name:<56} {cost:>6.0} ns");
    cost
}

fn main() -> ExitCode {
    let now = Instant::now();
    let exempt = || Exempt(["127.0.0.0/8", "::1"].iter().filter_map(|text| text.parse().ok()).collect());
    let mut bans = Bans::new(20, Duration::from_secs(600), exempt());
    let mut rate = Rate::new(100_000, 100_000).exempting(exempt());
    let mut incomplete = Tree::new();
    let mut queue = Queue::new(Priority::Recency);
    let mut shares = Shares::new(ShareLimits::default(), 20 * HELD, exempt());
    for number in 0..HELD {
        incomplete.insert(ClientOrigin::from(client(number)), number);
        queue.push(client(number), now, number);
        let _ = shares.admit(client(number));
        bans.offences(client(number), now);
    }
    let costs = [
        measure("is it banned?", |number| {
            black_box(bans.is_banned(client(number), now));
        }),
        measure("a token of its rate", |number| {
            black_box(rate.take(client(number % HELD), now));
        }),
        measure("a place among the incomplete, and out", |number| {
            let key = incomplete.insert(ClientOrigin::from(client(number)), number);
            black_box(incomplete.remove(key));
        }),
        measure("strict checks of a browser's head", |_| {
            let _ = black_box(check(black_box(HEAD), Setting::Strict));
        }),
        measure("its share of the connections, and back", |number| {
            let _ = black_box(shares.admit(client(number)));
            shares.release(client(number));
        }),
        measure("a place in the queue, by recency, and out", |number| {
            queue.push(client(number), now, number);
            black_box(queue.pop());
        }),
    ];
    let sum = costs.iter().sum::<f64>();
    println!("{:<56} {sum:>6.0} ns", "together");
    println!("\nonly under attack:");
    attacked(now);
    match sum <= NANOSECONDS_MAX {
        true => ExitCode::SUCCESS,
        false => {
            println!("more than {NANOSECONDS_MAX} ns");
            ExitCode::FAILURE
        }
    }
}

/// The work for connections that are dropped.
fn attacked(now: Instant) {
    let mut incomplete = Tree::new();
    for number in 0..HELD {
        incomplete.insert(ClientOrigin::from(client(number)), number);
    }
    measure("one comes, the oldest of the heaviest range goes", |number| {
        incomplete.insert(ClientOrigin::from(client(number)), number);
        black_box(incomplete.remove_heaviest());
    });
    // All of one /8 but a few, so that those who wait are many and may not go on.
    let mut shares = Shares::new(ShareLimits::default(), 1000, Exempt::default());
    let mut delayed = DelayQueue::new();
    let near = |number: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 | (number & 0xff_ffff)));
    for number in 0..HELD {
        let address = near(number.wrapping_mul(0x9e37_79b1));
        if shares.admit(address).is_err() {
            delayed.push(address, now, address);
        }
    }
    let mut held: Vec<IpAddr> =
        (0..HELD).map(|number| near(number.wrapping_mul(0x9e37_79b1))).take(250).collect();
    measure("one ends, one of 19,750 parked goes on, another comes", |number| {
        let place = number as usize % held.len();
        shares.release(held[place]);
        if let Some(next) = delayed.pop_admitted(&mut shares) {
            let ended = std::mem::replace(&mut held[place], next.item);
            delayed.push(ended, now, ended);
        }
    });
}
