//! Measures what the jail adds to the start of a process: `cargo run --release -p jail --example cold_start`.
//!
//! Runs in: a terminal, as root. It starts itself, in turn with no jail at all, in a role's jail and in a service's,
//! and takes the time until the program has said its first byte; the medians go to standard output as JSON.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use jail::policy::{Grants, Policy};
use jail::{Access, Bind, Filter, Identity, Jail, Launcher, Limits, Mode, MountTemplate, Ports, Reach, Root};
use rustix::fs::{Mode as Bits, OFlags};
use sys::process::{Pids, Program};

const ROUNDS: usize = 200;
const STARTED: &str = "cold start: started";
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().next().as_deref() == Some(STARTED) {
        io::stdout().write_all(b"!")?;
        return Ok(());
    }
    let staging = std::env::temp_dir().join(format!("cold-start-{}", std::process::id()));
    std::fs::create_dir(&staging)?;
    let measured = measure(&staging);
    std::fs::remove_dir(&staging)?;
    let [plain, role, service] = measured?.map(median);
    println!(
        "{{\"rounds\":{ROUNDS},\"fork_exec_us\":{plain:.0},\"role_us\":{role:.0},\"service_us\":{service:.0}}}"
    );
    Ok(())
}

/// The times of every kind of start, in microseconds; one after the other, so that all meet the same machine.
fn measure(staging: &Path) -> io::Result<[Vec<f64>; 3]> {
    // What a jail places must not be in its own way.
    while File::open("/dev/null")?.as_raw_fd() < 9 {
        std::mem::forget(File::open("/dev/null")?);
    }
    let staging = rustix::fs::open(staging, OFlags::DIRECTORY | OFlags::CLOEXEC, Bits::empty())?;
    let template = MountTemplate::make(&staging).map_err(|error| io::Error::other(error.to_string()))?;
    let template = Rc::new(template);
    let filters = [Filter::of(Policy::Gate)?, Filter::of(Policy::Service(Grants::NONE))?];
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(start(|| Ok(None))?);
        times[1].push(start(|| jail(&template, &filters[0], false).map(Some))?);
        times[2].push(start(|| jail(&template, &filters[1], true).map(Some))?);
    }
    Ok(times)
}

/// Starts this program and waits for its first byte; making the jail's views is part of it.
fn start(jail: impl FnOnce() -> io::Result<Option<Jail>>) -> io::Result<f64> {
    let (mut reader, writer) = io::pipe()?;
    let before = Instant::now();
    let program = Program {
        file: open("/proc/self/exe")?,
        arguments: vec![CString::new(STARTED)?],
        environment: vec![],
    };
    let jail = jail()?;
    let pids = jail.as_ref().map_or(Pids::Shared, Jail::pids);
    let writer = OwnedFd::from(writer);
    let child = sys::process::start(&program, pids, || place(jail, &writer))
        .map_err(|error| io::Error::other(error.to_string()))?;
    drop(writer);
    let mut byte = [0];
    reader.read_exact(&mut byte)?;
    let took = before.elapsed();
    while child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(took.as_secs_f64() * 1e6)
}

/// Gives the child its three descriptors, by its jail or without one.
fn place(jail: Option<Jail>, writer: &OwnedFd) -> Result<(), (&'static str, io::Error)> {
    let failed = |error| ("descriptors", error);
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let writer = writer.try_clone().map_err(failed)?;
    let descriptors = vec![(null().map_err(failed)?, 0), (writer, 1), (null().map_err(failed)?, 2)];
    match jail {
        Some(jail) => jail::enter(&Jail { descriptors, ..jail }),
        None => {
            descriptors.iter().try_for_each(|(fd, number)| sys::process::place(fd, *number)).map_err(failed)
        }
    }
}

fn jail(template: &Rc<MountTemplate>, filter: &Filter, service: bool) -> io::Result<Jail> {
    let mut binds = Vec::new();
    let mut reach =
        Reach { paths: vec![(open("/proc/self/exe")?, Access::Execute)], ports: Ports::default() };
    let mut add = |path: &'static str, mode, access| -> io::Result<()> {
        let opened = open(path)?;
        let directory = Path::new(path).is_dir();
        binds.push(Bind { at: path.into(), tree: jail::view(&opened, mode)?, directory });
        reach.paths.push((opened, access));
        Ok(())
    };
    if service {
        DEVICES.into_iter().try_for_each(|device| add(device, Mode::Device, Access::Write))?;
        add("/usr/share", Mode::Read, Access::Read)?;
    }
    let limits = Limits {
        descriptors: 64,
        core_bytes: 0,
        processes: 16,
        memory_bytes: None,
        file_bytes: None,
        cpu_seconds: None,
    };
    Ok(Jail {
        identity: Identity::new(64_123),
        root: Some(Root {
            template: template.clone(),
            binds,
            temporary_bytes: service.then_some(64 << 20),
            start_in: "/".into(),
        }),
        reach,
        ..Jail::new(Launcher::this()?, limits, filter.clone())
    })
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Bits::empty())?)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
