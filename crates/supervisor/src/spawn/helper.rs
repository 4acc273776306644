//! Short-lived helpers: processes of ours that do one thing in a jail in which there is next to nothing.
//!
//! Runs in: the launcher, as root, and the guard. Sees: what a helper prints, which a made-up program may have taken
//! over. Never: waits longer or reads more than its limits.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use jail::policy::Policy;
use jail::{Access, Jail, Limits, Reach, Root};
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::process::{Child, Exit, Program};
use wire::OOM_STEP_HELPER;

use crate::error::{Error, during};
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::{core_dumps, program};

/// LIMIT: how long the answer of a helper is waited for. It takes milliseconds; whoever asks does nothing else
/// meanwhile.
const DEADLINE: Duration = Duration::from_secs(4);
/// LIMIT: seconds that a helper may compute.
pub const CPU_SECONDS: u64 = 2;
/// LIMIT: how long a process that was killed is waited for.
const END: Duration = Duration::from_secs(1);
/// LIMIT: descriptors of a helper in an empty root, beside those that it is given; it has one.
const DESCRIPTORS: u64 = 5;
/// Descriptors that are opened on the way to the start of a process: its pipes, and the sources of its own.
const ROOM: i32 = 256;

/// What a helper printed, and how it ended.
#[derive(Debug)]
pub struct Answer {
    /// All of it, up to the limit.
    pub printed: Vec<u8>,
    /// `None` if it had to be ended.
    pub exit: Option<Exit>,
}

impl SpawnContext {
    /// The jail of a helper: no root and no directory of its own, no network, no control group. The caller adds what
    /// the helper needs beyond that.
    pub fn helper_jail(
        &self,
        identity: Option<jail::Identity>,
        policy: Policy,
        limits: Limits,
        descriptors: Vec<(OwnedFd, i32)>,
        paths: Vec<(OwnedFd, Access)>,
    ) -> Result<Jail, Error> {
        let launcher = self.launcher.again().map_err(during("duplicate a descriptor"))?;
        let reach = Reach { paths, ..Reach::default() };
        let without = self.without.borrow().clone();
        Ok(Jail {
            identity,
            descriptors,
            reach,
            oom_score: Some(self.oom_score(OOM_STEP_HELPER)),
            without,
            ..Jail::new(launcher, limits, self.filters.get(policy)?)
        })
    }

    /// Starts `program` under the uid of `spec`, in an empty root, with a strict list of system calls: `program` has
    /// these descriptors, reaches nothing but `paths`, and computes for as many seconds.
    pub fn start_sealed(
        &self,
        spec: &ProcessSpec,
        program: &Program,
        mut descriptors: Vec<(OwnedFd, i32)>,
        mut paths: Vec<(OwnedFd, Access)>,
        cpu_seconds: Option<u64>,
    ) -> Result<Child, Error> {
        paths.push((duplicate(&program.file)?, Access::Execute));
        descriptors.push((duplicate(&self.null)?, 2));
        let count = DESCRIPTORS + descriptors.len() as u64;
        let limits = Limits { descriptors: count, core_bytes: 0, cpu_seconds, ..self.limits_of_role(spec) };
        let mut jail = self.helper_jail(spec.identity, Policy::Keeper, limits, descriptors, paths)?;
        // What has no descriptors has nothing to do, and says nothing.
        jail.without.retain(|layer| *layer != "descriptors");
        if let Some(template) = self.template() {
            let (binds, temporary_bytes, start_in) = (Vec::new(), None, "/".into());
            jail.root = Some(Root { template: template.clone(), binds, temporary_bytes, start_in });
        }
        sys::process::start(program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)
    }

    /// Starts a copy of the core file in `folder`, under the uid of the service that could not keep it from itself.
    pub fn keep_core(&self, spec: &ProcessSpec, folder: &OwnedFd) -> Result<Child, Error> {
        let core_max = self.service(spec).and_then(|(_, service)| service.core_max).unwrap_or(0);
        let copy = OwnedFd::from(self.core_dumps.begin(&spec.name)?);
        let arguments = vec![text("bulkhead: keep-core")?, text("keep-core")?, text(&core_max.to_string())?];
        let program = Program { file: program::own()?, arguments, environment: Vec::new() };
        self.start_as_keeper(spec, core_dumps::opened(folder)?, copy, &program)
    }

    /// Starts `program` in the jail of the process that copies core files: `program` reads `folder` and writes `copy`.
    pub fn start_as_keeper(
        &self,
        spec: &ProcessSpec,
        folder: OwnedFd,
        copy: OwnedFd,
        program: &Program,
    ) -> Result<Child, Error> {
        let paths = vec![(duplicate(&folder)?, Access::Read)];
        self.start_sealed(spec, program, vec![(folder, 0), (copy, 1)], paths, None)
    }
}

/// A number above which nothing is open, nor will be before the process is started: a file that is put in the place of
/// what the start needs would keep it from starting.
pub fn free_number() -> Result<i32, Error> {
    let open = std::fs::read_dir("/proc/self/fd").map_err(during("list open descriptors"))?;
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    Ok(numbers.max().unwrap_or_default() + ROOM)
}

/// Reads what `child` prints until it ends; ends it when it takes too long or says too much.
pub fn listen(child: &Child, printed: File, bytes_max: usize) -> io::Result<Answer> {
    listen_for(child, printed, bytes_max, DEADLINE)
}

/// The same, for so long.
pub fn listen_for(child: &Child, printed: File, bytes_max: usize, time: Duration) -> io::Result<Answer> {
    let deadline = Instant::now() + time;
    let text = read(&printed, bytes_max, deadline);
    let in_time = matches!(&text, Ok(Some(_))) && wait(child.pidfd(), deadline)?;
    if !in_time {
        child.kill();
        wait(child.pidfd(), Instant::now() + END)?;
    }
    let exit = child.try_wait()?.filter(|_| in_time);
    Ok(Answer { printed: text?.unwrap_or_default(), exit })
}

/// Everything up to the end; `None` if that does not come in time or within the limit.
fn read(mut printed: &File, bytes_max: usize, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while wait(printed.as_fd(), deadline)? {
        match printed.read(&mut buffer)? {
            0 => return Ok(Some(text)),
            length if text.len() + length > bytes_max => break,
            length => text.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(None)
}

/// Whether something happens on `descriptor` until `deadline`.
fn wait(descriptor: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn heard(bytes: usize, ends: bool) -> Option<Vec<u8>> {
        let (printed, mut printing) = io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let _ = printing.write_all(&vec![b'x'; bytes]);
            (!ends).then_some(printing)
        });
        let deadline = Instant::now() + Duration::from_millis(300);
        let text = read(&File::from(OwnedFd::from(printed)), 16 << 10, deadline);
        drop(writer.join());
        text.unwrap()
    }

    #[test]
    fn what_is_read_has_a_bound_and_an_end() {
        assert_eq!(heard(10_000, true).map(|text| text.len()), Some(10_000));
        assert_eq!(heard((16 << 10) + 1, true), None);
        assert_eq!(heard(1, false), None);
    }
}
