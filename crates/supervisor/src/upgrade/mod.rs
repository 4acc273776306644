//! What a launcher hands to the one that takes its place by `exec`, and takes from the one before.
//!
//! Runs in: the launcher, as root. Sees: a record that a launcher wrote into sealed memory. Never: changes anything of
//! the machine's, or lets go of a descriptor that was left, before all of the record was understood: until then the
//! launcher before can be put back.
//!
//! Both directions of one thing stand side by side in one file; `wire::successor` has the items.

mod held;
mod processes;
mod shared;
mod slots;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use wire::successor::{LauncherToSuccessor, NO_DESCRIPTOR, NONE, RECORD_MAX, seal, unseal};

use crate::Supervisor;
use crate::error::{Error, during};
use crate::life::Life;

pub use held::Held;
pub use shared::{Predecessor, numbered, source};

/// Where `bulkhead upgrade --to` leaves the path of a program for the launcher, in the run directory: a symbolic link
/// to the program.
pub const WANTED: &str = "upgrade";

/// A record that is being written.
#[derive(Debug)]
pub struct Record<'a> {
    items: Vec<LauncherToSuccessor>,
    left: Vec<BorrowedFd<'a>>,
    owned: Vec<OwnedFd>,
    /// Why something of it is not there.
    fault: Option<std::io::Error>,
    now: Instant,
}

impl Default for Record<'_> {
    fn default() -> Self {
        Self { items: Vec::new(), left: Vec::new(), owned: Vec::new(), fault: None, now: Instant::now() }
    }
}

impl<'a> Record<'a> {
    /// Adds an item.
    pub fn add(&mut self, item: LauncherToSuccessor) {
        self.items.push(item);
    }

    /// Leaves a descriptor to the successor; its number.
    pub fn leave(&mut self, descriptor: &'a impl AsFd) -> u32 {
        let descriptor = descriptor.as_fd();
        self.left.push(descriptor);
        descriptor.as_raw_fd() as u32
    }

    /// The same, if there is one.
    pub fn leave_if(&mut self, descriptor: Option<&'a impl AsFd>) -> u32 {
        descriptor.map_or(NO_DESCRIPTOR, |descriptor| self.leave(descriptor))
    }

    /// Leaves a copy of a descriptor. Without it the record is none.
    pub fn leave_again(&mut self, descriptor: &impl AsFd) -> u32 {
        match descriptor.as_fd().try_clone_to_owned() {
            Ok(copy) => self.leave_copy(copy),
            Err(error) => {
                self.fault = Some(error);
                NO_DESCRIPTOR
            }
        }
    }

    /// The same for one that was made for the record.
    pub fn leave_copy(&mut self, descriptor: OwnedFd) -> u32 {
        let number = descriptor.as_raw_fd() as u32;
        self.owned.push(descriptor);
        number
    }

    /// How long ago something was, in milliseconds.
    pub fn age(&self, since: Instant) -> u64 {
        milliseconds(self.now.saturating_duration_since(since))
    }

    /// In how long something is to be, in milliseconds, if it is to be.
    pub fn left(&self, at: Option<Instant>) -> u64 {
        at.map_or(NONE, |at| milliseconds(at.saturating_duration_since(self.now)))
    }

    /// The whole of it, in memory that nobody can write to any more.
    ///
    /// # Errors
    /// There is no memory, or no descriptor, or was none for something of it: a successor could not take that over, and
    /// nor could the launcher before when it is put back.
    pub fn sealed(&self) -> Result<OwnedFd, Error> {
        let whole = match &self.fault {
            Some(fault) => Err(std::io::Error::new(fault.kind(), fault.to_string())),
            None => sys::passed::sealed(&seal(&self.items)),
        };
        whole.map_err(during("write the record for the next launcher"))
    }

    /// Every descriptor that is left to the successor.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.left.iter().copied().chain(self.owned.iter().map(AsFd::as_fd)).collect()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NONE - 1).min(NONE - 1)
}

/// A record that was read.
#[derive(Debug)]
pub struct Handed {
    items: Vec<LauncherToSuccessor>,
    now: Instant,
}

impl Handed {
    /// Reads the record at a descriptor that was left, which stays.
    ///
    /// # Errors
    /// It is not whole, not sealed, or of a version that this launcher does not read.
    pub fn read(number: RawFd) -> Result<Self, Error> {
        let reading = during::<std::io::Error>("read the record of the launcher before");
        let memory = sys::passed::copy(number).map_err(reading)?;
        if !sys::passed::is_sealed(&memory).unwrap_or(false) {
            return Err(Error::record("its memory is not sealed"));
        }
        let mut record = Vec::new();
        let mut file = File::from(memory);
        let read = std::io::Seek::rewind(&mut file);
        let read = read.and_then(|()| file.take(RECORD_MAX as u64 + 1).read_to_end(&mut record));
        read.map_err(during("read the record of the launcher before"))?;
        if record.len() > RECORD_MAX {
            return Err(Error::record("it is longer than a record may be"));
        }
        let items = unseal(&record).map_err(|error| Error::record(error.to_string()))?;
        Ok(Self { items, now: Instant::now() })
    }

    /// Its items, in their order.
    pub fn items(&self) -> impl Iterator<Item = &LauncherToSuccessor> {
        self.items.iter()
    }

    /// A copy of a descriptor that was left.
    ///
    /// # Errors
    /// Nothing was left at this number.
    pub fn copy(&self, number: u32) -> Result<OwnedFd, Error> {
        let copied = i32::try_from(number).map_err(std::io::Error::other).and_then(sys::passed::copy);
        copied.map_err(during("take a descriptor of the launcher before"))
    }

    /// The same, if there is one.
    ///
    /// # Errors
    /// As for [`Handed::copy`].
    pub fn copy_if(&self, number: u32) -> Result<Option<OwnedFd>, Error> {
        (number != NO_DESCRIPTOR).then(|| self.copy(number)).transpose()
    }

    /// When something was that is so many milliseconds ago.
    pub fn before(&self, age_ms: u64) -> Instant {
        self.now.checked_sub(Duration::from_millis(age_ms)).unwrap_or(self.now)
    }

    /// When something is to be in so many milliseconds, if it is to be.
    pub fn after(&self, left_ms: u64) -> Option<Instant> {
        (left_ms != NONE).then(|| self.now.checked_add(Duration::from_millis(left_ms)).unwrap_or(self.now))
    }
}

/// Why the processes cannot be handed to a successor now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// Something that ends in seconds, or with the server.
    Work(&'static str),
    /// Processes finish what they have begun, which takes up to `drain_timeout`.
    Draining,
}

impl std::fmt::Display for UnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Work(what) => what,
            Self::Draining => {
                "processes of sites that a reload has changed or removed finish what they have begun (`drain_timeout`)"
            }
        })
    }
}

impl Supervisor {
    /// Why the processes cannot be handed to a successor now, if so.
    pub fn what_is_under_way(&self) -> Option<UnderWay> {
        let lives = |life: &[Life]| self.slots.iter().any(|slot| life.contains(&slot.life));
        let removed =
            |life: Life| self.processes.values().any(|process| self.slots[process.slot].life == life);
        if self.stopping.is_some() {
            Some(UnderWay::Work("the server stops"))
        } else if !self.announced {
            Some(UnderWay::Work("the server is still starting"))
        } else if lives(&[Life::Pending, Life::Leaving])
            || self.filters.staged.is_some()
            || self.slots.iter().any(|slot| slot.next.is_some())
            || !self.have_all_begun()
        {
            Some(UnderWay::Work("something is being started"))
        } else if removed(Life::Removed) {
            Some(UnderWay::Draining)
        } else {
            None
        }
    }

    /// Writes down all processes, and what belongs to them.
    pub fn hand_over<'a>(&'a self, record: &mut Record<'a>) {
        self.hand_over_shared(record);
        self.hand_over_slots(record);
        self.hand_over_processes(record);
    }
}
