//! The certificates that a new signer has yet to be given, some at a time.
//!
//! Runs in: the launcher, as root. Sees: no input. Never: counts on a signer's word for more than when it is given the
//! next.

use std::collections::VecDeque;

/// LIMIT: certificates that a new signer has been given and not answered for. Each is one or two open files of the
/// launcher's until it is sent, and there may be tens of thousands.
const GIVEN_AT_ONCE: usize = 64;
/// How few of them are left when the signer is given more. Several come at a time, so that the launcher walks the way
/// to their folder once, and the signer has enough to read meanwhile.
const GIVEN_AGAIN_AT: usize = GIVEN_AT_ONCE / 2;

/// What a new signer has yet to be given.
#[derive(Debug)]
pub(super) struct Giving {
    /// Certificates, by their sites and numbers.
    left: VecDeque<(u16, u16)>,
    /// How many it was given and has not answered for.
    unanswered: usize,
    /// Whether the signer has to answer for some before it is given more.
    waits: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This certificate.
    Certificate((u16, u16)),
    /// The signer has to answer first.
    Answer,
    /// It was given all.
    Nothing,
}

impl Giving {
    /// All of these.
    pub(super) fn of(certificates: impl IntoIterator<Item = (u16, u16)>) -> Self {
        Self { left: certificates.into_iter().collect(), unanswered: 0, waits: false }
    }

    /// What is next.
    pub(super) fn next(&mut self) -> Next {
        match self.left.front() {
            None => Next::Nothing,
            Some(_) if self.waits => Next::Answer,
            Some(_) => self.left.pop_front().map_or(Next::Nothing, Next::Certificate),
        }
    }

    /// The signer was given one.
    pub(super) fn given(&mut self) {
        self.unanswered += 1;
        self.waits |= self.unanswered >= GIVEN_AT_ONCE;
    }

    /// The signer has said what became of one.
    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.waits &= self.unanswered > GIVEN_AGAIN_AT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_is_given_the_next_when_it_has_answered() {
        let certificates = || (0..3 * GIVEN_AT_ONCE as u16).map(|site| (site, 0));
        let (mut giving, mut given) = (Giving::of(certificates()), Vec::new());
        let mut waits = 0;
        loop {
            match giving.next() {
                Next::Certificate(id) => {
                    given.push(id);
                    giving.given();
                }
                Next::Answer => {
                    waits += 1;
                    giving.answered();
                }
                Next::Nothing => break,
            }
        }
        assert_eq!((given, waits), (certificates().collect(), 2 * GIVEN_AT_ONCE));
        assert_eq!(Giving::of([]).next(), Next::Nothing);
    }

    #[test]
    fn a_signer_is_given_several_at_a_time() {
        let mut giving = Giving::of((0..2 * GIVEN_AT_ONCE as u16).map(|site| (site, 0)));
        let give = |giving: &mut Giving| {
            let mut count = 0;
            while let Next::Certificate(_) = giving.next() {
                giving.given();
                count += 1;
            }
            count
        };
        assert_eq!(give(&mut giving), GIVEN_AT_ONCE);
        let given: Vec<usize> = (0..GIVEN_AT_ONCE)
            .map(|_| {
                giving.answered();
                give(&mut giving)
            })
            .collect();
        let often = given.iter().filter(|&&count| count > 0).count();
        assert_eq!((often, given.iter().sum()), (2, GIVEN_AT_ONCE), "{given:?}");
    }
}
