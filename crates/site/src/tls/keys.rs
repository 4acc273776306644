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
/// LIMIT: signers whose chains are kept: the one that signs, its successor on the way, one that retires, and one more.
const SIGNERS_MAX: usize = 4;

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
    used: BTreeMap<u16, SameChains>,
    arriving: BTreeMap<u16, SameChains>,
    staples: Staples,
}

/// The chains of one number, of each signer that has given one, or gives one. The newest that is whole is shown.
///
/// A successor that is refused has given some and takes them along, perhaps after the signer that goes on has given its
/// own anew: those of the others have to be there still.
#[derive(Debug, Default)]
struct SameChains(Vec<ArrivingChain>);

impl SameChains {
    /// The chain that clients get.
    fn shown(&self) -> Option<&ArrivingChain> {
        self.0.last()
    }

    /// Takes the chain of a signer out.
    fn take(&mut self, line: &Arc<SignerChannel>) -> Option<ArrivingChain> {
        let place = self.0.iter().position(|chain| Arc::ptr_eq(&chain.line, line))?;
        Some(self.0.remove(place))
    }

    /// Takes a chain in the place of that of the same signer.
    fn put(&mut self, chain: ArrivingChain) {
        drop(self.take(&chain.line));
        if self.0.len() == SIGNERS_MAX {
            self.0.remove(0);
        }
        self.0.push(chain);
    }
}

impl Keys {
    fn chains(&self) -> MutexGuard<'_, Chains> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is to be stapled to a certificate, which may not have arrived yet.
    pub fn staple(&self, message: StaplerToSite) {
        let Chains { used, staples, .. } = &mut *self.chains();
        let Some(number) = staples.take(message) else { return };
        let chains = used.get_mut(&number).into_iter().flat_map(|chains| &mut chains.0);
        chains.filter_map(|chain| chain.whole.as_mut()).for_each(|whole| whole.staple(staples, number));
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
            let begun = ArrivingChain { version, kind, parts, count, line, whole: None };
            arriving.entry(number).or_default().put(begun);
        }
        let Some(chains_of_number) = arriving.get_mut(&number) else { return };
        let Some(mut chain) = chains_of_number.take(line) else { return };
        let fits = chain.version == version && chain.parts.len() == usize::from(index);
        if fits {
            chain.parts.push(CertificateDer::from(der));
        }
        if !fits || chain.parts.len() < usize::from(chain.count) {
            return chains_of_number.put(chain);
        }
        if chains_of_number.0.is_empty() {
            arriving.remove(&number);
        }
        let key = RemoteKey { line: chain.line.clone(), number, version, kind };
        let mut whole = Shown::bare(CertifiedKey::new(std::mem::take(&mut chain.parts), Arc::new(key)));
        whole.staple(staples, number);
        chain.whole = Some(whole);
        used.entry(number).or_default().put(chain);
        drop(chains);
        self.news.notify_waiters();
    }

    /// Forgets what a signer had that is gone.
    fn forget(&self, line: &Arc<SignerChannel>) {
        let Chains { used, arriving, .. } = &mut *self.chains();
        for of_numbers in [used, arriving] {
            of_numbers.values_mut().for_each(|chains| drop(chains.take(line)));
            of_numbers.retain(|_, chains| !chains.0.is_empty());
        }
    }

    fn has_only_others(&self, line: &SignerChannel) -> bool {
        let used = &self.chains().used;
        let mut shown = used.values().filter_map(SameChains::shown);
        !used.is_empty() && !shown.any(|chain| std::ptr::eq(&*chain.line, line))
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
        for chain in chains.used.values().filter_map(SameChains::shown) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::LocalSet;
    use wire::tls::{SignerToSite, SiteToSigner};
    use worker::channel::Channel;

    use super::*;
    use crate::tls::signer_channel::attend;

    type SignerEnd = Channel<SiteToSigner, SignerToSite>;

    fn signer(keys: &Arc<Keys>) -> SignerEnd {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        attend(theirs, keys.clone()).unwrap();
        SignerEnd::new(ours).unwrap()
    }

    /// The versions of what clients get, by number.
    fn shown(keys: &Keys) -> Vec<(u16, u32)> {
        let chains = keys.chains();
        chains.used.iter().map(|(number, chains)| (*number, chains.shown().unwrap().version)).collect()
    }

    async fn wait_for(is_so: impl Fn() -> bool) {
        let found = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), found).await.unwrap();
    }

    async fn until(keys: &Keys, expected: &[(u16, u32)]) {
        wait_for(|| shown(keys) == expected).await;
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    async fn give(signer: &SignerEnd, number: u16, version: u32) {
        give_part(signer, (number, version), (0, 1), version as u8).await;
    }

    async fn give_part(signer: &SignerEnd, (number, version): (u16, u32), (index, count): (u8, u8), der: u8) {
        let (kind, der) = (KeyKind::P256, wire::Bytes(vec![der]));
        let part = SignerToSite::Certificate { number, version, kind, index, count, der };
        signer.send(&part, None).await.unwrap();
    }

    #[test]
    fn parts_of_two_signers_make_two_chains() {
        run(async {
            let keys = Arc::new(Keys::default());
            let (one, other) = (signer(&keys), signer(&keys));
            let arrived = |parts: usize| {
                let keys = keys.clone();
                move || keys.chains().arriving.values().flat_map(|chains| &chains.0).count() == parts
            };
            give_part(&one, (0, 1), (0, 2), 10).await;
            wait_for(arrived(1)).await;
            give_part(&other, (0, 1), (0, 2), 20).await;
            wait_for(arrived(2)).await;
            give_part(&one, (0, 1), (1, 2), 11).await;
            wait_for(arrived(1)).await;
            give_part(&other, (0, 1), (1, 2), 21).await;
            wait_for(arrived(0)).await;
            let chains = keys.chains();
            let whole =
                chains.used[&0].0.iter().map(|chain| chain.whole.as_ref().unwrap().at(0).cert.clone());
            let ders: Vec<Vec<u8>> = whole.map(|chain| chain.iter().map(|der| der[0]).collect()).collect();
            assert_eq!(ders, [[10, 11], [20, 21]]);
        });
    }

    #[test]
    fn a_signer_that_goes_leaves_what_others_have_given_before_and_after() {
        run(async {
            let keys = Arc::new(Keys::default());
            let first = signer(&keys);
            give(&first, 0, 1).await;
            give(&first, 1, 1).await;
            until(&keys, &[(0, 1), (1, 1)]).await;
            let successor = signer(&keys);
            give(&successor, 0, 2).await;
            until(&keys, &[(0, 2), (1, 1)]).await;
            // It is refused, and the first one is connected anew; what the successor has said last comes after that.
            let again = signer(&keys);
            give(&again, 0, 3).await;
            until(&keys, &[(0, 3), (1, 1)]).await;
            give(&successor, 0, 4).await;
            until(&keys, &[(0, 4), (1, 1)]).await;
            drop(successor);
            until(&keys, &[(0, 3), (1, 1)]).await;
            // One that is renewed takes the place of its own.
            give(&first, 1, 5).await;
            until(&keys, &[(0, 3), (1, 5)]).await;
            drop(again);
            until(&keys, &[(0, 1), (1, 5)]).await;
            drop(first);
            until(&keys, &[]).await;
        });
    }
}
