//! What a loader prints: whatever the bytes, the launcher gets a list within its limits, and what it would tell of
//! them has no control character.
//!
//! A made-up program chooses the names that its loader prints.

// The launcher is a program, not a library; the parser needs nothing of it.
#[allow(dead_code)]
#[path = "../../crates/supervisor/src/spawn/libraries/listing.rs"]
mod listing;

pub fn fuzz(data: &[u8]) {
    let listing = match listing::parse(data) {
        Ok(listing) => listing,
        Err(fault) => return assert!(!fault.to_string().is_empty()),
    };
    assert!(listing.found.len() + listing.missing.len() <= 256);
    assert!(listing.answered || listing.found.is_empty() && listing.missing.is_empty());
    for text in listing.missing.iter().chain(&listing.remark) {
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.chars().count() <= 200 * 10, "{text:?}");
    }
}
