//! The administrator's door: the socket on which orders come, and the secret that each of them begins with.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: gives the secret to any process but the admin role.
//!
//! The modes of both files keep other users out. In a rootless run every process is the owner's, and nothing in the
//! kernel keeps a service from a socket whose path it knows: Landlock rules over files that are opened, and not over
//! sockets that are connected to. The secret is in a file, and files of the run directory are opened from no jail.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use wire::successor::LauncherToSuccessor;
use wire::{ADMIN_SECRET_CHARS, Text};

use crate::secret::random;
use supervisor::error::{Error, at, during};
use supervisor::upgrade::{Handed, Record};

/// The socket and the secret.
pub struct AdminSocket {
    socket: OwnedFd,
    secret: String,
    run: PathBuf,
}

impl std::fmt::Debug for AdminSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdminSocket({})", self.run.display())
    }
}

impl AdminSocket {
    /// Makes both anew in the run directory, which is the launcher's own.
    pub fn open(run: &Path) -> Result<Self, Error> {
        let (at_socket, at_secret) = paths(run);
        remove(&at_socket)?;
        remove(&at_secret)?;
        let secret = secret()?;
        // Before the socket: who can connect finds what to say.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&at_secret);
        let mut file = file.map_err(at("make", &at_secret))?;
        writeln!(file, "{secret}").map_err(at("write", &at_secret))?;
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let socket = UnixListener::bind(&at_socket);
        rustix::process::umask(before);
        let socket = OwnedFd::from(socket.map_err(at("bind", &at_socket))?);
        // Accepted connections inherit it.
        sys::seqpacket::refuse_descriptors(&socket).map_err(at("set up", &at_socket))?;
        Ok(Self { socket, secret, run: run.into() })
    }

    /// Writes both down.
    pub(crate) fn hand_over<'a>(&'a self, record: &mut Record<'a>) {
        let descriptor = record.leave(&self.socket);
        record.add(LauncherToSuccessor::AdminSocket { descriptor, secret: self.secret() });
    }

    /// Those of the launcher before.
    pub(crate) fn resume(handed: &Handed, run: &Path) -> Result<Self, Error> {
        let found = handed.items().find_map(|item| match item {
            LauncherToSuccessor::AdminSocket { descriptor, secret } => Some((*descriptor, secret)),
            _ => None,
        });
        let (socket, secret) = found.ok_or_else(|| Error::record("it has no administration socket"))?;
        Ok(Self { socket: handed.copy(socket)?, secret: secret.as_str().to_owned(), run: run.into() })
    }

    /// The socket, once more.
    pub fn socket(&self) -> Result<OwnedFd, Error> {
        self.socket.try_clone().map_err(during("duplicate a descriptor"))
    }

    /// The secret, for the admin role.
    pub fn secret(&self) -> Text<ADMIN_SECRET_CHARS> {
        Text::new(self.secret.as_str())
    }

    /// Removes both at the end.
    pub fn close(&self) {
        let (socket, secret) = paths(&self.run);
        let _ = fs::remove_file(socket);
        let _ = fs::remove_file(secret);
    }
}

/// Where the socket and the secret are, below the run directory.
pub(crate) fn paths(run: &Path) -> (PathBuf, PathBuf) {
    (run.join("admin.sock"), run.join("admin.secret"))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// As many hexadecimal digits as nobody guesses.
fn secret() -> Result<String, Error> {
    let bytes = random::<{ ADMIN_SECRET_CHARS / 2 }>()?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
