//! Compression of content: the three encoders, and what is worth it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: contents of files and answers of services, which
//! are only ever compressed. Must never: hold up other requests for longer than one piece takes, or decompress.

pub mod body;
pub mod dynamic;

use std::io::{self, Write};

use http::HeaderMap;
use request::accept_encoding::Encoding;

/// LIMIT: what is smaller fits in a packet or so anyway, and may become larger.
pub const BYTES_MIN: u64 = 512;

/// LIMIT: bytes compressed before others have their turn; some milliseconds of the slowest encoder.
pub const PIECE_BYTES: usize = 32 << 10;

/// LIMIT: of what is made for one request: windows of 256 KiB, as there may be thousands at once.
const WINDOW_DYNAMIC: u32 = 18;
/// LIMIT: of what is kept: 4 MiB; RFC 8878 asks clients for 8.
const WINDOW_STATIC: u32 = 22;

/// zstd's levels for 1 to 9: as much slower than gzip's as they are better.
const ZSTD_LEVELS: [i32; 9] = [1, 2, 3, 5, 7, 9, 11, 13, 15];

/// Effort, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For what is kept, of about so many bytes: 1 to 9.
    Static(u8, u64),
    /// For what is made for one request: 1 to 9.
    Dynamic(u8),
}

/// One of the encoders, writing to memory.
pub enum Encoder {
    /// Brotli.
    Br(Box<brotli::CompressorWriter<Vec<u8>>>),
    /// Zstandard.
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// gzip.
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// An encoder of this kind.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(encoding: Encoding, effort: Effort) -> io::Result<Encoder> {
        let (level, window) = match effort {
            // Twice the content is as good as any larger window.
            Effort::Static(level, bytes) => {
                (level, (u64::BITS - bytes.leading_zeros()).clamp(16, WINDOW_STATIC))
            }
            Effort::Dynamic(level) => (level, WINDOW_DYNAMIC),
        };
        let level = level.clamp(1, 9);
        Ok(match encoding {
            Encoding::Br => {
                let writer = brotli::CompressorWriter::new(Vec::new(), 4096, level.into(), window);
                Encoder::Br(Box::new(writer))
            }
            Encoding::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVELS[usize::from(level) - 1])?;
                encoder.window_log(window)?;
                Encoder::Zstd(encoder)
            }
            Encoding::Gzip => {
                let level = flate2::Compression::new(level.into());
                // No name and no time of day in the header: the same content has the same bytes.
                Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
        })
    }

    /// Takes content.
    ///
    /// # Errors
    /// As the encoder says; there is no more to be had of it.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Br(writer) => writer.write_all(bytes),
            Encoder::Zstd(writer) => writer.write_all(bytes),
            Encoder::Gzip(writer) => writer.write_all(bytes),
        }
    }

    /// Gives out all that was taken, at some cost in size.
    ///
    /// # Errors
    /// As [`Encoder::write`].
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Br(writer) => writer.flush(),
            Encoder::Zstd(writer) => writer.flush(),
            Encoder::Gzip(writer) => writer.flush(),
        }
    }

    /// Takes the output so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Encoder::Br(writer) => writer.get_mut(),
            Encoder::Zstd(writer) => writer.get_mut(),
            Encoder::Gzip(writer) => writer.get_mut(),
        })
    }

    /// Bytes that have come out and were not taken.
    pub fn ready(&self) -> usize {
        match self {
            Encoder::Br(writer) => writer.get_ref().len(),
            Encoder::Zstd(writer) => writer.get_ref().len(),
            Encoder::Gzip(writer) => writer.get_ref().len(),
        }
    }

    /// The rest.
    ///
    /// # Errors
    /// As [`Encoder::write`].
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Br(writer) => Ok(writer.into_inner()),
            Encoder::Zstd(writer) => writer.finish(),
            Encoder::Gzip(writer) => writer.finish(),
        }
    }
}

/// Whether content of this media type becomes smaller; what is unknown is taken for compressed already.
pub fn is_worth(media: &[u8]) -> bool {
    const WORTH: [&[u8]; 14] = [
        b"application/javascript",
        b"application/x-javascript",
        b"application/ecmascript",
        b"application/json",
        b"application/xml",
        b"application/wasm",
        b"application/rtf",
        b"application/postscript",
        b"application/vnd.apple.mpegurl",
        b"application/vnd.ms-fontobject",
        b"font/ttf",
        b"font/otf",
        b"image/bmp",
        b"image/x-icon",
    ];
    let essence = media.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let mut lower = [0; 64];
    let Some(lower) = lower.get_mut(..essence.len()) else {
        return false;
    };
    lower.copy_from_slice(essence);
    lower.make_ascii_lowercase();
    let lower: &[u8] = lower;
    lower.starts_with(b"text/")
        || lower.ends_with(b"+xml")
        || lower.ends_with(b"+json")
        || WORTH.contains(&lower)
}

/// Removes what stands for these very bytes, and may come before or behind them (RFC 9530).
pub fn remove_digests(fields: &mut HeaderMap) {
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        fields.remove(name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use super::*;

    fn decoded(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match encoding {
            Encoding::Br => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap(),
            Encoding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
            Encoding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
        };
        out
    }

    #[test]
    fn there_and_back_at_every_level() {
        let text: Vec<u8> = (0..5000).flat_map(|n| format!("line {n} of some text\n").into_bytes()).collect();
        for encoding in Encoding::ALL {
            for level in 1..=9 {
                for effort in [Effort::Static(level, text.len() as u64), Effort::Dynamic(level)] {
                    let mut encoder = Encoder::new(encoding, effort).unwrap();
                    encoder.write(&text[..1000]).unwrap();
                    encoder.flush().unwrap();
                    let mut out = encoder.take();
                    assert!(!out.is_empty(), "a flush gives out what there is");
                    encoder.write(&text[1000..]).unwrap();
                    out.extend(encoder.take());
                    out.extend(encoder.finish().unwrap());
                    assert!(out.len() < text.len() / 3, "{encoding:?} {effort:?}: {}", out.len());
                    assert_eq!(decoded(encoding, &out), text, "{encoding:?} {effort:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_content_has_the_same_bytes() {
        for encoding in Encoding::ALL {
            let once = || {
                let mut encoder = Encoder::new(encoding, Effort::Static(9, 100)).unwrap();
                encoder.write(&[b'a'; 100]).unwrap();
                encoder.finish().unwrap()
            };
            assert_eq!(once(), once());
        }
    }

    #[test]
    fn media() {
        for worth in ["text/html; charset=utf-8", "Text/Event-Stream", "application/ld+json", "image/svg+xml"]
        {
            assert!(is_worth(worth.as_bytes()), "{worth}");
        }
        for not in
            ["", "image/png", "application/zip", "font/woff2", "application/octet-stream", &"x".repeat(100)]
        {
            assert!(!is_worth(not.as_bytes()), "{not}");
        }
    }
}
