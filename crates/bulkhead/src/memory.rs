//! How much memory a process has, as the kernel counts it.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: the kernel's texts. Never: fails; what
//! cannot be read is not told.

use std::fs;
use std::path::Path;

/// The memory of a process in bytes: its proportional share, or what is resident.
pub fn memory(pid: u32) -> Option<u64> {
    let proc = Path::new("/proc").join(pid.to_string());
    let rollup = fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
    pss(&rollup).or_else(|| {
        let statm = fs::read_to_string(proc.join("statm")).ok()?;
        resident(&statm, rustix::param::page_size() as u64)
    })
}

fn pss(rollup: &str) -> Option<u64> {
    let mut lines = rollup.lines();
    let kib = lines.find_map(|line| line.strip_prefix("Pss:"))?.trim().strip_suffix("kB")?.trim();
    Some(kib.parse::<u64>().ok()? * 1024)
}

fn resident(statm: &str, page: u64) -> Option<u64> {
    let pages = statm.split_whitespace().nth(1)?;
    Some(pages.parse::<u64>().ok()? * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_share_or_what_is_resident() {
        assert_eq!(pss("Rss: 9 kB\nPss:                1204 kB\nPss_Dirty: 3 kB\n"), Some(1204 * 1024));
        assert_eq!(pss(""), None);
        assert_eq!(resident("1000 25 3 1 0 9 0\n", 4096), Some(102_400));
        assert!(memory(std::process::id()).unwrap() > 0);
    }
}
