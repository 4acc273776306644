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

/// Names and values.
pub type Parameters = Vec<(Vec<u8>, Vec<u8>)>;

/// Headers that are variables of their own.
const NOT_HTTP: [HeaderName; 3] = [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::HOST];

/// What a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_NAME`: the decoded path of the script, from the root.
    pub name: Vec<u8>,
    /// `PATH_INFO`: what follows it, decoded; empty or beginning with `/`.
    pub info: Vec<u8>,
}

/// What the variables are made of.
#[derive(Debug)]
pub struct Request<'a> {
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
    /// The head of the request. Its fields may be anything that a client says, but for [`CLIENT_CERT`], which is ours.
    pub parts: &'a Parts,
    /// The path and query that the client has asked for, where an internal redirect has led elsewhere.
    pub requested: Option<&'a PathAndQuery>,
    /// The error that the script makes the page of.
    pub failed: Option<StatusCode>,
    /// Bytes of the body.
    pub length: Option<u64>,
    /// The value of `Host`.
    pub host: &'a [u8],
    /// Headers that the operator has set, or taken away where the value is empty.
    pub set: &'a [(HeaderName, HeaderValue)],
}

/// All variables of a request.
pub fn parameters(request: &Request<'_>) -> Parameters {
    let mut all: Parameters = Vec::with_capacity(48);
    let mut set = |name: &str, value: &[u8]| all.push((name.into(), value.to_vec()));
    let Request {
        software,
        peer,
        local,
        tls,
        root,
        script,
        filename,
        parts,
        requested,
        failed,
        length,
        host,
        set: own,
    } = *request;
    let below = |path: &[u8]| [root.as_bytes(), path].concat();
    // What the client has asked for, whatever file that led to.
    let target = requested.or(parts.uri.path_and_query()).map_or("/", |target| target.as_str());
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set("SERVER_SOFTWARE", software.as_bytes());
    set("SERVER_PROTOCOL", if parts.version == http::Version::HTTP_2 { b"HTTP/2.0" } else { b"HTTP/1.1" });
    set("REQUEST_METHOD", parts.method.as_str().as_bytes());
    set("REQUEST_URI", target.as_bytes());
    set("QUERY_STRING", parts.uri.query().unwrap_or("").as_bytes());
    set("DOCUMENT_ROOT", root.as_bytes());
    set("SCRIPT_NAME", &script.name);
    set("SCRIPT_FILENAME", &filename.map_or_else(|| below(&script.name), <[u8]>::to_vec));
    set("DOCUMENT_URI", &[&script.name[..], &script.info[..]].concat());
    if !script.info.is_empty() {
        set("PATH_INFO", &script.info);
        set("PATH_TRANSLATED", &below(&script.info));
    }
    set("SERVER_NAME", without_port(host));
    set("SERVER_ADDR", local.ip().to_canonical().to_string().as_bytes());
    set("SERVER_PORT", local.port().to_string().as_bytes());
    set("REMOTE_ADDR", peer.ip().to_canonical().to_string().as_bytes());
    set("REMOTE_PORT", peer.port().to_string().as_bytes());
    set("REQUEST_SCHEME", if tls { b"https" } else { b"http" });
    if tls {
        set("HTTPS", b"on");
        certificate(&parts.headers, &mut set);
    }
    // PHP refuses to run without it where it was built to.
    set("REDIRECT_STATUS", failed.unwrap_or(StatusCode::OK).as_str().as_bytes());
    if let Some(length) = length {
        set("CONTENT_LENGTH", length.to_string().as_bytes());
    }
    if let Some(media) = parts.headers.get(header::CONTENT_TYPE) {
        set("CONTENT_TYPE", media.as_bytes());
    }
    set("HTTP_HOST", host);
    headers(&parts.headers, &mut all);
    for (name, value) in own {
        let Some(variable) = variable(name) else { continue };
        all.retain(|(known, _)| *known != variable);
        if !value.is_empty() {
            all.push((variable, value.as_bytes().to_vec()));
        }
    }
    all
}

/// What nginx and Apache say of a client's certificate under these names.
fn certificate(headers: &HeaderMap, set: &mut impl FnMut(&str, &[u8])) {
    if !headers.contains_key(CLIENT_CERT) {
        return set("SSL_CLIENT_VERIFY", b"NONE");
    }
    // Who cannot be told by name is nobody.
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

/// The client's headers, each under one name, as CGI has no place for several.
fn headers(headers: &HeaderMap, all: &mut Parameters) {
    let mut own = headers.clone();
    fields::clean_request_except(&mut own, &CLIENT_CERT);
    for name in own.keys().filter(|name| !NOT_HTTP.contains(name)) {
        let separator: &[u8] = if *name == header::COOKIE { b"; " } else { b", " };
        let values: Vec<&[u8]> = own.get_all(name).iter().map(|value| value.as_bytes()).collect();
        all.extend(variable(name).map(|variable| (variable, values.join(separator))));
    }
}

/// The variable of a header; none for what is no name of a variable, and could become that of another.
fn variable(name: &HeaderName) -> Option<Vec<u8>> {
    let byte = |byte| match byte {
        b'-' => Some(b'_'),
        byte if byte.is_ascii_alphanumeric() => Some(byte.to_ascii_uppercase()),
        _ => None,
    };
    let name: Vec<u8> = name.as_str().bytes().map(byte).collect::<Option<_>>()?;
    Some([&b"HTTP_"[..], &name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[(&str, &str)], uri: &str, secure: bool) -> std::collections::BTreeMap<String, String> {
        let mut request = http::Request::builder().method("POST").uri(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let script = Script { name: b"/a.php".to_vec(), info: b"/in fo".to_vec() };
        let request = Request {
            software: "bulkhead",
            peer: "192.0.2.1:5".parse().unwrap(),
            local: "[::1]:443".parse().unwrap(),
            tls: secure,
            root: "/srv/www",
            script: &script,
            filename: None,
            parts: &parts,
            requested: None,
            failed: None,
            length: Some(3),
            host: b"a.example:8443",
            set: &[],
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let all = parameters(&request);
        let count = all.len();
        let map: std::collections::BTreeMap<_, _> =
            all.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        assert_eq!(map.len(), count, "no variable is there twice");
        map
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
