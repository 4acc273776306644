//! How this site's worker speaks TLS: its settings, its certificates, its tickets; all of it by what it is told.
//!
//! Runs in: the site worker, under the site's uid. Sees: chains of certificates from the signer, answers of responders
//! from the stapler, secrets for tickets from the launcher, authorities of clients' certificates from the operator's
//! file. Never: has a private key.

mod client_ca;
mod crl;
mod keys;
mod signer_channel;
mod staples;
pub(crate) mod stream;
mod tickets;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{CipherSuite, ServerConfig, SupportedProtocolVersion};
use tokio::sync::Notify;
use wire::LauncherToSite;
use wire::tls::{ClientAuth, Resume};
use worker::ProcessFault;

use client_ca::Authorities;
use crl::{Lists, RevocationFile};
use keys::Keys;
use tickets::Tickets;

/// LIMIT: sessions that a worker remembers for `resumption = "stateful"`; about 1 KiB each.
const SESSIONS_MAX: usize = 4096;
/// LIMIT: how long a connection waits for certificates while a signer starts.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at least whether a list of revoked certificates is over: the clock may be set.
const GLANCE: Duration = Duration::from_secs(3600);

/// Suites that are preferred to others.
const AES_128: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Groups and cipher suites, the preferred ones first.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![X25519MLKEM768, X25519, SECP256R1, SECP384R1];
    // With AES-256 come hashes of SHA-384, for which most processors have no instructions: a sixth of a handshake.
    provider.cipher_suites.sort_by_key(|suite| !AES_128.contains(&suite.suite()));
    provider
}

/// The launcher's settings of TLS.
#[derive(Debug, Default)]
pub struct TlsContext {
    settings: Option<Settings>,
    authorities: RefCell<Option<Authorities>>,
    revoked: RefCell<Lists>,
    /// The lists have changed.
    changed: Notify,
    keys: Arc<Keys>,
    tickets: Arc<Tickets>,
}

#[derive(Debug)]
struct Settings {
    version_min: u16,
    resume: Resume,
    client_auth: ClientAuth,
    tamper: bool,
    hsts: Option<HeaderValue>,
}

impl TlsContext {
    /// Takes a message that is about TLS; gives back any other.
    ///
    /// # Errors
    /// The launcher's message makes no sense.
    pub fn take(
        &mut self,
        message: LauncherToSite,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<(LauncherToSite, Option<OwnedFd>)>, ProcessFault> {
        match (message, descriptor) {
            (LauncherToSite::Tls { version_min, resume, client_auth, tamper, hsts }, None) => {
                let hsts = Some(hsts.as_str()).filter(|value| !value.is_empty()).map(HeaderValue::from_str);
                let hsts =
                    hsts.transpose().map_err(|error| ProcessFault::Launcher(format!("hsts: {error}")))?;
                self.settings = Some(Settings { version_min, resume, client_auth, tamper, hsts });
            }
            (LauncherToSite::ClientAuthorities { path }, Some(file)) => {
                let wrong = |what| ProcessFault::Operator(format!("`client_ca` {}: {what}", path.as_str()));
                *self.authorities.get_mut() = Some(Authorities::read(&file).map_err(wrong)?);
            }
            (LauncherToSite::ClientRevoked { number, path }, Some(file)) => {
                let wrong = |what| ProcessFault::Operator(format!("`client_crl` {}: {what}", path.as_str()));
                let revoked = RevocationFile::read(&file, path.as_str()).map_err(wrong)?;
                self.revoked.get_mut().take(number, revoked);
            }
            (message, descriptor) => return self.take_always(message, descriptor),
        }
        Ok(None)
    }

    /// The same once the worker serves.
    ///
    /// # Errors
    /// The launcher's message makes no sense.
    pub fn take_always(
        &self,
        message: LauncherToSite,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<(LauncherToSite, Option<OwnedFd>)>, ProcessFault> {
        match (message, descriptor) {
            (LauncherToSite::TicketKey { generation, secret }, None) => {
                self.tickets
                    .learn(generation, &secret.0)
                    .map_err(|()| ProcessFault::Launcher("a bad secret".into()))?;
            }
            (LauncherToSite::Signer {}, Some(channel)) => signer_channel::attend(channel, self.keys.clone())?,
            (LauncherToSite::Stapler {}, Some(channel)) => {
                let keys = self.keys.clone();
                staples::attend(channel, move |message| keys.staple(message))?
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Takes over other authorities: how connections are set up from now on.
    ///
    /// # Errors
    /// The fault of the file; the authorities before it still hold.
    pub fn renew(&self, file: &OwnedFd) -> Result<Option<Arc<ServerConfig>>, String> {
        let new = Authorities::read(file)?;
        let old = self.authorities.replace(Some(new));
        self.config().map_err(|fault| {
            *self.authorities.borrow_mut() = old;
            fault.to_string()
        })
    }

    /// The same for a file with lists of revoked certificates.
    ///
    /// # Errors
    /// As above.
    pub fn renew_revoked(
        &self,
        number: u16,
        path: &str,
        file: &OwnedFd,
    ) -> Result<Option<Arc<ServerConfig>>, String> {
        let new = RevocationFile::read(file, path)?;
        let old = self.revoked.borrow().clone();
        self.revoked.borrow_mut().take(number, new);
        self.changed.notify_one();
        self.config().map_err(|fault| {
            *self.revoked.borrow_mut() = old;
            fault.to_string()
        })
    }

    /// Warnings to the operator about lists of revoked certificates.
    pub fn warnings(&self) -> Vec<String> {
        let revoked = self.revoked.borrow();
        let warning = |path| {
            format!(
                "`client_crl` {path}: a list in it is out of date; clients whose certificates it is about are refused \
                 until there is a newer one"
            )
        };
        revoked.over(now()).map(warning).collect()
    }

    /// Waits until a list is over. Connections that are set up then resume no session from before.
    pub async fn list_is_over(&self) {
        loop {
            let end = self.revoked.borrow().next_end(now());
            let left = end.map_or(GLANCE, |end| Duration::from_secs(end.saturating_sub(now())).min(GLANCE));
            tokio::select! {
                () = tokio::time::sleep(left), if end.is_some() => {}
                () = self.changed.notified() => {}
            }
            if end.is_some_and(|end| end <= now()) {
                return;
            }
        }
    }

    /// How connections are set up; `None` where TLS is not spoken.
    ///
    /// # Errors
    /// The authorities of clients' certificates cannot be used: without them, anybody would be let in.
    pub fn config(&self) -> Result<Option<Arc<ServerConfig>>, ProcessFault> {
        let Some(settings) = &self.settings else {
            return Ok(None);
        };
        let wrong = |what: &dyn std::fmt::Display| ProcessFault::Launcher(format!("TLS: {what}"));
        let provider = Arc::new(provider());
        let versions: &[&SupportedProtocolVersion] = match settings.version_min {
            0x0303 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            0x0304 => &[&rustls::version::TLS13],
            other => return Err(wrong(&format!("version {other:#06x}"))),
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| wrong(&error))?;
        let builder = match settings.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            demand => {
                let authorities = self.authorities.borrow();
                let authorities = authorities.as_ref().ok_or_else(|| wrong(&"no file of authorities"))?;
                let roots = authorities.roots.clone();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                // As others who check lists do it: every certificate up to an authority of the file must be on none,
                // and there must be one, which holds now, by whoever has signed it.
                let verifier =
                    verifier.with_crls(self.revoked.borrow().all()).enforce_revocation_expiration();
                let verifier = match demand {
                    ClientAuth::Request => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
            }
        };
        let mut config = builder.with_cert_resolver(self.keys.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // All suites are strong; testssl.sh wants the choice to be the server's all the same.
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match settings.resume {
            Resume::Tickets => {
                let authorities = self.authorities.borrow();
                let authorities = authorities.as_ref().map(|authorities| authorities.digest.to_vec());
                let under = authorities.map(|digest| [digest, self.revoked.borrow().mark(now())].concat());
                config.ticketer = self.tickets.under(under);
            }
            Resume::Stateful => config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX),
            Resume::Off => config.send_tls13_tickets = 0,
        }
        Ok(Some(Arc::new(config)))
    }

    /// The value of `Strict-Transport-Security` in answers.
    pub fn hsts(&self) -> Option<HeaderValue> {
        self.settings.as_ref().and_then(|settings| settings.hsts.clone())
    }

    /// Whether clients whose records fail to decrypt are to be named.
    pub fn names_tampering(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.tamper)
    }

    /// Waits, for a while, until there is a certificate; a signer may just be starting.
    pub async fn ready(&self) {
        if !self.keys.are_there() {
            let _ = tokio::time::timeout(PATIENCE, self.keys.wait()).await;
        }
    }
}
