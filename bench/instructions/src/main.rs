//! Does one thing a number of times, for its instructions to be counted.
//!
//! Run by `bench/check` under `count.c`: `instructions CASE COUNT FOLDER`. The program stops itself (SIGSTOP) before
//! each of COUNT requests, and after each. What is measured is in the first thread. FOLDER has `cert.pem` and
//! `key.pem`, of a.example. Without arguments the program prints the names of the cases.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use std::path::Path;
use std::sync::Arc;

use instructions::client::{Over, Request, get};
use instructions::connections::{Policies, pass};
use instructions::requests::serve;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How a case is measured.
enum Case {
    Plain(Request),
    Tls(Request),
    Http2(Request),
    Gate(Policies),
}

const SMALL: Request = get("/small.txt");
const SERVICE: Request = get("/svc/");

const CASES: &[(&str, Case)] = &[
    ("static", Case::Plain(SMALL)),
    ("static-head", Case::Plain(Request { method: "HEAD", ..SMALL })),
    ("static-304", Case::Plain(Request { lines: "If-None-Match: *\r\n", status: 304, ..SMALL })),
    ("static-range", Case::Plain(Request { lines: "Range: bytes=0-4\r\n", status: 206, ..SMALL })),
    ("static-404", Case::Plain(Request { status: 404, ..get("/none") })),
    ("static-tls", Case::Tls(SMALL)),
    ("static-http2", Case::Http2(SMALL)),
    ("service", Case::Plain(SERVICE)),
    ("service-http2", Case::Http2(SERVICE)),
    ("upstream", Case::Plain(get("/up/"))),
    ("fastcgi", Case::Plain(get("/run/"))),
    ("gate-policies-on", Case::Gate(Policies::On)),
    ("gate-policies-off", Case::Gate(Policies::Off)),
];

/// The two ends of TLS with the certificate in `folder`.
fn tls(folder: &Path) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count, folder] = &arguments[..] else {
        return CASES.iter().for_each(|(name, _)| println!("{name}"));
    };
    let count = count.parse().expect("how often");
    let (_, case) =
        CASES.iter().find(|(known, _)| known == name).expect("a case that is printed without arguments");
    let mark = || {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP).unwrap();
        0
    };
    match case {
        Case::Plain(request) => serve(*request, Over::Plain, None, count, mark),
        Case::Http2(request) => serve(*request, Over::Http2, None, count, mark),
        Case::Tls(request) => {
            let (server, client) = tls(Path::new(folder));
            serve(*request, Over::Tls(client), Some(server), count, mark)
        }
        Case::Gate(policies) => pass(*policies, count, mark),
    };
}
