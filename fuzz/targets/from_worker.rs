//! Messages `FromWorker`: what a gate reads of sites and services, and a site of its services.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::FromWorker>(data);
}
