//! The usual commands of Redis's, for those who cannot ask a server: which of them only read, and which of their words
//! are keys.
//!
//! The facts are those of Redis 7 (`COMMAND INFO`), as a test compares. A data proxy asks its server, and does not look
//! here.

use crate::keys::KeyPlaces;
use crate::{Statement, Word, WordPart};

/// Those that only read.
const READS: &[&str] = &[
    "bitcount",
    "bitfield_ro",
    "bitpos",
    "dump",
    "exists",
    "expiretime",
    "geodist",
    "geohash",
    "geopos",
    "georadius_ro",
    "georadiusbymember_ro",
    "geosearch",
    "get",
    "getbit",
    "getrange",
    "hexists",
    "hget",
    "hgetall",
    "hkeys",
    "hlen",
    "hmget",
    "hrandfield",
    "hscan",
    "hstrlen",
    "hvals",
    "lcs",
    "lindex",
    "llen",
    "lpos",
    "lrange",
    "memory|usage",
    "mget",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
    "pexpiretime",
    "pfcount",
    "pttl",
    "scard",
    "sdiff",
    "sinter",
    "sismember",
    "smembers",
    "smismember",
    "srandmember",
    "sscan",
    "strlen",
    "substr",
    "sunion",
    "touch",
    "ttl",
    "type",
    "xinfo|consumers",
    "xinfo|groups",
    "xinfo|stream",
    "xlen",
    "xpending",
    "xrange",
    "xrevrange",
    "zcard",
    "zcount",
    "zlexcount",
    "zmscore",
    "zrandmember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrank",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zscan",
    "zscore",
];
/// Those whose key is not their second word alone: the first and the last word that is a key, and from one to the next.
const KEYS: [(KeyPlaces, &[&str]); 5] = [
    (
        (1, -1, 1),
        &[
            "del",
            "exists",
            "mget",
            "pfcount",
            "pfmerge",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sinterstore",
            "sunion",
            "sunionstore",
            "touch",
            "unlink",
        ],
    ),
    ((1, -1, 2), &["mset", "msetnx"]),
    (
        (1, 2, 1),
        &["geosearchstore", "lcs", "lmove", "rename", "renamenx", "rpoplpush", "smove", "zrangestore"],
    ),
    ((2, -1, 1), &["bitop"]),
    ((2, 2, 1), &["memory", "object", "xgroup", "xinfo"]),
];

impl Statement {
    /// Whether its command is known to read only; in doubt it does not.
    pub(crate) fn usually_only_reads(&self) -> bool {
        names(&self.words).iter().any(|name| READS.contains(&&**name))
    }

    /// Which of its command's words are keys, as far as is known.
    pub fn usual_keys(&self) -> KeyPlaces {
        let names = names(&self.words);
        let of = |list: &[&str]| names.first().is_some_and(|name| list.contains(&&**name));
        KEYS.iter().find_map(|(places, list)| of(list).then_some(*places)).unwrap_or((1, 1, 1))
    }
}

/// By which names a server may know a command, in lower case: its first word, and with its second one.
pub fn names(words: &[Word]) -> Vec<String> {
    let text = |word: &Word| match &word[..] {
        [WordPart::Bytes(bytes)] => Some(String::from_utf8_lossy(bytes).to_ascii_lowercase()),
        _ => None,
    };
    let Some(first) = words.first().and_then(text) else { return Vec::new() };
    let both = words.get(1).and_then(text).map(|second| format!("{first}|{second}"));
    [first].into_iter().chain(both).collect()
}
