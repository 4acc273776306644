//! `Accept-Encoding` of RFC 9110 12.5.3.
//!
//! Untrusted input: the header value. Must never: choose an encoding that
//! the client refuses, or allocate for a value that was seen before.

use std::cell::RefCell;

/// LIMIT: values remembered; browsers have a handful, and others pay for being looked at.
const KNOWN_MAX: usize = 16;
/// LIMIT: bytes of a value that is remembered.
const VALUE_BYTES_MAX: usize = 128;
/// LIMIT: elements of a value that are looked at; there are not so many encodings.
const ELEMENTS_MAX: usize = 32;

/// An encoding of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Brotli.
    Br,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

impl Encoding {
    /// All of them.
    pub const ALL: [Encoding; 3] = [Encoding::Br, Encoding::Zstd, Encoding::Gzip];

    /// As in `Content-Encoding`.
    pub fn token(self) -> &'static str {
        match self {
            Encoding::Br => "br",
            Encoding::Zstd => "zstd",
            Encoding::Gzip => "gzip",
        }
    }

    /// The suffix of the name of a file that is compressed already; also part of its entity tag.
    pub fn suffix(self) -> &'static str {
        match self {
            Encoding::Br => "br",
            Encoding::Zstd => "zst",
            Encoding::Gzip => "gz",
        }
    }
}

/// The encodings that a client takes of those offered, the best first; after a `None` nothing more is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedEncodings([Option<Encoding>; 3]);

impl AcceptedEncodings {
    /// The encodings to be tried before content is sent as it is.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Encoding> {
        self.0.into_iter().flatten()
    }
}

/// The choice, with the values seen last.
#[derive(Default)]
pub struct Negotiator {
    offered: Vec<Encoding>,
    known: RefCell<Vec<(Box<[u8]>, AcceptedEncodings)>>,
}

impl Negotiator {
    /// Offers these, the most preferred first.
    pub fn new(offered: &[Encoding]) -> Negotiator {
        Negotiator { offered: offered.to_vec(), known: RefCell::default() }
    }

    /// Whether anything is offered.
    pub fn offers(&self) -> bool {
        !self.offered.is_empty()
    }

    /// The encodings that the sender of this value takes; without one, none.
    #[inline]
    pub fn accepted(&self, value: Option<&[u8]>) -> AcceptedEncodings {
        let Some(value) = value.filter(|_| self.offers()) else {
            return AcceptedEncodings::default();
        };
        let known = self.known.borrow();
        match known.iter().find(|(one, _)| **one == *value) {
            Some((_, accepted)) => *accepted,
            None => {
                drop(known);
                self.learn(value)
            }
        }
    }

    #[cold]
    fn learn(&self, value: &[u8]) -> AcceptedEncodings {
        let accepted = parse(value, &self.offered);
        let mut known = self.known.borrow_mut();
        if value.len() <= VALUE_BYTES_MAX {
            if known.len() == KNOWN_MAX {
                known.remove(0);
            }
            known.push((value.into(), accepted));
        }
        accepted
    }
}

/// The encodings of `offered` that the value accepts: the greatest weight first, and among equals in the order offered.
pub fn parse(value: &[u8], offered: &[Encoding]) -> AcceptedEncodings {
    let mut weights = [None; 3];
    let (mut any, mut plain) = (None, None);
    for element in value.split(|byte| *byte == b',').take(ELEMENTS_MAX) {
        let mut parts = element.split(|byte| *byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let weight = weight(parts);
        let is = |token: &str| name.eq_ignore_ascii_case(token.as_bytes());
        if is("*") {
            any = Some(weight);
        } else if is("identity") {
            plain = Some(weight);
        } else if let Some(at) = Encoding::ALL.iter().position(|one| is(one.token())) {
            weights[at] = Some(weight);
        } else if is("x-gzip") {
            weights[Encoding::Gzip as usize].get_or_insert(weight);
        }
    }
    // RFC 9110 12.5.3: without a word of it, content as it is is acceptable; here, after what was asked for.
    let plain = plain.or(any.filter(|weight| *weight == 0)).unwrap_or(0);
    let mut chosen: Vec<(u16, Encoding)> = offered
        .iter()
        .map(|encoding| (weights[*encoding as usize].or(any).unwrap_or(0), *encoding))
        .filter(|(weight, _)| *weight > 0 && *weight >= plain)
        .collect();
    chosen.sort_by_key(|(weight, _)| u16::MAX - weight);
    let mut accepted = AcceptedEncodings::default();
    for (slot, (_, encoding)) in accepted.0.iter_mut().zip(chosen) {
        *slot = Some(encoding);
    }
    accepted
}

/// Thousandths of `q`; 0 for one that cannot be read, so that nothing is sent that may be refused.
fn weight<'v>(parameters: impl Iterator<Item = &'v [u8]>) -> u16 {
    for parameter in parameters {
        let parameter = parameter.trim_ascii();
        let Some((b'q' | b'Q', rest)) = parameter.split_first() else { continue };
        let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else { continue };
        return thousandths(value.trim_ascii()).unwrap_or(0);
    }
    1000
}

fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, digits) = match value {
        [whole, b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        [whole] => (whole, &[][..]),
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let part = (0..3).fold(0, |sum, at| sum * 10 + digits.get(at).map_or(0, |digit| u16::from(digit - b'0')));
    match (whole, part) {
        (b'0', part) => Some(part),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

/// The entry for fuzzing.
pub fn fuzz_accept_encoding(value: &[u8]) {
    let accepted = parse(value, &Encoding::ALL);
    let list: Vec<_> = accepted.iter().collect();
    for (at, encoding) in list.iter().enumerate() {
        assert!(!list[..at].contains(encoding));
    }
    let negotiator = Negotiator::new(&Encoding::ALL);
    assert_eq!(negotiator.accepted(Some(value)), accepted);
    assert_eq!(negotiator.accepted(Some(value)), accepted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encoding::{Br, Gzip, Zstd};

    fn list(value: &str) -> Vec<Encoding> {
        parse(value.as_bytes(), &Encoding::ALL).iter().collect()
    }

    #[test]
    fn weights_and_order() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", vec![Br, Zstd, Gzip]),
            ("gzip", vec![Gzip]),
            ("GZIP", vec![Gzip]),
            ("x-gzip", vec![Gzip]),
            ("", vec![]),
            ("deflate", vec![]),
            ("*", vec![Br, Zstd, Gzip]),
            ("gzip;q=1.0, br;q=0.5", vec![Gzip, Br]),
            ("gzip;q=0.2, br;q=0.3, zstd;q=0.25", vec![Br, Zstd, Gzip]),
            ("br;q=0, *", vec![Zstd, Gzip]),
            ("gzip;q=0", vec![]),
            ("*;q=0", vec![]),
            ("identity;q=1, gzip;q=0.5", vec![]),
            ("identity;q=0.5, gzip;q=0.5, br;q=0.1", vec![Gzip]),
            ("identity;q=0, gzip", vec![Gzip]),
            ("gzip;q=0.001", vec![Gzip]),
            ("gzip;q=0.0001", vec![]),
            ("gzip;q=2", vec![]),
            ("gzip;q=", vec![]),
            ("gzip ; Q = 0.8 , br", vec![Br, Gzip]),
            ("gzip;level=9;q=0", vec![]),
            (",,gzip,,", vec![Gzip]),
        ] {
            assert_eq!(list(value), expected, "{value}");
        }
        assert_eq!(parse(b"br, gzip", &[Gzip, Br]).iter().collect::<Vec<_>>(), [Gzip, Br]);
        assert_eq!(parse(b"br, gzip", &[]), AcceptedEncodings::default());
    }

    #[test]
    fn values_are_remembered_within_bounds() {
        let negotiator = Negotiator::new(&[Gzip]);
        for number in 0..100 {
            let value = format!("gzip, x{number}");
            assert_eq!(negotiator.accepted(Some(value.as_bytes())).iter().collect::<Vec<_>>(), [Gzip]);
        }
        assert_eq!(negotiator.known.borrow().len(), KNOWN_MAX);
        assert_eq!(negotiator.accepted(Some(&[b'x'; 1000])), AcceptedEncodings::default());
        assert_eq!(negotiator.accepted(None), AcceptedEncodings::default());
        assert!(!Negotiator::new(&[]).offers());
    }
}
