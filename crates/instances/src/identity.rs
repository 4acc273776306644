//! Which process a pid meant when it was written down.
//!
//! A pid is given to another process once its own has ended. The time of a process's start tells the two apart: within
//! one boot and one PID namespace, no two processes have the same pid and the same start.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, for as long as the machine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks of the clock since the boot.
    pub started: u64,
    /// The boot, as the kernel calls it.
    pub boot: String,
    /// The PID namespace in which it has its number; 0 if that is not known.
    pub namespace: u64,
}

/// The facts of `/proc` about a process.
struct Stat {
    state: u8,
    parent: u32,
    started: u64,
}

impl ProcessIdentity {
    /// This process.
    ///
    /// # Errors
    /// `/proc` does not say.
    pub fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let started = stat(pid)?.started;
        Ok(Self { pid, started, boot: boot()?, namespace: namespace() })
    }

    /// Whether the process is of this boot and this PID namespace, so that its number means something here.
    pub fn is_from_here(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot) && self.namespace == namespace()
    }

    /// Whether the process still runs. A zombie does not.
    pub fn lives(&self) -> bool {
        self.is_from_here() && self.stat().is_some()
    }

    /// The parent of the process, if the process still runs.
    pub fn parent(&self) -> Option<u32> {
        self.stat().map(|stat| stat.parent)
    }

    /// How long the process has run.
    pub fn age(&self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
        let started = self.started as f64 / rustix::param::clock_ticks_per_second() as f64;
        Duration::try_from_secs_f64((uptime - started).max(0.0)).ok()
    }

    /// Sends a signal to this process, and to no other that has its number by now; false if the process has ended.
    ///
    /// # Errors
    /// The caller may not send it signals.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(process) = self.hold() else { return Ok(false) };
        match pidfd_send_signal(process, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The process itself. The number is looked at once more after it was opened: from then on it cannot change hands.
    fn hold(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.lives().then_some(process)
    }

    fn stat(&self) -> Option<Stat> {
        stat(self.pid).ok().filter(|stat| stat.started == self.started && !matches!(stat.state, b'Z' | b'X'))
    }
}

/// Reads `/proc/PID/stat` (proc_pid_stat(5)): the state is the third field, the parent the fourth, the start the 22nd.
fn stat(pid: u32) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    // The name before the state is in parentheses and may hold any byte, parentheses included.
    let after = text.iter().rposition(|&byte| byte == b')').map(|at| &text[at + 1..]);
    let fields = std::str::from_utf8(after.unwrap_or_default()).unwrap_or_default();
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let parsed = || {
        let state = *fields.first()?.as_bytes().first()?;
        Some(Stat { state, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
    };
    parsed().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// `pid:[4026531836]`.
fn namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let link = link.to_str().unwrap_or_default();
    link.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends_and_its_successor_is_another() {
        let own = ProcessIdentity::own().unwrap();
        assert!(own.lives() && own.parent().is_some() && own.age().is_some());
        assert!(
            !ProcessIdentity { started: own.started + 1, ..own.clone() }.lives(),
            "the pid was given out again"
        );
        assert!(!ProcessIdentity { boot: "another".into(), ..own.clone() }.lives());
        assert!(!ProcessIdentity { namespace: own.namespace + 1, ..own }.lives());
    }

    #[test]
    fn a_signal_reaches_the_process_that_was_meant_and_no_other() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = ProcessIdentity::own().unwrap();
        let identity = ProcessIdentity { pid: child.id(), started: stat(child.id()).unwrap().started, ..own };
        let successor = ProcessIdentity { started: identity.started + 1, ..identity.clone() };
        assert!(!successor.signal(Signal::TERM).unwrap());
        assert!(identity.lives());
        assert!(identity.signal(Signal::TERM).unwrap());
        // A zombie until it is waited for.
        while identity.lives() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!identity.signal(Signal::TERM).unwrap());
        child.wait().unwrap();
        assert!(!identity.lives());
    }
}
