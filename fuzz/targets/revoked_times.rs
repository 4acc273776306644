//! Lists of revoked certificates, in a site worker: from when on and until when they hold.

pub fn fuzz(data: &[u8]) {
    if let Ok((since, until)) = certificate::crl::times(data) {
        // Times of X.509 end with the year 9999.
        assert!(since.max(until) < 253_402_300_800);
    }
}
