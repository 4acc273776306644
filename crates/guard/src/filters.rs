//! The chain of filters of a guard: started in their jails, connected, started again one by one.
//!
//! Runs in: the guard. Sees: exits. Never: reads what goes through the chain.
//!
//! The guard keeps both ends of every channel of the chain, so that what waits in one survives a filter, and a new
//! filter or gate goes on where the old one ended.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use wire::{LauncherToGate, Role};

use crate::gate::spec;
use crate::process::{Again, ChildProcess};
use crate::stderr_relay::{StderrRelay, say};
use supervisor::chain_ends::ChainEnds;
use supervisor::error::{Error, during};
use supervisor::foreign::Foreign;
use supervisor::spawn::context::{SpawnContext, duplicate};
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::unread::{FIRST_START, LOOKS, UNREAD_MIN, Unread};

/// One filter.
#[derive(Debug)]
struct GuardFilter {
    spec: ProcessSpec,
    /// Its command, for messages.
    command: String,
    running: Option<ChildProcess>,
    again: Again,
    unread: Unread,
}

/// The chain: a channel more than there are filters, each as (where it is written, where it is read).
#[derive(Debug, Default)]
pub struct Filters {
    filters: Vec<GuardFilter>,
    channels: Vec<(OwnedFd, OwnedFd)>,
    /// How the gate calls the last of them.
    number: u32,
    /// When the guard checks next whether the filters read.
    look_at: Option<Instant>,
    start_timeout: Duration,
}

impl Filters {
    /// A chain of what the configuration names; nothing is started yet.
    pub fn new(
        config: &config::Config,
        mut identity: impl FnMut() -> Result<Option<jail::Identity>, Error>,
    ) -> Result<Self, Error> {
        let mut chain = Self::default();
        let filters = &config.conditioning.filters;
        if filters.is_empty() {
            return Ok(chain);
        }
        for _ in 0..=filters.len() {
            chain
                .channels
                .push(sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?);
        }
        for (index, filter) in filters.iter().enumerate() {
            let (spec, again) = (spec(Role::Filter, index, identity()?), Again::new(&config.restart));
            let unread = Unread::new(duplicate(&chain.channels[index].1)?);
            let command = filter.command.join(" ");
            chain.filters.push(GuardFilter { spec, command, running: None, again, unread });
        }
        chain.start_timeout = Duration::from_millis(config.limits.start_timeout_ms.into());
        chain.look_at = Some(Instant::now());
        Ok(chain)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// The gate's ends: to the first filter, and from the last.
    pub(crate) fn ends(&self) -> Result<Option<ChainEnds>, Error> {
        let (Some((first, _)), Some((_, last))) = (self.channels.first(), self.channels.last()) else {
            return Ok(None);
        };
        Ok(Some(ChainEnds { number: self.number, first: duplicate(first)?, last: duplicate(last)? }))
    }

    /// The gate has cut off the last filter for nonsense: it is ended, and its successor gets a new channel. Returns
    /// what the gate is told of that.
    pub(crate) fn cut(&mut self, number: u32) -> Result<Option<(LauncherToGate, OwnedFd)>, Error> {
        let (Some(filter), Some(channel)) = (self.filters.last(), self.channels.last_mut()) else {
            return Ok(None);
        };
        if number != self.number {
            return Ok(None);
        }
        let new = sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?;
        let (one, other) = std::mem::replace(channel, new);
        drop([one, other].map(Foreign::from));
        self.number += 1;
        say(format_args!("filter `{}` sent nonsense to the gate and is ended", filter.command));
        // If it is being started, it has the new channel.
        if let Some(running) = &filter.running {
            running.child.kill();
        }
        Ok(Some((LauncherToGate::ChainLast { chain: self.number }, duplicate(&channel.1)?)))
    }

    /// Starts filter `index`.
    pub fn start(&mut self, index: usize, context: &SpawnContext) -> Result<(), Error> {
        let (input, output) = (&self.channels[index].1, &self.channels[index + 1].0);
        for end in [input, output] {
            // A filter, in whichever language, reads and writes until it is done. The gate has the other ends.
            rustix::io::ioctl_fionbio(end, false).map_err(during("set up a channel"))?;
        }
        let channels = [duplicate(input)?, duplicate(output)?];
        let filter = &mut self.filters[index];
        let started = context.start_filter(&filter.spec, &channels)?;
        filter.running = Some(ChildProcess::new(&filter.spec, started)?);
        Ok(())
    }

    /// The descriptors of a filter that are watched.
    pub fn watched(&self, index: usize) -> Option<(BorrowedFd<'_>, &StderrRelay)> {
        let running = self.filters[index].running.as_ref()?;
        Some((running.child.pidfd(), &running.stderr))
    }

    /// Relays what a filter writes to standard error; returns whether more may come.
    pub fn relay(&mut self, index: usize) -> bool {
        self.filters[index].running.as_mut().is_some_and(|running| running.stderr.relay())
    }

    /// A filter may have ended, and is to be started again.
    pub fn ended(&mut self, index: usize, now: Instant) {
        let filter = &mut self.filters[index];
        let Some(Ok(Some(exit))) = filter.running.as_ref().map(|running| running.child.try_wait()) else {
            return;
        };
        if let Some(mut running) = filter.running.take() {
            running.stderr.relay();
            self.failed(index, now.duration_since(running.since), now, &exit.to_string());
        }
    }

    /// A filter has ended, or could not be started.
    pub fn failed(&mut self, index: usize, lived: Duration, now: Instant, why: &str) {
        let again = self.filters[index].again.ended(lived, now);
        let goes = if again { "it is started again" } else { "too often: nothing passes any more" };
        say(format_args!("filter `{}` ended ({why}); {goes}", self.filters[index].command));
    }

    /// Those that are to be started now.
    pub fn due(&mut self, now: Instant) -> Vec<usize> {
        let due = self
            .filters
            .iter_mut()
            .enumerate()
            .filter_map(|(index, filter)| filter.again.is_due(now).then_some(index));
        due.collect()
    }

    /// Ends a filter that reads nothing. Its successor reads on from the same channel; only the request that the filter
    /// hangs on is lost.
    pub fn end_hung(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        let unread_max = self.start_timeout.max(UNREAD_MIN);
        self.look_at = Some(now + unread_max / LOOKS);
        // A filter before one that does not read yet cannot send, and so does not read either.
        let mut successors_read = true;
        for filter in self.filters.iter_mut().rev() {
            // A filter that has just been started may have to read its data first.
            let running = filter.running.as_ref().filter(|running| {
                successors_read && now.duration_since(running.since) >= self.start_timeout * FIRST_START
            });
            let Some(ChildProcess { child, .. }) = running else {
                successors_read = false;
                filter.unread.reset();
                continue;
            };
            if filter.unread.since(now).is_some_and(|since| now.duration_since(since) > unread_max) {
                say(format_args!("filter `{}` did not read what waits for it and is ended", filter.command));
                child.kill();
                successors_read = false;
            }
        }
    }

    /// When the next filter is to be started, or the guard checks whether the filters read.
    pub fn next(&self) -> Option<Instant> {
        self.filters.iter().filter_map(|filter| filter.again.at).chain(self.look_at).min()
    }
}
