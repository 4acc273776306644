//! The first part of each filter: a binary search for the number of the call.
//!
//! Runs in: the launcher, which compiles filters. Sees no untrusted bytes. Never: allows a call that has a condition.
//!
//! When a filter is installed, the kernel runs it for the number of each call there is, to know those whose answer does
//! not depend on arguments. A list of comparisons, one for each call of the policy, took a twentieth of the time of a
//! start, and each call whose answer does depend on arguments goes through it.

use std::collections::BTreeMap;

use libc::{
    BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS,
};
use seccompiler::{SeccompRule, sock_filter};

/// Fields of `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// Our own architecture, as the kernel names it (`AUDIT_ARCH_*`).
#[cfg(target_arch = "x86_64")]
const OWN: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN: u32 = 0xc000_00b7;

/// What becomes of the calls from one number to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// This value is returned to the kernel.
    Fixed(u32),
    /// What comes behind the search decides, by the arguments.
    Conditional,
}

const REFUSED: Answer = Answer::Fixed(SECCOMP_RET_ERRNO | libc::EPERM as u32);
/// `clone3` does not exist: its flags are in memory, where no condition reaches them. Without it the C library uses
/// `clone`.
const MISSING: Answer = Answer::Fixed(SECCOMP_RET_ERRNO | libc::ENOSYS as u32);

/// The program that answers the calls of `rules` that have no condition, and those that are not there; the others are
/// left to the instructions behind it.
pub(super) fn program(rules: &BTreeMap<i64, Vec<SeccompRule>>) -> Vec<sock_filter> {
    let mut program = vec![
        instruction(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE),
        sock_filter { jt: 1, ..instruction(BPF_JMP | BPF_JEQ | BPF_K, OWN) },
        instruction(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        instruction(BPF_LD | BPF_W | BPF_ABS, NUMBER),
    ];
    program.extend(search(&ranges(rules)));
    let end = program.len();
    for (place, jump) in program.iter_mut().enumerate().filter(|(_, jump)| jump.code == TO_END) {
        *jump = instruction(BPF_JMP | BPF_JA, (end - place - 1) as u32);
    }
    program
}

/// The first number of each range of calls with the same answer.
fn ranges(rules: &BTreeMap<i64, Vec<SeccompRule>>) -> Vec<(u32, Answer)> {
    let answer = |conditions: &Vec<_>| match conditions.is_empty() {
        true => Answer::Fixed(SECCOMP_RET_ALLOW),
        false => Answer::Conditional,
    };
    let mut answers: BTreeMap<_, _> =
        rules.iter().map(|(call, rules)| (*call as u32, answer(rules))).collect();
    answers.insert(libc::SYS_clone3 as u32, MISSING);
    let mut ranges = vec![(0, REFUSED)];
    for (call, answer) in answers {
        ranges.push((call, answer));
        ranges.push((call + 1, REFUSED));
    }
    // A range that begins where another does has no call; one that goes on as the one before needs no border.
    ranges.dedup_by(|next, previous| {
        let is_empty = next.0 == previous.0;
        if is_empty {
            previous.1 = next.1;
        }
        is_empty
    });
    ranges.dedup_by_key(|range| range.1);
    ranges
}

/// The instructions for some ranges, with the number of the call loaded. Each ends with an answer, or goes to the end.
fn search(ranges: &[(u32, Answer)]) -> Vec<sock_filter> {
    if let [(_, answer)] = ranges {
        return vec![match answer {
            Answer::Fixed(value) => instruction(BPF_RET | BPF_K, *value),
            Answer::Conditional => instruction_to_end(),
        }];
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let Some((first_of_upper, _)) = upper.first() else { return Vec::new() };
    let (below, above) = (search(lower), search(upper));
    // A jump on a condition goes no further than 255 instructions.
    let begin = vec![
        sock_filter { jf: 1, ..instruction(BPF_JMP | BPF_JGE | BPF_K, *first_of_upper) },
        instruction(BPF_JMP | BPF_JA, below.len() as u32),
    ];
    [begin, below, above].concat()
}

/// A jump whose length is not known yet: the bit of a register, which no jump without a condition looks at, marks it.
const TO_END: u16 = (BPF_JMP | BPF_JA) as u16 | libc::BPF_X as u16;

fn instruction_to_end() -> sock_filter {
    sock_filter { code: TO_END, jt: 0, jf: 0, k: 0 }
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
