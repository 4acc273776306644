//! A user's key: what it is made of, the place that it stands for, and what is sealed under it.
//!
//! Runs in: a service's worker. Sees: keys that clients send, of which any may be made up. Never: keeps a key
//! longer than its caller does.
//!
//! Source: RFC 5869 (HKDF; its step "extract" is left out, as 3.3 allows for a key that is random already);
//! XChaCha20-Poly1305, draft-irtf-cfrg-xchacha (a nonce of 192 bits may be random).

use std::convert::Infallible;
use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of a key, in bytes.
pub(crate) const KEY_LENGTH: usize = 32;
const NONCE_LENGTH: usize = 24;
const TAG_LENGTH: usize = 16;

/// How much longer than its content a sealed entry is.
pub(crate) const SEAL_LENGTH: usize = NONCE_LENGTH + TAG_LENGTH;

/// Purposes of what is derived from a key; no two may begin alike up to a full stop.
const FOR_INDEX: &[u8] = b"bulkhead sealed cache 1 index.";
const FOR_CIPHER: &[u8] = b"bulkhead sealed cache 1 cipher.";

/// The place of a user's entry. It is derived from the key, and says nothing about it.
pub(crate) type EntryIndex = [u8; 16];

/// Random bytes that only a user's cookie holds; in one place on the heap, so that a move leaves no copy.
pub(crate) struct KeySecret(Box<Zeroizing<[u8; KEY_LENGTH]>>);

/// A secret and what follows from it.
pub(crate) struct UserKey {
    pub(crate) secret: KeySecret,
    pub(crate) index: EntryIndex,
    cipher: KeySecret,
    scope: Box<[u8]>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedKind {
    /// A user's state.
    State,
    /// The key that has followed this one.
    Successor,
}

impl KeySecret {
    /// A new one from the system's random source.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        Self::fill(getrandom::fill)
    }

    /// One that `fill` writes in place.
    pub(crate) fn fill<E>(fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = Self(Box::new(Zeroizing::new([0; KEY_LENGTH])));
        fill(&mut secret.0[..])?;
        Ok(secret)
    }

    /// The one whose bytes these are; `None` if they are too many or too few.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Self> {
        Self::fill(|own| {
            let fits = own.len() == bytes.len();
            fits.then(|| own.copy_from_slice(bytes)).ok_or(())
        })
        .ok()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..]
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("index", &self.index).finish_non_exhaustive()
    }
}

impl UserKey {
    /// The key of `secret` in `scope`, the name of a cache.
    pub(crate) fn new(secret: KeySecret, scope: &str) -> Self {
        let mut index = EntryIndex::default();
        derive(&secret, FOR_INDEX, scope, &mut index);
        let Ok(cipher) = KeySecret::fill::<Infallible>(|bytes| {
            derive(&secret, FOR_CIPHER, scope, bytes);
            Ok(())
        });
        Self { secret, index, cipher, scope: scope.as_bytes().into() }
    }

    /// Seals `content`: a nonce, then what only this key opens again, and only at its own place and as the same kind.
    pub(crate) fn seal(&self, kind: SealedKind, content: &[u8]) -> Result<Vec<u8>, getrandom::Error> {
        let mut nonce = [0; NONCE_LENGTH];
        getrandom::fill(&mut nonce)?;
        let associated = self.associated(kind);
        let payload = Payload { msg: content, aad: &associated };
        let sealed = self
            .cipher()
            .encrypt(&nonce.into(), payload)
            .expect("invariant: the content's length is limited, and far below the cipher's 256 GiB");
        Ok([&nonce[..], &sealed].concat())
    }

    /// Opens what [`Self::seal`] has made; `None` if it was made otherwise, or changed.
    pub(crate) fn open(&self, kind: SealedKind, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, content) = sealed.split_first_chunk::<NONCE_LENGTH>()?;
        let associated = self.associated(kind);
        let payload = Payload { msg: content, aad: &associated };
        self.cipher().decrypt(nonce.into(), payload).ok().map(Zeroizing::new)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        let key: &[u8; KEY_LENGTH] = &self.cipher.0;
        XChaCha20Poly1305::new(key.into())
    }

    /// The associated data of an entry: its kind, its place and its cache.
    fn associated(&self, kind: SealedKind) -> Vec<u8> {
        let kind = match kind {
            SealedKind::State => 0,
            SealedKind::Successor => 1,
        };
        [&[kind][..], &self.index, &self.scope].concat()
    }
}

/// Fills `out` with what follows from `secret` for one purpose.
fn derive(secret: &KeySecret, purpose: &[u8], scope: &str, out: &mut [u8]) {
    let hkdf =
        Hkdf::<Sha256>::from_prk(secret.bytes()).expect("invariant: a key is as long as SHA-256's output");
    hkdf.expand_multi_info(&[purpose, scope.as_bytes()], out)
        .expect("invariant: at most 32 bytes are asked for, and HKDF gives 8160");
}
