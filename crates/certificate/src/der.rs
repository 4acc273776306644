//! The parts of a structure in DER, as the bytes that they are: what is signed is bytes, not what they mean.
//!
//! Runs in: site workers, services, the signer, the stapler; pure. Untrusted input: all of it. Must never: encode again
//! what it has read, or make room for bytes that are not there.

use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode, Error, ErrorKind, Reader, Result, SliceReader};

/// LIMIT: how deep structures are nested; certificates have about 10.
const DEPTH_MAX: usize = 24;
/// The bit of a tag that says that there are elements inside (X.690 8.1.2.5).
const CONSTRUCTED: u8 = 0x20;

/// The elements of a constructed value, each with its tag and length.
///
/// # Errors
/// It is no such value.
pub fn parts(der: &[u8]) -> Result<Vec<&[u8]>> {
    let mut reader = SliceReader::new(content(der)?)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(reader.tlv_bytes()?);
    }
    Ok(found)
}

/// The content of a value, without its tag and length.
///
/// # Errors
/// It is no value, or something follows it.
pub fn content(der: &[u8]) -> Result<&[u8]> {
    Ok(AnyRef::from_der(der)?.value())
}

/// Reads a structure.
///
/// SECURITY: the library makes room for a string by the length that it claims, up to 256 MiB, before it looks whether
/// that is there. So it gets only what fits, at every level.
///
/// # Errors
/// It is something else, or elements are nested more than 24 deep.
pub fn decode<'a, T: Decode<'a>>(der: &'a [u8]) -> Result<T> {
    fits(der, DEPTH_MAX)?;
    T::from_der(der)
}

fn fits(der: &[u8], depth: usize) -> Result<()> {
    if depth == 0 {
        return Err(Error::from(ErrorKind::Overlength));
    }
    match der.first() {
        Some(tag) if tag & CONSTRUCTED != 0 => {
            parts(der)?.into_iter().try_for_each(|part| fits(part, depth - 1))
        }
        _ => content(der).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_cert::der::asn1::{Any, OctetString};

    #[test]
    fn only_what_fits_is_read() {
        assert_eq!(decode::<OctetString>(&[4, 2, 7, 8]).map(|read| read.as_bytes().to_vec()), Ok(vec![7, 8]));
        // 16 MiB are claimed, at the top and further in.
        assert!(fits(&[4, 0x83, 0xff, 0xff, 0xff, 1], DEPTH_MAX).is_err());
        assert!(fits(&[0x30, 6, 4, 0x83, 0xff, 0xff, 0xff, 1], DEPTH_MAX).is_err());
        assert!(fits(&[0x30, 4, 4, 2, 7, 8], DEPTH_MAX).is_ok());
        assert!(fits(&[4, 1, 7, 8], DEPTH_MAX).is_err(), "something follows");
        let nested = |levels: usize| {
            (0..levels).fold(vec![5, 0], |inner, _| [&[0x30, inner.len() as u8], &inner[..]].concat())
        };
        assert!(fits(&nested(DEPTH_MAX - 1), DEPTH_MAX).is_ok());
        assert!(fits(&nested(DEPTH_MAX), DEPTH_MAX).is_err());
        assert!(Any::from_der(&nested(DEPTH_MAX)).is_ok() && decode::<Any>(&nested(DEPTH_MAX)).is_err());
    }
}
