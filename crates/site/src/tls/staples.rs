//! The stapler's OCSP answers about this site's certificates, to be handed to clients with them.
//!
//! Runs in: the site worker. Sees: answers of responders, which the stapler has checked; they are passed on unread.
//! Never: waits for one, or gives one away after its time.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::sign::CertifiedKey;
use wire::stapler::{Nothing, StaplerToSite};
use worker::channel::Channel;

/// LIMIT: as many as there are certificates of a site.
const STAPLES_MAX: usize = 64;

/// One answer.
#[derive(Clone, Debug)]
struct StoredStaple {
    /// The SHA-256 of the certificate that it is about.
    certificate: Vec<u8>,
    until: u64,
    response: Vec<u8>,
}

/// All of them, by the numbers of certificates. They outlive the stapler, and the signer.
#[derive(Debug, Default)]
pub struct Staples(BTreeMap<u16, StoredStaple>);

/// A chain with its key, and the same with what is stapled to it for a while.
#[derive(Clone, Debug)]
pub struct Shown {
    bare: Arc<CertifiedKey>,
    stapled: Option<(u64, Arc<CertifiedKey>)>,
}

impl Shown {
    /// Without a staple.
    pub fn bare(key: CertifiedKey) -> Self {
        Self { bare: Arc::new(key), stapled: None }
    }

    /// The certificate with its staple at a time (seconds since 1970).
    pub fn at(&self, now: u64) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((until, stapled)) if *until > now => stapled,
            _ => &self.bare,
        }
    }

    /// Staples what there is for certificate `number`, if that is this one.
    pub fn staple(&mut self, staples: &Staples, number: u16) {
        let own = |staple: &&StoredStaple| {
            let own = self.bare.cert.first().map(|der| digest(&SHA256, der));
            own.is_some_and(|own| own.as_ref() == staple.certificate)
        };
        if let Some(staple) = staples.0.get(&number).filter(own) {
            let mut key = (*self.bare).clone();
            key.ocsp = Some(staple.response.clone());
            self.stapled = Some((staple.until, Arc::new(key)));
        }
    }
}

impl Staples {
    /// Takes a staple; the number of its certificate.
    pub fn take(&mut self, message: StaplerToSite) -> Option<u16> {
        let StaplerToSite::Staple { number, certificate, until, response } = message;
        if self.0.len() >= STAPLES_MAX && !self.0.contains_key(&number) {
            return None;
        }
        self.0.insert(number, StoredStaple { certificate: certificate.0, until, response: response.0 });
        Some(number)
    }
}

/// The time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Passes the messages of a stapler to `staple` until the stapler is gone; must be called inside the runtime.
pub fn attend(socket: OwnedFd, staple: impl Fn(StaplerToSite) + 'static) -> io::Result<()> {
    let channel: Channel<StaplerToSite, Nothing> = Channel::new(socket)?;
    tokio::task::spawn_local(async move {
        let take = |arrived| match arrived {
            Ok((message, None)) => {
                staple(message);
                0
            }
            _ => 1,
        };
        channel.receive_all("the stapler", take).await;
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::sign::SigningKey;
    use rustls::{SignatureAlgorithm, SignatureScheme};
    use rustls_pki_types::CertificateDer;
    use wire::Bytes;

    #[derive(Debug)]
    struct NoKey;

    impl SigningKey for NoKey {
        fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
            None
        }
        fn algorithm(&self) -> SignatureAlgorithm {
            SignatureAlgorithm::ED25519
        }
    }

    fn staple(number: u16, certificate: &[u8], until: u64) -> StaplerToSite {
        let certificate = Bytes(digest(&SHA256, certificate).as_ref().to_vec());
        StaplerToSite::Staple { number, certificate, until, response: Bytes(vec![until as u8]) }
    }

    #[test]
    fn a_staple_is_shown_with_its_certificate_until_its_end() {
        let chain = || Shown::bare(CertifiedKey::new(vec![CertificateDer::from(vec![1])], Arc::new(NoKey)));
        let mut staples = Staples::default();
        assert_eq!(staples.take(staple(3, &[1], 100)), Some(3));
        let mut shown = chain();
        assert_eq!(shown.at(0).ocsp, None);
        shown.staple(&staples, 4);
        assert_eq!(shown.at(0).ocsp, None, "of another number");
        shown.staple(&staples, 3);
        assert_eq!(shown.at(99).ocsp.as_deref(), Some(&[100][..]));
        assert_eq!(shown.at(100).ocsp, None, "its time is over");
        // The next one comes, and one that is about another certificate.
        staples.take(staple(3, &[1], 200));
        shown.staple(&staples, 3);
        assert_eq!(shown.at(150).ocsp.as_deref(), Some(&[200][..]));
        staples.take(staple(3, &[2], 300));
        let mut other = chain();
        other.staple(&staples, 3);
        assert_eq!(other.at(0).ocsp, None);
    }

    #[test]
    fn there_are_not_more_than_certificates() {
        let mut staples = Staples::default();
        let accepted = (0..100).filter(|number| staples.take(staple(*number, &[1], 9)).is_some()).count();
        assert_eq!(accepted, STAPLES_MAX);
        assert_eq!(staples.take(staple(0, &[1], 10)), Some(0));
    }
}
