//! `Authorization` in a site worker: what is read of a field, and written anew, reads the same.

use base64ct::{Base64Unpadded, Encoding as _};
use users::{PASSWORD_BYTES_MAX, credentials};

pub fn fuzz(field: &[u8]) {
    let Some((name, password)) = credentials(field) else { return };
    assert!(!name.contains(':') && password.len() <= PASSWORD_BYTES_MAX && !password.contains(&0));
    let text = [name.as_bytes(), b":", &password].concat();
    let again = format!("Basic {}", Base64Unpadded::encode_string(&text));
    assert_eq!(credentials(again.as_bytes()), Some((name, password)));
}
