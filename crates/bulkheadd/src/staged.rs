//! What a changed configuration has made before it holds: one owner of all of it, which holds or is undone once.
//!
//! Runs in: the launcher. Sees: no input. Never: does anything by itself; the launcher makes and undoes each step, in
//! `staging`.

use supervisor::slots::Running;
use supervisor::spawn::uid_range::UidRange;

/// Something that a change has made, with what its way back needs.
#[derive(Debug)]
pub(crate) enum Step {
    /// Slots have come, or are about to go.
    Slots,
    /// Another configuration is in the place of this one.
    Config(Box<Running>),
    /// Uids are given out of another range; this is the one before, which is reserved as long.
    Range(UidRange),
    /// These names have been given uids.
    Uids(Vec<String>),
    /// Logs were opened, and loggers have been sent those of sites that come.
    Logs,
}

/// All that a change has made, in that order.
#[derive(Debug, Default)]
#[must_use = "what a change has made holds, or is undone"]
pub(crate) struct Staged {
    steps: Vec<Step>,
}

impl Staged {
    /// Notes what has been made.
    pub(crate) fn made(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Processes are about to be started: from here on a program may have been given to a uid, or a file be of it, so
    /// that the uid stays whose it is.
    pub(crate) fn launches(&mut self) {
        self.steps.retain(|step| !matches!(step, Step::Uids(_)));
    }

    /// The configuration that holds while another one is being put in its place.
    pub(crate) fn before(&self) -> Option<&Running> {
        self.steps.iter().find_map(|step| match step {
            Step::Config(before) => Some(&**before),
            _ => None,
        })
    }

    /// All of it holds; the configuration of before.
    pub(crate) fn hold(&mut self) -> Option<Running> {
        self.steps.drain(..).find_map(|step| match step {
            Step::Config(before) => Some(*before),
            _ => None,
        })
    }

    /// What is to be undone next: what was made last. Once.
    pub(crate) fn take_last(&mut self) -> Option<Step> {
        self.steps.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_last_is_undone_first_and_once() {
        let mut staged = Staged::default();
        for step in [Step::Slots, Step::Uids(vec!["site/a".into()]), Step::Logs] {
            staged.made(step);
        }
        assert!(matches!(staged.take_last(), Some(Step::Logs)));
        assert!(matches!(staged.take_last(), Some(Step::Uids(names)) if names == ["site/a"]));
        assert!(matches!(staged.take_last(), Some(Step::Slots)));
        assert!(staged.take_last().is_none() && staged.before().is_none());
    }

    #[test]
    fn a_range_goes_back_also_when_something_was_launched() {
        let mut staged = Staged::default();
        let range = UidRange::known(1001..=1009, None);
        [Step::Range(range), Step::Uids(Vec::new())].into_iter().for_each(|step| staged.made(step));
        staged.launches();
        assert!(matches!(staged.take_last(), Some(Step::Range(before)) if before.range == (1001..=1009)));
        assert!(staged.take_last().is_none());
    }

    #[test]
    fn a_uid_goes_back_until_something_was_launched_and_nothing_that_holds_is_undone() {
        let mut staged = Staged::default();
        [Step::Uids(Vec::new()), Step::Slots].into_iter().for_each(|step| staged.made(step));
        staged.launches();
        assert!(matches!(staged.take_last(), Some(Step::Slots)));
        assert!(staged.take_last().is_none());
        staged.made(Step::Logs);
        assert!(staged.hold().is_none() && staged.take_last().is_none());
    }
}
