//! Which keys the signer takes: those of OpenSSL, as people make them.
//!
//! Runs in: tests.

use std::process::Command;

use signer::certificate::CertifiedKey;
use wire::tls::{KeyKind, Verdict};

/// A key of this kind and a certificate with it, in one file.
fn file(kind: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-subj", "/CN=one.test", "-keyout", "-", "-out", "-", "-newkey"])
        .args(kind)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn kind_of(kind: &[&str]) -> Result<KeyKind, Verdict> {
    CertifiedKey::parse(&file(kind), None).map(|certified| certified.kind())
}

#[test]
fn keys_of_every_kind_for_tls_are_taken() {
    assert_eq!(kind_of(&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]).ok(), Some(KeyKind::P256));
    assert_eq!(kind_of(&["ec", "-pkeyopt", "ec_paramgen_curve:P-384"]).ok(), Some(KeyKind::P384));
    assert_eq!(kind_of(&["ed25519"]).ok(), Some(KeyKind::Ed25519));
    assert_eq!(kind_of(&["rsa:2048"]).ok(), Some(KeyKind::Rsa));
}

#[test]
fn rsa_keys_are_not_too_short() {
    assert_eq!(kind_of(&["rsa:1024"]).err(), Some(Verdict::BadKey));
    assert_eq!(kind_of(&["rsa:2040"]).err(), Some(Verdict::BadKey));
}
