//! The messages as services in Python have them: `python/bulkhead_service/_messages.py` is what this writes, and
//! nothing else; and messages as bytes, with which `tests/python/test_wire.py` compares what Python makes of them.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes both files, and `tests/lib/carriers.txt`.

mod peers;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::data::{
    CallFault, DataProxyToService, ResultWriter, ServiceToDataProxy, TOKEN_BYTES, Token, ValueRef,
};
use wire::log::{Level, Record};
use wire::orders::{AdminToService, ServiceToAdmin};
use wire::{
    BrokerToConnector, Bundle, Bundles, Bytes, ChildToLauncher, ConnectorToBroker, Counters, FromConnector,
    FromWorker, Kind, LauncherToService, Layout, Message, Source, Text, ToGuard, ToWorker, WorkerLimits, log,
};

const HEAD: &str = "\"\"\"The messages of a service, as the crate `wire` has them: written by `BLESS=1 cargo test -p wire`, and by nobody else.\"\"\"";

/// What `_codec.py` has for layouts.
const WORDS: [&str; 13] = [
    "ADDRESS", "BOOL", "U8", "U16", "U32", "U64", "Bytes", "Choice", "Edge", "List", "Raw", "Record", "Text",
];

/// Writes the messages of an edge.
fn edge(name: &str, layouts: &[Layout], out: &mut String) {
    let _ = writeln!(out, "{name} = Edge(\"{name}\", VERSION, {{");
    for layout in layouts {
        let fields = layout.fields.iter().map(|(field, kind)| format!("(\"{field}\", {kind}), "));
        let fields: String = fields.collect();
        let _ = writeln!(out, "    {}: (\"{}\", ({})),", layout.number, layout.name, fields.trim_end());
    }
    out.push_str("})\n");
}

fn constants(out: &mut String) {
    for (name, value) in peers::constants() {
        let _ = writeln!(out, "{name} = {value}");
    }
    out.push('\n');
}

fn messages() -> String {
    let body = body();
    let used: HashSet<&str> = body.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let words: Vec<&str> = WORDS.into_iter().filter(|word| used.contains(word)).collect();
    format!("{HEAD}\n\nfrom ._codec import {}\n\n{body}", words.join(", "))
}

fn body() -> String {
    let mut out = String::new();
    constants(&mut out);
    peers::edges().iter().for_each(|(name, layouts)| edge(name, layouts, &mut out));
    out
}

#[test]
fn python_has_the_same_messages() {
    peers::compare("python/bulkhead_service/_messages.py", &messages());
}

/// A line for each message: its edge, and its bytes.
fn sample<M: Message>(edge: &str, messages: &[M], out: &mut String) {
    for message in messages {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        line(edge, &bytes, out);
    }
}

fn line(name: &str, bytes: &[u8], out: &mut String) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let _ = writeln!(out, "{name} {hex}");
}

fn limits() -> LauncherToService {
    let limits = WorkerLimits {
        head_bytes: 32768,
        head_timeout_ms: 10_000,
        body_bytes: 1 << 40,
        idle_timeout_ms: 60_000,
        start_timeout_ms: 5,
        connections: 512,
        flush_ms: 200,
        idle_stop_ms: 0,
    };
    LauncherToService::Limits { limits, site: 7, owns_host: false, dumps: true, jit: false }
}

fn bundle(id: u64, peer: (IpAddr, u16), kind: Kind) -> Bundle {
    let preread = Bytes(b"GET / HTTP/1.1\r\n".to_vec());
    Bundle { id, peer: peer.into(), local: (Ipv4Addr::LOCALHOST, 80).into(), kind, preread }
}

fn samples() -> String {
    let mut out = String::new();
    let (name, token) = (Text::new("catalog"), Token([7; TOKEN_BYTES]));
    let told = [
        limits(),
        LauncherToService::Begin {},
        LauncherToService::Attach { source: Source::Gate },
        LauncherToService::Attach { source: Source::Site },
        LauncherToService::Report {},
        LauncherToService::DataSource { name: name.clone() },
        LauncherToService::DataProxy { name: name.clone(), token: token.clone() },
        LauncherToService::Templates {},
        LauncherToService::Publisher {},
        LauncherToService::Orders {},
    ];
    sample("LAUNCHER_TO_SERVICE", &told, &mut out);
    let counters = Counters { connections_now: 1, connections: 2, requests: u64::MAX };
    let said = [ChildToLauncher::Ready {}, ChildToLauncher::Counters { counters }, ChildToLauncher::Idle {}];
    sample("CHILD_TO_LAUNCHER", &said, &mut out);
    let one = bundle(1, (Ipv4Addr::new(192, 0, 2, 1).into(), 1024), Kind::Relayed);
    let peer = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let two = bundle(u64::MAX, (peer.into(), 65535), Kind::RelayedTls2);
    let bundles = Bundles(vec![one.clone(), two]);
    sample("TO_WORKER", &[ToWorker::Connection { bundle: one }, ToWorker::Connections { bundles }], &mut out);
    let returns = FromWorker::Returns { credits: 64, done: vec![1, u64::MAX] };
    sample("FROM_WORKER", &[returns, FromWorker::Drain {}], &mut out);
    let values = Bytes(vec![0]);
    let calls = [
        ServiceToDataProxy::Login { token },
        ServiceToDataProxy::Call { id: 1, name: name.clone(), complete: false, values: values.clone() },
        ServiceToDataProxy::More { id: 1, complete: true, values },
        ServiceToDataProxy::Cancel { id: 1 },
        ServiceToDataProxy::Pause { id: 1 },
        ServiceToDataProxy::Resume { id: 1 },
        ServiceToDataProxy::Timeouts {},
    ];
    sample("SERVICE_TO_DATA_PROXY", &calls, &mut out);
    let results = Bytes(vec![1, 2]);
    let answers = [
        DataProxyToService::Welcome {},
        DataProxyToService::Part { id: 1, results: results.clone() },
        DataProxyToService::Done { id: 1, results },
        DataProxyToService::Failed { id: 1, fault: CallFault::Late, reason: Text::new("too late") },
        DataProxyToService::Timeouts { usual_ms: 5000 },
        DataProxyToService::Timeout { name, timeout_ms: 500 },
    ];
    sample("DATA_PROXY_TO_SERVICE", &answers, &mut out);
    let (name, argument) = (Text::new("recount"), Text::new("some words"));
    sample(
        "ADMIN_TO_SERVICE",
        &[AdminToService::Diagnostics {}, AdminToService::Order { name, argument }],
        &mut out,
    );
    let failed = ServiceToAdmin::Failed { reason: Text::new("no") };
    sample("SERVICE_TO_ADMIN", &[ServiceToAdmin::Done { text: Text::new("yes") }, failed], &mut out);
    let mut batch = Vec::new();
    log::begin(&mut batch, 9);
    let long = "x".repeat(2 * log::TEXT_MAX);
    for (level, text) in [(Level::Warning, "odd: \u{fc}"), (Level::Info, long.as_str())] {
        log::append(
            &mut batch,
            &Record::Event { time_us: 1_700_000_000_000_000, level, text: text.as_bytes() },
        );
    }
    line("LOG", &batch, &mut out);
    line("RESULTS", &results_of_a_call(), &mut out);
    out
}

/// Two rows with a value of each type, and a statement that has changed seven rows.
fn results_of_a_call() -> Vec<u8> {
    let mut out = Vec::new();
    ResultWriter::columns(&["a", "b", "c", "d", "e"], &mut out);
    for text in ["", "\u{fc} '; --"] {
        ResultWriter::row(&mut out);
        let row = [
            ValueRef::Null,
            ValueRef::Int(i64::MIN),
            ValueRef::Real(-0.5),
            ValueRef::Text(text),
            ValueRef::Blob(&[0, 255]),
        ];
        row.into_iter().for_each(|value| value.put(&mut out));
    }
    ResultWriter::end(0, &mut out);
    ResultWriter::columns(&[], &mut out);
    ResultWriter::end(7, &mut out);
    out
}

#[test]
fn python_has_samples_of_all_messages() {
    peers::compare("tests/python/wire_samples.txt", &samples());
}

/// Messages with which descriptors come along on their way between processes of which neither is the launcher: their
/// type, how many descriptors they are about, and their bytes. `tests/isolation/test_sent_descriptors.py` sends them
/// with descriptors that are none of those.
fn carriers() -> String {
    let client = (Ipv4Addr::new(192, 0, 2, 1).into(), 1024);
    let fresh = |id| Bundle { preread: Bytes(Vec::new()), ..bundle(id, client, Kind::Plain) };
    let to_worker = [Kind::Plain, Kind::Tls, Kind::Http2, Kind::Relayed, Kind::RelayedTls2];
    let mut out = String::new();
    let head = Bytes(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n".to_vec());
    for kind in to_worker {
        sample("ToWorker 1", &[ToWorker::Connection { bundle: bundle(1, client, kind) }], &mut out);
    }
    let whole = Bundle { preread: head.clone(), ..fresh(3) };
    sample("ToWorker 1", &[fresh(2), whole].map(|bundle| ToWorker::Connection { bundle }), &mut out);
    let bundles = Bundles(vec![fresh(4), bundle(5, client, Kind::Plain)]);
    sample("ToWorker 2", &[ToWorker::Connections { bundles }], &mut out);
    let back = |preread| FromWorker::Back { id: 1, preread };
    sample("FromWorker 1", &[back(Bytes(Vec::new())), back(head)], &mut out);
    let address = (Ipv4Addr::LOCALHOST, 1).into();
    let connect = |(id, waits)| BrokerToConnector::Connect { id, address, scope: 0, waits };
    sample("BrokerToConnector 1", &[(1 << 60, false), (2 << 60, true)].map(connect), &mut out);
    sample("BrokerToConnector 1", &[BrokerToConnector::Disconnect { id: 3 << 60 }], &mut out);
    sample("ConnectorToBroker 1", &[ConnectorToBroker::Made { id: 1 }], &mut out);
    sample("FromConnector 1", &[FromConnector::Connected { id: 1 }], &mut out);
    sample("FromConnector 2", &[FromConnector::Aimed { target: 0 }], &mut out);
    let guarded =
        [ToGuard::Listening { number: 1 << 60 }, ToGuard::Accepting { number: 2 << 60 }, ToGuard::Process {}];
    sample("ToGuard 1", &guarded, &mut out);
    out
}

#[test]
fn the_sweep_of_descriptors_has_messages_that_carry_some() {
    peers::compare("tests/lib/carriers.txt", &carriers());
}
