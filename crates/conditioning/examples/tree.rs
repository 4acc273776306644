//! The cost of the priority tree: bytes per address, and operations a second on one core.
//!
//! Run by people: `cargo run --release -p conditioning --example tree [ADDRESSES]`. It says whether a million distinct
//! addresses take at most 256 MiB, and whether each operation can be done a million times a second, and fails if not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

use conditioning::{ClientOrigin, Tree};

/// The bounds that must hold for a million addresses.
const BYTES_MAX: u64 = 256 << 20;
const OPERATIONS_MIN: f64 = 1e6;

/// A sequence of numbers without repetition: odd multiples of the step are a permutation, and so are the shifts.
fn scattered(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x21f0_aaad);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x735a_2d97);
    mixed ^ mixed >> 15
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn random_v4(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(scattered(number)).into()
}

/// Two by two, they share 7 of 8 nibbles: an inner node for each two, and as many more as can be above them.
fn pairs_v4(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(scattered(number >> 1) << 4 | number & 1).into()
}

fn random_v6(number: u32) -> IpAddr {
    let high = u64::from(scattered(number)) << 32 | u64::from(scattered(!number));
    Ipv6Addr::from_bits(u128::from(high) << 64).into()
}

/// Two by two, they share 15 of 16 nibbles.
fn pairs_v6(number: u32) -> IpAddr {
    let high =
        u64::from(scattered(number >> 1)) << 32 | u64::from(scattered(!(number >> 1)) & !15 | number & 1);
    Ipv6Addr::from_bits(u128::from(high) << 64).into()
}

/// Two branches at every node: the most inner nodes that there can be.
fn binary(number: u32) -> IpAddr {
    let spread = (0..16).fold(0_u64, |sum, bit| sum | u64::from(number >> bit & 1) << (4 * bit));
    let more = (16..20).fold(0_u64, |sum, bit| sum | u64::from(number >> bit & 1) << (4 * (bit - 16) + 1));
    Ipv6Addr::from_bits(u128::from(spread | more) << 64).into()
}

/// Measures one kind of addresses; whether what must hold does.
fn measure(name: &str, count: u32, address: fn(u32) -> IpAddr) -> bool {
    let mut tree: Tree<u32> = Tree::new();
    let before = resident();
    let filling = rate(count, |number| {
        tree.insert(ClientOrigin::from(address(number)), number);
    });
    let bytes = resident().saturating_sub(before);
    let full = tree.len();
    // One comes, one is served, with all the others waiting.
    let turning = best_rate(2 * count, |number| {
        if number % 2 == 0 {
            tree.insert(ClientOrigin::from(address(number / 2)), number);
        } else {
            tree.next();
        }
    });
    let weighing = rate(count / 2, |_| {
        tree.remove_heaviest();
    });
    let serving = rate(tree.len() as u32, |_| {
        tree.next();
    });
    assert!(full == count as usize && tree.is_empty(), "none is lost");
    println!(
        "{name:<44} {:>4} bytes/address {:>4} MiB   Mops/s: insert {:.2}, insert+next {:.2}, heaviest {:.2}, \
         next {:.2}",
        bytes / u64::from(count),
        bytes >> 20,
        filling / 1e6,
        turning / 1e6,
        weighing / 1e6,
        serving / 1e6
    );
    let slowest = filling.min(turning).min(weighing).min(serving);
    bytes <= BYTES_MAX && slowest >= OPERATIONS_MIN
}

/// Operations a second of processor time, whatever else the machine does.
fn rate(count: u32, mut operation: impl FnMut(u32)) -> f64 {
    let since = processor_time();
    (0..count).for_each(&mut operation);
    f64::from(count) / (processor_time() - since).as_secs_f64()
}

/// The best of eight parts: what else the machine does takes its caches away now and then.
fn best_rate(count: u32, mut operation: impl FnMut(u32)) -> f64 {
    let part = count / 8;
    (0..8).map(|number| rate(part, |step| operation(number * part + step))).fold(0.0, f64::max)
}

/// How long this process has run.
fn processor_time() -> Duration {
    let status = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = status.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

type Kind = (&'static str, fn(u32) -> IpAddr);

const KINDS: [Kind; 5] = [
    ("IPv4, random", random_v4),
    ("IPv4, pairs that share 7 of 8 nibbles", pairs_v4),
    ("IPv6, random", random_v6),
    ("IPv6, pairs that share 15 of 16 nibbles", pairs_v6),
    ("IPv6, two branches at every node", binary),
];

/// Each kind in a process of its own: the memory of one would be used again by the next.
fn measure_alone(kind: usize, count: u32) -> std::io::Result<bool> {
    let arguments = [count.to_string(), kind.to_string()];
    Ok(std::process::Command::new(std::env::current_exe()?).args(arguments).status()?.success())
}

fn main() -> std::io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>().ok());
    let count = arguments.next().flatten().unwrap_or(1_000_000);
    if let Some((name, address)) = arguments.next().flatten().and_then(|kind| KINDS.get(kind as usize)) {
        return Ok(ExitCode::from(u8::from(!measure(name, count, *address))));
    }
    let mut good = true;
    for kind in 0..KINDS.len() {
        good &= measure_alone(kind, count)?;
    }
    if !good {
        println!("more than {} MiB, or fewer than {OPERATIONS_MIN} operations a second", BYTES_MAX >> 20);
    }
    Ok(ExitCode::from(u8::from(!good)))
}
