//! Messages `StaplerToSite`: what a site reads of the stapler.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::stapler::StaplerToSite>(data);
}
