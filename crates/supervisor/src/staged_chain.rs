//! A chain of filters that is to take the place of the one that there is.
//!
//! Runs in: the launcher, as root. Sees: exits of filters, and the state that the kernel shows of each. Never: gives
//! gates a chain of which a filter has not come up.
//!
//! A filter is any program and says nothing. It has come up when it rests: all of its work begins with a read that
//! waits for a request. One that cannot work ends before it rests.

use std::time::{Duration, Instant};

use wire::LauncherToGate;

use crate::Supervisor;
use crate::chain_ends::{Chain, ChainEnds, GrowingChain, StagedChain};
use crate::chain_start::{LOOK, RESTS};
use crate::error::Error;
use crate::life::Life;

impl Supervisor {
    /// Starts a chain beside the one that there is: of the filters that are pending, or else of those that serve.
    /// Returns whether anything has to be waited for.
    pub fn stage_chain(&mut self, of: Life, ticket: u32) -> Result<bool, Error> {
        let slots = self.filters_with(&[of]);
        if slots.is_empty() {
            return Ok(false);
        }
        self.filters.chains += 1;
        let now = Instant::now();
        let until = now + Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let (rests, look_at, is_judged) = (0, now + LOOK, false);
        let growing = GrowingChain::of(self.filters.chains, slots);
        self.filters.staged =
            Some(StagedChain { growing, of, failed: None, ticket, rests, look_at, until, is_judged });
        if let Err((_, error)) = self.grow_staged_chain() {
            self.filters.staged = None;
            return Err(error);
        }
        Ok(true)
    }

    /// Begins the next filter of the staged chain, if any is left.
    fn grow_staged_chain(&mut self) -> Result<(), (usize, Error)> {
        let Some(mut staged) = self.filters.staged.take() else { return Ok(()) };
        let begun = self.grow(&mut staged.growing);
        if let Ok(Some((slot, serial))) = begun {
            let state = &mut self.slots[slot];
            match staged.of {
                Life::Pending => state.current = Some(serial),
                _ => state.next = Some(serial),
            }
            self.processes
                .get_mut(&serial)
                .into_iter()
                .for_each(|process| process.ticket = Some(staged.ticket));
        }
        self.filters.staged = Some(staged);
        begun.map(|_| ())
    }

    /// The same after one of its filters is there.
    pub(crate) fn go_on_with_staged_chain(&mut self) {
        if let Err((slot, error)) = self.grow_staged_chain()
            && let Some(staged) = &mut self.filters.staged
        {
            staged.failed = Some(format!("{}: {error}", self.specs[slot].title()));
            staged.look_at = Instant::now();
        }
    }

    /// Whether a chain waits to take the place of the one that there is.
    pub fn has_staged_chain(&self) -> bool {
        self.filters.staged.is_some()
    }

    pub(crate) fn look_at_staged_chain(&mut self, now: Instant) {
        let Some(mut staged) =
            self.filters.staged.take_if(|staged| !staged.is_judged && staged.look_at <= now)
        else {
            return;
        };
        self.judge(&mut staged, now);
        self.filters.staged = Some(staged);
    }

    /// Finds out what has become of a staged chain.
    fn judge(&mut self, staged: &mut StagedChain, now: Instant) {
        staged.look_at = now + LOOK;
        let rests = |(_, serial): &(usize, u64)| self.rests(*serial);
        let is_whole = staged.growing.left.is_empty();
        staged.rests =
            if is_whole && staged.growing.members.iter().all(rests) { staged.rests + 1 } else { 0 };
        let failed = staged.failed.take();
        let late = now >= staged.until;
        if staged.rests < RESTS && !late && failed.is_none() {
            return;
        }
        staged.is_judged = true;
        let result = match failed {
            Some(reason) => Err(reason),
            None if staged.rests >= RESTS => Ok(()),
            None => Err("the filters do not come to rest within `start_timeout`".to_owned()),
        };
        self.filters.came_up = Some((staged.ticket, result));
    }

    /// What has become of the staged chain, once: the transaction that waits, and whether all filters have come up.
    pub fn take_chain_result(&mut self) -> Option<(u32, Result<(), String>)> {
        self.filters.came_up.take()
    }

    /// Has the staged chain take the place of the one that there is, or none, if no filter serves any more. Gates are
    /// told by the update that follows.
    pub fn adopt_staged_chain(&mut self) {
        let Some(staged) = self.filters.staged.take() else {
            if self.filters().is_empty() {
                self.filters.chain = None;
            }
            return;
        };
        // Its filters have come up.
        self.filters.chain = staged.growing.chain.map(|chain| Chain { start: None, ..chain });
        for (slot, serial) in staged.growing.members {
            self.set_serving(serial);
            self.processes.get_mut(&serial).into_iter().for_each(|process| process.ticket = None);
            let state = &mut self.slots[slot];
            state.backoff.forgive();
            self.starts.remove(&slot);
            if state.next.take_if(|next| *next == serial).is_some()
                && let Some(old) = state.current.replace(serial)
            {
                self.retire(old);
            }
        }
    }

    /// Ends the staged chain, which no gate knows.
    pub fn discard_staged_chain(&mut self) {
        self.filters.came_up = None;
        for (slot, serial) in self.filters.staged.take().into_iter().flat_map(|staged| staged.growing.members)
        {
            let state = &mut self.slots[slot];
            for place in [&mut state.next, &mut state.current] {
                place.take_if(|there| *there == serial);
            }
            self.processes.get_mut(&serial).into_iter().for_each(|process| process.ticket = None);
            self.give_up(serial);
        }
    }

    /// What an update says to a gate of the filters, as they are now.
    pub fn chain_update(&self) -> Result<Vec<(LauncherToGate, Option<std::os::fd::OwnedFd>)>, Error> {
        Ok(match self.chain_ends()? {
            Some(ends) => ChainEnds::messages(ends).into(),
            None => vec![(LauncherToGate::NoChain {}, None)],
        })
    }
}
