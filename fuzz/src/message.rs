//! What holds of the messages of every edge.

use std::fmt::Debug;

use wire::Message;

/// Whatever the bytes, the decoder answers, and what it accepts has one encoding.
pub fn check<M: Message + Debug + PartialEq>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(again, bytes, "{message:?} has two encodings");
    assert_eq!(M::decode(&again), Ok(message));
}
