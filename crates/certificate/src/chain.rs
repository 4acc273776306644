//! The certificates of a file in the order in which clients are sent them.
//!
//! Runs in: the signer. Input: certificates that the operator has installed. Never: verifies anything; clients do.
//!
//! A file may have several certificates of one authority: cross-signed ones, one that was renewed, one that has
//! expired. Each that leads from the site's own upwards is sent, as a client may know another root than its neighbour
//! (RFC 8446 4.4.2), and the valid ones come first, as clients of TLS 1.2 read no further than the first that fits.

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectKeyIdentifier};

use crate::der;
use crate::own;

/// The certificates that are sent.
#[derive(Debug)]
pub struct CertificateChain {
    /// The site's own certificate, then whoever signed one before.
    pub certificates: Vec<CertificateDer<'static>>,
    /// From when on and until when the site's own is valid, in seconds since 1970; `None` if that cannot be read.
    pub validity: Option<(u64, u64)>,
    /// How many of them, the site's own aside, are valid no more, or not yet.
    pub out_of_date: u16,
    /// How many of the file lead nowhere, and are not sent.
    pub left_out: u16,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// A certificate cannot be read.
    Broken,
    /// None is of the key.
    NotOfKey,
}

/// The facts that decide about a certificate's place.
struct ChainLink {
    der: CertificateDer<'static>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    /// The identifier of its key, and of that which has signed it, where it says them.
    key: Option<Vec<u8>>,
    issuers_key: Option<Vec<u8>>,
    validity: Option<(u64, u64)>,
    is_own: bool,
    is_valid: bool,
}

impl ChainLink {
    fn read(
        der: &CertificateDer<'static>,
        is_own: impl Fn(&[u8]) -> bool,
        now: u64,
    ) -> Result<Self, ChainError> {
        let parsed = EndEntityCert::try_from(der).map_err(|_| ChainError::Broken)?;
        let whole = der::decode::<x509_cert::Certificate>(der).ok();
        let validity = whole.as_ref().map(own::validity_of);
        let whole = whole.as_ref().map(|whole| &whole.tbs_certificate);
        let key = whole.and_then(|whole| whole.get::<SubjectKeyIdentifier>().ok().flatten());
        let issuer = whole.and_then(|whole| whole.get::<AuthorityKeyIdentifier>().ok().flatten());
        Ok(Self {
            der: der.clone(),
            subject: parsed.subject().to_vec(),
            issuer: parsed.issuer().to_vec(),
            key: key.map(|(_, key)| key.0.as_bytes().to_vec()),
            issuers_key: issuer
                .and_then(|(_, issuer)| issuer.key_identifier)
                .map(|key| key.as_bytes().to_vec()),
            is_own: is_own(&parsed.subject_public_key_info()),
            validity,
            is_valid: validity.is_none_or(|(since, until)| (since..=until).contains(&now)),
        })
    }

    /// Whether this one may have signed `other`: two keys of one authority have one name.
    fn may_have_signed(&self, other: &Self) -> bool {
        let is_same_key = match (&self.key, &other.issuers_key) {
            (Some(key), Some(issuers)) => key == issuers,
            _ => true,
        };
        self.subject == other.issuer && is_same_key
    }
}

/// Puts the certificates of a file in order; `is_own` says of a public key (SubjectPublicKeyInfo) whether it is the
/// site's, and `now` is in seconds since 1970.
///
/// # Errors
/// A certificate is broken, or none is of the key.
pub fn order(
    file: &[CertificateDer<'static>],
    is_own: impl Fn(&[u8]) -> bool,
    now: u64,
) -> Result<CertificateChain, ChainError> {
    let links: Vec<ChainLink> =
        file.iter().map(|der| ChainLink::read(der, &is_own, now)).collect::<Result<_, _>>()?;
    let own = |is_valid: bool| links.iter().position(|link| link.is_own && link.is_valid >= is_valid);
    let own = own(true).or_else(|| own(false)).ok_or(ChainError::NotOfKey)?;
    let mut order = vec![own];
    climb(&links, own, &mut order);
    let out_of_date = order.iter().skip(1).filter(|&&at| !links[at].is_valid).count();
    let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    Ok(CertificateChain {
        certificates: order.iter().map(|&at| links[at].der.clone()).collect(),
        validity: links[own].validity,
        out_of_date: count(out_of_date),
        left_out: count(links.len() - order.len()),
    })
}

/// Adds whoever may have signed the one at `from`, each with those above it. LIMIT: a file has few certificates, and
/// each is added once.
fn climb(links: &[ChainLink], from: usize, order: &mut Vec<usize>) {
    let above = (0..links.len()).filter(|&at| links[at].may_have_signed(&links[from]));
    let (valid, others): (Vec<usize>, Vec<usize>) = above.partition(|&at| links[at].is_valid);
    for at in valid.into_iter().chain(others) {
        // The site's own key signs nobody else's.
        if !order.contains(&at) && !links[at].is_own {
            order.push(at);
            climb(links, at, order);
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// A certificate of `subject` and its key, signed by `issuer` and its, that ends in this year.
    fn signed(subject: (&str, &KeyPair), issuer: (&str, &KeyPair), until: i32) -> CertificateDer<'static> {
        signed_with(true, subject, issuer, until)
    }

    /// The same, with or without the identifiers of both keys.
    fn signed_with(
        names_keys: bool,
        subject: (&str, &KeyPair),
        issuer: (&str, &KeyPair),
        until: i32,
    ) -> CertificateDer<'static> {
        let params = |name: &str| {
            let mut params = CertificateParams::new([]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            // Only those of authorities have an identifier of their own key.
            params.is_ca = if names_keys { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::NoCa };
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
            params.use_authority_key_identifier_extension = names_keys;
            params
        };
        let issuer = Issuer::new(params(issuer.0), issuer.1);
        params(subject.0).signed_by(subject.1, &issuer).unwrap().der().clone()
    }

    #[test]
    fn all_that_lead_somewhere_are_sent_and_the_valid_ones_first() {
        let keys: Vec<KeyPair> = (0..5).map(|_| KeyPair::generate().unwrap()).collect();
        let [site, between, root, other_root, older] = &keys[..] else { panic!("five keys") };
        let is_own = |spki: &[u8]| spki.ends_with(site.public_key_raw());
        let own = signed(("site", site), ("between", between), 2100);
        let expired_own = signed(("site", site), ("between", between), 2021);
        let by_root = signed(("between", between), ("root", root), 2100);
        let expired = signed(("between", between), ("root", root), 2021);
        let by_other = signed(("between", between), ("other", other_root), 2100);
        let same_name = signed(("between", older), ("root", root), 2100);
        let top = signed(("root", root), ("root", root), 2100);
        let stranger = signed(("stranger", older), ("stranger", older), 2100);
        let sent = |file: &[&CertificateDer<'static>]| {
            let file: Vec<_> = file.iter().map(|der| (*der).clone()).collect();
            let chain = order(&file, is_own, NOW).unwrap();
            (chain.certificates, chain.out_of_date, chain.left_out)
        };
        let all =
            |file: &[&CertificateDer<'static>]| file.iter().map(|der| (*der).clone()).collect::<Vec<_>>();
        for (file, expected, out_of_date, left_out) in [
            (vec![&own, &by_root], vec![&own, &by_root], 0, 0),
            (vec![&by_root, &own], vec![&own, &by_root], 0, 0),
            (vec![&own, &expired, &by_root], vec![&own, &by_root, &expired], 1, 0),
            (vec![&own, &by_root, &by_other], vec![&own, &by_root, &by_other], 0, 0),
            (vec![&own, &by_other, &by_root, &top], vec![&own, &by_other, &by_root, &top], 0, 0),
            (vec![&own, &expired], vec![&own, &expired], 1, 0),
            (vec![&expired_own, &own, &by_root], vec![&own, &by_root], 0, 1),
            (vec![&own, &expired_own, &by_root], vec![&own, &by_root], 0, 1),
            (vec![&expired_own, &by_root], vec![&expired_own, &by_root], 0, 0),
            (vec![&own, &same_name, &by_root], vec![&own, &by_root], 0, 1),
            (vec![&own, &stranger, &by_root], vec![&own, &by_root], 0, 1),
            (vec![&top, &by_root, &expired, &own], vec![&own, &by_root, &top, &expired], 1, 0),
        ] {
            assert_eq!(sent(&file), (all(&expected), out_of_date, left_out), "{} of a file", file.len());
        }
        assert_eq!(order(&[by_root], is_own, NOW).unwrap_err(), ChainError::NotOfKey);
        assert_eq!(order(&[vec![0x30, 0].into()], is_own, NOW).unwrap_err(), ChainError::Broken);
    }

    /// Names alone then say who may have signed: all of these are sent, in the order of the file, the valid ones first.
    #[test]
    fn without_identifiers_of_keys_the_file_says_the_order() {
        let keys: Vec<KeyPair> = (0..4).map(|_| KeyPair::generate().unwrap()).collect();
        let [site, between, older, root] = &keys[..] else { panic!("four keys") };
        let is_own = |spki: &[u8]| spki.ends_with(site.public_key_raw());
        let own = signed_with(false, ("site", site), ("between", between), 2100);
        let right = signed_with(false, ("between", between), ("root", root), 2100);
        let same_name = signed_with(false, ("between", older), ("root", root), 2100);
        let expired = signed_with(false, ("between", between), ("root", root), 2021);
        let top = signed_with(false, ("root", root), ("root", root), 2100);
        let stranger = signed_with(false, ("stranger", older), ("root", root), 2100);
        for (file, expected, left_out) in [
            (vec![&right, &own], vec![&own, &right], 0),
            (vec![&expired, &own, &right, &same_name], vec![&own, &right, &same_name, &expired], 0),
            (vec![&own, &same_name, &right, &top], vec![&own, &same_name, &top, &right], 0),
            (vec![&top, &stranger, &right, &own], vec![&own, &right, &top], 1),
        ] {
            let file: Vec<_> = file.into_iter().cloned().collect();
            let chain = order(&file, is_own, NOW).unwrap();
            assert_eq!(chain.certificates, expected.into_iter().cloned().collect::<Vec<_>>());
            assert_eq!(chain.left_out, left_out);
        }
    }
}
