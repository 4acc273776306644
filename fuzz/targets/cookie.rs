//! Cookies with a user's key, in a service: only what the service could have issued is a key.

pub fn fuzz(data: &[u8]) {
    bulkhead_service::fuzz_cookie(data);
}
