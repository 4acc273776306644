//! The parameters of a FastCGI request: CGI's variables.
//!
//! Untrusted input: the head of a request. Must never: let a header take the name of a variable that is ours
//! (`HTTP_PROXY` would send a script's own requests elsewhere).
//!
//! Source: RFC 3875 4.1; the names beyond it are those that PHP looks for.

use std::net::SocketAddr;

use certificate::{CLIENT_CERT, ClientCertificate};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, StatusCode};
use request::fields;
use request::head::{RequestField, RequestHead};

use crate::record::Beginning;

/// Headers that are variables of their own.
const NOT_HTTP: [HeaderName; 3] = [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::HOST];

/// LIMIT: lines of a head that are looked at one by one for another of the same name.
const LINES_MAX: usize = 64;

/// The location of a script, and the path behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_NAME`: the decoded path of the script, from the root.
    pub name: Vec<u8>,
    /// `PATH_INFO`: what follows it, decoded; empty or beginning with `/`.
    pub info: Vec<u8>,
}

/// The variables about us, the connection and the script, which do not depend on the head of the request.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The name of this server.
    pub software: &'a str,
    /// The client's end of its connection.
    pub peer: SocketAddr,
    /// Our end of it.
    pub local: SocketAddr,
    /// Whether the client's connection is under TLS.
    pub tls: bool,
    /// The path of the root directory.
    pub root: &'a str,
    /// The script, by the path that an internal redirect may have led to.
    pub script: &'a Script,
    /// The path of the script's file; below the root at the script's own path if nothing else is said.
    pub filename: Option<&'a [u8]>,
    /// Bytes of the body.
    pub length: Option<u64>,
}

/// The sources of the variables.
#[derive(Debug)]
pub struct ParameterSource<'a> {
    /// The facts that do not stand in the head.
    pub around: Circumstances<'a>,
    /// The head of the request. Its fields may be anything that a client says, but for [`CLIENT_CERT`], which is ours.
    pub parts: &'a mut Parts,
    /// The path and query that the client has asked for, where an internal redirect has led elsewhere.
    pub requested: Option<&'a PathAndQuery>,
    /// The error that the script makes the page of.
    pub failed: Option<StatusCode>,
    /// The value of `Host`.
    pub host: &'a [u8],
    /// Headers that the operator has set, or taken away where the value is empty.
    pub set: &'a [(HeaderName, HeaderValue)],
}

/// The parts of a request's head beside its fields.
struct RequestVariables<'a> {
    is_http2: bool,
    method: &'a str,
    target: &'a str,
    query: &'a str,
    host: &'a [u8],
    failed: StatusCode,
    media: Option<&'a [u8]>,
}

/// The first records of a request, with all of its variables; leaves of its fields those that are passed on.
pub fn begin(request: &mut ParameterSource<'_>) -> Vec<u8> {
    fields::clean_request_except(&mut request.parts.headers, &CLIENT_CERT);
    let mut all = Beginning::new();
    let ParameterSource { around, parts, requested, failed, host, .. } = &*request;
    let said = RequestVariables {
        is_http2: parts.version == http::Version::HTTP_2,
        method: parts.method.as_str(),
        // The client's own target, whatever file that led to.
        target: (*requested).or(parts.uri.path_and_query()).map_or("/", |target| target.as_str()),
        query: parts.uri.query().unwrap_or(""),
        host,
        failed: failed.unwrap_or(StatusCode::OK),
        media: parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes),
    };
    own(&mut all, around, &said, |all| certificate(&parts.headers, all));
    headers(request, &mut all);
    all.finish()
}

/// The same of a request whose fields are those of its lines: whose client has shown no certificate, and which the
/// operator has changed in nothing. In the room of `out`, which is empty. `None` if a line is not for this way: then
/// [`begin`] says what becomes of it.
pub fn begin_of_lines(
    out: Vec<u8>,
    around: &Circumstances<'_>,
    head: &RequestHead<'_>,
    lines: &[RequestField<'_>],
) -> Option<Vec<u8>> {
    let mut all = Beginning::within(out);
    let host = value_of(lines, "host").filter(|host| !host.is_empty() && lines.len() <= LINES_MAX)?;
    let said = RequestVariables {
        is_http2: false,
        method: head.method,
        target: head.target,
        query: head.query.unwrap_or(""),
        host,
        failed: StatusCode::OK,
        media: value_of(lines, "content-type"),
    };
    own(&mut all, around, &said, no_certificate);
    all.set("HTTP_HOST", &[host]);
    for (at, line) in lines.iter().enumerate() {
        if fields::is_about_others(line.name, line.value)
            || lines[..at].iter().any(|other| other.name.eq_ignore_ascii_case(line.name))
        {
            return None;
        }
        let is_own = |name: &HeaderName| name.as_str().eq_ignore_ascii_case(line.name);
        if !NOT_HTTP.iter().any(is_own) && fields::is_passed_on(line.name.as_bytes()) {
            variable(&mut all, line.name, || std::iter::once(line.value));
        }
    }
    Some(all.finish())
}

fn value_of<'a>(lines: &[RequestField<'a>], name: &str) -> Option<&'a [u8]> {
    lines.iter().find(|line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value)
}

/// All variables but those of fields.
fn own(
    all: &mut Beginning,
    around: &Circumstances<'_>,
    said: &RequestVariables<'_>,
    certificate: impl FnOnce(&mut Beginning),
) {
    let Circumstances { software, peer, local, tls, root, script, filename, length } = *around;
    let root = root.as_bytes();
    all.set("GATEWAY_INTERFACE", &[b"CGI/1.1"]);
    all.set("SERVER_SOFTWARE", &[software.as_bytes()]);
    all.set("SERVER_PROTOCOL", &[if said.is_http2 { b"HTTP/2.0" } else { b"HTTP/1.1" }]);
    all.set("REQUEST_METHOD", &[said.method.as_bytes()]);
    all.set("REQUEST_URI", &[said.target.as_bytes()]);
    all.set("QUERY_STRING", &[said.query.as_bytes()]);
    all.set("DOCUMENT_ROOT", &[root]);
    all.set("SCRIPT_NAME", &[&script.name]);
    match filename {
        Some(filename) => all.set("SCRIPT_FILENAME", &[filename]),
        None => all.set("SCRIPT_FILENAME", &[root, &script.name]),
    }
    all.set("DOCUMENT_URI", &[&script.name, &script.info]);
    if !script.info.is_empty() {
        all.set("PATH_INFO", &[&script.info]);
        all.set("PATH_TRANSLATED", &[root, &script.info]);
    }
    all.set("SERVER_NAME", &[without_port(said.host)]);
    all.show("SERVER_ADDR", local.ip().to_canonical());
    all.show("SERVER_PORT", local.port());
    all.show("REMOTE_ADDR", peer.ip().to_canonical());
    all.show("REMOTE_PORT", peer.port());
    all.set("REQUEST_SCHEME", &[if tls { b"https" } else { b"http" }]);
    if tls {
        all.set("HTTPS", &[b"on"]);
        certificate(all);
    }
    // PHP refuses to run without it where it was built to.
    all.set("REDIRECT_STATUS", &[said.failed.as_str().as_bytes()]);
    if let Some(length) = length {
        all.show("CONTENT_LENGTH", length);
    }
    if let Some(media) = said.media {
        all.set("CONTENT_TYPE", &[media]);
    }
}

fn no_certificate(all: &mut Beginning) {
    all.set("SSL_CLIENT_VERIFY", &[b"NONE"]);
}

/// The variables of nginx and Apache for a client's certificate.
fn certificate(headers: &HeaderMap, all: &mut Beginning) {
    if !headers.contains_key(CLIENT_CERT) {
        return no_certificate(all);
    }
    let mut set = |name, value: &[u8]| all.set(name, &[value]);
    // A client without a readable name is nobody.
    let Some(shown) = ClientCertificate::of(headers) else {
        return set("SSL_CLIENT_VERIFY", b"FAILED:it cannot be read");
    };
    set("SSL_CLIENT_VERIFY", b"SUCCESS");
    set("SSL_CLIENT_S_DN", shown.subject().as_bytes());
    set("SSL_CLIENT_I_DN", shown.issuer().as_bytes());
    set("SSL_CLIENT_M_SERIAL", shown.serial().as_bytes());
    set("SSL_CLIENT_SERIAL", shown.serial().as_bytes());
    set("SSL_CLIENT_FINGERPRINT_SHA256", shown.fingerprint().as_bytes());
    set("SSL_CLIENT_V_END", as_openssl(shown.not_after()).as_bytes());
    set("SSL_CLIENT_CERT", shown.pem().as_bytes());
}

/// A time as OpenSSL writes it, `Jan  2 03:04:05 2100 GMT`, and with it nginx and Apache.
fn as_openssl(time: std::time::SystemTime) -> String {
    let text = httpdate::fmt_http_date(time);
    match text.split(' ').collect::<Vec<_>>()[..] {
        [_, day, month, year, clock, zone] => {
            format!("{month} {:>2} {clock} {year} {zone}", day.trim_start_matches('0'))
        }
        _ => text,
    }
}

/// The host without its port.
fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    // Colons in brackets are those of an address.
    colon.filter(|&at| !host[at..].contains(&b']')).map_or(host, |at| &host[..at])
}

/// The client's headers, each under one name, as CGI has no place for several; what the operator has set counts
/// instead.
fn headers(request: &ParameterSource<'_>, all: &mut Beginning) {
    let ParameterSource { parts, set, host, .. } = request;
    let is_set =
        |name: &HeaderName, set: &[(HeaderName, HeaderValue)]| set.iter().any(|(own, _)| own == name);
    if !is_set(&header::HOST, set) {
        all.set("HTTP_HOST", &[host]);
    }
    for name in parts.headers.keys() {
        if !NOT_HTTP.contains(name) && !is_set(name, set) {
            let (values, separator) = (parts.headers.get_all(name), separator(name));
            variable(all, name.as_str(), || {
                values.iter().flat_map(|value| [separator, value.as_bytes()]).skip(1)
            });
        }
    }
    for (at, (name, value)) in set.iter().enumerate() {
        if !value.is_empty() && !is_set(name, &set[at + 1..]) {
            variable(all, name.as_str(), || std::iter::once(value.as_bytes()));
        }
    }
}

/// The separator between the values of a header that has several.
fn separator(name: &HeaderName) -> &'static [u8] {
    if *name == header::COOKIE { b"; " } else { b", " }
}

/// Adds the variable of a header; none of what is no name of a variable, and could become that of another.
fn variable<'a, V: Iterator<Item = &'a [u8]>>(all: &mut Beginning, name: &str, value: impl Fn() -> V) {
    let name = name.as_bytes();
    if name.iter().all(|&byte| byte == b'-' || byte.is_ascii_alphanumeric()) {
        let name = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
        all.add(("HTTP_", name), value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use request::head::{CheckedHead, Room, check_lines};

    use super::*;

    fn found(lines: &[(&str, &str)], uri: &str, secure: bool) -> BTreeMap<String, String> {
        let mut request = http::Request::builder().method("POST").uri(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        found_in(&mut parts, secure, &[])
    }

    fn found_in(
        parts: &mut Parts,
        secure: bool,
        set: &[(HeaderName, HeaderValue)],
    ) -> BTreeMap<String, String> {
        let script = Script { name: b"/a.php".to_vec(), info: b"/in fo".to_vec() };
        let around = around(&script, secure);
        let host = b"a.example:8443";
        let mut request = ParameterSource { around, parts, requested: None, failed: None, host, set };
        read(&begin(&mut request))
    }

    fn around(script: &Script, tls: bool) -> Circumstances<'_> {
        Circumstances {
            software: "bulkhead",
            peer: "192.0.2.1:5".parse().unwrap(),
            local: "[::1]:443".parse().unwrap(),
            tls,
            root: "/srv/www",
            script,
            filename: None,
            length: Some(3),
        }
    }

    fn read(records: &[u8]) -> BTreeMap<String, String> {
        let mut rest = &records[24..records.len() - 8];
        let mut found = BTreeMap::new();
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            let (name, value) = (text(&mut rest, name), text(&mut rest, value));
            assert_eq!(found.insert(name, value), None, "no variable is there twice");
        }
        found
    }

    fn length(rest: &mut &[u8]) -> usize {
        let (length, more) = match *rest {
            [short @ 0..128, more @ ..] => (usize::from(*short), more),
            [a, b, c, d, more @ ..] => (u32::from_be_bytes([*a & 127, *b, *c, *d]) as usize, more),
            _ => panic!("a pair without its lengths"),
        };
        *rest = more;
        length
    }

    fn text(rest: &mut &[u8], length: usize) -> String {
        let (text, more) = rest.split_at(length);
        *rest = more;
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn the_variables_of_a_request() {
        let lines =
            [("accept", "a"), ("accept", "b"), ("cookie", "x=1"), ("cookie", "y=2"), ("content-type", "t/x")];
        let found = found(&lines, "/a.php/in%20fo?q=1", true);
        let expected = [
            ("SCRIPT_FILENAME", "/srv/www/a.php"),
            ("SCRIPT_NAME", "/a.php"),
            ("PATH_INFO", "/in fo"),
            ("PATH_TRANSLATED", "/srv/www/in fo"),
            ("DOCUMENT_ROOT", "/srv/www"),
            ("REQUEST_URI", "/a.php/in%20fo?q=1"),
            ("QUERY_STRING", "q=1"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("SERVER_NAME", "a.example"),
            ("HTTP_HOST", "a.example:8443"),
            ("HTTPS", "on"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "t/x"),
            ("HTTP_ACCEPT", "a, b"),
            ("HTTP_COOKIE", "x=1; y=2"),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn a_script_learns_whether_a_client_has_shown_a_certificate() {
        let verified = |lines: &[(&str, &str)]| found(lines, "/", true).remove("SSL_CLIENT_VERIFY");
        assert_eq!(verified(&[]).as_deref(), Some("NONE"));
        assert_eq!(verified(&[("client-cert", ":AAAA:")]).as_deref(), Some("FAILED:it cannot be read"));
        assert!(!found(&[], "/", false).contains_key("SSL_CLIENT_VERIFY"));
    }

    #[test]
    fn headers_are_variables_with_the_names_of_cgi() {
        let found = found(&[("user-agent", "curl"), ("x-b3-traceid", "7")], "/", false);
        let own = |name: &str| found.get(name).map(String::as_str);
        assert_eq!((own("HTTP_USER_AGENT"), own("HTTP_X_B3_TRACEID")), (Some("curl"), Some("7")));
    }

    #[test]
    fn what_the_operator_sets_counts_and_the_last_of_it() {
        let (mut parts, ()) =
            http::Request::get("/").header("x-a", "1").header("x-b", "2").body(()).unwrap().into_parts();
        let set =
            [("x-a", "own"), ("x-b", "x"), ("x-b", ""), ("x-c", "first"), ("x-c", "last"), ("host", "h")];
        let set = set.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let found = found_in(&mut parts, false, &set);
        let own = |name: &str| found.get(name).map(String::as_str);
        assert_eq!((own("HTTP_X_A"), own("HTTP_X_B"), own("HTTP_X_C")), (Some("own"), None, Some("last")));
        assert_eq!((own("HTTP_HOST"), own("SERVER_NAME")), (Some("h"), Some("a.example")));
    }

    /// The variables of a request, once from its lines, and once from its fields.
    fn both_ways(raw: &str) -> (Option<BTreeMap<String, String>>, BTreeMap<String, String>) {
        let mut room = Room::default();
        let (CheckedHead::Whole(head), lines) = check_lines(raw.as_bytes(), usize::MAX, &mut room) else {
            panic!("{raw}")
        };
        let script = Script { name: b"/a.php".to_vec(), info: b"/in fo".to_vec() };
        let by_lines = begin_of_lines(Vec::new(), &around(&script, true), &head, lines);
        let fields: Vec<_> =
            lines.iter().map(|line| (line.name, std::str::from_utf8(line.value).unwrap())).collect();
        (by_lines.map(|records| read(&records)), found(&fields, head.target, true))
    }

    #[test]
    fn lines_say_what_fields_say() {
        for fields in [
            "",
            "User-Agent: u\r\nACCEPT: */*\r\nContent-Type: t/x; a=\"b\"\r\nCookie: a=1; b=2\r\n",
            "Connection: Keep-Alive, close\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy: http://evil/\r\n",
            "Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nx_real_ip: 6\r\nBulkhead-Client: 6\r\na!b: 1\r\n\
             a.b: 1\r\n",
            "Empty:\r\nX-Forwarded-For: 6.6.6.6\r\nX-Accel-Redirect: /x\r\ncontent_length: 9\r\nX-9: 9\r\n",
        ] {
            let raw = format!(
                "POST /a.php/in%20fo?q=1 HTTP/1.1\r\nhost: a.example:8443\r\n{fields}content-length: 3\r\n\r\n"
            );
            let (lines, fields) = both_ways(&raw);
            assert_eq!(lines, Some(fields), "{raw}");
        }
    }

    #[test]
    fn lines_that_need_each_other_are_left_to_fields() {
        for fields in
            ["Cookie: a\r\ncookie: b", "Connection: x-own\r\nX-Own: 1", "Connection: close\r\nClose: 1"]
        {
            let raw =
                format!("POST / HTTP/1.1\r\nHost: a.example:8443\r\n{fields}\r\nContent-Length: 3\r\n\r\n");
            assert_eq!(both_ways(&raw).0, None, "{raw}");
        }
    }

    #[test]
    fn no_header_takes_the_place_of_a_variable() {
        let lines = [
            ("proxy", "http://evil/"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x_real", "1"),
            ("content_length", "9"),
            ("a!b", "1"),
            ("a.b", "1"),
            ("connection", "x-own"),
            ("x-own", "1"),
            ("content-length", "7"),
        ];
        let found = found(&lines, "/", false);
        let http: Vec<_> = found.keys().filter(|name| name.starts_with("HTTP_")).collect();
        assert_eq!(http, ["HTTP_HOST"]);
        assert!(!found.contains_key("HTTPS"));
    }
}
