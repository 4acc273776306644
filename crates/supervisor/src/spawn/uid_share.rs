//! How much of a range of uids is given out, and why it cannot be another one.
//!
//! Runs in: the launcher, and the commands `check` and `site`. Sees: numbers and names of the table of uids. Does no
//! input or output.

use std::ops::RangeInclusive;

/// LIMIT: hundredths of the range that may be given out before that is said: what is left is for as many sites as come
/// in some months, and a longer range takes a reload.
const SCARCE_PERCENT: u64 = 80;

/// Why a range cannot be another one: uids of it that were given out, and that the other lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// Who was given the lowest of these.
    pub owner: String,
    /// That one.
    pub uid: u32,
    /// How many there are.
    pub count: usize,
    /// From the lowest to the highest that was given out.
    pub all: RangeInclusive<u32>,
}

/// How much of a range of uids is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first uid of the range.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// How many of it were given out, or are named by the machine's own tables.
    pub taken: u32,
    /// How many of these nothing of the configuration has.
    pub left: u32,
}

impl Share {
    /// How many uids the range has.
    pub fn size(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    /// How many hundredths of it are taken.
    pub fn percent(&self) -> u64 {
        u64::from(self.taken) * 100 / self.size()
    }

    /// Whether the operator should see to it.
    pub fn is_scarce(&self) -> bool {
        self.percent() >= SCARCE_PERCENT
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, Self { first, last, taken, left }) = (self.size(), self);
        write!(f, "{taken} of the {size} uids of `user_range` {first}-{last} are given out")?;
        if *left > 0 {
            write!(f, ", {left} of them to what the configuration does not have")?;
        }
        f.write_str(
            "; write a longer range and reload, or give back what sites have left (`bulkhead site uids --give-back --all`)",
        )
    }
}
