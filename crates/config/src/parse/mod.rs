//! Readers of the small languages inside strings: durations, sizes, ranges, names, hosts, paths.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must
//! never: accept two spellings of one thing that another process would take for two things.

pub(crate) mod grants;
pub(crate) mod hosts;
pub(crate) mod names;
pub(crate) mod networks;
pub(crate) mod units;
pub(crate) mod web;

use suggest::closest;

/// Why a string is not what its key wants: the rule it breaks, and what to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyFault {
    pub(crate) rule: String,
    pub(crate) help: Option<String>,
}

impl KeyFault {
    pub(crate) fn new(rule: impl Into<String>) -> KeyFault {
        KeyFault { rule: rule.into(), help: None }
    }

    pub(crate) fn with_help(rule: impl Into<String>, help: impl Into<String>) -> KeyFault {
        KeyFault { rule: rule.into(), help: Some(help.into()) }
    }

    /// All of it, for those who have no place to point at.
    pub(crate) fn in_words(self) -> String {
        let KeyFault { rule, help } = self;
        help.map_or(rule.clone(), |help| format!("{rule}; {help}"))
    }
}

/// The fault of a word that is not among those that are known.
pub(crate) fn one_of(rule: &str, text: &str, known: &[&str]) -> KeyFault {
    let near = closest(text, known);
    KeyFault {
        rule: format!("{rule} {}", known.join(", ")),
        help: near.map(|near| format!("did you mean `\"{near}\"`?")),
    }
}
