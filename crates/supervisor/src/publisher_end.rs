//! What the end of a publisher means for its site, and what can be done.
//!
//! Runs in: the launcher, as root. Sees: how the process has ended. Never: reads what it has said, which `error.log`
//! has.

use sys::process::Exit;

/// The signals that a process gets for what its own code does: a jump or an access that cannot be, an abort, a stack
/// that is used up.
const OWN_FAULTS: [i32; 5] = [4, 6, 7, 8, 11];
const KILL: i32 = 9;

/// Why a publisher may have ended so, and the remedy. The log has its last words before this line.
pub(crate) fn reason(exit: Exit) -> &'static str {
    match exit {
        Exit::Clean => "it was not told to",
        Exit::Status(_) => "`bulkhead check` says what is wrong with templates",
        Exit::Signal(KILL) => {
            "somebody, or the kernel for want of memory, has killed it: `dmesg` has the latter"
        }
        Exit::Signal(signal) if OWN_FAULTS.contains(&signal) => {
            "a template, or the memory that it takes, may be too much for it: take out what has changed last, and `bulkhead republish`"
        }
        Exit::Signal(_) => "somebody has ended it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_remedy() {
        let cases = [
            (Exit::Status(1), "bulkhead check"),
            (Exit::Status(101), "bulkhead check"),
            (Exit::Signal(6), "take out what has changed last"),
            (Exit::Signal(11), "take out what has changed last"),
            (Exit::Signal(9), "dmesg"),
            (Exit::Signal(15), "somebody"),
        ];
        for (exit, words) in cases {
            assert!(reason(exit).contains(words), "{exit}");
        }
    }
}
