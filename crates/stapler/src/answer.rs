//! A responder's answer, checked as a client would check it (RFC 6960 3.2) before it is given to any.
//!
//! Runs in: the stapler; pure. Untrusted input: all of it, from the network in plaintext. Must never: let through what
//! the certificate's issuer, or who it has named for this, has not signed; or what is about another certificate.

use std::fmt;
use std::time::Duration;

use certificate::der::{content, decode, parts};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_cert::der;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_ocsp::{BasicOcspResponse, CertId, CertStatus, OcspResponse, OcspResponseStatus, SingleResponse};

use crate::subject::Subject;

/// `id-pkix-ocsp-basic` (RFC 6960 4.2.1).
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
/// `id-kp-OCSPSigning` (RFC 6960 4.2.2.2), without tag and length.
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
/// How far the responder's clock may be ahead of ours, in seconds.
const SKEW: u64 = 300;
/// LIMIT: for how long an answer is used that does not say until when, in seconds: its responder always knows more.
const LIFE: u64 = 24 * 3600;
/// LIMIT: certificates of an answer that are looked at; responders send the delegate's own.
const DELEGATES_MAX: usize = 4;

/// An answer that clients can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspAnswer {
    /// Until when, in seconds since 1970.
    pub until: u64,
    /// The certificate is revoked. Clients are to know it, so this is stapled as well.
    pub revoked: bool,
}

/// Why an answer is not given to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspRefusal {
    /// It is not in the form of an answer.
    Malformed,
    /// The responder says that it cannot answer.
    Status(OcspResponseStatus),
    /// It does not speak of the certificate that was asked for.
    Other,
    /// The responder does not know the certificate.
    Unknown,
    /// It is not signed by the issuer or a delegate of its.
    Unsigned,
    /// Its time has not come.
    Early,
    /// Its time is over.
    Late,
}

impl fmt::Display for OcspRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "its answer is no answer of OCSP",
            Self::Status(OcspResponseStatus::TryLater) => "it answers that it is to be asked later",
            Self::Status(OcspResponseStatus::Unauthorized) => {
                "it answers `unauthorized`: it is not the responder for this certificate"
            }
            Self::Status(OcspResponseStatus::InternalError) => "it answers that it has an internal error",
            Self::Status(_) => "it answers that it does not like the question",
            Self::Other => "its answer is about another certificate",
            Self::Unknown => "it answers that it does not know the certificate",
            Self::Unsigned => "its answer is not signed by the certificate's issuer or a delegate of that",
            Self::Early => "its answer is of the future; compare this machine's clock",
            Self::Late => "its answer is out of date; compare this machine's clock",
        })
    }
}

impl From<der::Error> for OcspRefusal {
    fn from(_: der::Error) -> Self {
        Self::Malformed
    }
}

/// Checks an answer in DER about a certificate at a time (seconds since 1970).
///
/// # Errors
/// It is not to be given to clients.
pub fn check(der: &[u8], subject: &Subject, now: u64) -> Result<OcspAnswer, OcspRefusal> {
    let response: OcspResponse = decode(der)?;
    if response.response_status != OcspResponseStatus::Successful {
        return Err(OcspRefusal::Status(response.response_status));
    }
    let bytes = response.response_bytes.filter(|bytes| bytes.response_type == BASIC);
    let signed = bytes.ok_or(OcspRefusal::Malformed)?.response;
    let basic: BasicOcspResponse = decode(signed.as_bytes())?;
    let answers = &basic.tbs_response_data.responses;
    let single =
        answers.iter().find(|single| same(&single.cert_id, &subject.id)).ok_or(OcspRefusal::Other)?;
    let until = in_time(single, now)?;
    is_signed(signed.as_bytes(), &basic, subject, now)?;
    match single.cert_status {
        CertStatus::Good(_) => Ok(OcspAnswer { until, revoked: false }),
        CertStatus::Revoked(_) => Ok(OcspAnswer { until, revoked: true }),
        CertStatus::Unknown(_) => Err(OcspRefusal::Unknown),
    }
}

/// Whether two names are of one certificate; the parameters of the hash may be left out or nought.
fn same(one: &CertId, other: &CertId) -> bool {
    one.hash_algorithm.oid == other.hash_algorithm.oid
        && one.issuer_name_hash == other.issuer_name_hash
        && one.issuer_key_hash == other.issuer_key_hash
        && one.serial_number == other.serial_number
}

/// Until when an answer is good, if it is now.
fn in_time(single: &SingleResponse, now: u64) -> Result<u64, OcspRefusal> {
    let seconds = |time: &x509_ocsp::OcspGeneralizedTime| time.0.to_unix_duration().as_secs();
    let since = seconds(&single.this_update);
    let until = single.next_update.as_ref().map_or(since.saturating_add(LIFE), seconds);
    match () {
        () if since > now + SKEW => Err(OcspRefusal::Early),
        () if until <= now => Err(OcspRefusal::Late),
        () => Ok(until),
    }
}

/// Checks the signature: the issuer's, or that of a delegate whose certificate comes along (RFC 6960 4.2.2.2).
fn is_signed(der: &[u8], basic: &BasicOcspResponse, subject: &Subject, now: u64) -> Result<(), OcspRefusal> {
    let elements = parts(der)?;
    let [data, algorithm, _, certificates @ ..] = &elements[..] else { return Err(OcspRefusal::Malformed) };
    let signature = basic.signature.as_bytes().ok_or(OcspRefusal::Malformed)?;
    let verifies = |signer: &CertificateDer<'_>| {
        let named = content(algorithm).unwrap_or_default();
        let signer = EndEntityCert::try_from(signer);
        signer.is_ok_and(|signer| {
            let fitting = ALL_VERIFICATION_ALGS.iter().filter(|one| one.signature_alg_id().as_ref() == named);
            fitting.into_iter().any(|one| signer.verify_signature(*one, data, signature).is_ok())
        })
    };
    if verifies(&subject.issuer) {
        return Ok(());
    }
    let Some(certificates) = certificates.first() else { return Err(OcspRefusal::Unsigned) };
    // [0] EXPLICIT SEQUENCE OF Certificate.
    for der in parts(content(certificates)?)?.into_iter().take(DELEGATES_MAX) {
        let delegate = CertificateDer::from(der);
        if is_delegate(&delegate, subject, now) && verifies(&delegate) {
            return Ok(());
        }
    }
    Err(OcspRefusal::Unsigned)
}

/// Whether the issuer itself has named this certificate's owner to answer for it, now.
fn is_delegate(delegate: &CertificateDer<'_>, subject: &Subject, now: u64) -> bool {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let Ok(issuer) = anchor_from_trusted_cert(&subject.issuer) else { return false };
    let Ok(delegate) = EndEntityCert::try_from(delegate) else { return false };
    let usage = KeyUsage::required(OCSP_SIGNING);
    delegate.verify_for_usage(ALL_VERIFICATION_ALGS, &[issuer], &[], now, usage, None, None).is_ok()
}
