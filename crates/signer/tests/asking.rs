//! The questions of sites to the signer, and its answers: over its channels, with made-up peers.
//!
//! Runs in: tests. Keys and certificates are made here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;
use wire::stapler::{Nothing, SignerToStapler};
use wire::tls::{Holding, KeyKind, LauncherToSigner, SignerToSite, SiteToSigner, Verdict};
use wire::{Bytes, ChildToLauncher};
use worker::channel::Channel;

type Control = Channel<ChildToLauncher, LauncherToSigner>;
type SignerChannel = Channel<SignerToSite, SiteToSigner>;
type StaplerChannel = Channel<SignerToStapler, Nothing>;

const P256: u16 = 0x0403;

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(tokio::runtime::LocalOptions::default()).unwrap();
    runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(30), test).await.unwrap() });
}

/// A file as the launcher opens one.
fn file(text: &str) -> OwnedFd {
    let (reading, mut writing) = std::io::pipe().unwrap();
    writing.write_all(text.as_bytes()).unwrap();
    reading.into()
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

/// A key and its certificate.
fn pair(host: &str) -> (String, CertificateDer<'static>) {
    let key = key();
    let cert = CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
    (format!("{}{}", key.serialize_pem(), cert.pem()), cert.der().clone())
}

struct Signer {
    control: Control,
    ended: tokio::task::JoinHandle<Result<(), worker::ProcessFault>>,
}

impl Signer {
    fn start() -> Self {
        let (ours, control) = sys::seqpacket::pair().unwrap();
        let start = worker::ProcessStart { control, say: None, log: None };
        let ended = tokio::task::spawn_local(signer::run(start));
        Self { control: Channel::new(ours).unwrap(), ended }
    }

    async fn give(&self, site: u16, number: u16, text: &str) -> Verdict {
        self.give_file(site, number, &file(text)).await
    }

    /// Gives certificate 0 of a site, with its key in a file of its own.
    async fn give_pair(&self, site: u16, text: &str, key: &str) -> Verdict {
        self.send_key(site, key).await;
        self.give(site, 0, text).await
    }

    async fn send_key(&self, site: u16, key: &str) {
        let message = LauncherToSigner::Key { site, number: 0 };
        self.control.send(&message, Some(file(key).as_fd())).await.unwrap();
    }

    async fn give_file(&self, site: u16, number: u16, file: &OwnedFd) -> Verdict {
        let message = LauncherToSigner::Certificate { site, number };
        self.control.send(&message, Some(file.as_fd())).await.unwrap();
        match self.control.receive().await.unwrap().unwrap().0 {
            ChildToLauncher::Certificate { site: of, number: which, verdict, holding } => {
                assert_eq!((of, which), (site, number));
                if verdict == Verdict::Good {
                    // As the tool that makes the certificates of these tests has it: 4096-01-01.
                    let Holding { kind, not_before, not_after, named: _ } = holding;
                    // 1975-01-01.
                    assert_eq!((kind, not_before, not_after), (KeyKind::P256, 157_766_400, 67_090_118_400));
                }
                verdict
            }
            other => panic!("{other:?}"),
        }
    }

    /// Says something, and waits until it is used.
    async fn tell(&self, message: &LauncherToSigner) {
        self.control.send(message, None).await.unwrap();
        self.control.send(&LauncherToSigner::Confirm { ticket: 7 }, None).await.unwrap();
        let said = self.control.receive().await.unwrap().unwrap().0;
        assert_eq!(said, ChildToLauncher::Confirmed { ticket: 7 });
    }

    async fn channel(&self, site: u16) -> SignerChannel {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        self.control.send(&LauncherToSigner::Client { site }, Some(theirs.as_fd())).await.unwrap();
        Channel::new(ours).unwrap()
    }
}

/// The next chain that comes: its number, version and certificates.
async fn chain(channel: &SignerChannel) -> (u16, u32, Vec<Vec<u8>>) {
    let mut parts = Vec::new();
    loop {
        match channel.receive().await.unwrap().unwrap().0 {
            SignerToSite::Certificate { number, version, kind, index, count, der } => {
                assert_eq!((usize::from(index), kind), (parts.len(), KeyKind::P256));
                parts.push(der.0);
                if parts.len() == usize::from(count) {
                    return (number, version, parts);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn verify() -> Vec<u8> {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat()
}

/// The answer to a question; `None` if it is refused.
async fn ask(
    channel: &SignerChannel,
    number: u16,
    version: u32,
    scheme: u16,
    message: Vec<u8>,
) -> Option<Vec<u8>> {
    let question = SiteToSigner::Sign { ticket: 9, number, version, scheme, message: Bytes(message) };
    channel.send(&question, None).await.unwrap();
    match channel.receive().await.unwrap().unwrap().0 {
        SignerToSite::Signed { ticket: 9, signature } => Some(signature.0),
        SignerToSite::Refused { ticket: 9 } => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_site_gets_signatures_of_its_own_keys_for_handshakes() {
    run(async {
        let signer = Signer::start();
        let ((one, cert), (two, _)) = (pair("one.test"), pair("two.test"));
        assert_eq!(signer.give(1, 0, &one).await, Verdict::Good);
        assert_eq!(signer.give(2, 0, &two).await, Verdict::Good);
        assert_eq!(signer.give(2, 1, &two).await, Verdict::Good);
        let channel = signer.channel(1).await;
        let (number, version, parts) = chain(&channel).await;
        assert_eq!((number, &parts[..]), (0, &[cert.to_vec()][..]));
        let signature = ask(&channel, 0, version, P256, verify()).await.unwrap();
        let own = EndEntityCert::try_from(&cert).unwrap();
        own.verify_signature(webpki::aws_lc_rs::ECDSA_P256_SHA256, &verify(), &signature).unwrap();
        let exchange = [&[9; 64][..], &[3, 0, 29, 32], &[5; 32]].concat();
        assert!(ask(&channel, 0, version, P256, exchange).await.is_some());
        // Another site's certificates have no name here; nor has one that was never there, another scheme, another
        // shape.
        assert_eq!(ask(&channel, 1, version, P256, verify()).await, None);
        assert_eq!(
            ask(&channel, 0, version + 1, P256, verify()).await,
            None,
            "that is the version of site 2's"
        );
        assert_eq!(ask(&channel, 0, version, 0x0804, verify()).await, None);
        assert_eq!(ask(&channel, 0, version, P256, b"a certificate for everybody".to_vec()).await, None);
        assert!(ask(&channel, 0, version, P256, verify()).await.is_some(), "it goes on");
    });
}

#[test]
fn who_asks_again_and_again_for_what_it_may_not_have_is_heard_no_more() {
    run(async {
        let signer = Signer::start();
        assert_eq!(signer.give(1, 0, &pair("one.test").0).await, Verdict::Good);
        let (bad, good) = (signer.channel(1).await, signer.channel(1).await);
        let (_, version, _) = chain(&bad).await;
        chain(&good).await;
        for _ in 0..100 {
            assert_eq!(ask(&bad, 7, version, P256, verify()).await, None);
        }
        assert!(matches!(bad.receive().await, Ok(None) | Err(_)));
        assert!(ask(&good, 0, version, P256, verify()).await.is_some());
    });
}

#[test]
fn a_new_certificate_is_shown_and_the_old_key_still_signs_what_has_begun() {
    run(async {
        let signer = Signer::start();
        assert_eq!(signer.give(1, 0, &pair("one.test").0).await, Verdict::Good);
        let channel = signer.channel(1).await;
        let (_, old, _) = chain(&channel).await;
        assert_eq!(signer.give(1, 0, "nothing").await, Verdict::NoKey);
        let (text, cert) = pair("one.test");
        assert_eq!(signer.give(1, 0, &text).await, Verdict::Good);
        let (_, new, parts) = chain(&channel).await;
        assert_eq!(parts, [cert.to_vec()]);
        assert!(ask(&channel, 0, old, P256, verify()).await.is_some());
        assert!(ask(&channel, 0, new, P256, verify()).await.is_some());
        assert_eq!(signer.give(1, 0, &text).await, Verdict::Good);
        chain(&channel).await;
        assert_eq!(ask(&channel, 0, old, P256, verify()).await, None, "two before");
    });
}

#[test]
fn each_mistake_in_a_file_has_its_verdict() {
    run(async {
        let signer = Signer::start();
        let ((one, _), (two, _)) = (pair("one.test"), pair("two.test"));
        let cert = |text: &str| text[text.find("-----BEGIN CERT").unwrap()..].to_owned();
        let own = |text: &str| text[..text.find("-----BEGIN CERT").unwrap()].to_owned();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let p521 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap().serialize_pem();
        for (text, verdict) in [
            (String::new(), Verdict::NoKey),
            (cert(&one), Verdict::NoKey),
            (one.clone() + &own(&two), Verdict::NoKey),
            (own(&one), Verdict::NoCertificate),
            (own(&one) + &cert(&two), Verdict::Mismatch),
            (own(&one) + broken, Verdict::BadCertificate),
            (cert(&one).repeat(17) + &own(&one), Verdict::BadCertificate),
            (cert(&one) + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", Verdict::BadKey),
            (cert(&one) + &p521, Verdict::BadKey),
            (cert(&one) + &own(&one), Verdict::Good),
        ] {
            assert_eq!(signer.give(1, 0, &text).await, verdict, "{text}");
        }
        // It cannot be read.
        let (_reading, writing) = std::io::pipe().unwrap();
        assert_eq!(signer.give_file(1, 0, &writing.into()).await, Verdict::Unreadable);
        assert!(!signer.ended.is_finished());
    });
}

#[test]
fn a_key_may_have_a_file_of_its_own() {
    run(async {
        let signer = Signer::start();
        let ((one, cert), (two, _)) = (pair("one.test"), pair("two.test"));
        let certs = |text: &str| text[text.find("-----BEGIN CERT").unwrap()..].to_owned();
        let own = |text: &str| text[..text.find("-----BEGIN CERT").unwrap()].to_owned();
        assert_eq!(signer.give_pair(1, &certs(&one), &own(&one)).await, Verdict::Good);
        let channel = signer.channel(1).await;
        let (_, version, parts) = chain(&channel).await;
        assert_eq!(parts, [cert.to_vec()]);
        assert_eq!(signer.give_pair(1, &certs(&one), &own(&two)).await, Verdict::Mismatch);
        assert_eq!(signer.give_pair(1, &certs(&one), &certs(&one)).await, Verdict::NoKey);
        assert_eq!(signer.give_pair(1, &own(&one), &own(&one)).await, Verdict::NoCertificate);
        // A key among the certificates does not count, and one that came for another certificate neither.
        assert_eq!(signer.give_pair(1, &two, &own(&one)).await, Verdict::Mismatch);
        signer.send_key(2, &own(&one)).await;
        assert_eq!(signer.give(1, 0, &certs(&one)).await, Verdict::NoKey);
        assert!(ask(&channel, 0, version, P256, verify()).await.is_some(), "what is wrong changes nothing");
    });
}

#[test]
fn a_chain_is_put_in_order() {
    let authority = |name: &str, above: Option<&CertifiedIssuer<'_, KeyPair>>| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        match above {
            None => CertifiedIssuer::self_signed(params, key()).unwrap(),
            Some(above) => CertifiedIssuer::signed_by(params, key(), above).unwrap(),
        }
    };
    let root = authority("root", None);
    let middle = authority("middle", Some(&root));
    let stranger = authority("stranger", None);
    let own = key();
    let cert = CertificateParams::new(["one.test".to_owned()]).unwrap().signed_by(&own, &middle).unwrap();
    let text = [root.pem(), stranger.pem(), cert.pem(), own.serialize_pem(), middle.pem()].concat();
    let certified = signer::certificate::CertifiedKey::parse(text.as_bytes(), None).unwrap();
    let expected = [cert.der(), middle.der(), root.der()];
    assert_eq!(certified.chain.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_site_that_has_gone_is_forgotten_with_its_last_worker() {
    run(async {
        let signer = Signer::start();
        let (text, _) = pair("one.test");
        for site in [1, 2] {
            assert_eq!(signer.give(site, 0, &text).await, Verdict::Good);
        }
        let (old, other) = (signer.channel(1).await, signer.channel(2).await);
        let ((_, version, _), (_, others, _)) = (chain(&old).await, chain(&other).await);
        signer.tell(&LauncherToSigner::Forget { site: 1 }).await;
        assert!(ask(&old, 0, version, P256, verify()).await.is_some(), "it finishes what it has begun");
        drop(old);
        // Its end may be seen after the next one has come.
        loop {
            let new = signer.channel(1).await;
            let question =
                SiteToSigner::Sign { ticket: 9, number: 0, version, scheme: P256, message: Bytes(verify()) };
            new.send(&question, None).await.unwrap();
            match new.receive().await.unwrap().unwrap().0 {
                SignerToSite::Refused { ticket: 9 } => break,
                SignerToSite::Certificate { .. } => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
        assert!(ask(&other, 0, others, P256, verify()).await.is_some(), "others keep theirs");
        // Another one comes by the number.
        let name = LauncherToSigner::Name { site: 1, name: wire::Text::new("next") };
        signer.tell(&name).await;
        assert_eq!(signer.give(1, 0, &text).await, Verdict::Good);
        let next = signer.channel(1).await;
        let (_, version, _) = chain(&next).await;
        assert!(ask(&next, 0, version, P256, verify()).await.is_some());
    });
}

/// The next certificate that a stapler is told of: its site and number. Each of these tests has a chain of one.
async fn told(channel: &StaplerChannel) -> (u16, u16) {
    match channel.receive().await.unwrap().unwrap().0 {
        SignerToStapler::Certificate { site, number, index: 0, count: 1, .. } => (site, number),
        other => panic!("{other:?}"),
    }
}

#[test]
fn staplers_are_told_of_each_certificate_once_when_all_are_read() {
    run(async {
        let signer = Signer::start();
        let (text, _) = pair("one.test");
        let stapler = || async {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            signer.control.send(&LauncherToSigner::Stapler {}, Some(theirs.as_fd())).await.unwrap();
            StaplerChannel::new(ours).unwrap()
        };
        assert_eq!(signer.give(1, 0, &text).await, Verdict::Good);
        let first = stapler().await;
        for number in [1, 2] {
            assert_eq!(signer.give(1, number, &text).await, Verdict::Good);
        }
        let waits = tokio::time::timeout(std::time::Duration::from_millis(50), told(&first));
        assert!(waits.await.is_err(), "the launcher waits for the signer, and no stapler does");
        // A stapler that comes just before the end is told once as well.
        let second = stapler().await;
        signer.control.send(&LauncherToSigner::Begin {}, None).await.unwrap();
        let said = signer.control.receive().await.unwrap().unwrap().0;
        assert_eq!(said, ChildToLauncher::Ready {});
        let third = stapler().await;
        for channel in [&first, &second, &third] {
            assert_eq!(
                [told(channel).await, told(channel).await, told(channel).await],
                [(1, 0), (1, 1), (1, 2)]
            );
        }
        assert_eq!(signer.give(2, 0, &text).await, Verdict::Good);
        assert_eq!(signer.give(1, 1, &text).await, Verdict::Good);
        for channel in [&first, &second, &third] {
            assert_eq!([told(channel).await, told(channel).await], [(2, 0), (1, 1)]);
        }
    });
}
