//! The words with which a launcher executes the program that is to take its place.
//!
//! Runs in: the launcher, as root. Sees: its own command line. Never: takes what is behind these words for one of them:
//! they come first, and the words with which the server was started follow.
//!
//! | words | what the program does |
//! | --- | --- |
//! | `rehearse RECORD` | takes all in, says its version, and ends: what fails here is a refusal |
//! | `take-over RECORD PROGRAM` | takes all in, and replaces all processes; what fails has PROGRAM put back |
//! | `take-back RECORD REASON` | takes all in again, and says why it has come back |

use std::ffi::{CString, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;

use sys::process::Program;

/// The version of this launcher.
pub(crate) use sys::version::VERSION;

/// How a launcher begins that takes the place of another; descriptors are said by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Rehearse { record: RawFd },
    TakeOver { record: RawFd, program: RawFd },
    TakeBack { record: RawFd, reason: OsString },
}

impl Entry {
    fn words(&self) -> Vec<OsString> {
        let number = |number: &RawFd| OsString::from(number.to_string());
        match self {
            Self::Rehearse { record } => vec!["rehearse".into(), number(record)],
            Self::TakeOver { record, program } => vec!["take-over".into(), number(record), number(program)],
            Self::TakeBack { record, reason } => vec!["take-back".into(), number(record), reason.clone()],
        }
    }

    /// What the first words say, and those behind them, with which the server was started.
    pub(crate) fn parse(words: Vec<OsString>) -> (Option<Self>, Vec<OsString>) {
        let number = |at: usize| words.get(at).and_then(|word| word.to_str()?.parse().ok());
        let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
        let entry = match first {
            "rehearse" => number(1).map(|record| Self::Rehearse { record }),
            "take-over" => {
                number(1).zip(number(2)).map(|(record, program)| Self::TakeOver { record, program })
            }
            "take-back" => {
                number(1).zip(words.get(2).cloned()).map(|(record, reason)| Self::TakeBack { record, reason })
            }
            _ => None,
        };
        let skipped = entry.as_ref().map_or(0, |entry| entry.words().len());
        (entry, words.into_iter().skip(skipped).collect())
    }

    /// What a launcher executes to begin so, with the words with which this one was started.
    pub(crate) fn program(&self, file: OwnedFd) -> Program {
        let mut own = std::env::args_os();
        let name = own.next().unwrap_or_else(|| "bulkheadd".into());
        let (_, started) = Self::parse(own.collect());
        let words = std::iter::once(name).chain(self.words()).chain(started);
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        };
        // Sockets that a service manager has passed are in the record.
        let stays = |name: &OsString| !name.as_encoded_bytes().starts_with(b"LISTEN_");
        // What the kernel has given to this process has no byte 0, and a reason is made of text.
        let text = |word: OsString| CString::new(word.into_vec()).ok();
        Program {
            file,
            arguments: words.filter_map(text).collect(),
            environment: std::env::vars_os()
                .filter(|(name, _)| stays(name))
                .map(variable)
                .filter_map(text)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_start_stay_behind_those_of_an_upgrade() {
        let started: Vec<OsString> = ["--awaited", "/a.toml"].map(OsString::from).into();
        let entries = [
            Entry::Rehearse { record: 7 },
            Entry::TakeOver { record: 7, program: 8 },
            Entry::TakeBack { record: 7, reason: "no\nroom".into() },
        ];
        for entry in entries {
            let words = [entry.words(), started.clone()].concat();
            assert_eq!(Entry::parse(words), (Some(entry), started.clone()));
        }
        assert_eq!(Entry::parse(started.clone()), (None, started));
        let odd: Vec<OsString> = ["take-over", "x"].map(OsString::from).into();
        assert_eq!(Entry::parse(odd.clone()), (None, odd));
    }
}
