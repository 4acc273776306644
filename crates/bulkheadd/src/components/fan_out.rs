//! An answer that is gathered from several processes: who waits for it, and until when.
//!
//! Runs in: the launcher. Sees: no input. Never: waits longer than [`WAIT`], or keeps more who wait than
//! [`WAITING_MAX`].

use std::time::{Duration, Instant};

/// How long an answer waits for a process that does not say its part.
const WAIT: Duration = Duration::from_millis(200);
/// The most orders that wait for one answer; what is asked beyond them is not answered.
const WAITING_MAX: usize = 64;

/// An answer, which serves all who have asked until it is complete: each `Order` is the admin process that has asked
/// and the ticket of its order, with what it wants to see where that differs.
#[derive(Debug, Default)]
pub(crate) struct FanOut<Order = (u64, u32)> {
    until: Option<Instant>,
    waiting: Vec<Order>,
}

impl<Order: Default> FanOut<Order> {
    /// Whether no more can wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Has an order wait; whether the processes are to be asked for it.
    pub fn join(&mut self, order: Order) -> bool {
        if self.is_full() {
            return false;
        }
        self.waiting.push(order);
        let begins = self.until.is_none();
        self.until.get_or_insert_with(|| Instant::now() + WAIT);
        begins
    }

    /// Whether anybody waits.
    pub fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// By when something is to be done here.
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Whether it has waited long enough.
    pub fn is_due(&self, now: Instant) -> bool {
        self.until.is_some_and(|at| at <= now)
    }

    /// Ends it; those who have waited.
    pub fn end(&mut self) -> Vec<Order> {
        std::mem::take(self).waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_serves_all_who_ask_meanwhile() {
        let mut fan_out: FanOut = FanOut::default();
        assert!(!fan_out.is_open());
        assert!(fan_out.join((7, 1)));
        assert!(!fan_out.join((7, 2)));
        assert!(fan_out.is_open() && !fan_out.is_due(Instant::now()));
        assert!(fan_out.is_due(Instant::now() + WAIT));
        assert_eq!(fan_out.end(), [(7, 1), (7, 2)]);
        assert!(!fan_out.is_open() && fan_out.deadline().is_none());
        assert!(fan_out.join((7, 3)));
    }

    #[test]
    fn no_more_wait_than_the_limit() {
        let mut fan_out: FanOut = FanOut::default();
        for ticket in 0..1000 {
            fan_out.join((1, ticket));
        }
        assert_eq!(fan_out.end().len(), WAITING_MAX);
    }
}
