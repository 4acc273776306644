//! A certificate whose state is to be asked for: who is asked, and what.
//!
//! Runs in: the stapler; pure. Untrusted input: chains that an authority has made and the operator has installed.
//! Must never: take a certificate of the chain for the issuer's that has another name, or another's key.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use certificate::der::{content, decode, parts};
use rustls_pki_types::CertificateDer;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert};
use x509_cert::Certificate;
use x509_cert::der::Encode;
use x509_cert::der::asn1::{Any, ObjectIdentifier, OctetString};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::ext::pkix::AuthorityInfoAccessSyntax;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{CertId, OcspRequest, Request, TbsRequest, Version};

use crate::responder::Responder;

/// `id-ad-ocsp` (RFC 5280 4.2.2.1).
const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
/// `id-sha1`. RFC 5019 2.1.1: the one that every responder knows. It names a certificate, and proves nothing.
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");

/// One certificate.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The responder that knows of it.
    pub responder: Responder,
    /// By what it is asked for.
    pub(crate) id: CertId,
    /// The issuer, which signs the certificate and answers about it.
    pub(crate) issuer: CertificateDer<'static>,
}

/// Why nothing can be asked about a certificate that names a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It, or its issuer's, cannot be read.
    Unreadable,
    /// The chain has no certificate of its issuer.
    NoIssuer,
    /// Its responder's URL is of no use.
    Responder(&'static str),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable => f.write_str("its chain cannot be read"),
            Self::NoIssuer => f.write_str("its file has no certificate of its issuer; add that to the file"),
            Self::Responder(what) => write!(f, "its responder {what}"),
        }
    }
}

impl Subject {
    /// The facts of a chain about its first certificate; `None` if that names no responder.
    ///
    /// # Errors
    /// It names one that cannot be asked.
    pub fn of(chain: &[CertificateDer<'static>]) -> Result<Option<Self>, Unfit> {
        let read = |der: &CertificateDer<'_>| decode::<Certificate>(der).map_err(|_| Unfit::Unreadable);
        let own = chain.first().ok_or(Unfit::Unreadable).and_then(read)?;
        let Some(url) = responder(&own)? else { return Ok(None) };
        let responder = Responder::parse(&url).map_err(Unfit::Responder)?;
        let name = EndEntityCert::try_from(&chain[0]).map_err(|_| Unfit::Unreadable)?.issuer().to_vec();
        let named = |one: &&CertificateDer<'static>| {
            EndEntityCert::try_from(*one).is_ok_and(|above| above.subject() == name)
        };
        let named: Vec<_> = chain.iter().skip(1).filter(named).collect();
        let signer = named.iter().find(|one| has_signed(one, &chain[0]));
        // Of one with an algorithm that is not known here, the name has to do.
        let issuer = *signer.or(named.first()).ok_or(Unfit::NoIssuer)?;
        let above = read(issuer)?;
        let id = id(&own, &above).ok_or(Unfit::Unreadable)?;
        Ok(Some(Self { responder, id, issuer: issuer.clone() }))
    }

    /// The question, in DER.
    pub fn question(&self) -> Vec<u8> {
        let request = Request { req_cert: self.id.clone(), single_request_extensions: None };
        let tbs_request = TbsRequest {
            version: Version::V1,
            requestor_name: None,
            request_list: vec![request],
            request_extensions: None,
        };
        // A certificate that was read can be written.
        OcspRequest { tbs_request, optional_signature: None }.to_der().unwrap_or_default()
    }
}

/// Whether the key of `issuer` has signed the certificate: two keys of one authority have one name, and certificates
/// need not say which of them it was.
fn has_signed(issuer: &CertificateDer<'_>, own: &CertificateDer<'_>) -> bool {
    let (Ok(issuer), Ok(elements)) = (EndEntityCert::try_from(issuer), parts(own)) else { return false };
    let [signed, algorithm, signature] = &elements[..] else { return false };
    // A BIT STRING begins with how many bits of its last byte are of no use: none.
    let (Ok(named), Ok([0, signature @ ..])) = (content(algorithm), content(signature)) else { return false };
    let fitting = ALL_VERIFICATION_ALGS.iter().filter(|one| one.signature_alg_id().as_ref() == named);
    fitting.into_iter().any(|one| issuer.verify_signature(*one, signed, signature).is_ok())
}

/// The first URL of a responder by http, or else the first of any.
fn responder(own: &Certificate) -> Result<Option<String>, Unfit> {
    let mut extensions = own.tbs_certificate.extensions.iter().flatten();
    let access = extensions.find(|extension| extension.extn_id == AuthorityInfoAccessSyntax::OID);
    let Some(access) = access else { return Ok(None) };
    let access: AuthorityInfoAccessSyntax =
        decode(access.extn_value.as_bytes()).map_err(|_| Unfit::Unreadable)?;
    let urls = access.0.into_iter().filter(|one| one.access_method == OCSP).filter_map(|one| {
        match one.access_location {
            GeneralName::UniformResourceIdentifier(url) => Some(url.as_str().to_owned()),
            _ => None,
        }
    });
    let urls: Vec<String> = urls.collect();
    Ok(urls.iter().find(|url| url.starts_with("http://")).or(urls.first()).cloned())
}

fn id(own: &Certificate, issuer: &Certificate) -> Option<CertId> {
    let hash = |bytes: &[u8]| OctetString::new(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref()).ok();
    let key = &issuer.tbs_certificate.subject_public_key_info.subject_public_key;
    Some(CertId {
        hash_algorithm: AlgorithmIdentifierOwned { oid: SHA1, parameters: Some(Any::null()) },
        issuer_name_hash: hash(&own.tbs_certificate.issuer.to_der().ok()?)?,
        issuer_key_hash: hash(key.raw_bytes())?,
        serial_number: own.tbs_certificate.serial_number.clone(),
    })
}
