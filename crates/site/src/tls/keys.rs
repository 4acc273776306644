//! The certificates of this site, and which of them a client gets: the one for the name that it asks for, of a kind
//! that it can check, with what the stapler has to say of it.
//!
//! Runs in: the site worker. Sees: chains from the signer; staples; names that clients ask for. Never: has a private
//! key; each certificate leads to the signer that has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{CipherSuite, NamedGroup, OtherError, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::sync::Notify;
use webpki::EndEntityCert;
use wire::stapler::StaplerToSite;
use wire::tls::{CHAIN_MAX, KeyKind};

use super::signer_channel::{CertificatePart, CertificateReceiver, SignFault, SignerChannel};
use super::staples::{self, Shown, Staples};

/// LIMIT: a signer has at most so many for a site (`certificates`).
const CERTIFICATES_MAX: usize = 64;

/// One chain, or the parts of it that have arrived.
#[derive(Debug)]
struct ArrivingChain {
    version: u32,
    kind: KeyKind,
    parts: Vec<CertificateDer<'static>>,
    /// How many it is to have.
    count: u8,
    line: Arc<SignerChannel>,
    whole: Option<Shown>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Keys {
    chains: Mutex<Chains>,
    /// A certificate has come, or a signer answers again or is gone.
    news: Arc<Notify>,
}

/// By number.
#[derive(Debug, Default)]
struct Chains {
    used: BTreeMap<u16, ArrivingChain>,
    arriving: BTreeMap<u16, ArrivingChain>,
    staples: Staples,
}

impl Keys {
    fn chains(&self) -> MutexGuard<'_, Chains> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is to be stapled to a certificate, which may not have arrived yet.
    pub fn staple(&self, message: StaplerToSite) {
        let Chains { used, staples, .. } = &mut *self.chains();
        let Some(number) = staples.take(message) else { return };
        if let Some(whole) = used.get_mut(&number).and_then(|chain| chain.whole.as_mut()) {
            whole.staple(staples, number);
        }
    }

    /// Whether there is one.
    pub fn are_there(&self) -> bool {
        !self.chains().used.is_empty()
    }

    /// Waits until there is one.
    pub async fn wait(&self) {
        loop {
            let news = self.news.notified();
            if self.are_there() {
                return;
            }
            news.await;
        }
    }
}

impl CertificateReceiver for Keys {
    /// Takes a part; parts of a chain come in order.
    fn take(&self, line: &Arc<SignerChannel>, part: CertificatePart) {
        let mut chains = self.chains();
        let Chains { used, arriving, staples } = &mut *chains;
        let CertificatePart { number, version, kind, index, count, der } = part;
        let known = arriving.contains_key(&number) || used.contains_key(&number);
        let has_room = known || arriving.len() + used.len() < CERTIFICATES_MAX;
        if index == 0 && has_room && usize::from(count) <= CHAIN_MAX {
            let (parts, line) = (Vec::new(), line.clone());
            arriving.insert(number, ArrivingChain { version, kind, parts, count, line, whole: None });
        }
        let fits =
            |chain: &&mut ArrivingChain| chain.version == version && chain.parts.len() == usize::from(index);
        let Some(chain) = arriving.get_mut(&number).filter(fits) else {
            return;
        };
        chain.parts.push(CertificateDer::from(der));
        if chain.parts.len() < usize::from(chain.count) {
            return;
        }
        let Some(mut chain) = arriving.remove(&number) else { return };
        let key = RemoteKey { line: chain.line.clone(), number, version, kind };
        let mut whole = Shown::bare(CertifiedKey::new(std::mem::take(&mut chain.parts), Arc::new(key)));
        whole.staple(staples, number);
        chain.whole = Some(whole);
        used.insert(number, chain);
        drop(chains);
        self.news.notify_waiters();
    }

    /// Forgets what a signer had that is gone.
    fn forget(&self, line: &Arc<SignerChannel>) {
        let Chains { used, arriving, .. } = &mut *self.chains();
        for chains in [used, arriving] {
            chains.retain(|_, chain| !Arc::ptr_eq(&chain.line, line));
        }
    }

    fn has_only_others(&self, line: &SignerChannel) -> bool {
        let used = &self.chains().used;
        !used.is_empty() && !used.values().any(|chain| std::ptr::eq(&*chain.line, line))
    }

    fn news(&self) -> &Arc<Notify> {
        &self.news
    }
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let chains = self.chains();
        let (mut best, now) = (None, staples::now());
        for chain in chains.used.values() {
            let Some(whole) = chain.whole.as_ref().map(|whole| whole.at(now)) else { continue };
            if !can_check(&hello, chain.kind) {
                continue;
            }
            let named = name.as_ref().is_some_and(|name| is_for(whole, name));
            // Without one for the name, the client gets another, and can say so to its user.
            let rank = (named, chain.kind != KeyKind::Rsa);
            if best.as_ref().is_none_or(|(best, _)| rank > *best) {
                best = Some((rank, whole.clone()));
            }
        }
        best.map(|(_, whole)| whole)
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let own = key.cert.first().and_then(|der| EndEntityCert::try_from(der).ok());
    own.is_some_and(|own| own.verify_is_valid_for_subject_name(name).is_ok())
}

/// Whether a client can check signatures of such a key: it names the scheme and, unless it speaks TLS 1.3, whose suites
/// do not say, a suite as well.
fn can_check(hello: &ClientHello<'_>, kind: KeyKind) -> bool {
    use CipherSuite as S;
    let offered = hello.signature_schemes();
    let scheme = schemes(kind).iter().any(|scheme| offered.contains(scheme));
    let modern =
        [S::TLS13_AES_128_GCM_SHA256, S::TLS13_AES_256_GCM_SHA384, S::TLS13_CHACHA20_POLY1305_SHA256];
    let old = match kind {
        KeyKind::Rsa => [
            S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        _ => [
            S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
    };
    let any = |suites: &[S]| hello.cipher_suites().iter().any(|suite| suites.contains(suite));
    scheme && (any(&modern) || any(&old) && knows_curve(hello, kind))
}

/// RFC 8422 5.1: up to TLS 1.2, a client's groups are also those of the keys that it can check.
fn knows_curve(hello: &ClientHello<'_>, kind: KeyKind) -> bool {
    let curve = match kind {
        KeyKind::P256 => NamedGroup::secp256r1,
        KeyKind::P384 => NamedGroup::secp384r1,
        _ => return true,
    };
    hello.named_groups().is_none_or(|groups| groups.contains(&curve))
}

/// The schemes by which a key signs, the best first.
fn schemes(kind: KeyKind) -> &'static [SignatureScheme] {
    match kind {
        KeyKind::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
        KeyKind::P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        KeyKind::Ed25519 => &[SignatureScheme::ED25519],
        KeyKind::Rsa => &[
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ],
    }
}

/// A key that the signer has.
#[derive(Clone, Debug)]
struct RemoteKey {
    line: Arc<SignerChannel>,
    number: u16,
    version: u32,
    kind: KeyKind,
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *schemes(self.kind).iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(RemoteSigner { key: self.clone(), scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.kind {
            KeyKind::P256 | KeyKind::P384 => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
            KeyKind::Rsa => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct RemoteSigner {
    key: RemoteKey,
    scheme: SignatureScheme,
}

impl Signer for RemoteSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let RemoteKey { line, number, version, .. } = &self.key;
        let signature = line.sign(*number, *version, self.scheme.into(), message);
        signature.map_err(|fault| match fault {
            SignFault::NoAnswer(signer) => rustls::Error::Other(OtherError(Arc::new(signer))),
            SignFault::Failed(_) => rustls::Error::General(fault.to_string()),
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
