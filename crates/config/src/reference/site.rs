//! The keys of `[[site]]` and of the tables in it: what docs/configuration.md says of each.
//!
//! Runs in: `cargo test`. Input: none.

use super::row::{KeyRow, Reload, Setter, Unit, rows};
use crate::keys::service_keys;
use crate::parse::names;
use crate::readers::{
    Count, DoorPlace, Flag, FolderList, GrantList, NameList, OptionalCount, OptionalDuration, OptionalNumber,
    OptionalText, PlacedFlag, ServiceCommand, ServiceName, ServicePath, Size, Variables, WorkerCount,
};
use crate::rules::{
    ANSWER_TIMEOUT_MS, BODY_BYTES, COMPRESS_BYTES, CONNECTIONS, CORE_MAX, CPU_PERCENT, DATA_CONNECTIONS,
    DATA_MEMORY_MAX, DYNAMIC_LEVEL, IDLE_STOP_MS, IDLE_TIMEOUT_MS, MAX_AGE_MS, MAX_REQUESTS, MEMORY_MAX,
    PROCESSES_MAX, REQUESTS, SPOOL_BYTES, STAT_INTERVAL_MS, STATIC_LEVEL,
};

pub(super) const SITE: &[KeyRow] = &[
    KeyRow::other(
        "name",
        "string",
        "required",
        "unique; 1 to 63 of `a-z 0-9 . _ -`, first a letter or digit. It names the log and the uid",
    ),
    KeyRow::other(
        "host",
        "array of strings",
        "required",
        "at least one: a name, `\"*.example.org\"`, an IP address, or `\"*\"`. Without port; any case",
    ),
    KeyRow::other(
        "listen",
        "array of addresses",
        "every listener",
        "the site answers on these only, as in `[\"127.0.0.1:8080\"]`; each is the `address` of a \
         `[[listen]]`, at least one, none twice",
    ),
    KeyRow::other(
        "path",
        "string",
        "`\"/\"`",
        "the site answers below it; begins and ends with `/`. Under TLS the site that has the host, `certificates` and no \
         `path` [relays to it](guide/static.md#sites-below-a-path)",
    ),
    KeyRow::other("root", "folder", "none", "static files"),
    KeyRow::other(
        "vhosts",
        "folder",
        "none",
        "in place of `root`: a folder for each host, \
         [`vhosts/a.test/`](guide/static.md#a-folder-is-a-site). `host` may then be left out, for every \
         host",
    ),
    KeyRow::other(
        "follow_links",
        "array of folders",
        "`[]`",
        "symbolic links in the site's folders may lead into these: \
         [links](guide/static.md#folders-elsewhere-and-links)",
    ),
    KeyRow::other(
        "index",
        "array of file names",
        "`[\"index.html\"]`",
        "tried in this order for a folder; `[]` for none",
    ).tenant(),
    KeyRow::other(
        "cache_control",
        "duration in whole seconds, up to a year",
        "says nothing",
        "how long a browser may use a copy of a file unasked; shared caches three times as long; `\"0s\"` \
         is `no-cache`",
    ).tenant(),
    KeyRow::number(
        "stat_interval",
        Unit::Duration,
        &STAT_INTERVAL_MS,
        "how long a file in the cache is not looked at, if the kernel does not tell of a change before",
    ).tenant()
    .absent("120 s where changes are told, else 1 s"),
    KeyRow::other("compress", "table, or boolean", "all of it", "[below](#compression)").tenant(),
    KeyRow::other(
        "error_page",
        "table of files",
        "none",
        "`{ 404 = \"errors/404.html\" }`: files or scripts below `root`, by status (400 to 599)",
    ).tenant(),
    KeyRow::other(
        "listing",
        "boolean",
        "`false`",
        "a folder without an index file is listed, as JSON for who asks for that",
    ).tenant(),
    KeyRow::other(
        "send_sources",
        "array of suffixes",
        "`[]`",
        "scripts with these suffixes are sent as files, where no route runs them: \
         [scripts](guide/static.md#scripts-and-hidden-files)",
    ).tenant(),
    KeyRow::other(
        "media_types",
        "table of strings",
        "`{}`",
        "media types of files by suffix, before those that are built in: `{ \".wasm\" = \"application/wasm\" }`",
    ).tenant(),
    KeyRow::other(
        "send_hidden",
        "array of names",
        "`[]`",
        "names that begin with a dot and are served all the same, of files or folders; `.well-known` \
         always is",
    ).tenant(),
    KeyRow::other(
        "php",
        "target, or array",
        "none",
        "[an application in PHP](guide/cookbook.md#php) at this php-fpm: scripts below `root` run, `index.php` is the \
         index file and answers for what is no file. Stands for a route with `suffix = \".php\"` and `fastcgi`, \
         and one with `rewrite = \"/index.php\"` and `fallback`; a route of your own for the same `suffix` or \
         `path` takes the place of one",
    ),
    KeyRow::other(
        "redirect",
        "location, or `{ to, status }`",
        "none",
        "every request is sent there, but for files below `/.well-known/acme-challenge/`; status 302 if it \
         does not say",
    ).tenant(),
    KeyRow::other(
        "headers",
        "table of strings",
        "`{}`",
        "header lines of every answer; not those that the server itself writes",
    ).tenant(),
    KeyRow::other(
        "request_headers",
        "table of strings",
        "`{}`",
        "headers of requests for backends and functions, in place of what clients say; `\"\"` takes one away. Not those \
         that the server itself writes: `X-Forwarded-*`, `Forwarded` and what belongs to the body or the connection",
    ).tenant(),
    KeyRow::other(
        "hide_headers",
        "array of names",
        "`[]`",
        "headers of backends' answers that clients do not see, such as `\"X-Powered-By\"`",
    ).tenant(),
    KeyRow::other(
        "`allow`, `deny`",
        "arrays of networks, or `\"all\"`",
        "`[]`",
        "clients that may ask, and that may not: [access rules](guide/static.md#access-rules)",
    ).tenant(),
    KeyRow::other(
        "auth",
        "`{ users, realm }`",
        "none",
        "users with a password; `users` is a file from `htpasswd -B`, outside of `root`",
    ),
    KeyRow::other(
        "certificate",
        "file",
        "none",
        "PEM: the site's certificate with its chain, in any order. The private key is in the same file, or in `key`. Both are \
         opened as root and read by the [signer](internals/tls.md) alone, so mode 0600 will do. Needs a listener with \
         `tls`, and no `path`: [a site below one](guide/static.md#sites-below-a-path) has none. What a certificate has to \
         be: [below](#certificates-and-keys)",
    ),
    KeyRow::other(
        "key",
        "file",
        "none",
        "PEM with the private key, if `certificate` has none: `privkey.pem` beside `fullchain.pem`, as certbot leaves them; \
         ECDSA (P-256, P-384), Ed25519 or RSA (2048 to 4096 bits), not encrypted",
    ),
    KeyRow::other(
        "certificates",
        "array of files or `{ certificate, key }`",
        "none",
        "several in the place of `certificate`, 1 to 64. The one that has the host's name is used, ECDSA before RSA where the \
         client can",
    ),
    KeyRow::other(
        "client_ca",
        "file",
        "none",
        "PEM with authorities: clients are asked for certificates of these. [What they \
         say](guide/proxy.md#clients-certificates) reaches services and servers behind the site",
    ),
    KeyRow::other(
        "client_crl",
        "array of 1 to 64 files",
        "none",
        "lists of what the authorities of `client_ca` have revoked, PEM (any number in a file) or DER \
         (one), at most 8 MiB each: [below](#lists-of-revoked-certificates). Only with `client_ca`",
    ),
    KeyRow::other(
        "client_certificates",
        "`\"require\"` or `\"request\"`",
        "`\"require\"`",
        "whether a client without a certificate is refused; only with `client_ca`",
    ),
    KeyRow::other("service", "`[[site.service]]`", "none", "see below"),
    KeyRow::other("data", "`[[site.data]]`", "none", "see below"),
    KeyRow::other("templates", "`[site.templates]`", "none", "see below").tenant(),
    KeyRow::other("route", "`[[site.route]]`", "none", "see below").tenant(),
    KeyRow::number("body_bytes", Unit::Size, &BODY_BYTES, "the longest body of a request")
        .absent("as of `[limits]`"),
    KeyRow::number(
        "spool_bytes",
        Unit::Size,
        &SPOOL_BYTES,
        "bytes of bodies that wait in files until they are whole, of all the site's workers together; at least the longest \
         `body_bytes` of its routes with `upstream`, `fastcgi` or `php` for each worker: \
         [uploads](guide/proxy.md#uploads)",
    )
    .absent("`1GiB`, or room for four of the longest bodies for each worker"),
    KeyRow::number(
        "idle_timeout",
        Unit::Duration,
        &IDLE_TIMEOUT_MS,
        "the longest that a connection may be silent",
    )
    .absent("as of `[limits]`"),
    KeyRow::number("connections", Unit::Count, &CONNECTIONS, "connections that the site's worker holds at once")
        .absent("as of `[limits]`"),
    KeyRow::other(
        "start",
        "`\"always\"` or `\"on-demand\"`",
        "as of `[server]`",
        "when its processes start: with the server, or with [the first connection](guide/operating.md#start-on-demand)",
    ),
    KeyRow::number(
        "idle_stop",
        Unit::Duration,
        &IDLE_STOP_MS,
        "after how long without a connection one of its processes goes, if it starts on demand or is above the least of `workers`",
    )
    .absent("as of `[server]`"),
    KeyRow::other(
        "access_log",
        "file name",
        "`\"NAME.access.log\"`",
        "its access log in `log_dir`; of `A-Z a-z 0-9 . _ -`; no two sites have the same",
    ),
    KeyRow::other(
        "user",
        "name of an account",
        "none",
        "its worker has the account's uid and gid (of `/etc/passwd`, without other groups) in place of one \
         of `user_range`; never root. Without root it has no effect",
    ),
    KeyRow::other(
        "danger_shared_user",
        "boolean",
        "`false`",
        "`true` in each of several sites that have the same `user`",
    ),
    KeyRow::other(
        "worker",
        "array of strings, a program first",
        "none",
        "a program of your own, and arguments, in place of the usual worker: [a specialised \
         server](guide/hooks.md)",
    ),
];

pub(super) const COMPRESS: &[KeyRow] = &[
    KeyRow::other(
        "encodings",
        "array of `\"br\"`, `\"zstd\"`, `\"gzip\"`",
        "`[\"br\", \"zstd\", \"gzip\"]`",
        "the encodings that are used, the preferred one first",
    )
    .tenant(),
    KeyRow::number(
        "static_level",
        Unit::Count,
        &STATIC_LEVEL,
        "the effort for files, which are compressed once",
    )
    .tenant(),
    KeyRow::number(
        "dynamic_level",
        Unit::Count,
        &DYNAMIC_LEVEL,
        "the effort for answers that are made for each request",
    )
    .tenant(),
    KeyRow::number("max_bytes", Unit::Size, &COMPRESS_BYTES, "what is larger is not compressed").tenant(),
];

pub(super) const ROUTE: &[KeyRow] = &[
    KeyRow::other(
        "`path`, `suffix`",
        "strings",
        "one is required",
        "requests at or below a path (inside the site's), whose last name ends so (`\".php\"`, `\".env\"`), or both; no two \
         routes with the same",
    ).tenant(),
    KeyRow::other(
        "pattern",
        "regular expression",
        "none",
        "in place of `path` and `suffix`: requests in whose decoded path the expression finds something, as in \
         `'^/article/(\\d+)$'`; at most 512 bytes, [its syntax](guide/static.md#patterns)",
    ).tenant(),
    KeyRow::other(
        "alias",
        "folder",
        "none",
        "the files below `path` are those of this folder, in place of what `root` has there: \
         [folders elsewhere](guide/static.md#folders-elsewhere-and-links)",
    ),
    KeyRow::other(
        "redirect",
        "location, or `{ to, status }`",
        "none",
        "sends the client to `to`; `status` is 301, 302, 303, 307 or 308, and 302 if it is left out. If \
         `path` and `to` end with `/`, what follows is added. [Variables](guide/static.md#variables) stand for \
         parts of the request; its query goes along, unless `to` ends with `?`",
    ).tenant(),
    KeyRow::other("rewrite", "path", "none", "answers as for this path, made in the same way").tenant(),
    KeyRow::other(
        "try_files",
        "array of 2 to 8 paths",
        "none",
        "answers as for the first of these paths at which there is a file, or a folder with an index file, or as \
         for the last, which may be a status: `[\"$uri\", \"$uri.html\", \"=404\"]`. A status alone, `[\"=503\"]`, is the answer in \
         any case, also where there is no `root`",
    ).tenant(),
    KeyRow::other(
        "upstream",
        "target, or array",
        "none",
        "passes requests on by HTTP: `\"unix:app.sock\"`, `\"127.0.0.1:3000\"` or `\"app.internal:3000\"`",
    ),
    KeyRow::other("fastcgi", "target, or array", "none", "passes requests on by FastCGI"),
    KeyRow::other("hook", "name", "none", "a function of a worker of your own"),
    KeyRow::other(
        "fallback",
        "boolean",
        "`false`",
        "acts only where there is no such file that may be sent; needs a `root` or `vhosts`. A suffix with \
         `upstream` or `fastcgi` acts with and without: its files are programs",
    ).tenant(),
    KeyRow::other(
        "internal",
        "boolean",
        "`false`",
        "clients get 404; only an index file, an error page, a `rewrite` to a whole path or a server's \
         `X-Accel-Redirect` leads here, as with nginx's `internal`",
    ).tenant(),
    KeyRow::other(
        "strip_prefix",
        "boolean",
        "`false`",
        "with `upstream`, `hook`: they get the path without the route's, and that in `X-Forwarded-Prefix`",
    ).tenant(),
    KeyRow::other(
        "`headers`, `request_headers`, `hide_headers`, `allow`, `deny`, `auth`",
        "as of a site",
        "none",
        "terms for what the route covers",
    ),
    KeyRow::number(
        "answer_timeout",
        Unit::Duration,
        &ANSWER_TIMEOUT_MS,
        "with `upstream`, `fastcgi`: until an answer begins, and for each silence in it",
    ),
    KeyRow::number(
        "requests",
        Unit::Count,
        &REQUESTS,
        "with `upstream`, `fastcgi`: requests that may be with the servers at once, for php-fpm the \
         `pm.max_children` of a pool that is the site's own; the next wait, and get 503 after 10 s: [what goes \
         wrong](guide/proxy.md#what-goes-wrong)",
    )
    .absent("a share of `connections`"),
    KeyRow::other(
        "buffer",
        "boolean",
        "`true`",
        "with `upstream`, `fastcgi`: the servers hear of a request when all of its body has come; `false` passes a body on \
         as it comes: [uploads](guide/proxy.md#uploads)",
    ),
    KeyRow::number("body_bytes", Unit::Size, &BODY_BYTES, "the longest body of a request that the route covers")
        .absent("as of the site"),
    KeyRow::other(
        "proxy_protocol",
        "`\"v1\"` or `\"v2\"`",
        "none",
        "with `upstream`: the header that begins each connection",
    ),
    KeyRow::other("script", "path", "none", "with `fastcgi`: the script below the root that answers"),
];

pub(super) const TEMPLATES: &[KeyRow] = &[
    KeyRow::other(
        "folder",
        "folder",
        "required",
        "[the templates](guide/templates.md) of its services: every file in it and below, but those whose names begin with a \
         dot or end in `~`",
    ),
    KeyRow::other(
        "values",
        "table of strings, integers and booleans",
        "`{}`",
        "at most 256 public values for templates and services; names of letters, digits and `_`; a string has at most 4096 bytes",
    ).tenant(),
];

pub(super) const DATA: &[KeyRow] = &[
    KeyRow::other("name", "string", "required", "unique in its site; the rule of a site's name"),
    KeyRow::other(
        "statements",
        "file",
        "required, but for `\"remote\"`",
        "[the named statements](guide/data.md#statements), and which services may call each; read again when it has changed",
    ),
    KeyRow::other(
        "schema",
        "file",
        "none",
        "SQL that makes the tables of a database that has none; SQLite's alone",
    ),
    KeyRow::other(
        "engine",
        "`\"sqlite\"`, `\"postgresql\"`, `\"mysql\"`, `\"redis\"` or `\"remote\"`",
        "`\"sqlite\"`",
        "what holds the database: [PostgreSQL, MariaDB and MySQL](guide/data.md#postgresql-and-mariadb), [Redis and \
         Valkey](guide/data.md#redis), [a data proxy on another machine](guide/data.md#on-another-machine), which has the \
         statements",
    ),
    KeyRow::other(
        "server",
        "`unix:PATH` or `HOST:PORT`",
        "required for all but SQLite",
        "where it listens; another machine has no `unix:PATH`",
    ),
    KeyRow::other(
        "server_ca",
        "file",
        "none; required for `\"remote\"`",
        "PEM with authorities: TLS is spoken to the server, whose certificate one of these has signed, for the host in `server`",
    ),
    KeyRow::other(
        "`certificate`, `key`",
        "file",
        "required for `\"remote\"`",
        "PEM: what the data proxy shows to a server that asks for a certificate; with `server_ca`",
    ),
    KeyRow::other(
        "database",
        "string, or a number for Redis",
        "required for a server; Redis: 0",
        "what it calls the database",
    ),
    KeyRow::other("user", "string", "required for a server; Redis: none", "as whom the data proxy logs in"),
    KeyRow::other("password", "file", "none", "the password; a line end behind it does not count"),
    KeyRow::number(
        "connections",
        Unit::Count,
        &DATA_CONNECTIONS,
        "to the server; as many calls are under way at once",
    ),
    KeyRow::number(
        "memory_max",
        Unit::Size,
        &DATA_MEMORY_MAX,
        "memory of the data proxy, of which SQLite has half; a call that wants more fails with `TooLarge`",
    ),
];

pub(super) const SERVICE: &[KeyRow] = service_keys!(rows);

/// Keys of a site and of a service alike: how many processes it has, and when one takes the place of another.
pub(super) const PROCESSES: &[KeyRow] = SERVICE.split_at(SERVICE.len() - 4).1;
