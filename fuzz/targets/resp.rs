//! Replies of Redis: what a data proxy reads of a server.

use resp::{ReplyDecoder, RespError, RespReply, put_command};

const ROOM: usize = 1000;

/// All replies, without the places where their bytes were cut, and the bytes that make no reply yet.
fn decode(data: &[u8], step: usize) -> (Vec<(String, bool)>, Option<RespError>) {
    let (mut decoder, mut replies) = (ReplyDecoder::new(ROOM), Vec::new());
    for mut piece in data.chunks(step) {
        loop {
            match decoder.take(&mut piece) {
                Ok(Some(reply)) => {
                    assert!(bytes(&reply) <= ROOM || decoder.is_cut());
                    // A number that is none is not equal to itself.
                    replies.push((format!("{reply:?}"), decoder.is_cut()));
                    decoder = ReplyDecoder::new(ROOM);
                }
                Ok(None) => break,
                Err(bad) => return (replies, Some(bad)),
            }
        }
        assert!(piece.is_empty(), "what arrives is taken");
    }
    (replies, None)
}

fn bytes(reply: &RespReply) -> usize {
    match reply {
        RespReply::Bytes(bytes) => bytes.len(),
        RespReply::List(values) | RespReply::Map(values) => values.iter().map(bytes).sum(),
        RespReply::Null | RespReply::Int(_) | RespReply::Real(_) | RespReply::Failed(_) => 0,
    }
}

pub fn fuzz(data: &[u8]) {
    // The same replies, however the bytes arrive.
    let whole = decode(data, data.len().max(1));
    assert_eq!(decode(data, 1), whole);
    assert_eq!(decode(data, 7), whole);
    // A command is its words, whatever they say.
    let words: Vec<&[u8]> = data.split(|byte| *byte == b' ').collect();
    let mut command = Vec::new();
    put_command(&words, &mut command);
    let found = ReplyDecoder::new(usize::MAX).take(&mut &command[..]);
    let expected = RespReply::List(words.iter().map(|word| RespReply::Bytes(word.to_vec())).collect());
    assert_eq!(found, Ok(Some(expected)));
}
