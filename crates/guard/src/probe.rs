//! `bulkhead-guard --probe PROCESS -- WORDS`: `bulkhead-probe` in the jail of a process that no order to a launcher
//! reaches.
//!
//! Runs in: the guard, for tests. Sees: the end of the probe, which writes to the guard's standard output. Never:
//! starts the probe in a jail that was not made as the real one is.
//!
//! The option gives its caller nothing: the guard has the caller's rights and no others, the program is fixed (the one
//! beside the guard's own), and the jails only take rights away.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use sys::control::ControlEnd;
use sys::process::Program;

use crate::options::ProbeTarget;
use supervisor::directories;
use supervisor::error::{Error, during};
use supervisor::examine::jail_of_check;
use supervisor::spawn::context::{SpawnContext, duplicate, text};
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::spawn::{Origin, core_dumps, placed, program};

/// A file that was opened to be read, in the place of an operator's.
fn looked_at() -> Result<OwnedFd, Error> {
    Ok(File::open("/proc/self/exe").map_err(during("open this program"))?.into())
}

/// Runs the probe to its end.
pub fn run(
    context: &SpawnContext,
    gate: &ProcessSpec,
    probed: ProbeTarget,
    words: &[OsString],
) -> Result<ExitCode, Error> {
    let readable = context.roles_folder.join("bulkhead-probe");
    let file = match context.config.dir.parent() {
        // Roles make themselves processes that cannot be dumped; the probe is one by its file.
        Some(folder) if context.empty_root.is_some() => {
            let copy = folder.join(format!("bulkhead-probe.{}", std::process::id()));
            program::unreadable(&readable, &copy)?
        }
        _ => program::open(&readable)?,
    };
    let words = words.iter().map(|word| text(&word.to_string_lossy()));
    let arguments = std::iter::once(text("bulkhead-probe")).chain(words).collect::<Result<_, _>>()?;
    let program = Program { file, arguments, environment: Vec::new() };
    let output = duplicate(&std::io::stdout())?;
    // Nobody listens on the other end: what the probe does to its channel reaches nobody.
    let (_, channel) = sys::seqpacket::pair().map_err(during("make a channel"))?;
    let child = match probed {
        ProbeTarget::Gate => {
            let null = || duplicate(&context.null);
            let (_, its) = ControlEnd::pair().map_err(during("make a channel"))?;
            let mut descriptors = vec![(null()?, 0), (output, 1), (null()?, 2)];
            descriptors.extend(placed(its));
            context.start_in_jail(gate, (&program, Origin::Ours), &descriptors)?.child
        }
        ProbeTarget::Keeper => {
            let folder = core_dumps::opened(&directories::directory(&context.config.dir)?)?;
            context.start_as_keeper(gate, folder, output, &program)?
        }
        ProbeTarget::Reaper => context.start_as_reaper(channel, output, &program)?,
        ProbeTarget::Closer => context.start_as_closer(channel, output, &program)?,
        ProbeTarget::Inspector => {
            context.start_sealed(gate, &program, vec![(looked_at()?, 0), (output, 1)], Vec::new(), None)?
        }
        ProbeTarget::Loader => {
            let descriptors =
                vec![(duplicate(&context.null)?, 0), (output, 1), (duplicate(&context.null)?, 2)];
            let limits = context.limits_of(gate);
            let jail = context.jail_of_loader(gate.identity, limits, &[&program.file], descriptors)?;
            sys::process::start(&program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)?
        }
        ProbeTarget::Check => {
            let descriptors = vec![(looked_at()?, 0), (output, 1), (duplicate(&context.null)?, 2)];
            let jail = jail_of_check(gate.identity, &program, descriptors, context.without.borrow().clone())?;
            sys::process::start(&program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)?
        }
    };
    child.wait_blocking();
    Ok(ExitCode::SUCCESS)
}
