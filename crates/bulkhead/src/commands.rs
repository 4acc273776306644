//! `bulkhead relaunch`, `bulkhead reopen` and `bulkhead stop`.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, and the pid file.
//! Never: signals a process because of a pid file, which may be old: only one of which the start is known as well.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::admin::{self, give, printable};
use crate::fault::Fault;
use crate::find::ServerTarget;
use crate::left_out;
use crate::table::print;

/// How long a stop may take.
const STOP_WAIT: Duration = Duration::from_secs(60);

/// After how long it is said what is being waited for.
const STOP_NOTE: Duration = Duration::from_secs(1);

/// How often it is looked whether the server is gone.
const STOP_POLL: Duration = Duration::from_millis(50);

/// The fate of a relaunch of the signer if the new one cannot use a certificate that the old one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCertificates {
    /// It is refused.
    Refuse,
    /// It goes on without these.
    LeaveOut,
}

/// Relaunches `name` and says how it went.
pub fn relaunch(run_dir: &Path, name: &str, bad: BadCertificates) -> Result<ExitCode, Fault> {
    let leave_out = bad == BadCertificates::LeaveOut;
    if leave_out && name != wire::Role::Signer.name() {
        return Err(Fault::Usage(
            "--leave-out is about certificates: `bulkhead relaunch signer --leave-out`".into(),
        ));
    }
    let before = Instant::now();
    let answer = give(run_dir, &json!({ "command": "relaunch", "name": name, "leave_out": leave_out }));
    // Nothing was tried, so there is nothing to reassure anybody of.
    if let Err(fault @ (Fault::Usage(_) | Fault::Unreachable(_))) = answer {
        return Err(fault);
    }
    let took = before.elapsed().as_secs_f64();
    match answer {
        Ok(mut answer) => {
            print(&format!("{}: relaunched in {took:.2} s", printable(name)))?;
            Ok(left_out::of_answer(&mut answer)?.say())
        }
        Err(fault) => {
            let name = printable(name);
            let text =
                format!("{name}: not relaunched ({took:.2} s): {fault}\nwhat ran before keeps running");
            Err(Fault::Failed(text))
        }
    }
}

/// Has the logs opened anew.
pub fn reopen(run_dir: &Path) -> Result<ExitCode, Fault> {
    give(run_dir, &json!({ "command": "reopen" }))?;
    print("the logs are opened anew; nothing more is written to the old ones")?;
    Ok(ExitCode::SUCCESS)
}

/// Stops the server and waits until it is gone.
pub fn stop(target: &ServerTarget) -> Result<ExitCode, Fault> {
    let before = Instant::now();
    let gone = tell_to_stop(target)?;
    let mut noted = false;
    while !gone() {
        if !noted && before.elapsed() > STOP_NOTE {
            noted = true;
            eprintln!("waiting for open connections, for up to {} s ...", STOP_WAIT.as_secs());
        }
        if before.elapsed() > STOP_WAIT {
            return Err(Fault::Failed(format!(
                "the server has been told to stop, but is not gone after {} s",
                STOP_WAIT.as_secs()
            )));
        }
        std::thread::sleep(STOP_POLL);
    }
    print(&format!("stopped in {:.2} s", before.elapsed().as_secs_f64()))?;
    Ok(ExitCode::SUCCESS)
}

/// Tells a server to stop; what comes back says whether it is gone.
fn tell_to_stop(target: &ServerTarget) -> Result<Box<dyn Fn() -> bool>, Fault> {
    // Read first: the file may be gone, or another server's, once this one has ended.
    let pid = target.run_dir.as_deref().and_then(pid);
    let asked = match &target.run_dir {
        Some(run_dir) => give(run_dir, &json!({ "command": "stop" })).map(drop),
        None => Err(Fault::Unreachable("a guard takes no commands".into())),
    };
    let process = target.process.clone();
    match (asked, process) {
        (Ok(()), Some(process)) => Ok(Box::new(move || !process.lives())),
        (Ok(()), None) => {
            let run_dir = target.run_dir.clone().unwrap_or_default();
            Ok(Box::new(move || !is_there(&run_dir, pid)))
        }
        // A guard, or a server whose run directory was removed, or that has no administrator yet or any more.
        (Err(Fault::Unreachable(_)), Some(process)) => {
            let told =
                process.signal(Signal::TERM).map_err(Fault::io(format!("cannot end {}", process.pid)))?;
            if !told {
                return Err(Fault::Unreachable(format!(
                    "the server with pid {} has just ended",
                    process.pid
                )));
            }
            Ok(Box::new(move || !process.lives()))
        }
        (Err(fault), _) => Err(fault),
    }
}

fn pid(run_dir: &Path) -> Option<u32> {
    let text = fs::read_to_string(run_dir.join("bulkheadd.pid")).ok()?;
    text.trim().parse().ok()
}

fn is_there(run_dir: &Path, pid: Option<u32>) -> bool {
    match pid {
        Some(pid) => lives(pid),
        None => admin::connect(&run_dir.join("admin.sock")).is_ok(),
    }
}

/// Whether a process exists and is more than a zombie that its parent has yet to collect.
fn lives(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name before the state is in parentheses and may hold any byte, parentheses included.
    let state = stat.rsplit(')').next().unwrap_or("").trim_start();
    !state.starts_with(['Z', 'X'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_does_not_live() {
        assert!(lives(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while lives(child.id()) {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!lives(child.id()));
    }
}
