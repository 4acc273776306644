//! The messages as services in Python have them: `python/bulkhead_service/_messages.py` is what this writes, and nothing else.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes the file.

use std::fmt::Write as _;
use std::path::PathBuf;

use wire::data::{self, DataProxyToService, ServiceToDataProxy};
use wire::{ChildToLauncher, FromWorker, LauncherToService, Message, ToWorker, log};

const HEAD: &str = "\"\"\"The messages of a service, as the crate `wire` has them: written by `BLESS=1 cargo test -p wire`, and by nobody else.\"\"\"

from ._codec import ADDRESS, BOOL, U8, U16, U32, U64, Bytes, Choice, Edge, List, Raw, Record, Text

";

/// Writes the messages `of` an edge, or all of them if none is named.
fn edge<M: Message>(name: &str, of: &[&str], out: &mut String) {
    let _ = writeln!(out, "{name} = Edge(\"{name}\", VERSION, {{");
    let layouts = M::layouts();
    let unknown = of.iter().find(|wanted| layouts.iter().all(|layout| layout.name != **wanted));
    assert_eq!(unknown, None, "{name} has no such message");
    for layout in layouts.into_iter().filter(|layout| of.is_empty() || of.contains(&layout.name)) {
        let fields = layout.fields.iter().map(|(field, kind)| format!("(\"{field}\", {kind}), "));
        let fields: String = fields.collect();
        let _ = writeln!(out, "    {}: (\"{}\", ({})),", layout.number, layout.name, fields.trim_end());
    }
    out.push_str("})\n");
}

fn constants(out: &mut String) {
    let constants = [
        ("VERSION", usize::from(wire::VERSION)),
        ("MESSAGE_MAX", wire::MESSAGE_MAX),
        ("BUNDLES_MAX", wire::BUNDLES_MAX),
        ("NUMBERS_MAX", wire::NUMBERS_MAX),
        ("PART_MAX", data::PART_MAX),
        ("PARAMETERS_BYTES_MAX", data::PARAMETERS_BYTES_MAX),
        ("VALUES_MAX", data::VALUES_MAX),
        ("CALLS_MAX", data::CALLS_MAX),
        ("LOG_BATCH_MAX", log::BATCH_MAX),
        ("LOG_RECORD_MAX", log::RECORD_MAX),
        ("LOG_TEXT_MAX", log::TEXT_MAX),
    ];
    for (name, value) in constants {
        let _ = writeln!(out, "{name} = {value}");
    }
    out.push('\n');
}

fn messages() -> String {
    let mut out = HEAD.to_owned();
    constants(&mut out);
    edge::<LauncherToService>("LAUNCHER_TO_SERVICE", &[], &mut out);
    edge::<ChildToLauncher>("CHILD_TO_LAUNCHER", &["Ready", "Counters", "Idle"], &mut out);
    edge::<ToWorker>("TO_WORKER", &[], &mut out);
    edge::<FromWorker>("FROM_WORKER", &["Returns", "Drain"], &mut out);
    edge::<ServiceToDataProxy>("SERVICE_TO_DATA_PROXY", &[], &mut out);
    edge::<DataProxyToService>("DATA_PROXY_TO_SERVICE", &[], &mut out);
    out
}

#[test]
fn python_has_the_same_messages() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../python/bulkhead_service/_messages.py");
    let (found, wanted) = (std::fs::read_to_string(&path).unwrap_or_default(), messages());
    if std::env::var_os("BLESS").is_some() {
        if found != wanted {
            std::fs::write(&path, wanted).unwrap();
        }
        return;
    }
    assert!(found == wanted, "run `BLESS=1 cargo test -p wire` to rewrite {}", path.display());
}
