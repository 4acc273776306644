//! The two steps of a handshake in which a server signs, by their shape.
//!
//! Runs in: the signer; pure. Untrusted input: all of it, from a site that may be compromised. Must never: take for one
//! of them what could mean something to anybody else: a certificate, a mail, a token.

/// Which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// ServerKeyExchange of TLS 1.2 (RFC 8422 5.4).
    KeyExchange,
    /// CertificateVerify of TLS 1.3 (RFC 8446 4.4.3).
    CertificateVerify,
}

/// The text before the hash of a handshake.
const CONTEXT: &[u8; 34] = b"TLS 1.3, server CertificateVerify\0";
/// A client's random and a server's.
const RANDOMS: usize = 64;
/// `named_curve`, the only kind that is left.
const NAMED_CURVE: u8 = 3;

/// Which step a message is of, if of any.
pub fn step(message: &[u8]) -> Option<HandshakeStep> {
    let (start, rest) = message.split_at_checked(RANDOMS)?;
    if let Some(hash) = rest.strip_prefix(CONTEXT) {
        // SHA-256 or SHA-384.
        let whole = start.iter().all(|&byte| byte == b' ') && matches!(hash.len(), 32 | 48);
        return whole.then_some(HandshakeStep::CertificateVerify);
    }
    match rest {
        [NAMED_CURVE, _, _, length, point @ ..]
            if !point.is_empty() && point.len() == usize::from(*length) =>
        {
            Some(HandshakeStep::KeyExchange)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_steps_are_steps() {
        let verify = |hash: usize| [&[b' '; 64][..], CONTEXT, &vec![7; hash]].concat();
        assert_eq!(step(&verify(32)), Some(HandshakeStep::CertificateVerify));
        assert_eq!(step(&verify(48)), Some(HandshakeStep::CertificateVerify));
        for hash in [0, 31, 33, 64] {
            assert_eq!(step(&verify(hash)), None);
        }
        let mut other = verify(32);
        other[0] = b'x';
        assert_eq!(step(&other), None);
        let client = [&[b' '; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat();
        assert_eq!(step(&client), None);
        let exchange =
            |length: u8, point: usize| [&[9; 64][..], &[3, 0, 29, length], &vec![5; point]].concat();
        assert_eq!(step(&exchange(32, 32)), Some(HandshakeStep::KeyExchange));
        assert_eq!(step(&exchange(65, 65)), Some(HandshakeStep::KeyExchange));
        for (length, point) in [(0, 0), (32, 31), (32, 33)] {
            assert_eq!(step(&exchange(length, point)), None);
        }
        assert_eq!(step(b""), None);
        assert_eq!(step(&[9; 200]), None);
    }
}
