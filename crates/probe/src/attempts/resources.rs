//! F: taking more than its share, up to a bound; what is told is where it stopped.
//!
//! Runs in: the probe. Never: takes more than the bounds below, or keeps any of it.

use std::io::Write;
use std::sync::mpsc;

use sys::attempt::{Errno, odd};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, denied, refused, succeeded, tried};
use crate::look::Own;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('F', "fill-memory", "2 GiB of memory, not touched", "rlimits", memory).either(),
    attempt('F', "touch-memory", "256 MiB of memory, touched", "cgroup", touched).in_child().either(),
    attempt('F', "fill-descriptors", "16,384 descriptors", "rlimits", descriptors).either(),
    attempt('F', "fill-threads", "256 threads", "rlimits", threads).either(),
    attempt('F', "fill-disk", "a file of 64 MiB", "mount namespace", disk).services_may(),
    attempt('F', "fill-inodes", "1,024 files", "mount namespace", inodes).services_may(),
    attempt('F', "fill-pipes", "64 pipes of 1 MiB each", "rlimits", pipes).either(),
    attempt('F', "lock-memory", "memory that is never paged out", "capabilities", locked).either(),
];

const MIB: usize = 1 << 20;

fn memory(_: &Cx<'_>) -> AttemptOutcome {
    const STEP: usize = 64 * MIB;
    const MOST: usize = 2048 * MIB;
    let mut taken: Vec<Vec<u8>> = Vec::new();
    while taken.len() * STEP < MOST {
        let mut more = Vec::new();
        if more.try_reserve_exact(STEP).is_err() {
            return denied(Errno::NOMEM, format!("stopped at {} MiB", taken.len() * STEP / MIB));
        }
        taken.push(more);
    }
    succeeded(format!("{} MiB", MOST / MIB))
}

fn touched(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 256 * MIB;
    let mut taken: Vec<u8> = Vec::new();
    if taken.try_reserve_exact(MOST).is_err() {
        return denied(Errno::NOMEM, "not even reserved");
    }
    taken.resize(MOST, 1);
    let sum: usize = taken.iter().step_by(4096).map(|&byte| usize::from(byte)).sum();
    succeeded(format!("{} MiB, {sum} pages", MOST / MIB))
}

fn descriptors(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 16_384;
    let mut taken = Vec::new();
    while taken.len() < MOST {
        match odd::duplicate(1) {
            Some(one) => taken.push(one),
            None => return denied(Errno::MFILE, format!("stopped at {}", taken.len())),
        }
    }
    succeeded(format!("{MOST}"))
}

fn threads(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 256;
    let mut taken = Vec::new();
    let mut stopped = None;
    while taken.len() < MOST && stopped.is_none() {
        let (end, wait) = mpsc::channel::<()>();
        let made = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let _ = wait.recv();
        });
        match made {
            Ok(thread) => taken.push((end, thread)),
            Err(error) => stopped = Some(error),
        }
    }
    let count = taken.len();
    for (end, thread) in taken {
        drop(end);
        let _ = thread.join();
    }
    match stopped {
        Some(error) => tried::<(), _>(Err(error)).or_detail(format!("stopped at {count}")),
        None => succeeded(format!("{count}")),
    }
}

fn own_folder() -> Result<Own, AttemptOutcome> {
    Own::new().map_err(|error| tried::<(), _>(Err(error)).or_detail("no folder to write in"))
}

fn disk(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 64;
    let own = match own_folder() {
        Ok(own) => own,
        Err(outcome) => return outcome,
    };
    let part = vec![1; MIB];
    match own.file("large") {
        Err(error) => tried::<(), _>(Err(error)),
        Ok((_, mut file)) => {
            let written = (0..MOST).take_while(|_| file.write_all(&part).is_ok()).count();
            if written == MOST {
                succeeded(format!("{MOST} MiB"))
            } else {
                refused(format!("stopped at {written} MiB"))
            }
        }
    }
}

fn inodes(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 1024;
    let own = match own_folder() {
        Ok(own) => own,
        Err(outcome) => return outcome,
    };
    let made = (0..MOST).take_while(|number| own.file(&number.to_string()).is_ok()).count();
    if made == MOST { succeeded(format!("{MOST} files")) } else { refused(format!("stopped at {made}")) }
}

fn pipes(_: &Cx<'_>) -> AttemptOutcome {
    const MOST: usize = 64;
    let mut taken = Vec::new();
    while taken.len() < MOST {
        let made = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .and_then(|(from, to)| rustix::pipe::fcntl_setpipe_size(&to, MIB).map(|_| (from, to)));
        match made {
            Ok(pipe) => taken.push(pipe),
            Err(errno) => return denied(errno, format!("stopped at {}", taken.len())),
        }
    }
    succeeded(format!("{MOST} pipes"))
}

fn locked(_: &Cx<'_>) -> AttemptOutcome {
    // More than the 8 MiB that everybody has by default.
    const MOST: usize = 16 * MIB;
    let memory = vec![1_u8; MOST];
    tried(sys::attempt::memory::lock(&memory)).or_detail(format!("{} MiB", MOST / MIB))
}
