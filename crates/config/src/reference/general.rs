//! The keys of the tables that are not of one site: what docs/configuration.md says of each.
//!
//! Runs in: `cargo test`. Input: none.

use super::row::{KeyRow, Reload, Setter, Unit, rows};
use crate::keys::{limits_keys, restart_keys};
use crate::readers::{Bytes, Bytes32, Count, Duration, ReadElsewhere};
use crate::rules::{
    ACCESS_BYTES, BACKOFF_MAX_MS, BAN_AFTER, BAN_TIME_MS, BODY_BYTES, BROKEN_AFTER, CONNECTIONS,
    DRAIN_TIMEOUT_MS, FIRST_BYTE_TIMEOUT_MS, FLUSH_MS, GATES, HANG_AFTER_MS, HEAD_BYTES, HEAD_TIMEOUT_MS,
    IDLE_STOP_MS, IDLE_TIMEOUT_MS, MIN_RATE, REREAD_MS, START_TIMEOUT_MS, TAMPER_BAN_MS, WITHIN_MS,
};

pub(super) const SERVER: &[KeyRow] = &[
    KeyRow::other(
        "user_range",
        "string, `\"FIRST-LAST\"`",
        "`\"51001-51999\"`",
        "uids (and equal gids) for partitions, from 1000 upwards, without 65534, 65535 and 4294967295; at \
         least one each for 3 roles (4 with TLS), every site, service, data source and filter, what connects them, and the \
         templates of each site. No part of it may be [another server's](guide/operating.md#uids-and-file-permissions). Not used without root",
    ),
    KeyRow::other(
        "state_dir",
        "folder",
        "`\"state\"`",
        "what must outlive a restart: the uid table, whose the names of sites are, files and data of services, and core files. Keep it",
    ).reload(Reload::Restart),
    KeyRow::other(
        "run_dir",
        "folder",
        "`\"run\"`",
        "`admin.sock`, `admin.secret` (what an order begins with), `bulkheadd.pid`, the empty root. The \
         path of `admin.sock` has at most 107 bytes",
    ).reload(Reload::Restart),
    KeyRow::other("log_dir", "folder", "`\"log\"`", "access and error logs").reload(Reload::Logger),
    KeyRow::number("gates", Unit::Count, &GATES, "processes that accept connections")
        .reload(Reload::Restart)
        .absent("one per core"),
    KeyRow::other(
        "isolation",
        "`\"strict\"` or `\"degraded\"`",
        "`\"strict\"`",
        "as root: refuse to start a process one of whose [layers](internals/jail.md) cannot be applied, or \
         start it without, which the start and `bulkhead status` say. Without root it is always degraded",
    ).reload(Reload::Restart),
    KeyRow::other(
        "danger_without",
        "array of layers",
        "`[]`",
        "layers that are left out on purpose, for tests; only with `\"degraded\"`",
    ).reload(Reload::Restart),
    KeyRow::other(
        "start",
        "`\"always\"` or `\"on-demand\"`",
        "`\"always\"`",
        "when the processes of sites start: with the server, or with [the first connection](guide/operating.md#start-on-demand)",
    ).reload(Reload::Sites),
    KeyRow::number(
        "idle_stop",
        Unit::Duration,
        &IDLE_STOP_MS,
        "after how long without a connection processes go that start on demand or are above the least of `workers`",
    ),
];

pub(super) const LISTEN: &[KeyRow] = &[
    KeyRow::other(
        "address",
        "string, `\"IP:PORT\"`",
        "required",
        "port 1 to 65535; no address twice; `\"[::]:80\"` is IPv6 only",
    ),
    KeyRow::other(
        "shared_connections",
        "boolean",
        "`false`",
        "`true` behind a load balancer that mixes users on one connection: the address of the peer then \
         says nothing, so there are no shares, rates and bans here, and services with `takes_connections` \
         are reached through their site's worker",
    )
    .reload(Reload::Sites),
    KeyRow::other(
        "tls",
        "boolean",
        "`false`",
        "connections begin with a TLS handshake. Sites with `certificates` answer here, at least one, \
         and [sites below a path](guide/static.md#sites-below-a-path) of their hosts. A client that names no \
         host (SNI) gets the site whose `host` has `\"*\"`, or else the first one; one that names a host which nobody has gets the alert `unrecognized_name`. Services \
         with `takes_connections` get no connection from here, and filters see no request: with `filters`, \
         `unfiltered` is needed",
    ),
    KeyRow::other(
        "redirect_to_https",
        "boolean",
        "`false`",
        "requests for hosts of sites with `certificates` are answered with 301 (`GET`, `HEAD`) or 308 to \
         `https://`; others as usual. The site answers paths below `/.well-known/acme-challenge/` itself, \
         if it has a `root` or `vhosts`, because an authority that asks there cannot trust a certificate \
         that does not exist yet. Needs a listener with `tls`",
    ),
    KeyRow::other(
        "h2c",
        "boolean",
        "`false`",
        "HTTP/2 without TLS, for clients that begin with its preface. The gate cannot see their host: the \
         connection goes to the site whose `host` has `\"*\"`, or else to the first one of the listener, \
         which answers 421 for hosts that it does not have. Not with `tls`. With `filters`, `unfiltered` \
         is needed: they see requests of HTTP/1.1 alone",
    ),
    KeyRow::other(
        "proxy_protocol",
        "boolean",
        "`false`",
        "connections begin with a header of the PROXY protocol, version 1 or 2, which has the client's \
         address",
    ),
    KeyRow::other(
        "trusted",
        "array of networks",
        "none",
        "the proxies that may send the header, at least one with `proxy_protocol`; connections of others \
         are closed",
    ),
    KeyRow::other(
        "unfiltered",
        "boolean",
        "`false`",
        "with `tls` or `h2c`: connections from here may pass the `filters` by, which see no request on \
         them. Without it, filters and such a listener in one configuration are a mistake. HTTP/1.1 on a \
         listener with `h2c` goes through the filters in any case",
    ),
];

pub(super) const TLS: &[KeyRow] = &[
    KeyRow::other(
        "min_version",
        "`\"1.2\"` or `\"1.3\"`",
        "`\"1.2\"`",
        "the oldest version of TLS that is spoken",
    ),
    KeyRow::number(
        "tamper_ban",
        Unit::Duration,
        &TAMPER_BAN_MS,
        "a client whose records fail to decrypt gets nothing more from this site for so long; `\"0\"` \
         turns it off",
    ),
    KeyRow::other(
        "tamper_exempt",
        "array of networks",
        "`[\"127.0.0.0/8\"]`",
        "clients that are never refused for this; 256 of them, as in `exempt`",
    ).reload(Reload::Gates),
    KeyRow::other(
        "hsts",
        "string",
        "`\"max-age=31536000\"`",
        "the `Strict-Transport-Security` of every answer over TLS; `\"\"` sends none. Printable ASCII, at \
         most 256 bytes",
    ),
    KeyRow::number(
        "reread",
        Unit::Duration,
        &REREAD_MS,
        "how often the files of `certificates`, `client_ca`, `client_crl`, `users` (of `auth`) and, of \
         `[[site.data]]`, `statements`, `password`, `server_ca`, `certificate` and `key` are checked for changes; `bulkhead reload` \
         checks them at once. A changed file is used from then on; a file with a mistake is reported in the \
         error log, and the old contents stay",
    ).reload(Reload::Nothing),
    KeyRow::other(
        "resumption",
        "`\"tickets\"`, `\"stateful\"`, `\"off\"`",
        "`\"tickets\"`",
        "how clients resume a session: by tickets that every worker of the site can read, also after a \
         restart; by the memory of one worker; or not at all",
    ),
    KeyRow::other(
        "ocsp",
        "boolean",
        "`true`",
        "OCSP stapling; needs a responder URL in the certificate ([below](#ocsp-stapling))",
    ).reload(Reload::Stapler),
    KeyRow::other(
        "ocsp_ports",
        "array of 1 to 16 ports",
        "`[80]`",
        "the ports at which responders may be asked",
    )
    .reload(Reload::Stapler),
];

pub(super) const LOG: &[KeyRow] = &[
    KeyRow::other(
        "access_format",
        "`\"common\"`, `\"combined\"`, `\"json\"`",
        "`\"combined\"`",
        "the shape of a line in access logs",
    ),
    KeyRow::number("flush", Unit::Duration, &FLUSH_MS, "the longest that a line waits in memory")
        .reload(Reload::GatesAndSites),
    KeyRow::other(
        "daily",
        "boolean",
        "`false`",
        "a file for each day of UTC: `SITE.access.log.YYYYMMDD`, begun at midnight; `error.log` stays one \
         file",
    ),
    KeyRow::other(
        "error_file",
        "file",
        "`error.log` in `log_dir`",
        "the error log. Its folder belongs to who starts Bulkhead, and nobody else can write there",
    ),
    KeyRow::other(
        "error_syslog",
        "boolean",
        "`false`",
        "lines of the error log go to syslog (`/dev/log`) as well; without a syslog daemon that is said, \
         and it is looked for every minute",
    ),
    KeyRow::number(
        "access_bytes",
        Unit::Size,
        &ACCESS_BYTES,
        "how long a file of an access log may become. Then its site's lines are left out and counted, which the error log says once a \
         minute, until the file is [rotated](guide/operating.md#logs)",
    ),
];

pub(super) const RESTART: &[KeyRow] = restart_keys!(rows);

pub(super) const LIMITS: &[KeyRow] = limits_keys!(rows);

pub(super) const CONDITIONING: &[KeyRow] = &[
    KeyRow::number(
        "first_byte_timeout",
        Unit::Duration,
        &FIRST_BYTE_TIMEOUT_MS,
        "how long a new connection may send nothing at all; it is then closed without a word",
    ),
    KeyRow::number(
        "head_timeout",
        Unit::Duration,
        &HEAD_TIMEOUT_MS,
        "how long a request head may take to arrive, from its first byte; after it, 408",
    ),
    KeyRow::number(
        "body_min_rate",
        Unit::Rate,
        &MIN_RATE,
        "a request body that comes more slowly, for each piece of 64 KiB and beyond 20 s, is given up: \
         408, if the answer has not begun. `\"0B/s\"` asks only that something comes within 30 s",
    ),
    KeyRow::number(
        "response_min_rate",
        Unit::Rate,
        &MIN_RATE,
        "a response that is taken more slowly, in the same way, is cut off",
    ),
    KeyRow::other(
        "priority",
        "`\"recency\"` or `\"fifo\"`",
        "`\"recency\"`",
        "requests that wait for a worker: first those of the address ranges that were served longest ago, \
         or in order",
    ),
    KeyRow::other(
        "share_max",
        "table of numbers, 0 to 1",
        "`{ \"/8\" = 0.25, \"/16\" = 0.15, \"/24\" = 0.10 }`",
        "the part of `connections` that the IPv4 addresses of one range of each kind may hold, counted by \
         each gate for each site; above it, a request waits for up to `start_timeout`, then 503. At most \
         three digits; a kind that is left out has its default; one connection is always allowed",
    ),
    KeyRow::other(
        "share_max_v6",
        "table of numbers, 0 to 1",
        "`{ \"/32\" = 0.25, \"/48\" = 0.15, \"/56\" = 0.10 }`",
        "the same for IPv6",
    ),
    KeyRow::other(
        "checks",
        "`\"strict\"`, `\"standard\"` or `\"lenient\"`",
        "`\"standard\"`",
        "which requests are refused for how they look: [checks](guide/conditioning.md#checks-what-a-request-may-look-like)",
    ),
    KeyRow::other(
        "exempt",
        "array of networks, 256 of them",
        "`[\"127.0.0.0/8\"]`",
        "clients without shares, rates and bans: `\"10.0.0.0/8\"`, `\"2001:db8::/32\"`, or one address. No \
         bit may be set behind those that count",
    ),
    KeyRow::other(
        "rate_max",
        "integer, or `\"100/s\"`, 1 to 1000000",
        "none",
        "requests a second that one client (an IPv4 address, an IPv6 /64) may make of one site, on \
         whatever connections; above it, 429. A service with `takes_connections` is asked as many through \
         each gate, and what comes after the first one on a connection that it keeps is not counted",
    ),
    KeyRow::other(
        "rate_burst",
        "integer, 1 to 1000000",
        "one second of `rate_max`",
        "how many of these may come at once; only with `rate_max`",
    ),
    KeyRow::number(
        "ban_after",
        Unit::Count,
        &BAN_AFTER,
        "offences (malformed, strange, too long and late heads, requests above the rate) within a minute, \
         in one gate, after which a client is banned; 0 for never",
    ),
    KeyRow::number(
        "ban_time",
        Unit::Duration,
        &BAN_TIME_MS,
        "how long a ban lasts: its new connections are closed unread",
    ),
    KeyRow::other(
        "filters",
        "array of filters, 16 of them",
        "`[]`",
        "programs through which every request goes, in this order",
    )
    .reload(Reload::Filters),
];
