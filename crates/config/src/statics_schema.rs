//! What a valid configuration says of files, routes and who may ask for them.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none, these are results. Must never: be
//! built from anything but a file that passed all checks.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use rewrite::Matcher;

/// An encoding of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Brotli.
    Br,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

/// `compress`: what answers are compressed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// In order of preference; empty: nothing is compressed.
    pub encodings: Vec<Encoding>,
    /// The effort for files, of which the result is kept: 1 to 9.
    pub static_level: u8,
    /// The effort for answers that are made for one request: 1 to 9.
    pub dynamic_level: u8,
    /// What is larger is sent as it is.
    pub max_bytes: u64,
}

/// How a site's files are answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statics {
    /// For how many seconds a copy may be used unasked; 0: never unasked; `None`: nothing is said of it.
    pub cache_control: Option<u32>,
    /// How long, in milliseconds, a cached file is not looked at; `None`: as the server thinks fit.
    pub stat_interval_ms: Option<u32>,
    /// Compression.
    pub compress: Compress,
    /// Pages for errors: a status, and a file below the root.
    pub error_page: Vec<(u16, String)>,
    /// Whether a folder without an index file is listed.
    pub listing: bool,
    /// Names that begin with a dot and are served all the same, beside `.well-known`.
    pub send_hidden: Vec<String>,
    /// Suffixes of scripts whose sources are sent as files.
    pub send_sources: Vec<String>,
    /// Media types by suffix, before those that the server knows.
    pub media_types: Vec<(String, String)>,
}

/// A user and password asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The file with a line `user:bcrypt hash` for each.
    pub users: PathBuf,
    /// What the browser shows.
    pub realm: String,
}

/// Who may ask, and which headers are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Headers of each answer.
    pub headers: Vec<(String, String)>,
    /// Headers of requests, in place of what the client says of them; an empty value: nothing is said.
    pub request_headers: Vec<(String, String)>,
    /// Headers that clients do not see of what backends answer.
    pub hide_headers: Vec<String>,
    /// Networks whose clients may ask, as `ADDRESS/BITS`; with any, others may not.
    pub allow: Vec<String>,
    /// Networks whose clients may not. The longest of both lists that has the client counts.
    pub deny: Vec<String>,
    /// Users who may.
    pub auth: Option<Auth>,
    /// Whether only internal redirects lead here: index files, error pages, rewrites, `X-Accel-Redirect`.
    pub internal: bool,
}

impl Terms {
    /// Whether not everybody may ask.
    pub fn guards(&self) -> bool {
        self.internal || self.auth.is_some() || !self.allow.is_empty() || !self.deny.is_empty()
    }
}

/// Another place that clients are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// A path or a URL, with variables; if it and the route's path end with `/`, what follows the path is added.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Where an upstream listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
    /// TCP, at this port of whatever addresses the name has.
    Name(String, u16),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing special: only its terms count.
    Terms,
    /// Sends clients elsewhere.
    Redirect(Redirect),
    /// Answers as for another path, with variables.
    Rewrite(String),
    /// Answers as for the first of these paths at which there is a file, or as for the last; `=404` there is a status.
    TryFiles(Vec<String>),
    /// HTTP/1.1 to one of these.
    Upstream(Vec<Target>),
    /// FastCGI to one of these.
    Fastcgi(Vec<Target>),
    /// A function of this worker.
    Hook(String),
}

/// `[[site.route]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which requests.
    pub matcher: Matcher,
    /// What is done.
    pub action: Action,
    /// Whether only where there is no such file.
    pub fallback: bool,
    /// Who may ask.
    pub terms: Terms,
    /// The longest body of a request, in bytes; `None`: as of the site.
    pub body_bytes: Option<u64>,
    /// Whether those who answer get the path without the route's.
    pub strip_prefix: bool,
    /// The folder that stands at its path, in place of what the root has there.
    pub alias: Option<PathBuf>,
    /// How its servers are talked to, if it has any.
    pub talk: Talk,
}

/// How the servers of a route are talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talk {
    /// How connections to them begin; HTTP only.
    pub proxy_header: ProxyHeader,
    /// How long an answer may take to begin, and then to go on, in milliseconds.
    pub answer_timeout_ms: u32,
    /// How many requests they may have at once; `None`: their share of the site's connections.
    pub requests: Option<u32>,
    /// Whether they hear of a request when all of its body has come.
    pub buffer: bool,
    /// The script that answers all of the route's requests, as a path below the root; FastCGI only.
    pub script: Option<String>,
}

/// Servers of which any will do, and how they are talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<'s> {
    /// Where they listen; at least one.
    pub servers: &'s [Target],
    /// What they speak.
    pub speech: Speech,
    /// How they are talked to.
    pub talk: &'s Talk,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1.
    Http,
    /// FastCGI.
    FastCgi,
}

/// Which header of the PROXY protocol begins a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// None.
    None,
    /// The line of version 1.
    Version1,
    /// The binary header of version 2.
    Version2,
}
