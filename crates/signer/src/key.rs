//! One private key, and what it signs.
//!
//! Runs in: the signer. Sees: keys. Never: gives one away; its memory is wiped by the library when it goes.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair};
use wire::tls::KeyKind;

use crate::step::HandshakeStep;

/// LIMIT: under 2048 bits nobody trusts it; over 4096 one signature takes longer than all else of a handshake together.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// A key of one of the kinds that servers have.
#[derive(Debug)]
pub enum PrivateKey {
    Ecdsa(EcdsaKeyPair, KeyKind),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl PrivateKey {
    /// Reads a key: PKCS#8, or the older forms of ECDSA (SEC 1) and RSA (PKCS#1).
    pub fn read(der: &[u8]) -> Option<Self> {
        let curves = [
            (&signature::ECDSA_P256_SHA256_ASN1_SIGNING, KeyKind::P256),
            (&signature::ECDSA_P384_SHA384_ASN1_SIGNING, KeyKind::P384),
        ];
        for (algorithm, kind) in curves {
            if let Ok(pair) = EcdsaKeyPair::from_private_key_der(algorithm, der) {
                return Some(Self::Ecdsa(pair, kind));
            }
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Some(Self::Ed25519(pair));
        }
        let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok()?;
        RSA_BYTES.contains(&pair.public_modulus_len()).then_some(Self::Rsa(pair))
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Ecdsa(_, kind) => *kind,
            Self::Ed25519(_) => KeyKind::Ed25519,
            Self::Rsa(_) => KeyKind::Rsa,
        }
    }

    /// Its public half, as it stands at the end of a certificate's SubjectPublicKeyInfo.
    pub fn public(&self) -> &[u8] {
        match self {
            Self::Ecdsa(pair, _) => pair.public_key().as_ref(),
            Self::Ed25519(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    /// Signs a step of a handshake by a scheme of TLS (RFC 8446 4.2.3), if that is one of this key's.
    pub fn sign(&self, scheme: u16, step: HandshakeStep, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match (self, scheme) {
            (Self::Ecdsa(pair, KeyKind::P256), 0x0403) | (Self::Ecdsa(pair, KeyKind::P384), 0x0503) => {
                Some(pair.sign(&random, message).ok()?.as_ref().to_vec())
            }
            (Self::Ed25519(pair), 0x0807) => Some(pair.sign(message).as_ref().to_vec()),
            (Self::Rsa(pair), scheme) => {
                let padding = rsa_padding(scheme, step)?;
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut out).ok()?;
                Some(out)
            }
            _ => None,
        }
    }
}

fn rsa_padding(scheme: u16, step: HandshakeStep) -> Option<&'static dyn RsaEncoding> {
    match (scheme, step) {
        (0x0804, _) => Some(&signature::RSA_PSS_SHA256),
        (0x0805, _) => Some(&signature::RSA_PSS_SHA384),
        (0x0806, _) => Some(&signature::RSA_PSS_SHA512),
        // RFC 8446 4.2.3: not in TLS 1.3.
        (0x0401, HandshakeStep::KeyExchange) => Some(&signature::RSA_PKCS1_SHA256),
        (0x0501, HandshakeStep::KeyExchange) => Some(&signature::RSA_PKCS1_SHA384),
        (0x0601, HandshakeStep::KeyExchange) => Some(&signature::RSA_PKCS1_SHA512),
        _ => None,
    }
}
