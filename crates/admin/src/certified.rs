//! Certificates, as they leave: a line of JSON each.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), with numbers of the stapler's, which may be
//! compromised. Never: takes a number for anything but a number.

use serde::Serialize;
use wire::stapler::{Staple, Stapled, Trouble};
use wire::tls::{Holding, Verdict};

/// A certificate of a site. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Certificate {
    site: String,
    file: String,
    /// The fault of the file; its contents from before are in use then.
    fault: Option<&'static str>,
    /// The kind of the key that is in use, if one is.
    key: Option<&'static str>,
    not_before: Option<u64>,
    not_after: Option<u64>,
    /// Whether it names a host of the site.
    named: Option<bool>,
    staple: StapleState,
}

/// How it is with its staple.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct StapleState {
    /// `good`, `revoked`, or nothing.
    state: Option<&'static str>,
    /// Why there is nothing, or nothing newer.
    trouble: Option<&'static str>,
    until: Option<u64>,
    asked: Option<u64>,
}

impl Certificate {
    pub(crate) fn new(site: &str, file: &str, verdict: Verdict, holding: Holding, staple: &Staple) -> Self {
        let held = holding.not_after != 0;
        Self {
            site: site.to_owned(),
            file: file.to_owned(),
            fault: (verdict != Verdict::Good).then(|| verdict.words()),
            key: held.then(|| holding.kind.name()),
            not_before: held.then_some(holding.not_before),
            not_after: held.then_some(holding.not_after),
            named: held.then_some(holding.named),
            staple: StapleState::new(staple),
        }
    }
}

impl StapleState {
    fn new(staple: &Staple) -> Self {
        let state = match staple.stapled {
            Stapled::Nothing => None,
            Stapled::Good => Some("good"),
            Stapled::Revoked => Some("revoked"),
        };
        Self {
            state,
            trouble: word(staple.trouble),
            until: state.and(Some(staple.until)),
            asked: Some(staple.asked).filter(|asked| *asked != 0),
        }
    }
}

fn word(trouble: Trouble) -> Option<&'static str> {
    match trouble {
        Trouble::None => None,
        Trouble::NoResponder => Some("no_responder"),
        Trouble::Unaskable => Some("unaskable"),
        Trouble::Awaited => Some("awaited"),
        Trouble::Unanswered => Some("unanswered"),
        Trouble::Refused => Some("refused"),
        Trouble::Unknown => Some("unknown"),
        Trouble::Off => Some("off"),
        Trouble::Unsaid => Some("unsaid"),
    }
}
