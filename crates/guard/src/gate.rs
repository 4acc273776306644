//! The gate of a guarded server: started in its jail, told what there is, started again if it ends.
//!
//! Runs in: the guard. Sees: the gate's few messages. Never: gives it more than sockets and channels.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use sys::control::ControlEnd;
use sys::process::{Exit, Program};
use wire::{ChildToLauncher, LauncherToGate, Message, NO_PARTITION, Role};

use crate::gate_health::{GateDue, GateHealth, Serving};
use crate::listeners::Listeners;
use crate::process::{Again, ChildProcess};
use crate::stderr_relay::{StderrRelay, say};
use supervisor::chain_ends::ChainEnds;
use supervisor::error::{Error, during};
use supervisor::process::{Process, Stage};
use supervisor::spawn::context::{SpawnContext, text};
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::spawn::{placed, program};
use supervisor::whereabouts::whereabouts;

/// LIMIT: told of the gate before others get their turn.
const MESSAGES_PER_TURN: usize = 64;

/// See the file.
#[derive(Debug)]
pub struct GateProcess {
    /// By which its jail is made.
    pub spec: ProcessSpec,
    running: Option<(Process, StderrRelay)>,
    /// Whether it answers.
    pub health: GateHealth,
    /// When it is to be started again, if it is to be.
    pub again: Again,
}

/// The spec of a role of the guard.
pub fn spec(role: Role, index: usize, identity: Option<jail::Identity>) -> ProcessSpec {
    let (partition, site) = (NO_PARTITION, NO_PARTITION);
    ProcessSpec { role, name: role.name().into(), partition, site, index, worker: 0, generation: 0, identity }
}

impl GateProcess {
    /// One that is not started yet.
    pub fn new(identity: Option<jail::Identity>, restart: &config::Restart) -> Self {
        let (spec, health) = (spec(Role::Gate, 0, identity), GateHealth::new(restart));
        Self { spec, running: None, health, again: Again::new(restart) }
    }

    /// Starts it, and tells it everything that there is.
    pub fn start(
        &mut self,
        context: &SpawnContext,
        listeners: &Listeners,
        chain: Option<ChainEnds>,
    ) -> Result<(), Error> {
        let (control, its) = ControlEnd::pair().map_err(during("make a channel"))?;
        let file = program::role_program(&context.roles_folder, Role::Gate.name())?;
        let program = Program { file, arguments: vec![text("bulkhead guard: gate")?], environment: vec![] };
        let started = context.start_with(&self.spec, &program, placed(its))?;
        let started = ChildProcess::new(&self.spec, started)?;
        let process = Process::new(0, started.child, Some(control), started.since);
        self.running = Some((process, started.stderr));
        let mut messages = context.gate_setup(context.messages(), Vec::new(), &[], chain);
        let begin = messages.pop();
        messages.extend(listeners.at_first()?);
        messages.extend(begin);
        messages.extend(listeners.then()?);
        messages.into_iter().for_each(|(message, descriptor)| self.send(&message, descriptor));
        Ok(())
    }

    /// Tells it something, if it is there.
    pub fn send(&mut self, message: &LauncherToGate, descriptor: Option<OwnedFd>) {
        if let Some((process, _)) = &mut self.running {
            // One that does not keep up is ended, which is seen.
            let _ = process.send(message, descriptor.map(Into::into));
        }
    }

    /// Says what has waited for room; returns whether something still does.
    pub fn flush(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(process, _)| {
            // As in `send`.
            let _ = process.flush();
            process.has_waiting()
        })
    }

    /// The descriptors to watch: its end, what it says, its standard error.
    pub fn watched(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>, &StderrRelay)> {
        let (process, stderr) = self.running.as_ref()?;
        Some((process.child.pidfd(), process.control()?.heard(), stderr))
    }

    /// Its messages.
    pub fn heard(&mut self) -> Vec<ChildToLauncher> {
        let mut heard = Vec::new();
        let Some((process, _)) = &mut self.running else {
            return heard;
        };
        let mut buffer = [0; 256];
        while heard.len() < MESSAGES_PER_TURN {
            let Some(control) = process.control() else { break };
            match control.receive(&mut buffer) {
                Ok(Some(length)) => match ChildToLauncher::decode(&buffer[..length]) {
                    Ok(message) => heard.push(message),
                    Err(error) => {
                        say(format_args!("the gate sent nonsense ({error}) and is ended"));
                        process.child.kill();
                    }
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => {
                    // It is ending, or is to.
                    process.child.kill();
                    process.retire(Instant::now());
                }
            }
        }
        if heard.contains(&ChildToLauncher::Ready {}) {
            process.stage = Stage::Serving;
        }
        if heard.iter().any(|message| matches!(message, ChildToLauncher::Counters { .. })) {
            self.health.settle();
        }
        heard
    }

    /// Asks it whether it is there, while connections come, and ends one that hangs; returns whether somebody is to say
    /// when the next connection comes.
    pub fn look_after(&mut self, now: Instant) -> bool {
        let running = self.running.as_ref().filter(|(process, _)| process.stage == Stage::Serving);
        let serving = |(process, _): &(Process, StderrRelay)| Serving {
            pid: process.child.pid,
            is_behind: process.has_waiting(),
        };
        match self.health.due(running.map(serving), now) {
            GateDue::Nothing => return false,
            GateDue::Rest => return true,
            GateDue::Ask => self.send(&LauncherToGate::Report {}, None),
            GateDue::Kill(waited) => self.kill(waited),
        }
        false
    }

    fn kill(&self, waited: Duration) {
        let Some((process, _)) = &self.running else { return };
        let (pid, waited) = (process.child.pid, Duration::from_millis(waited.as_millis() as u64 / 100 * 100));
        say(format_args!(
            "the gate (pid {pid}) has not answered for {waited:?} and is killed; it {}",
            whereabouts(pid)
        ));
        process.child.kill();
    }

    /// Relays what it writes to standard error; returns whether more may come.
    pub fn relay(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(_, stderr)| stderr.relay())
    }

    /// Whether it accepts.
    pub fn is_ready(&self) -> bool {
        self.running.as_ref().is_some_and(|(process, _)| process.stage == Stage::Serving)
    }

    /// If it has ended: how, and whether it is started again.
    pub fn ended(&mut self, now: Instant) -> Option<(Exit, bool)> {
        let exit = self.running.as_ref()?.0.child.try_wait().ok().flatten()?;
        let (process, mut stderr) = self.running.take()?;
        self.health.settle();
        stderr.relay();
        let again = self.again.ended(now.duration_since(process.since), now);
        Some((exit, again))
    }

    /// It could not be started; returns whether that is tried again.
    pub fn failed(&mut self, now: Instant) -> bool {
        self.running = None;
        self.again.ended(Duration::ZERO, now)
    }
}
