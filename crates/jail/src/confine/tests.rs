//! What compiled filters answer, beside the tables that they were compiled from.

use seccompiler::sock_filter;

use super::Filter;
use crate::policy::{Answer, KINDS, Policy};

/// Our own architecture and another one.
const OWN: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
const OTHER: u32 = 0x4000_0003;

/// What the kernel does with a filter: its answer to one call, and after how many instructions.
fn run(program: &[sock_filter], call: u32, arch: u32, arguments: [u64; 6]) -> (u32, usize) {
    let mut data = vec![call, arch, 0, 0];
    data.extend(arguments.iter().flat_map(|argument| [*argument as u32, (argument >> 32) as u32]));
    let (mut place, mut value, mut steps) = (0, 0_u32, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[place];
        (place, steps) = (place + 1, steps + 1);
        let mut jump = |is: bool| place += usize::from(if is { jt } else { jf });
        match code {
            0x20 => value = data[k as usize / 4],
            0x54 => value &= k,
            0x05 => place += k as usize,
            0x15 => jump(value == k),
            0x25 => jump(value > k),
            0x35 => jump(value >= k),
            0x45 => jump(value & k != 0),
            0x06 => return (k, steps),
            _ => panic!("{code:#x} is no instruction that the kernel knows"),
        }
    }
}

/// Arguments that conditions are about, and others.
fn arguments() -> Vec<[u64; 6]> {
    let values = [0, 1, 2, 3, 6, 7, 17, 0x801, 0x5421, 0x4000, u64::from(u32::MAX), u64::MAX];
    let one =
        |place: usize| values.map(|value| std::array::from_fn(|at| if at == place { value } else { 1 }));
    (0..6).flat_map(one).chain(values.map(|value| [value; 6])).collect()
}

#[test]
fn a_filter_answers_as_its_policy_says() {
    for policy in KINDS.iter().map(|(_, policy)| *policy) {
        let filter = Filter::of(policy).unwrap();
        for (call, arguments) in
            (0..600).flat_map(|call| arguments().into_iter().map(move |given| (call, given)))
        {
            let expected = match policy.answer(call, arguments) {
                _ if call == libc::SYS_clone3 => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
                Answer::Allowed | Answer::Notified => libc::SECCOMP_RET_ALLOW,
                Answer::Refused => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            };
            let (answer, _) = run(&filter.program, call as u32, OWN, arguments);
            assert_eq!(answer, expected, "{policy:?}: call {call} with {arguments:x?}");
        }
    }
}

#[test]
fn calls_of_another_architecture_end_the_process() {
    let filter = Filter::of(Policy::Site).unwrap();
    for call in [0, 1, 39, libc::SYS_clone3 as u32, u32::MAX] {
        assert_eq!(run(&filter.program, call, OTHER, [0; 6]).0, libc::SECCOMP_RET_KILL_PROCESS);
    }
    // The numbers of x32, which are this architecture's with a bit.
    let (answer, _) = run(&filter.program, 0x4000_0000, OWN, [0; 6]);
    assert_eq!(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
}

#[test]
fn a_call_that_is_not_listed_is_refused_after_a_few_steps() {
    for policy in KINDS.iter().map(|(_, policy)| *policy) {
        let filter = Filter::of(policy).unwrap();
        let most = (0..600).filter(|&call| policy.answer(call, [0; 6]) == Answer::Refused);
        let unlisted = most.filter(|&call| !policy.rules().any(|rule| rule.calls.contains(&call)));
        let steps = unlisted.map(|call| run(&filter.program, call as u32, OWN, [0; 6]).1).max();
        assert!(steps.is_some_and(|steps| steps < 30), "{policy:?}: {steps:?}");
    }
}
