//! The parts of a structure in DER, as the bytes that they are: what is signed is bytes, not what they mean.
//!
//! Runs in: the stapler; pure. Untrusted input: all of it. Must never: encode again what it has read.

use x509_cert::der::asn1::AnyRef;
use x509_cert::der::{Decode, Reader, Result, SliceReader};

/// The elements of a constructed value, each with its tag and length.
pub(crate) fn parts(der: &[u8]) -> Result<Vec<&[u8]>> {
    let mut reader = SliceReader::new(content(der)?)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(reader.tlv_bytes()?);
    }
    Ok(found)
}

/// What is in a value, without its tag and length.
pub(crate) fn content(der: &[u8]) -> Result<&[u8]> {
    Ok(AnyRef::from_der(der)?.value())
}
