//! What services in other languages have of the messages: which constants and edges, and the files that are written of
//! them.
//!
//! Runs in: `cargo test`, in the tests that write these files.

use std::path::PathBuf;

use wire::data::{self, DataProxyToService, ServiceToDataProxy};
use wire::orders::{AdminToService, ServiceToAdmin};
use wire::{ChildToLauncher, FromWorker, LauncherToService, Layout, Message, ToWorker, log};

/// The limits that both sides of a message know.
pub fn constants() -> [(&'static str, usize); 14] {
    [
        ("VERSION", usize::from(wire::VERSION)),
        ("MESSAGE_MAX", wire::MESSAGE_MAX),
        ("BUNDLES_MAX", wire::BUNDLES_MAX),
        ("NUMBERS_MAX", wire::NUMBERS_MAX),
        ("PART_MAX", data::PART_MAX),
        ("PARAMETERS_BYTES_MAX", data::PARAMETERS_BYTES_MAX),
        ("VALUES_MAX", data::VALUES_MAX),
        ("CALLS_MAX", data::CALLS_MAX),
        ("TIMEOUTS_MAX", data::TIMEOUTS_MAX),
        ("WORD_WAIT_MS", data::WORD_WAIT.as_millis() as usize),
        ("LOG_BATCH_MAX", log::BATCH_MAX),
        ("LOG_RECORD_MAX", log::RECORD_MAX),
        ("LOG_TEXT_MAX", log::TEXT_MAX),
        ("ORDER_ANSWER_MAX", wire::orders::ORDER_ANSWER_MAX),
    ]
}

/// The edges that end in a service, with the messages that a service knows of them.
pub fn edges() -> [(&'static str, Vec<Layout>); 8] {
    [
        edge::<LauncherToService>("LAUNCHER_TO_SERVICE", &[]),
        edge::<ChildToLauncher>("CHILD_TO_LAUNCHER", &["Ready", "Counters", "Idle"]),
        edge::<ToWorker>("TO_WORKER", &[]),
        edge::<FromWorker>("FROM_WORKER", &["Returns", "Drain"]),
        edge::<ServiceToDataProxy>("SERVICE_TO_DATA_PROXY", &[]),
        edge::<DataProxyToService>("DATA_PROXY_TO_SERVICE", &[]),
        edge::<AdminToService>("ADMIN_TO_SERVICE", &[]),
        edge::<ServiceToAdmin>("SERVICE_TO_ADMIN", &[]),
    ]
}

/// The messages `of` an edge, or all of them if none is named.
fn edge<M: Message>(name: &'static str, of: &[&str]) -> (&'static str, Vec<Layout>) {
    let layouts = M::layouts();
    let unknown = of.iter().find(|wanted| layouts.iter().all(|layout| layout.name != **wanted));
    assert_eq!(unknown, None, "{name} has no such message");
    let known = layouts.into_iter().filter(|layout| of.is_empty() || of.contains(&layout.name));
    (name, known.collect())
}

/// Whether a file is as it should be; with `BLESS`, makes it so.
pub fn compare(name: &str, wanted: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("BLESS").is_some() {
        if found != wanted {
            std::fs::write(&path, wanted).expect("the file can be written");
        }
        return;
    }
    assert!(found == wanted, "run `BLESS=1 cargo test -p wire` to rewrite {name}");
}
