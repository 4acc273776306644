//! Messages `ToWorker`: what a site reads of gates, and a service of gates and its site.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::ToWorker>(data);
}
