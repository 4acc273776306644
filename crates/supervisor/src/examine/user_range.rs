//! Whether uids can be given out of the range of a configuration: what was given out is in it, nobody else has the
//! rest, and there is enough of it.
//!
//! Runs in: a copy of the launcher, as root, beside its loop; and the commands `check` and `run`. Sees: the table of
//! uids, and `/proc`. Never: reserves the range; a start or a reload does.

use std::ops::RangeInclusive;
use std::path::Path;

use config::{Finding, Severity};

use super::finding::{Depth, error, warning};
use crate::error::range_text;
use crate::spawn::living;
use crate::spawn::uid_range;
use crate::spawn::uid_share::OutOfRange;
use crate::spawn::uids::Uids;

/// The range that a configuration asks for.
#[derive(Debug)]
pub(super) struct Asked<'c> {
    /// As it is written, if it is.
    pub(super) written: Option<&'c RangeInclusive<u32>>,
    /// What there is if it is not, unless the server has chosen another one.
    pub(super) default: &'c RangeInclusive<u32>,
    /// The state folder.
    pub(super) state: &'c Path,
}

/// What is wrong with that range, as far as the table and processes that live say it.
pub(super) fn findings(table: &Uids, asked: &Asked<'_>, depth: Depth) -> Vec<Finding> {
    let range = match uid_range::wanted(asked.written, asked.default, asked.state) {
        Ok(range) => range,
        Err(fault) => return vec![error(format!("is not known: {fault}"), "correct that file")],
    };
    let mut found = Vec::new();
    let is_running = *table.range() != range;
    // Of a server that does not run nobody knows which range it had: some of this may be long without any file.
    found.extend(table.may_become(&range).err().map(|lacking| dropped(&range, &lacking)));
    if depth == Depth::Check && !is_running {
        let outside = table.outside().map(|lacking| dropped(&range, &lacking));
        found.extend(outside.map(|finding| Finding { severity: Severity::Warning, ..finding }));
    }
    if !table.has_whole(&range) {
        found.extend(in_use(table.range(), &range));
    }
    let share = table.share();
    if depth == Depth::Check && !is_running && share.is_scarce() {
        found.push(warning(
            format!("is nearly used up: {} of {} uids are given out", share.taken, share.size()),
            "write a longer range; or `bulkhead site uids --give-back --all` gives back what sites have left",
        ));
    }
    found
}

fn dropped(range: &RangeInclusive<u32>, lacking: &OutOfRange) -> Finding {
    let OutOfRange { owner, uid, count, all } = lacking;
    let more = if *count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    let help = format!(
        "write a range that has all of {}: files of these uids may be there, and whoever got them next would have these; or give back \
         what sites have left (`bulkhead site uids`)",
        range_text(all)
    );
    let range = range_text(range);
    error(format!("lacks uid {uid} of {owner}{more}: {range} must have every uid that was given out"), help)
}

/// Something of another's that lives under a uid that would be ours.
fn in_use(old: &RangeInclusive<u32>, new: &RangeInclusive<u32>) -> Option<Finding> {
    let of_others = |process: &living::Living| {
        process.uids().into_iter().find(|uid| new.contains(uid) && !old.contains(uid))
    };
    let (uid, pid) = living::all().find_map(|process| Some((of_others(&process)?, process.pid)))?;
    Some(error(
        format!("has uid {uid}, under which process {pid} runs: it is none of this server's"),
        "end that process, or write a range without the uid",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "51001 site/a\n51005 site/b\n";

    fn said(lines: &str, written: Option<RangeInclusive<u32>>, depth: Depth) -> Vec<String> {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("uids"), lines).unwrap();
        let table = Uids::load(state.path(), 51001..=51010).unwrap();
        let asked = Asked { written: written.as_ref(), default: &(51001..=51010), state: state.path() };
        findings(&table, &asked, depth)
            .into_iter()
            .map(|one| format!("{} | {}", one.message, one.help))
            .collect()
    }

    #[test]
    fn a_range_has_all_that_was_given_out() {
        for whole in [51001..=51010, 51000..=51020, 51001..=51005] {
            assert_eq!(said(STATE, Some(whole), Depth::Check), [""; 0]);
        }
        let dropped = said(STATE, Some(51002..=51004), Depth::Start);
        assert!(
            dropped[0].starts_with("lacks uid 51001 of site/a, and 1 more: 51002-51004 must"),
            "{dropped:?}"
        );
        assert!(dropped[0].contains("has all of 51001-51005"), "{dropped:?}");
    }

    #[test]
    fn check_warns_of_what_was_given_out_of_another_range() {
        let other = "400 site/a\n51005 site/b\n";
        assert_eq!(said(other, None, Depth::Start), [""; 0]);
        assert!(said(other, None, Depth::Check)[0].starts_with("lacks uid 400 of site/a: 51001-51010 must"));
    }

    #[test]
    fn nobody_lives_in_what_is_new_of_it() {
        // Whoever runs this test.
        let own = rustix::process::getuid().as_raw();
        let taken = said(STATE, Some(own.min(51001)..=own.max(51010)), Depth::Start);
        assert!(taken[0].contains("under which process "), "{taken:?}");
    }

    #[test]
    fn one_that_is_nearly_used_up_is_warned_of_by_check() {
        let lines = |count: u32| {
            (0..count).map(|number| format!("{} site/{number}\n", 51001 + number)).collect::<String>()
        };
        let of_check = |count| said(&lines(count), None, Depth::Check);
        assert_eq!(of_check(7), [""; 0]);
        assert!(of_check(8)[0].starts_with("is nearly used up: 8 of 10 uids"));
        assert_eq!(said(&lines(10), None, Depth::Start), [""; 0]);
    }
}
