//! The order in which the kernel kills processes when memory runs out.
//!
//! Runs in: the launcher, and its children before they execute their programs. Sees: the kernel's own files. Never:
//! lowers a score.
//!
//! `oom_score_adj` is inherited, and a thousandth of all memory (of that of the control group whose limit is reached).
//! What a process with CAP_SYS_RESOURCE sets is the least that a process without that capability can set later
//! (`proc_pid_oom_score_adj(5)`).

use std::fs;
use std::io;

/// The kernel's largest score.
const SCORE_MAX: i32 = 1000;
const OWN: &str = "/proc/self/oom_score_adj";

/// The score of this process.
///
/// # Errors
/// There is no `/proc`.
pub fn own() -> io::Result<i32> {
    fs::read_to_string(OWN)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The score that is `step` of at most `step_max` above `own`. Where there is less room up to the largest score, all
/// steps are smaller: a launcher with a high score of its own, as in a container that is to be killed first, is killed
/// later than its children all the same.
pub fn above(own: i32, step: u16, step_max: u16) -> i32 {
    let room = (SCORE_MAX - own).min(step_max.into());
    own + i32::from(step) * room / i32::from(step_max)
}

/// Gives this process a score.
///
/// # Errors
/// Those of the kernel, as for a score below the least.
pub fn set(score: i32) -> io::Result<()> {
    fs::write(OWN, score.to_string())
}

/// Has this process go before the one that it was made by.
///
/// # Errors
/// As of [`own`] and [`set`].
pub fn step_up(step: u16, step_max: u16) -> io::Result<()> {
    set(above(own()?, step, step_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_order_below_the_largest_score() {
        let steps = |own| [0, 100, 200, 500].map(|step| above(own, step, 500));
        assert_eq!(steps(0), [0, 100, 200, 500]);
        assert_eq!(steps(-500), [-500, -400, -300, 0]);
        assert_eq!(steps(950), [950, 960, 970, 1000]);
        assert_eq!(steps(1000), [1000; 4]);
    }
}
