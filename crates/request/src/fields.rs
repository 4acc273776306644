//! Which header fields of a message go on to the next reader, and which are ours alone to say.
//!
//! Runs in: site workers, and services of the SDK; pure, no input or output. Untrusted input: all fields. Must never:
//! let a client say in our name who it is, or what it has asked for.
//!
//! One policy, whoever answers: a service behind a site's worker, a service that the gate gives connections to, an
//! upstream, a FastCGI server, a function of a worker. docs/guide/proxy.md has the table; a test compares them.

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Uri};

/// The client's address, as `IP:PORT`, in what a site's worker sends to a service.
pub const CLIENT: HeaderName = HeaderName::from_static("bulkhead-client");

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields of a request that are not passed on for one reason.
#[derive(Debug)]
pub struct Withheld {
    /// The meaning of these fields.
    pub what: &'static str,
    /// Their names.
    pub names: &'static [&'static str],
    /// The prefixes of families of names.
    pub families: &'static [&'static str],
    /// Why.
    pub why: &'static str,
}

/// The fields that belong to one connection (RFC 9110 7.6.1).
const OF_CONNECTION: [&str; 11] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The fields that are taken out of every request before a backend reads it. Names with `_` go as well: CGI and its
/// descendants take them for the same with `-`.
pub const WITHHELD: [Withheld; 8] = [
    Withheld {
        what: "what belongs to the client's connection, and what `Connection` names",
        names: &OF_CONNECTION,
        families: &[],
        why: "RFC 9110 7.6.1; `Upgrade` is set anew for a WebSocket",
    },
    Withheld {
        what: "an expectation",
        names: &["expect"],
        families: &[],
        why: "the client has its `100 Continue` from us",
    },
    Withheld {
        what: "the client's address",
        names: &[
            "cf-connecting-ip",
            "cf-connecting-ipv6",
            "client-ip",
            "do-connecting-ip",
            "fastly-client-ip",
            "fly-client-ip",
            "forwarded",
            "forwarded-for",
            "proxy-client-ip",
            "true-client-ip",
            "x-appengine-user-ip",
            "x-azure-clientip",
            "x-azure-socketip",
            "x-client-ip",
            "x-cluster-client-ip",
            "x-envoy-external-address",
            "x-forwarded",
            "x-nf-client-connection-ip",
            "x-originating-ip",
            "x-proxyuser-ip",
            "x-real-ip",
        ],
        families: &["bulkhead-", "wl-proxy-", "x-forwarded-", "x-remote-"],
        why: "a proxy in front says it, and we are that proxy",
    },
    Withheld {
        what: "the client's certificate, and whether there is TLS",
        names: &[
            "client-cert",
            "client-cert-chain",
            "front-end-https",
            "x-arr-clientcert",
            "x-arr-ssl",
            "x-client-dn",
            "x-client-verify",
            "x-scheme",
            "x-url-scheme",
        ],
        families: &["ssl-", "x-amzn-mtls-", "x-client-cert", "x-ssl-", "x-tls-"],
        why: "the same; other names that begin with `X-Client-` are the applications' own",
    },
    Withheld {
        what: "who has logged in",
        names: &["remote-email", "remote-groups", "remote-name", "remote-user"],
        families: &[
            "x-auth-request-",
            "x-authenticated-",
            "x-goog-authenticated-user-",
            "x-ms-client-principal",
            "x-webauth-",
        ],
        why: "the same",
    },
    Withheld {
        what: "another host or path than the one that the rules were asked about",
        names: &["x-host", "x-http-host-override"],
        families: &["x-original-", "x-rewrite-"],
        why: "frameworks answer for it in place of the path that has passed the rules",
    },
    Withheld {
        what: "words between a server and its own proxy",
        names: &["x-middleware-subrequest"],
        families: &["x-accel-", "x-sendfile"],
        why: "they choose the files that are sent (Rack), or leave out checks (Next.js)",
    },
    Withheld {
        what: "a proxy for the server's own requests",
        names: &["proxy"],
        families: &[],
        why: "as CGI's `HTTP_PROXY`, programs believe it",
    },
];

/// The fields by which a server speaks to its proxy, in an answer.
const WITHHELD_OF_ANSWERS: [&str; 3] = ["bulkhead-", "x-accel-", "x-sendfile"];

/// RFC 9110 6.5.1: what must be known before the body, and is not to be had from a trailer.
const NOT_IN_TRAILERS: [HeaderName; 19] = [
    header::AGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::DATE,
    header::EXPIRES,
    header::HOST,
    header::LOCATION,
    header::RETRY_AFTER,
    header::SERVER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::VARY,
    header::WARNING,
    header::WWW_AUTHENTICATE,
    header::CONTENT_SECURITY_POLICY,
];

/// Names of fields, and what the names of families begin with, by their first letter. The case makes no difference.
struct FieldNames([Vec<(&'static [u8], Is)>; 26]);

/// The meaning of a text of [`FieldNames`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Name,
    Family,
}

impl FieldNames {
    fn new(names: &[&'static str], families: &[&'static str]) -> Self {
        let names = names.iter().map(|name| (name.as_bytes(), Is::Name));
        let mut by_letter = Self(Default::default());
        for (text, is) in names.chain(families.iter().map(|family| (family.as_bytes(), Is::Family))) {
            // INVARIANT: all of them begin with a letter.
            if let Some(those) = by_letter.0.get_mut(letter(text)) {
                those.push((text, is));
            }
        }
        by_letter
    }

    fn contains(&self, name: &[u8]) -> bool {
        let is_named = |&(text, is): &(&[u8], Is)| {
            let begin = if is == Is::Family { name.get(..text.len()).unwrap_or_default() } else { name };
            begin.eq_ignore_ascii_case(text)
        };
        self.0.get(letter(name)).is_some_and(|those| those.iter().any(is_named))
    }
}

/// The number of the first letter of a name; one that no letter has, for other names.
fn letter(name: &[u8]) -> usize {
    name.first().map_or(usize::MAX, |first| first.to_ascii_lowercase().wrapping_sub(b'a').into())
}

static NAMES_OF_CONNECTION: LazyLock<FieldNames> = LazyLock::new(|| FieldNames::new(&OF_CONNECTION, &[]));
static NAMES_WITHHELD: LazyLock<FieldNames> = LazyLock::new(|| {
    let all =
        |part: fn(&Withheld) -> &'static [&'static str]| WITHHELD.iter().flat_map(part).copied().collect();
    let (names, families): (Vec<_>, Vec<_>) =
        (all(|withheld| withheld.names), all(|withheld| withheld.families));
    FieldNames::new(&names, &families)
});
static NAMES_WITHHELD_OF_ANSWERS: LazyLock<FieldNames> =
    LazyLock::new(|| FieldNames::new(&OF_CONNECTION, &WITHHELD_OF_ANSWERS));

/// Whether a client's field of this name, in whatever case, is passed on, unless `Connection` names it.
pub fn is_passed_on(name: &[u8]) -> bool {
    !name.contains(&b'_') && !NAMES_WITHHELD.contains(name)
}

/// The same of the field of an answer.
pub fn is_passed_back(name: &[u8]) -> bool {
    !NAMES_WITHHELD_OF_ANSWERS.contains(name)
}

/// Leaves of a client's request what is its own to say.
pub fn clean_request(headers: &mut HeaderMap) {
    clean(headers, is_passed_on);
}

/// The same, but leaves the one field `ours`, which we have set.
pub fn clean_request_except(headers: &mut HeaderMap, ours: &HeaderName) {
    let value = headers.remove(ours);
    clean_request(headers);
    headers.extend(value.map(|value| (ours.clone(), value)));
}

/// Leaves of an answer what is for the client.
pub fn clean_answer(headers: &mut HeaderMap) {
    clean(headers, is_passed_back);
}

/// Leaves of the trailers of an answer what may stand there.
pub fn clean_trailers(headers: &mut HeaderMap) {
    clean_answer(headers);
    NOT_IN_TRAILERS.iter().for_each(|name| drop(headers.remove(name)));
}

/// The options of `Connection` (RFC 9110 7.6.1).
pub fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(header::CONNECTION).iter().flat_map(|line| options_of_line(line.as_bytes()))
}

/// The options of one line of `Connection`.
pub fn options_of_line(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Whether a field of a request may keep others from being passed on, by options that it has beyond those that all
/// clients send; or be kept from it by one of these, whose name it has. (`Keep-Alive` is passed on by nobody.)
pub fn is_about_others(name: &str, value: &[u8]) -> bool {
    let is_usual =
        |option: &[u8]| option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive");
    match name.len() {
        5 => name.eq_ignore_ascii_case("close"),
        10 => name.eq_ignore_ascii_case("connection") && !options_of_line(value).all(is_usual),
        _ => false,
    }
}

/// Whether `Connection` has this option.
pub fn has_option(headers: &HeaderMap, name: &[u8]) -> bool {
    options(headers).any(|option| option.eq_ignore_ascii_case(name))
}

/// RFC 9110 7.6.1: removes what belongs to one connection, and what its `Connection` names.
pub fn remove_of_connection(headers: &mut HeaderMap) {
    clean(headers, |name| !NAMES_OF_CONNECTION.contains(name));
}

/// Leaves what `stays`, in one pass, but for what `Connection` names.
fn clean(headers: &mut HeaderMap, stays: impl Fn(&[u8]) -> bool) {
    // SECURITY: the end of a body, and whom a request is for, are not a matter of connections: a client could have them
    // left out for those behind us.
    const KEPT: [HeaderName; 2] = [header::CONTENT_LENGTH, header::HOST];
    // Looked up by the options, of which there may be thousands, not for each field among all of them.
    let named = options(headers).filter_map(|option| std::str::from_utf8(option).ok());
    let named = named.filter(|option| headers.contains_key(*option));
    let named = named.filter_map(|option| option.parse().ok()).filter(|name| !KEPT.contains(name));
    let goes = |name: &&HeaderName| !stays(name.as_str().as_bytes());
    let names: Vec<HeaderName> = headers.keys().filter(goes).cloned().chain(named).collect();
    for name in &names {
        headers.remove(name);
    }
}

/// The value of `Content-Length`: a number as RFC 9110 8.6 has it, in its one spelling.
pub fn length(value: &[u8]) -> Option<u64> {
    // LIMIT: 18 digits cannot overflow, and are more than any body here.
    let is_number = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    // SECURITY: to some readers, what begins with a nought is octal.
    let is_plain = value.len() == 1 || value.first() != Some(&b'0');
    let sum = || value.iter().fold(0, |sum, &digit| sum * 10 + u64::from(digit - b'0'));
    (is_number && is_plain).then(sum)
}

/// Makes the target of a request a path, and its host the one value of `Host`; the host, if it has one.
pub fn settle_host<B>(request: &mut Request<B>) -> Option<HeaderValue> {
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(host)) = authority {
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        request.headers_mut().insert(header::HOST, host);
    }
    request.headers().get(header::HOST).filter(|host| !host.is_empty()).cloned()
}

/// The client of a request, and how it asks.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedOrigin {
    /// The client.
    pub peer: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// Says in a cleaned request who asks, how, and for which host: each field with one value, ours.
pub fn set_forwarded(headers: &mut HeaderMap, origin: ForwardedOrigin, host: Option<HeaderValue>) {
    let mut set = |name: HeaderName, push: &dyn Fn(&mut Vec<u8>)| {
        let mut value = Vec::with_capacity(VALUE_BYTES);
        push(&mut value);
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            headers.insert(name, value);
        }
    };
    let text = host.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
    set(header::FORWARDED, &|value| push_forwarded(value, origin, text));
    set(X_FORWARDED_FOR, &|value| push_address(value, origin.peer.ip().to_canonical()));
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(origin.scheme));
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Appends the lines of HTTP/1.1 that say the same as [`set_forwarded`].
pub fn push_forwarded_lines(out: &mut Vec<u8>, origin: ForwardedOrigin, host: &[u8]) {
    out.extend_from_slice(b"forwarded: ");
    push_forwarded(out, origin, host);
    out.extend_from_slice(b"\r\nx-forwarded-for: ");
    push_address(out, origin.peer.ip().to_canonical());
    out.extend_from_slice(b"\r\nx-forwarded-proto: ");
    out.extend_from_slice(origin.scheme.as_bytes());
    out.extend_from_slice(b"\r\nx-forwarded-host: ");
    out.extend_from_slice(host);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line of [`CLIENT`].
pub fn push_client_line(out: &mut Vec<u8>, client: SocketAddr) {
    // INVARIANT: a `Vec` takes whatever is written.
    let _ = write!(out, "{}: {client}\r\n", CLIENT.as_str());
}

/// Takes out again what [`set_forwarded`] has said, for a reader that says it itself.
pub fn remove_forwarded(headers: &mut HeaderMap) {
    [header::FORWARDED, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST]
        .iter()
        .for_each(|name| drop(headers.remove(name)));
}

/// Room for the value of `Forwarded` with most hosts.
const VALUE_BYTES: usize = 96;

/// RFC 7239 4: who asked, how, and for what.
fn push_forwarded(out: &mut Vec<u8>, origin: ForwardedOrigin, host: &[u8]) {
    out.extend_from_slice(b"for=");
    match origin.peer.ip().to_canonical() {
        address @ IpAddr::V4(_) => push_address(out, address),
        address @ IpAddr::V6(_) => {
            out.extend_from_slice(b"\"[");
            push_address(out, address);
            out.extend_from_slice(b"]\"");
        }
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(origin.scheme.as_bytes());
    // A quoted string; a host that could end it is left out.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t') && !matches!(byte, b'"' | b'\\');
    if !host.is_empty() && host.iter().all(is_plain) {
        for part in [b";host=\"", host, b"\""] {
            out.extend_from_slice(part);
        }
    }
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    // INVARIANT: a `Vec` takes whatever is written.
    let _ = write!(out, "{address}");
}
