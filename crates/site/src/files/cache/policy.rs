//! Which entry goes when there is no room: a policy that can be replaced.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: which paths are asked for, and how often.
//! Must never: name an entry twice that was let go once.

use std::collections::VecDeque;
use std::rc::Rc;

use super::CacheEntry;

/// Chooses who goes. That an entry is used is noted in the entry itself, which costs the fast path one store.
pub trait EvictionPolicy {
    /// There is a new entry.
    fn admit(&mut self, entry: Rc<CacheEntry>);
    /// An entry to let go, which is no longer its concern; `None` if there is none.
    fn victim(&mut self) -> Option<Rc<CacheEntry>>;
    /// An entry is gone.
    fn forget(&mut self, entry: &Rc<CacheEntry>);
}

/// The clock: whoever was used since the hand came by last has another round.
#[derive(Default)]
pub struct ClockPolicy {
    /// The hand is at the front.
    order: VecDeque<Rc<CacheEntry>>,
}

impl EvictionPolicy for ClockPolicy {
    fn admit(&mut self, entry: Rc<CacheEntry>) {
        self.order.push_back(entry);
    }

    fn victim(&mut self) -> Option<Rc<CacheEntry>> {
        loop {
            let entry = self.order.pop_front()?;
            if !entry.used.take() {
                return Some(entry);
            }
            self.order.push_back(entry);
        }
    }

    fn forget(&mut self, entry: &Rc<CacheEntry>) {
        self.order.retain(|other| !Rc::ptr_eq(other, entry));
    }
}
