//! How many processes and threads there may be under one uid.
//!
//! Runs in: the launcher, as root; pure. Sees: no input. Never: gives one generation of a process room that another
//! needs.

use wire::data::{GIVEN_UP_MAX, READERS};

/// LIMIT: what a uid has room for of each process of ours: a thread of its own, one that closes what others have sent,
/// and one more. All together are fewer than would be felt where no control group holds each.
pub(crate) const ROLE_THREADS: u64 = 3;

/// Threads that a data proxy begins with: one for messages, one that keeps time, one that writes, and those that read.
pub(crate) const DATA_PROXY_BEGINS: u64 = 3 + READERS as u64;
/// LIMIT: threads of a data proxy: with those that were given up, and one more.
pub(crate) const DATA_PROXY_THREADS: u64 = DATA_PROXY_BEGINS + GIVEN_UP_MAX as u64 + 1;

/// LIMIT: how often the processes of one post may be there at once, under one uid: those that serve, those that are to
/// take their place, and those that drain, of each reload within `drain_timeout`.
const GENERATIONS: u64 = 64;

/// LIMIT: processes and threads of a uid, if that is less than all of these may have: more would be no limit for a
/// machine.
const UID_PROCESSES_MAX: u64 = 4096;

/// How many processes and threads a uid may have, of which those of one post may have so many.
///
/// The kernel counts all processes of the uid (`RLIMIT_NPROC`), and each of the generations that drain has as many as
/// the one that serves. What one process may have is the limit of its control group, where there is one.
pub(crate) fn processes_of_uid(of_post: u64) -> u64 {
    (of_post * GENERATIONS).min(UID_PROCESSES_MAX.max(of_post * 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_a_post_fit_under_its_uid() {
        assert_eq!((processes_of_uid(1), processes_of_uid(ROLE_THREADS)), (GENERATIONS, 192));
        assert!(processes_of_uid(DATA_PROXY_THREADS) / DATA_PROXY_THREADS >= 10);
        assert_eq!(processes_of_uid(256), UID_PROCESSES_MAX);
        assert_eq!(processes_of_uid(32_768), 65_536, "a successor starts beside it");
    }
}
