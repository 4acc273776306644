//! bcrypt, a slice at a time: the comparison of one password with one hash takes as long as hundreds of requests, and a
//! worker has one thread.
//!
//! Untrusted input: the password; the hash, which an operator wrote. Must never: keep the thread longer than it is
//! told, or tell by its time how much of a digest fits.
//!
//! The jail lets no worker have a second thread. Provos and Mazières, *A Future-Adaptable Password Scheme*, USENIX
//! 1999.

use std::time::{Duration, Instant};

use base64ct::{Base64Bcrypt, Encoding as _};
use blowfish::Blowfish;
use subtle::ConstantTimeEq as _;

/// The least and, LIMIT: the greatest exponent of the work: above 14, a verification takes seconds.
const COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// Bytes of a password that count.
pub const PASSWORD_BYTES_MAX: usize = 72;
/// The text that is encrypted under the password.
const MAGIC: &[u8; 24] = b"OrpheanBeholderScryDoubt";
/// The last byte of the encrypted text is not kept.
const DIGEST_BYTES: usize = 23;

/// The hash of one user's password.
#[derive(Clone, Debug)]
pub struct Hash {
    cost: u32,
    salt: [u8; 16],
    digest: [u8; DIGEST_BYTES],
}

impl Hash {
    /// The hash in the form `$2y$COST$SALT-AND-DIGEST`.
    pub fn parse(text: &str) -> Option<Hash> {
        let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|kind| text.strip_prefix(kind))?;
        let (cost, rest) = rest.split_once('$')?;
        let (salt, digest) = rest.split_at_checked(22)?;
        let digits = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
        let cost = cost.parse().ok().filter(|cost| digits && COSTS.contains(cost))?;
        Some(Hash { cost, salt: bytes(salt)?, digest: bytes(digest)? })
    }

    /// That of no password anybody knows.
    pub fn of_nobody(cost: u32) -> Hash {
        Hash { cost, salt: [0; 16], digest: [0; DIGEST_BYTES] }
    }

    /// The exponent of the work.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Begins to compare a password, of which the caller knows that it is not longer than counts.
    pub fn begin(&self, password: &[u8]) -> Verification {
        let mut key = password.to_vec();
        key.push(0);
        key.truncate(PASSWORD_BYTES_MAX);
        let mut state = Box::new(Blowfish::bc_init_state());
        state.salted_expand_key(&self.salt, &key);
        Verification { rounds: 1 << self.cost, key, state, hash: self.clone() }
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let length = Base64Bcrypt::decode(text, &mut bytes).ok()?.len();
    (length == N).then_some(bytes)
}

/// A comparison that is under way.
pub struct Verification {
    hash: Hash,
    key: Vec<u8>,
    state: Box<Blowfish>,
    rounds: u32,
}

impl Verification {
    /// Works for about that long; whether the password is the right one, once that is known.
    pub fn work(&mut self, time: Duration) -> Option<bool> {
        let begun = Instant::now();
        while self.rounds > 0 {
            self.state.bc_expand_key(&self.key);
            self.state.bc_expand_key(&self.hash.salt);
            self.rounds -= 1;
            if begun.elapsed() >= time {
                return None;
            }
        }
        Some(self.digest().ct_eq(&self.hash.digest).into())
    }

    fn digest(&self) -> [u8; DIGEST_BYTES] {
        let mut text = *MAGIC;
        for block in text.as_chunks_mut::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *block;
            let mut halves = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
            for _ in 0..64 {
                halves = self.state.bc_encrypt(halves);
            }
            *block = (u64::from(halves[0]) << 32 | u64::from(halves[1])).to_be_bytes();
        }
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&text[..DIGEST_BYTES]);
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(password: &[u8], hash: &str) -> bool {
        let mut verification = Hash::parse(hash).unwrap().begin(password);
        std::iter::repeat_with(|| verification.work(Duration::ZERO)).flatten().next().unwrap()
    }

    #[test]
    fn it_says_what_another_implementation_says() {
        let long = [b'x'; PASSWORD_BYTES_MAX];
        for (password, other) in [
            (&b""[..], &b"x"[..]),
            (b"secret", b"Secret"),
            (b"secret", b"secret\xff"),
            (&long[..71], &long[..70]),
            (&long, &long[..71]),
        ] {
            for cost in [4, 5] {
                let hash = bcrypt::hash_with_salt(password, cost, [0xa5; 16]).unwrap();
                for version in [bcrypt::Version::TwoA, bcrypt::Version::TwoB, bcrypt::Version::TwoY] {
                    let hash = hash.format_for_version(version);
                    assert!(verify(password, &hash), "{password:?} {hash}");
                    assert!(!verify(other, &hash), "{other:?} {hash}");
                }
            }
        }
        // A vector of jBCrypt's.
        assert!(verify(b"a", "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe"));
    }

    #[test]
    fn nobody_has_the_password_of_nobody() {
        let mut verification = Hash::of_nobody(4).begin(b"");
        assert_eq!(verification.work(Duration::MAX), Some(false));
    }

    #[test]
    fn it_stops_when_it_is_told() {
        let mut verification = Hash::of_nobody(4).begin(b"x");
        let slices = std::iter::repeat_with(|| verification.work(Duration::ZERO));
        assert_eq!(slices.take_while(Option::is_none).count(), 16);
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let rest = ".".repeat(53);
        assert!(Hash::parse(&format!("$2y$04${rest}")).is_some());
        for bad in ["$2y$03$", "$2y$15$", "$2y$4$", "$2y$+4$", "$2x$04$", "$1$04$", "2y$04$"] {
            assert!(Hash::parse(&format!("{bad}{rest}")).is_none(), "{bad}");
        }
        for rest in [&rest[1..], &format!("{rest}."), &format!("{}+", &rest[1..]), "ä", ""] {
            assert!(Hash::parse(&format!("$2y$04${rest}")).is_none(), "{rest}");
        }
    }
}
