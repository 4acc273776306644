//! Answers of `openssl ocsp` about certificates of an authority that the test makes: which are taken, and when.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use stapler::answer::{OcspAnswer, OcspRefusal, check};
use stapler::subject::{Subject, Unfit};

const HOUR: u64 = 3600;

fn openssl(words: &[&str]) {
    let done = Command::new("openssl").args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// An authority in a folder of its own.
struct Authority(PathBuf);

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Authority {
    fn new(test: &str, kind: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("stapler-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = Self(folder);
        let (key, pem) = (made.at("ca.key"), made.at("ca.pem"));
        let mut words = vec!["req", "-x509", "-newkey"];
        words.extend(kind);
        words.extend(["-nodes", "-days", "9", "-subj", "/CN=authority", "-keyout", &key, "-out", &pem]);
        openssl(&words);
        made
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn issue(&self, name: &str, serial: u64, extensions: &str) {
        let at = |end: &str| self.at(&format!("{name}.{end}"));
        std::fs::write(at("ends"), extensions).unwrap();
        let subject = format!("/CN={name}");
        let curve = "ec_paramgen_curve:P-256";
        let (key, asked, made, ends) = (at("key"), at("csr"), at("pem"), at("ends"));
        openssl(&[
            "req", "-new", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-subj", &subject, "-keyout", &key,
            "-out", &asked,
        ]);
        let (ca, ca_key, serial) = (self.at("ca.pem"), self.at("ca.key"), serial.to_string());
        let mut words = vec!["x509", "-req", "-in", &asked, "-CA", &ca, "-CAkey", &ca_key, "-days", "9"];
        words.extend(["-set_serial", &serial, "-extfile", &ends, "-out", &made]);
        openssl(&words);
    }

    fn der(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(Path::new(&self.at(&format!("{name}.pem")))).unwrap()
    }

    fn subject(&self, name: &str) -> Subject {
        Subject::of(&[self.der(name), self.der("ca")]).unwrap().expect("it names a responder")
    }

    /// The answer of `signer` to the subject's question, with these more words.
    fn answer(&self, subject: &Subject, signer: &str, state: &str, more: &[&str]) -> Vec<u8> {
        let (asked, answered, index) = (self.at("question"), self.at("answer"), self.at("index.txt"));
        std::fs::write(&asked, subject.question()).unwrap();
        let line = match state {
            "good" => "V\t350101000000Z\t\t1000\tunknown\t/CN=x\n",
            "revoked" => "R\t350101000000Z\t250101000000Z\t1000\tunknown\t/CN=x\n",
            _ => "",
        };
        std::fs::write(&index, line).unwrap();
        let (ca, crt, key) =
            (self.at("ca.pem"), self.at(&format!("{signer}.pem")), self.at(&format!("{signer}.key")));
        let mut words = vec!["ocsp", "-index", &index, "-CA", &ca, "-rsigner", &crt, "-rkey", &key];
        words.extend(["-reqin", &asked, "-respout", &answered]);
        words.extend(more);
        openssl(&words);
        std::fs::read(&answered).unwrap()
    }
}

const RESPONDER: &str = "authorityInfoAccess=OCSP;URI:http://ocsp.example.test/\n";
const EC: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"];
const DAY: &[&str] = &["-ndays", "1"];

#[test]
fn answers_of_authorities_with_every_kind_of_key() {
    // Not Ed25519, by which `openssl ocsp` cannot sign: it insists on a digest.
    let kinds: [&[&str]; 3] = [&["rsa:2048"], EC, &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]];
    for (number, kind) in kinds.into_iter().enumerate() {
        let authority = Authority::new(&format!("kinds-{number}"), kind);
        authority.issue("x", 0x1000, RESPONDER);
        let subject = authority.subject("x");
        let began = now();
        let good = authority.answer(&subject, "ca", "good", DAY);
        let OcspAnswer { until, revoked } = check(&good, &subject, now()).unwrap();
        assert!(!revoked && (began + 24 * HOUR..=now() + 24 * HOUR).contains(&until), "{kind:?}");
    }
}

#[test]
fn an_answer_has_its_time() {
    let authority = Authority::new("time", EC);
    authority.issue("x", 0x1000, RESPONDER);
    let subject = authority.subject("x");
    let began = now();
    let day = authority.answer(&subject, "ca", "good", DAY);
    assert_eq!(check(&day, &subject, began - HOUR), Err(OcspRefusal::Early));
    assert!(check(&day, &subject, began - 60).is_ok(), "clocks differ a little");
    assert!(check(&day, &subject, began + 23 * HOUR).is_ok());
    assert_eq!(check(&day, &subject, now() + 24 * HOUR), Err(OcspRefusal::Late));
    // One that does not say until when.
    let open = authority.answer(&subject, "ca", "good", &[]);
    assert!(check(&open, &subject, now()).unwrap().until <= now() + 24 * HOUR);
    assert_eq!(check(&open, &subject, now() + 24 * HOUR), Err(OcspRefusal::Late));
}

#[test]
fn what_an_answer_says() {
    let authority = Authority::new("says", EC);
    authority.issue("x", 0x1000, RESPONDER);
    authority.issue("y", 0x1001, RESPONDER);
    let subject = authority.subject("x");
    let revoked = authority.answer(&subject, "ca", "revoked", DAY);
    assert!(check(&revoked, &subject, now()).unwrap().revoked);
    let unknown = authority.answer(&subject, "ca", "unknown", DAY);
    assert_eq!(check(&unknown, &subject, now()), Err(OcspRefusal::Unknown));
    let good = authority.answer(&subject, "ca", "good", DAY);
    assert_eq!(check(&good, &authority.subject("y"), now()), Err(OcspRefusal::Other));
    // Another authority of the same name.
    let other = Authority::new("says-other", EC);
    other.issue("x", 0x1000, RESPONDER);
    assert_eq!(check(&good, &other.subject("x"), now()), Err(OcspRefusal::Other));
    let refused = check(&[0x30, 3, 10, 1, 6], &subject, now()).unwrap_err();
    assert!(refused.to_string().contains("unauthorized"));
}

#[test]
fn who_may_sign() {
    let authority = Authority::new("sign", EC);
    authority.issue("x", 0x1000, RESPONDER);
    authority.issue("delegate", 2, "extendedKeyUsage=OCSPSigning\n");
    authority.issue("web", 3, "extendedKeyUsage=serverAuth\n");
    authority.issue("any", 4, "basicConstraints=CA:FALSE\n");
    let other = Authority::new("sign-other", EC);
    other.issue("foreign", 5, "extendedKeyUsage=OCSPSigning\n");
    for end in ["pem", "key"] {
        let name = format!("foreign.{end}");
        std::fs::copy(other.at(&name), authority.at(&name)).unwrap();
    }
    let subject = authority.subject("x");
    let by = |signer: &str, more: &[&str]| {
        let answer = authority.answer(&subject, signer, "good", &[DAY, more].concat());
        check(&answer, &subject, now()).map(|answer| answer.revoked)
    };
    assert_eq!(by("delegate", &[]), Ok(false));
    assert_eq!(by("delegate", &["-resp_no_certs"]), Err(OcspRefusal::Unsigned), "nobody knows the delegate");
    for stranger in ["web", "any", "foreign", "x"] {
        assert_eq!(by(stranger, &[]), Err(OcspRefusal::Unsigned), "{stranger}");
    }
    // The delegate's certificate ends before the answer does.
    let answer = authority.answer(&subject, "delegate", "good", &["-ndays", "30"]);
    assert_eq!(check(&answer, &subject, now() + 10 * 24 * HOUR), Err(OcspRefusal::Unsigned));
}

#[test]
fn no_changed_answer_is_taken_for_another() {
    let authority = Authority::new("changed", EC);
    authority.issue("x", 0x1000, RESPONDER);
    let subject = authority.subject("x");
    let good = authority.answer(&subject, "ca", "good", &[DAY, &["-resp_no_certs"]].concat());
    let accepted = check(&good, &subject, now()).unwrap();
    for place in 0..good.len() {
        for bit in [1, 0x80] {
            let mut changed = good.clone();
            changed[place] ^= bit;
            // Parts that no signature covers may change: the meaning does not.
            if let Ok(answer) = check(&changed, &subject, now()) {
                assert_eq!(answer, accepted, "byte {place}");
            }
        }
        assert!(check(&good[..place], &subject, now()).is_err(), "{place} bytes");
    }
}

#[test]
fn chains() {
    let authority = Authority::new("chains", EC);
    authority.issue("x", 0x1000, RESPONDER);
    authority.issue("none", 1, "basicConstraints=CA:FALSE\n");
    authority.issue("tls", 2, "authorityInfoAccess=OCSP;URI:https://ocsp.example.test/\n");
    let two = "authorityInfoAccess=OCSP;URI:ldap://a/,OCSP;URI:http://b.test/,caIssuers;URI:http://c.test/\n";
    authority.issue("two", 3, two);
    let ca = authority.der("ca");
    let of = |name: &str| Subject::of(&[authority.der(name), ca.clone()]);
    assert!(of("none").unwrap().is_none());
    // Another key of the same name, and one of another, wherever they are: who has signed it is asked for.
    let same_name = Authority::new("same-name", EC).der("ca");
    let question = |above: &[&CertificateDer<'static>]| {
        let chain: Vec<_> = [&authority.der("x")].into_iter().chain(above.iter().copied()).cloned().collect();
        Subject::of(&chain).unwrap().unwrap().question()
    };
    let right = question(&[&ca]);
    for above in [&[&same_name, &ca][..], &[&authority.der("none"), &ca], &[&ca, &same_name]] {
        assert_eq!(question(above), right);
    }
    assert_eq!(of("two").unwrap().unwrap().responder.to_string(), "http://b.test/");
    assert!(matches!(of("tls"), Err(Unfit::Responder(_))));
    assert_eq!(Subject::of(&[authority.der("x")]).unwrap_err(), Unfit::NoIssuer);
    assert_eq!(Subject::of(&[authority.der("x"), authority.der("none")]).unwrap_err(), Unfit::NoIssuer);
    assert_eq!(Subject::of(&[CertificateDer::from(vec![0x30, 0])]).unwrap_err(), Unfit::Unreadable);
    assert_eq!(Subject::of(&[]).unwrap_err(), Unfit::Unreadable);
}
