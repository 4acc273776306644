//! The operator's files for the login to a server, and the login that they make: at the start, and whenever one is read
//! again.
//!
//! Sees: passwords, keys and certificates of the operator's. Never: makes a login of a certificate and the key of
//! another.

use std::fmt;
use std::os::fd::OwnedFd;

use wire::data::LauncherToDataProxy;
use worker::files;

use super::tls::{ProxyCertificate, ServerTls};
use super::way::Login;

/// LIMIT: bytes of a file with a password.
const PASSWORD_MAX: usize = 4096;
/// LIMIT: bytes of a file with a certificate or a key.
const IDENTITY_MAX: usize = 256 << 10;

/// See the file's head. A part without a file is `None`.
#[derive(Clone, Default)]
pub(crate) struct LoginFiles {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    /// For whom the server's certificate must be.
    pub(crate) name: String,
    /// The authorities that may have signed it; without, there is no TLS.
    pub(crate) authorities: Option<Vec<u8>>,
    /// The certificate that the server is shown.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
}

/// Why files make no login.
#[derive(Debug)]
pub(crate) enum LoginFault {
    /// The certificate and the key are not of one pair: perhaps one of the two is about to be replaced.
    Halves,
    /// The fault of one of the files.
    File(String),
}

impl LoginFiles {
    /// Takes a file that has come along; the key of the configuration that names it, or what is wrong with it.
    pub(crate) fn take(
        &mut self,
        message: &LauncherToDataProxy,
        file: &OwnedFd,
    ) -> Result<&'static str, String> {
        match message {
            LauncherToDataProxy::Authorities { name } => {
                self.authorities = Some(files::read(file, certificate::authorities::FILE_BYTES_MAX)?);
                self.name = name.as_str().to_owned();
                Ok("server_ca")
            }
            LauncherToDataProxy::Certificate {} => {
                self.certificate = Some(files::read(file, IDENTITY_MAX)?);
                Ok("certificate")
            }
            LauncherToDataProxy::Key {} => {
                self.key = Some(files::read(file, IDENTITY_MAX)?);
                Ok("key")
            }
            _ => {
                self.password = Some(password(file)?);
                Ok("password")
            }
        }
    }

    /// The login that they make.
    ///
    /// # Errors
    /// Why they make none.
    pub(crate) fn login(&self) -> Result<Login, LoginFault> {
        let Self { database, user, password, .. } = self.clone();
        Ok(Login { database, user, password, tls: self.tls()? })
    }

    fn tls(&self) -> Result<Option<ServerTls>, LoginFault> {
        let Some(authorities) = &self.authorities else { return Ok(None) };
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(ProxyCertificate::read(certificate, key)?),
            _ => None,
        };
        ServerTls::new(authorities, &self.name, identity).map(Some).map_err(LoginFault::File)
    }
}

impl fmt::Display for LoginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halves => f.write_str("the `key` is not that of the `certificate`: replace both files"),
            Self::File(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Debug for LoginFiles {
    /// SECURITY: no password and no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginFiles").field("database", &self.database).finish_non_exhaustive()
    }
}

/// The password in a file.
fn password(file: &OwnedFd) -> Result<String, String> {
    let in_words = |reason: &dyn fmt::Display| format!("the password: {reason}");
    let bytes = files::read(file, PASSWORD_MAX).map_err(|reason| in_words(&reason))?;
    let text = String::from_utf8(bytes).map_err(|_| in_words(&"it is not UTF-8"))?;
    Ok(password_of(&text))
}

/// The password that a text is, without the end of its line.
pub(crate) fn password_of(text: &str) -> String {
    text.trim_end_matches(['\n', '\r']).to_owned()
}
