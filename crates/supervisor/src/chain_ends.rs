//! A chain of filters: what a gate is sent of it, and what the launcher keeps.
//!
//! Runs in: the launcher, as root, and the guard. Sees no untrusted bytes. Never: gives a gate a channel between two
//! filters.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use wire::LauncherToGate;

use crate::chain_start::ChainStart;
use crate::foreign::Foreign;
use crate::life::Life;
use crate::unread::Unread;

/// The gates' ends of a chain, which they share.
#[derive(Debug)]
pub struct ChainEnds {
    /// The number by which gates name the chain; 0 is none.
    pub number: u32,
    /// Where gates send bundles.
    pub first: OwnedFd,
    /// Where gates receive bundles.
    pub last: OwnedFd,
}

impl ChainEnds {
    /// The messages that give them to a gate.
    pub fn messages(self) -> [(LauncherToGate, Option<OwnedFd>); 2] {
        let last = LauncherToGate::ChainLast { chain: self.number };
        [(LauncherToGate::ChainFirst {}, Some(self.first)), (last, Some(self.last))]
    }
}

/// The chain of filters that requests go through, and what is to take its place.
#[derive(Debug, Default)]
pub(crate) struct FilterChains {
    /// The gates' ends of the filters that run.
    pub(crate) chain: Option<Chain>,
    /// A chain that is to take its place.
    pub(crate) staged: Option<StagedChain>,
    /// The chain that is to be used as soon as all of its filters are there.
    pub(crate) growing: Option<GrowingChain>,
    /// The outcome of that, until the launcher takes notice.
    pub(crate) came_up: Option<(u32, Result<(), String>)>,
    /// How many chains there have been.
    pub(crate) chains: u32,
}

/// A chain whose filters all run.
#[derive(Debug)]
pub struct Chain {
    pub(crate) number: u32,
    /// As in [`ChainEnds`]; filters may have sent anything into them.
    pub(crate) first: Foreign,
    pub(crate) last: Foreign,
    /// What each filter has not read, in the order of the chain.
    pub(crate) unread: Vec<Unread>,
    pub(crate) since: Instant,
    pub(crate) look_at: Instant,
    /// Until its filters have come up.
    pub(crate) start: Option<ChainStart>,
}

impl Chain {
    /// Has nobody send anything more into it, nor wait for what comes.
    pub(crate) fn shut(&self) {
        let inward = self.unread.iter().map(Unread::descriptor);
        for end in [&self.first, &self.last].into_iter().chain(inward) {
            let _ = rustix::net::shutdown(end, rustix::net::Shutdown::Both);
        }
    }
}

/// A chain whose filters are begun one after the other, each when the one before executes its program: those of one
/// program are given that in turn, and no gate hears of a chain before all of it is there.
#[derive(Debug)]
pub(crate) struct GrowingChain {
    pub(crate) number: u32,
    /// What there is of it.
    pub(crate) chain: Option<Chain>,
    /// The filters that were begun, as slots and serial numbers.
    pub(crate) members: Vec<(usize, u64)>,
    /// The slots of the others.
    pub(crate) left: VecDeque<usize>,
}

impl GrowingChain {
    /// One of these filters, of which none was begun.
    pub(crate) fn of(number: u32, slots: Vec<usize>) -> Self {
        Self { number, chain: None, members: Vec::new(), left: slots.into() }
    }

    /// The filter that was begun last.
    pub(crate) fn last(&self) -> Option<u64> {
        self.members.last().map(|(_, serial)| *serial)
    }
}

/// A chain that is to take the place of another; see `staged_chain`.
#[derive(Debug)]
pub struct StagedChain {
    pub(crate) growing: GrowingChain,
    /// What its filters are there for.
    pub(crate) of: Life,
    /// Why one of them was not begun.
    pub(crate) failed: Option<String>,
    /// The transaction that waits for it.
    pub(crate) ticket: u32,
    pub(crate) rests: u32,
    pub(crate) look_at: Instant,
    pub(crate) until: Instant,
    /// Whether it was said that the chain has come up, or has not.
    pub(crate) is_judged: bool,
}

impl StagedChain {
    /// When to look at it next, if it is not known what becomes of it.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        (!self.is_judged).then_some(self.look_at)
    }
}
