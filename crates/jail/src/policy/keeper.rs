//! The strict list of what copies a core file: one folder, one file, and nothing else.

use super::{Allow, allow};
use libc as l;

/// Copies the newest file of one folder into a file that it was given.
pub(super) const KEEPER: &[Allow] = &[
    allow(&[l::SYS_openat2], "the core file, below the folder of core files"),
    allow(&[l::SYS_getdents64], "the names in that folder"),
    allow(&[l::SYS_fstat, l::SYS_newfstatat, l::SYS_statx], "kind, size and age of what is there"),
    allow(&[l::SYS_lseek, l::SYS_pread64], "the parts of a core file that are not empty"),
    allow(&[l::SYS_pwrite64, l::SYS_ftruncate], "the copy, with the same empty parts"),
];
