//! What a process of each role takes: threads, and memory that a control group counts.
//!
//! Runs in: the launcher, as root, and `bulkhead check`. Sees nothing. Never: says what a process may take, which its
//! jail does.
//!
//! The bytes were measured by `bench/footprint` (x86-64, Linux 6.18) with 8, 30 and 60 sites that each have a process
//! of every kind: what the server's control group has less, once the kernel has given back what nobody uses, when all
//! processes of a role are killed at once, for each of them. 40 KiB are added to each for what the launcher, the logger
//! and the kernel's groups keep for it, and the sum is rounded up. `test_room.Footprint` compares them with real
//! starts.

use wire::Role;

use crate::spawn::uid_processes::DATA_PROXY_BEGINS;

/// Bytes of the launcher, the reaper and the closer (3 MiB), and of the programs' files as far as they are used.
pub(crate) const BYTES_BESIDE: u64 = 24 << 20;
/// Bytes that a gate takes for each partition that it sends requests to.
pub(crate) const BYTES_OF_A_WAY: u64 = 6 << 10;

/// Threads that a process of a role begins with.
pub(crate) fn threads_of(role: Role) -> u64 {
    if role == Role::DataProxy { DATA_PROXY_BEGINS } else { 1 }
}

/// Bytes that a process of a role takes when it has come up and has done nothing yet: its own pages, page tables, and
/// what others and the kernel keep for it. What a program of the operator's keeps is not known: a small one takes this.
pub(crate) const fn bytes_of(role: Role) -> u64 {
    role.facts().kib << 10
}
