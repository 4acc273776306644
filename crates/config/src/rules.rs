//! Every key of the file, and the bounds and default of every number.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none. Must never: hold a bound that the
//! documentation does not state.

use crate::keys::{key_list, limits_keys, restart_keys, service_keys};
use crate::statics_schema::{Compress, Encoding};

/// The least, the most, and what holds when the key is absent (`None`: it has no fixed default).
pub(crate) struct Bounds {
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) default: Option<u64>,
}

impl Bounds {
    const fn new(min: u64, max: u64, default: u64) -> Bounds {
        Bounds { min, max, default: Some(default) }
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const TIB: u64 = 1024 * 1024 * MIB;

/// LIMIT: 64 gates keep the 64 cores of the largest machine meant busy; each costs a process and its channels.
pub(crate) const GATES: Bounds = Bounds { min: 1, max: 64, default: None };
/// LIMIT: 0 would never answer; each of 64 is a process, and a channel of each gate and each worker that relays to it.
pub(crate) const WORKERS: Bounds = Bounds { min: 1, max: 64, default: None };
/// LIMIT: under a second a worker would go between two requests of a page; over a day it is as good as never.
pub(crate) const IDLE_STOP_MS: Bounds = Bounds::new(SECOND, 24 * HOUR, 10 * MINUTE);
/// LIMIT: under 10 ms a flush is a system call per line; over a minute a crash loses a minute of log.
pub(crate) const FLUSH_MS: Bounds = Bounds::new(10, MINUTE, 1500);
/// LIMIT: 1 means the first crash is final; 1000 is as good as never.
pub(crate) const BROKEN_AFTER: Bounds = Bounds::new(1, 1000, 30);
/// LIMIT: under a second no restart fits in; a day is the longest anyone watches.
pub(crate) const WITHIN_MS: Bounds = Bounds::new(SECOND, 24 * HOUR, 50 * SECOND);
/// LIMIT: under 10 ms a crash loop takes a core; over an hour a restart is better asked for by hand.
pub(crate) const BACKOFF_MAX_MS: Bounds = Bounds::new(10, HOUR, 3 * SECOND);
/// LIMIT: under 5 s a machine that is busy looks hung; over an hour nobody waits.
pub(crate) const HANG_AFTER_MS: Bounds = Bounds::new(5 * SECOND, HOUR, 30 * SECOND);
/// LIMIT: under 100 a busy worker would be replaced all the time.
pub(crate) const MAX_REQUESTS: Bounds = Bounds { min: 100, max: 1 << 40, default: None };
/// LIMIT: under 10 s a worker would be replaced before it is warm; over 30 days it is as good as never.
pub(crate) const MAX_AGE_MS: Bounds = Bounds { min: 10 * SECOND, max: 30 * 24 * HOUR, default: None };
/// LIMIT: under 1 KiB browsers' heads fail; 64 KiB times every connection is memory anyone can demand. 32 KiB is what
/// nginx takes by default.
pub(crate) const HEAD_BYTES: Bounds = Bounds::new(KIB, 64 * KIB, 32 * KIB);
/// LIMIT: under 100 ms distant clients fail; a slow head holds a connection for this long.
pub(crate) const HEAD_TIMEOUT_MS: Bounds = Bounds::new(100, HOUR, 10 * SECOND);
/// LIMIT: as for a head, of which this is the beginning.
pub(crate) const FIRST_BYTE_TIMEOUT_MS: Bounds = Bounds::new(100, HOUR, 10 * SECOND);
/// LIMIT: 0 asks for nothing; above 1 GiB/s no client would ever be served.
pub(crate) const MIN_RATE: Bounds = Bounds::new(0, 1024 * MIB, 500);
/// LIMIT: under 1/s a page with its pictures fails; a million is more than a gate can take from everybody.
pub(crate) const RATE_MAX: Bounds = Bounds { min: 1, max: 1_000_000, default: None };
/// LIMIT: the first request has to come at once; as for the rate.
pub(crate) const RATE_BURST: Bounds = Bounds { min: 1, max: 1_000_000, default: None };
/// LIMIT: 0 is never; a million in a minute is more than a gate notices of one client.
pub(crate) const BAN_AFTER: Bounds = Bounds::new(0, 1_000_000, 100);
/// LIMIT: under a second nobody notices; over a day an address has another owner.
pub(crate) const BAN_TIME_MS: Bounds = Bounds::new(SECOND, 24 * HOUR, 10 * MINUTE);
/// The shares of a large, a middle and a small range of addresses, in thousandths.
pub(crate) const SHARES: [u16; 3] = [250, 150, 100];
/// The networks that are exempt if the file does not say which.
pub(crate) const EXEMPT: [&str; 1] = ["127.0.0.0/8"];
/// LIMIT: each is compared with the address of every connection.
pub(crate) const EXEMPT_MAX: usize = 256;
/// LIMIT: each is a descriptor of the site's worker.
pub(crate) const FOLLOW_LINKS_MAX: usize = 64;
/// LIMIT: every request goes through all of them, one after the other.
pub(crate) const FILTERS_MAX: usize = 16;
/// LIMIT: 0 never bans; above 30 days an address has another owner.
pub(crate) const TAMPER_BAN_MS: Bounds = Bounds::new(0, 30 * 24 * HOUR, 24 * HOUR);
/// LIMIT: each look costs a system call for every file; a certificate that is renewed is old for a month before.
pub(crate) const REREAD_MS: Bounds = Bounds::new(SECOND, 24 * HOUR, HOUR);
/// The port of `http`, at which nearly all responders are.
pub(crate) const OCSP_PORT: u16 = 80;
/// LIMIT: each is one more port that the stapler may connect to, of any address.
pub(crate) const OCSP_PORTS_MAX: usize = 16;
pub(crate) const PORT: Bounds = Bounds { min: 1, max: 65535, default: None };
/// What browsers are told with every answer over TLS if the file does not say.
pub(crate) const HSTS: &str = "max-age=31536000";
/// LIMIT: it is part of every answer's head.
pub(crate) const HSTS_BYTES_MAX: usize = 256;
/// LIMIT: each is compared with the name that a client asks for.
pub(crate) const CERTIFICATES_MAX: usize = 64;
/// LIMIT: one for each authority; each list is looked through for each certificate of a client's chain.
pub(crate) const CLIENT_CRL_MAX: usize = 64;
/// LIMIT: 0 refuses bodies; 1 TiB is far above any upload and far below what u64 arithmetic can overflow.
pub(crate) const BODY_BYTES: Bounds = Bounds::new(0, TIB, 2 * MIB);
/// LIMIT: under 64 KiB a log tells of some hundred requests; a TiB is more than most disks have for logs. 4 GiB are
/// some 30 million lines.
pub(crate) const ACCESS_BYTES: Bounds = Bounds::new(64 * KIB, TIB, 4 * 1024 * MIB);
/// LIMIT: under 1 MiB a handful of forms fills it; as much as the longest body. Without the key, see
/// `SiteLimits::spool_bytes`.
pub(crate) const SPOOL_BYTES: Bounds = Bounds { min: MIB, max: TIB, default: None };
/// LIMIT: under 100 ms kept-alive connections never serve twice; a day is as good as never.
pub(crate) const IDLE_TIMEOUT_MS: Bounds = Bounds::new(100, 24 * HOUR, 60 * SECOND);
/// LIMIT: under 10 ms no worker starts; no client waits an hour.
pub(crate) const START_TIMEOUT_MS: Bounds = Bounds::new(10, HOUR, 10 * SECOND);
/// LIMIT: under 10 ms a reload cuts answers off; over a day old workers pile up.
pub(crate) const DRAIN_TIMEOUT_MS: Bounds = Bounds::new(10, 24 * HOUR, 30 * SECOND);
/// LIMIT: under 10 ms nothing answers; a client has given up long before an hour.
pub(crate) const ANSWER_TIMEOUT_MS: Bounds = Bounds::new(10, HOUR, MINUTE);
/// LIMIT: 16 so that a worker is of use; 16384 stays below the usual 20000-odd descriptors of a process.
pub(crate) const CONNECTIONS: Bounds = Bounds::new(16, 16384, 8192);
/// LIMIT: 0 would be a route that never answers; as many as there can be connections.
pub(crate) const REQUESTS: Bounds = Bounds { min: 1, max: 16384, default: None };
/// LIMIT: no program starts in less than 4 MiB; 16 TiB is above any machine meant.
pub(crate) const MEMORY_MAX: Bounds = Bounds { min: 4 * MIB, max: 16 * TIB, default: None };

/// LIMIT: under 64 KiB there is nothing of use in it; as large as memory can be.
pub(crate) const CORE_MAX: Bounds = Bounds { min: 64 * KIB, max: 16 * TIB, default: None };
/// LIMIT: a program is one process; 32768 is the kernel's usual number of all.
pub(crate) const PROCESSES_MAX: Bounds = Bounds::new(1, 32768, 256);
/// LIMIT: of one core; under 1 nothing starts, and 1024 cores are above any machine meant. LIMIT: with less than 64 MiB
/// a few large calls at once have no room; half of it is SQLite's, which has 16 MiB for one value.
pub(crate) const DATA_MEMORY_MAX: Bounds = Bounds::new(64 * MIB, 16 * TIB, 512 * MIB);
pub(crate) const DATA_CONNECTIONS: Bounds = Bounds { min: 1, max: 64, default: Some(4) };
/// LIMIT: `databases` of redis.conf may be any number; nobody has so many.
pub(crate) const REDIS_DATABASE: Bounds = Bounds { min: 0, max: 65_535, default: Some(0) };
pub(crate) const CPU_PERCENT: Bounds = Bounds { min: 1, max: 102_400, default: None };
/// LIMIT: 0 is "ask every time"; above a year a cache is as good as for ever (RFC 9111 1.2.2 took that for it).
pub(crate) const CACHE_CONTROL_MS: Bounds = Bounds { min: 0, max: 365 * 24 * HOUR, default: None };
/// LIMIT: under a second the cache is of no use; above 15 minutes nobody remembers what was changed.
pub(crate) const STAT_INTERVAL_MS: Bounds = Bounds { min: SECOND, max: 15 * MINUTE, default: None };
/// The effort of compression, as gzip counts it.
pub(crate) const STATIC_LEVEL: Bounds = Bounds::new(1, 9, 9);
/// The same for what is made anew for every request.
pub(crate) const DYNAMIC_LEVEL: Bounds = Bounds::new(1, 9, 2);
/// LIMIT: 0 compresses nothing; above 1 GiB the effort holds up everybody else.
pub(crate) const COMPRESS_BYTES: Bounds = Bounds::new(0, 1024 * MIB, 32 * MIB);
/// A redirect's status, before it is looked for among the few.
pub(crate) const REDIRECT_STATUS: Bounds = Bounds::new(300, 399, 302);

/// Compression where the file says nothing of it.
pub(crate) fn compress() -> Compress {
    Compress {
        encodings: vec![Encoding::Br, Encoding::Zstd, Encoding::Gzip],
        static_level: STATIC_LEVEL.default.unwrap_or(0) as u8,
        dynamic_level: DYNAMIC_LEVEL.default.unwrap_or(0) as u8,
        max_bytes: COMPRESS_BYTES.default.unwrap_or(0),
    }
}

/// The layers of the jail, as `danger_without` names them; the launcher's tests compare them with the jail's.
pub const LAYERS: [&str; 19] = [
    "descriptors",
    "session",
    "pid namespace",
    "cgroup",
    "ipc namespace",
    "uts namespace",
    "network namespace",
    "label",
    "root",
    "directory",
    "keyring",
    "bounding set",
    "identity",
    "capabilities",
    "no_new_privs",
    "parent death",
    "landlock",
    "rlimits",
    "seccomp",
];

/// The default of `user_range`: clear of what distributions give to people and to system services.
pub(crate) const USER_RANGE: std::ops::RangeInclusive<u32> = 51001..=51999;
/// Partitions that exist whatever the file says: gate, logger, admin. The signer is one more, where there is TLS,
/// and the stapler, where there are staples.
pub(crate) const ROLES: usize = 3;
/// LIMIT: sun_path is 108 bytes and must end in NUL (unix(7)).
pub(crate) const SOCKET_PATH_MAX: usize = 107;
/// LIMIT: a thousand sites of a kilobyte each fit; a device or a log given by mistake does not fill memory.
pub const FILE_BYTES_MAX: u64 = 1024 * KIB;
/// LIMIT: sites are numbered with 16 bits, and a change takes a number.
pub(crate) const SITE_FILES_MAX: usize = 50_000;

/// The tables of the file, as an operator writes their headers, and the keys of each.
pub(crate) const TABLES: [Keys; 14] = [
    ROOT,
    SERVER,
    LISTEN,
    TLS,
    LOG,
    RESTART,
    CONDITIONING,
    LIMITS,
    SITE,
    DATA,
    TEMPLATES,
    SERVICE,
    ROUTE,
    COMPRESS,
];

/// Keys that have another name now: the old one, which is still read, and the new one.
pub(crate) const RENAMED: [(&str, &str); 1] = [("max_memory", "recycle_memory")];

/// The name that a key has now, if this is its old one.
pub(crate) fn new_name(key: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == key).map(|(_, new)| *new)
}

/// The name that a key had before, if it had another one.
pub(crate) fn old_name(key: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(_, new)| *new == key).map(|(old, _)| *old)
}

/// A table's header and its keys.
pub(crate) type Keys = (&'static str, &'static [&'static str]);

pub(crate) const ROOT: Keys = (
    "the top level",
    &["include", "server", "listen", "tls", "log", "restart", "limits", "conditioning", "site"],
);
/// A file that `include` names.
pub(crate) const INCLUDED: Keys = ("a file of sites", &["site"]);
pub(crate) const SERVER: Keys = (
    "[server]",
    &[
        "user_range",
        "state_dir",
        "run_dir",
        "log_dir",
        "gates",
        "isolation",
        "danger_without",
        "start",
        "idle_stop",
    ],
);
pub(crate) const LISTEN: Keys = (
    "[[listen]]",
    &[
        "address",
        "shared_connections",
        "tls",
        "redirect_to_https",
        "h2c",
        "proxy_protocol",
        "trusted",
        "unfiltered",
    ],
);
pub(crate) const TLS: Keys = (
    "[tls]",
    &["min_version", "tamper_ban", "tamper_exempt", "hsts", "reread", "resumption", "ocsp", "ocsp_ports"],
);
pub(crate) const LOG: Keys =
    ("[log]", &["access_format", "flush", "daily", "error_file", "error_syslog", "access_bytes"]);
pub(crate) const RESTART: Keys = restart_keys!(key_list);
pub(crate) const LIMITS: Keys = limits_keys!(key_list);
pub(crate) const CONDITIONING: Keys = (
    "[conditioning]",
    &[
        "first_byte_timeout",
        "head_timeout",
        "body_min_rate",
        "response_min_rate",
        "priority",
        "share_max",
        "share_max_v6",
        "checks",
        "exempt",
        "rate_max",
        "rate_burst",
        "ban_after",
        "ban_time",
        "filters",
    ],
);
/// A table among the `filters`; its keys are those of a service as well, where more people look for them.
pub(crate) const FILTER: Keys = ("a table of `filters`", &["command", "read", "jit"]);
/// Tables within `[conditioning]`: their key there, and the ranges that are theirs.
pub(crate) const SHARE_MAX: Keys = ("share_max", &["/8", "/16", "/24"]);
/// The same for IPv6.
pub(crate) const SHARE_MAX_V6: Keys = ("share_max_v6", &["/32", "/48", "/56"]);
pub(crate) const SITE: Keys = (
    "[[site]]",
    &[
        "name",
        "host",
        "listen",
        "path",
        "root",
        "vhosts",
        "follow_links",
        "index",
        "php",
        "redirect",
        "cache_control",
        "stat_interval",
        "compress",
        "error_page",
        "listing",
        "send_hidden",
        "send_sources",
        "media_types",
        "headers",
        "request_headers",
        "hide_headers",
        "allow",
        "deny",
        "auth",
        "certificate",
        "key",
        "certificates",
        "client_ca",
        "client_crl",
        "client_certificates",
        "service",
        "data",
        "templates",
        "route",
        "body_bytes",
        "spool_bytes",
        "idle_timeout",
        "connections",
        "access_log",
        "user",
        "danger_shared_user",
        "worker",
        "start",
        "idle_stop",
        "workers",
        "max_requests",
        "max_age",
        "recycle_memory",
    ],
);
pub(crate) const ROUTE: Keys = (
    "[[site.route]]",
    &[
        "path",
        "suffix",
        "pattern",
        "alias",
        "redirect",
        "rewrite",
        "try_files",
        "upstream",
        "fastcgi",
        "hook",
        "fallback",
        "strip_prefix",
        "headers",
        "request_headers",
        "hide_headers",
        "allow",
        "deny",
        "auth",
        "internal",
        "proxy_protocol",
        "answer_timeout",
        "requests",
        "buffer",
        "body_bytes",
        "script",
    ],
);
/// A table among `certificates`; its keys are those of a site as well.
pub(crate) const CERTIFICATE: Keys = ("a table of `certificates`", &["certificate", "key"]);
/// Tables within those two.
pub(crate) const COMPRESS: Keys =
    ("`compress`", &["encodings", "static_level", "dynamic_level", "max_bytes"]);
pub(crate) const REDIRECT: Keys = ("`redirect`", &["to", "status"]);
pub(crate) const WORKERS_TABLE: Keys = ("`workers`", &["min", "max"]);
pub(crate) const AUTH: Keys = ("`auth`", &["users", "realm"]);
pub(crate) const DATA: Keys = (
    "[[site.data]]",
    &[
        "name",
        "statements",
        "schema",
        "engine",
        "server",
        "server_ca",
        "database",
        "user",
        "password",
        "connections",
        "certificate",
        "key",
        "memory_max",
    ],
);
/// The longest name of a database or of its user; PostgreSQL's have no more bytes, MariaDB's 80.
pub(crate) const LOGIN_NAME_MAX: usize = 63;
pub(crate) const TEMPLATES: Keys = ("[site.templates]", &["folder", "values"]);
/// LIMIT: public values of a site, and bytes of one that is text; `templates` and `wire` have the same.
pub(crate) const PUBLIC_VALUES_MAX: usize = 256;
pub(crate) const PUBLIC_TEXT_MAX: usize = 4096;
pub(crate) const SERVICE: Keys = service_keys!(key_list);
