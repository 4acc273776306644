//! Users and passwords (RFC 7617), from a file in the form that `htpasswd -B` writes.
//!
//! Runs in: site workers, under the site's uid; pure, no input or output. Untrusted input: the `Authorization` field,
//! and the file, which an operator wrote. Must never: log a password, or take longer for a user that there is than for
//! one that there is not.

mod bcrypt;

use std::collections::HashMap;

use base64ct::{Base64Unpadded, Encoding as _};

use bcrypt::Hash;
pub use bcrypt::{PASSWORD_BYTES_MAX, Verification};

/// LIMIT: bytes of the file; ten thousand users.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// LIMIT: bytes of a field; a name and a password of 72 bytes, the most that bcrypt takes, and room.
const FIELD_BYTES_MAX: usize = 1024;

/// The faults of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersFault {
    /// A line with something else than a user; its number, from 1 on.
    #[error("line {0}: it is no user with a bcrypt hash of a cost from 4 to 14 (htpasswd -B)")]
    Line(usize),
    /// The file is not text.
    #[error("it is not UTF-8")]
    Encoding,
    /// Nobody may log in.
    #[error("there is no user in it")]
    Empty,
}

/// The users of one file.
#[derive(Debug)]
pub struct Users {
    hashes: HashMap<String, Hash>,
    /// A hash for names that no user has, so that checking them takes as long.
    nobody: Hash,
}

impl Users {
    /// The users that the contents of a file name, and what is wrong with it. A fault costs the users of its line, and
    /// no others.
    pub fn parse(file: &[u8]) -> (Users, Vec<UsersFault>) {
        let (mut hashes, mut faults) = (HashMap::new(), Vec::new());
        let text = std::str::from_utf8(file);
        for (number, line) in text.unwrap_or_default().lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let user = line.split_once(':').filter(|(name, _)| !name.is_empty());
            match user.and_then(|(name, hash)| Some((name, Hash::parse(hash)?))) {
                Some((name, hash)) => drop(hashes.insert(name.to_owned(), hash)),
                None => faults.push(UsersFault::Line(number + 1)),
            }
        }
        match text {
            Err(_) => faults.push(UsersFault::Encoding),
            Ok(_) if hashes.is_empty() => faults.push(UsersFault::Empty),
            Ok(_) => {}
        }
        let nobody = Hash::of_nobody(hashes.values().map(Hash::cost).max().unwrap_or(4));
        (Users { hashes, nobody }, faults)
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Begins to verify a password of at most [`PASSWORD_BYTES_MAX`] bytes. The second is whether there is such a user:
    /// if not, the work is the same, and its outcome means nothing.
    pub fn verify(&self, name: &str, password: &[u8]) -> (Verification, bool) {
        let hash = self.hashes.get(name);
        (hash.unwrap_or(&self.nobody).begin(password), hash.is_some())
    }
}

/// The name and the password of a `Basic` field.
pub fn credentials(field: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || field.len() > FIELD_BYTES_MAX {
        return None;
    }
    let encoded = std::str::from_utf8(encoded.trim_ascii()).ok()?;
    // RFC 4648 4, with or without padding.
    let padding = encoded.bytes().rev().take_while(|&byte| byte == b'=').count();
    let encoded = &encoded[..encoded.len() - padding];
    let decoded = Base64Unpadded::decode_vec(encoded).ok().filter(|_| padding <= 2)?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    let password = decoded[colon + 1..].to_vec();
    // bcrypt ends at a NUL, and looks at no more bytes.
    (!password.contains(&0) && password.len() <= PASSWORD_BYTES_MAX).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let read = |field: &str| credentials(field.as_bytes());
        let aladdin = Some(("Aladdin".to_owned(), b"open sesame".to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(read("basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ"), aladdin);
        assert_eq!(read("Basic YTpiOmM="), Some(("a".to_owned(), b"b:c".to_vec())));
        for bad in ["", "Basic", "Basic ", "Bearer QTpi", "Basic QQ==", "Basic Q", "Basic Q:==", "Basic YToA"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_field_may_have_so_many_bytes_and_no_more() {
        let field = |name: usize| {
            format!("Basic {}", Base64Unpadded::encode_string(&[&vec![b'n'; name][..], b":pw"].concat()))
        };
        let longest = (1..).find(|&name| field(name + 1).len() > FIELD_BYTES_MAX).unwrap();
        assert_eq!(field(longest).len(), FIELD_BYTES_MAX);
        assert!(credentials(field(longest).as_bytes()).is_some_and(|(name, _)| name.len() == longest));
        assert_eq!(credentials(field(longest + 1).as_bytes()), None);
    }

    #[test]
    fn files() {
        let hash = ::bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap().to_string();
        let (users, faults) = Users::parse(format!("# users\n\nann:{hash}\nbob:plain\n:x\n").as_bytes());
        assert_eq!((users.len(), faults), (1, vec![UsersFault::Line(4), UsersFault::Line(5)]));
        assert!(!users.is_empty() && Users::parse(b"# nobody\n").0.is_empty());
        assert!(10_000 * format!("a.name@example.org:{hash}\n").len() < FILE_BYTES_MAX);
        assert!(UsersFault::Line(4).to_string().contains("line 4"));
        assert_eq!(Users::parse(b"# nobody\n").1, [UsersFault::Empty]);
        assert_eq!(Users::parse(b"ann:\xff").1, [UsersFault::Encoding]);
    }

    #[test]
    fn a_user_that_there_is_not_takes_the_same_work() {
        let hash = ::bcrypt::hash_with_salt("secret", 5, [7; 16]).unwrap().to_string();
        let (users, _) = Users::parse(format!("ann:{hash}").as_bytes());
        let slices = |name: &str| {
            let (mut verification, _) = users.verify(name, b"secret");
            std::iter::repeat_with(|| verification.work(std::time::Duration::ZERO))
                .position(|done| done.is_some())
        };
        assert_eq!(slices("ann"), slices("bob"));
        assert!(users.verify("ann", b"").1 && !users.verify("bob", b"").1);
    }
}
