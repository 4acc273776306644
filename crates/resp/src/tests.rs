use super::*;

/// The first reply of some bytes that arrive `step` at a time, and what is left of them.
fn decode(bytes: &[u8], room: usize, step: usize) -> Result<(Option<RespReply>, bool, usize), RespError> {
    let (mut decoder, mut left) = (ReplyDecoder::new(room), bytes.len());
    for mut piece in bytes.chunks(step) {
        left -= piece.len();
        if let Some(reply) = decoder.take(&mut piece)? {
            return Ok((Some(reply), decoder.is_cut(), left + piece.len()));
        }
        assert!(piece.is_empty());
    }
    Ok((None, decoder.is_cut(), left))
}

fn whole(text: &str) -> RespReply {
    let found = decode(text.as_bytes(), 1 << 20, 1).unwrap();
    for step in [2, 3, 7, 1000] {
        assert_eq!(decode(text.as_bytes(), 1 << 20, step).unwrap(), found, "{text:?}");
    }
    assert_eq!((found.1, found.2), (false, 0), "{text:?}");
    found.0.unwrap()
}

fn bytes(text: &str) -> RespReply {
    RespReply::Bytes(text.into())
}

#[test]
fn every_type_is_read() {
    for (text, reply) in [
        ("+OK\r\n", bytes("OK")),
        ("-WRONGTYPE it is a list\r\n", RespReply::Failed("WRONGTYPE it is a list".into())),
        ("!7\r\nERR a\r\n\r\n", RespReply::Failed("ERR a\r\n".into())),
        (":-7\r\n", RespReply::Int(-7)),
        ("#t\r\n", RespReply::Int(1)),
        (",1.5\r\n", RespReply::Real(1.5)),
        (",-inf\r\n", RespReply::Real(f64::NEG_INFINITY)),
        ("(12345678901234567890\r\n", bytes("12345678901234567890")),
        ("_\r\n", RespReply::Null),
        ("$-1\r\n", RespReply::Null),
        ("*-1\r\n", RespReply::Null),
        ("$0\r\n\r\n", bytes("")),
        ("$6\r\n\r\n+OK\n\r\n", bytes("\r\n+OK\n")),
        ("=7\r\ntxt:abc\r\n", bytes("abc")),
        ("*0\r\n", RespReply::List(vec![])),
        (
            "~2\r\n:1\r\n*1\r\n_\r\n",
            RespReply::List(vec![RespReply::Int(1), RespReply::List(vec![RespReply::Null])]),
        ),
        ("%1\r\n+a\r\n%0\r\n", RespReply::Map(vec![bytes("a"), RespReply::Map(vec![])])),
        // A message beside the reply.
        (
            ">1\r\n+x\r\n|1\r\n+a\r\n*1\r\n:9\r\n*2\r\n>0\r\n:1\r\n:2\r\n",
            RespReply::List(vec![RespReply::Int(1), RespReply::Int(2)]),
        ),
    ] {
        assert_eq!(whole(text), reply, "{text:?}");
    }
    assert_eq!(decode(b":1\r\n:2\r\n", 100, 100).unwrap(), (Some(RespReply::Int(1)), false, 4));
}

#[test]
fn what_is_no_reply_is_refused() {
    for text in
        ["hello\r\n", "\r\n", ":x\r\n", ":1\n", "$-2\r\n", "$1\r\nab\r\n", "$1\r\na\rx", "#x\r\n", "*?\r\n"]
    {
        assert!(decode(text.as_bytes(), 100, 1).is_err(), "{text:?}");
    }
    assert!(decode(&"*1\r\n".repeat(DEPTH_MAX + 1).into_bytes(), 100, 9).is_err());
    assert!(decode(&vec![b'+'; LINE_MAX + 1], 100, 9).is_err());
}

#[test]
fn what_is_too_large_is_read_and_left() {
    let long = format!("*3\r\n$200\r\n{}\r\n:1\r\n-ERR x\r\n:9\r\n", "a".repeat(200));
    let (reply, is_cut, left) = decode(long.as_bytes(), 100, 7).unwrap();
    assert_eq!((is_cut, left), (true, 4));
    // The caller learns that a command has failed all the same.
    assert_eq!(reply, Some(RespReply::List(vec![RespReply::Failed("ERR x".into())])));
    let many = format!("*1000\r\n{}", ":1\r\n".repeat(1000));
    let (reply, is_cut, _) = decode(many.as_bytes(), 100, 7).unwrap();
    let Some(RespReply::List(values)) = reply else { panic!("{reply:?}") };
    assert!(is_cut && values.len() <= 100 / VALUE_BYTES);
    // A length is a claim, and takes no memory.
    assert_eq!(decode(b"*2147483647\r\n$9223372036854775800\r\nabc", 100, 7).unwrap(), (None, false, 0));
}

#[test]
fn words_are_words_whatever_they_say() {
    let mut out = Vec::new();
    put_command(&[&b"SET"[..], b"a\r\n$1\r\nb", b"", &[0, 255]], &mut out);
    assert_eq!(out, b"*4\r\n$3\r\nSET\r\n$8\r\na\r\n$1\r\nb\r\n$0\r\n\r\n$2\r\n\0\xFF\r\n");
    let Some(RespReply::List(words)) = decode(&out, 100, 1).unwrap().0 else { panic!() };
    assert_eq!(words[1], bytes("a\r\n$1\r\nb"));
}
