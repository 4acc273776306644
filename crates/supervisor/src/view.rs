//! What others see of the processes: the launcher's components, the status, an upgrade.
//!
//! Runs in: the launcher, as root, and the guard. Never: changes what becomes of a process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::directories::Directories;
use crate::foreign::Foreign;
use crate::own_log::OwnLog;
use crate::process::Process;
use crate::spawn::context::SpawnContext;
use crate::spawn::passed::PassedSockets;
use crate::spawn::process_spec::ProcessSpec;
use crate::{Slot, Supervisor};

impl Supervisor {
    /// What every start of a process needs.
    pub fn context(&self) -> &SpawnContext {
        &self.context
    }

    /// The launcher's directories.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// The listening sockets, by listener, then by gate.
    pub fn listeners(&self) -> &[Vec<OwnedFd>] {
        &self.listeners
    }

    /// The sockets that the launcher was started with.
    pub fn passed(&self) -> &PassedSockets {
        &self.passed
    }

    /// Keeps the sockets that the launcher was started with, until the end begins.
    pub fn keep_passed(&mut self, passed: PassedSockets) {
        self.passed = passed;
    }

    /// Every process that is to run, or was to.
    pub fn specs(&self) -> &[ProcessSpec] {
        &self.specs
    }

    /// The process that is to run in `slot`.
    pub fn spec(&self, slot: usize) -> &ProcessSpec {
        &self.specs[slot]
    }

    /// What the process `serial`, which there is, was started for.
    pub fn spec_of(&self, serial: u64) -> &ProcessSpec {
        &self.specs[self.processes[&serial].slot]
    }

    /// What is known of a slot.
    pub fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    /// The processes, by their serial numbers.
    pub fn processes(&self) -> &BTreeMap<u64, Process> {
        &self.processes
    }

    /// The process `serial`, until it has ended.
    pub fn process(&self, serial: u64) -> Option<&Process> {
        self.processes.get(&serial)
    }

    /// The same, to be changed.
    pub fn process_mut(&mut self, serial: u64) -> Option<&mut Process> {
        self.processes.get_mut(&serial)
    }

    /// The processes of a site: its workers, and those of its services and roles.
    pub fn processes_of_site(&self, site: u16) -> impl Iterator<Item = u64> {
        self.index.of_site(site)
    }

    /// What children that are gone had logged: the slot, the log channel and standard error.
    pub fn unread_logs(&self) -> &VecDeque<(usize, Option<Foreign>, OwnedFd)> {
        &self.unread_logs
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Whether everything has come up once.
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// How long the launcher runs.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Logs that something happened as it should.
    pub fn info(&mut self, text: impl Display) {
        self.log.info(text);
    }

    /// Logs that something is not as it should be.
    pub fn warn(&mut self, text: impl Display) {
        self.log.warning(text);
    }

    /// Writes the launcher's own lines to another log from here on.
    pub fn set_own_log(&mut self, log: OwnLog) {
        self.log = log;
    }
}
