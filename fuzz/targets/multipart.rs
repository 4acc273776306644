//! Submitted forms with files, in a service: the same parts, however the body arrives.

pub fn fuzz(data: &[u8]) {
    bulkhead_service::fuzz_multipart(data);
}
