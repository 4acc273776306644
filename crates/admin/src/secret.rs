//! The secret with which every order begins, from a file that only those can read who may give orders.
//!
//! Runs in: the admin role. Sees: the first line of any process that can reach the socket. Never: tells by the time
//! that it takes how much of a guess is right, or prints the secret.

use subtle::ConstantTimeEq as _;

/// The secret of this server.
pub(crate) struct ServerSecret(Vec<u8>);

impl std::fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl ServerSecret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Whether these are its bytes; of a wrong length, which is no secret, this is said at once.
    pub(crate) fn is(&self, secret_line: &[u8]) -> bool {
        !self.0.is_empty() && bool::from(self.0.ct_eq(secret_line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_right() {
        let secret = ServerSecret::new("0123abcd");
        assert!(secret.is(b"0123abcd"));
        for wrong in ["", "0123abc", "0123abcd0", "1123abcd", "0123abce", "0123ABCD", "\0\0\0\0\0\0\0\0"] {
            assert!(!secret.is(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!ServerSecret::new("").is(b""));
    }
}
