//! Answers of responders (`stapler::answer`), as the stapler gets them from the network.
//!
//! Some seeds are answers that are good. Without the authority's key, the fuzzer can make of them only
//! others that say the same.

use std::sync::LazyLock;

use rustls_pki_types::CertificateDer;
use stapler::answer::check;
use stapler::subject::Subject;

/// When the seed was made, and an hour later.
const WHEN: [u64; 2] = [1795297899, 1795297899 + 3600];

static SUBJECT: LazyLock<Subject> = LazyLock::new(|| {
    let own = CertificateDer::from(&include_bytes!("../seeds/ocsp_chain/0-own.der")[..]);
    let issuer = CertificateDer::from(&include_bytes!("../seeds/ocsp_chain/1-issuer.der")[..]);
    Subject::of(&[own, issuer]).ok().flatten().expect("the seeds are a chain that names a responder")
});

pub fn fuzz(data: &[u8]) {
    for now in WHEN {
        if let Ok(answer) = check(data, &SUBJECT, now) {
            assert!(answer.until > now && !answer.revoked, "the authority has signed no such thing");
        }
    }
}
