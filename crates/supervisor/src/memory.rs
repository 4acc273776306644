//! Whether the machine's memory is short.
//!
//! Runs in: the launcher, as root. Sees: the kernel's figures for the whole machine. Never: looks more often than a process ends.

use std::fs;

/// With less available than this part of all, in percent, memory is short.
const AVAILABLE_MIN: u64 = 25;

/// Whether what is there only in case that it is wanted again had better go.
pub(crate) fn is_short() -> bool {
    fs::read_to_string("/proc/meminfo").is_ok_and(|figures| is_short_by(&figures))
}

fn is_short_by(meminfo: &str) -> bool {
    let figure = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let figures = figure("MemAvailable").zip(figure("MemTotal"));
    figures.is_some_and(|(available, total)| available * 100 < total * AVAILABLE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_when_less_than_a_quarter_is_available() {
        let figures =
            |available| format!("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n");
        assert!(is_short_by(&figures(249)) && !is_short_by(&figures(250)));
        assert!(!is_short_by("MemTotal: 1000 kB\n") && !is_short_by(""), "a kernel may not say it");
    }
}
