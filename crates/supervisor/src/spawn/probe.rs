//! Starting `bulkhead-probe` in the jail of a process.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: reads what the probe says.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sys::control::ControlEnd;
use sys::inherit::LOG;
use sys::process::Program;
use sys::seqpacket::refuse_descriptors;
use wire::ProbeKind;

use crate::error::{Error, during};
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program;
use crate::spawn::{Jailed, Origin, placed};

/// What a filter ends a process for: a role can make no child that would be ended in its place.
const FOREIGN: &str = r#"{"only":["int80"],"inline":true,"alone":true}"#;

impl SpawnContext {
    /// Starts the probe in the jail of `slot`, with descriptors like those that the slot's process has.
    pub fn probe(
        &self,
        spec: &ProcessSpec,
        kind: ProbeKind,
        hints: &str,
    ) -> Result<(Jailed, OwnedFd), Error> {
        let file = program::unreadable(
            &self.roles_folder.join("bulkhead-probe"),
            &self.config.server.run_dir.join("bulkhead-probe"),
        )?;
        let (word, hints) = match kind {
            ProbeKind::Attempts => ("attempts", hints),
            ProbeKind::Score => ("score", hints),
            ProbeKind::Sweep => ("sweep", hints),
            ProbeKind::Foreign => ("attempts", FOREIGN),
        };
        let arguments = vec![text("bulkhead-probe")?, text(word)?, text(hints)?];
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (output, its_output) = pair.map_err(during("make a channel"))?;
        // Channels on which nobody listens: what the probe does to them reaches nobody.
        let (_, control) = ControlEnd::pair().map_err(during("make a channel"))?;
        refuse_descriptors(&output).map_err(during("make a channel"))?;
        let (_, log) = sys::seqpacket::pair_that_takes(false, false).map_err(during("make a channel"))?;
        let mut descriptors =
            vec![(duplicate(&self.null)?, 0), (its_output, 1), (duplicate(&self.null)?, 2), (log, LOG)];
        descriptors.extend(placed(control));
        let program = Program { file, arguments, environment: vec![] };
        Ok((self.start_in_jail(spec, (&program, Origin::Ours), &descriptors)?, output))
    }
}
