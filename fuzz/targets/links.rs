//! Links that lead out of a site's folder: whatever their targets are, the way ends, and only names below one of the
//! folders are looked at.

pub fn fuzz(data: &[u8]) {
    request::links::fuzz_links(data);
}
