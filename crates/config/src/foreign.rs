//! Keys of other servers' configurations, and what this one has in their place.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: an unknown key of the operator's file. Must never:
//! name a key of ours that does not exist; the tests read every line of the table as a configuration.

use crate::rules::{CONDITIONING, Keys, LIMITS, LISTEN, LOG, ROUTE, SERVER, SERVICE, SITE, TLS};

/// What to write in the place of another server's key.
enum Ours {
    /// A line of one of our tables.
    Line(Keys, &'static str),
    /// There is no such key; what to do about the matter.
    Nothing(&'static str),
}

use Ours::{Line, Nothing};

/// A server whose keys people type here.
const NGINX: &str = "nginx";
const APACHE: &str = "Apache";
const CADDY: &str = "Caddy";
const UNIT: &str = "Unit";

const PHP: Ours = Line(SITE, "php = \"unix:/run/php/php-fpm.sock\"");
const FASTCGI: Ours = Line(ROUTE, "fastcgi = \"unix:/run/php/php-fpm.sock\"");
const HEADERS: Ours = Line(SITE, "headers = { X-Frame-Options = \"DENY\" }");
const UPSTREAM: Ours = Line(ROUTE, "upstream = \"127.0.0.1:3000\"");
const AUTH: Ours = Line(SITE, "auth = { users = \"users.htpasswd\" }");
const HOST: Ours = Line(SITE, "host = [\"example.org\"]");
const DOCUMENTS: Ours = Line(SITE, "root = \"public\"");
const BODY: Ours = Line(LIMITS, "body_bytes = \"10MiB\"");
const REDIRECT: Ours = Line(ROUTE, "redirect = { to = \"/new/\", status = 301 }");
const COMPRESS: Ours = Line(SITE, "compress = { encodings = [\"br\", \"zstd\", \"gzip\"] }");
const ADDRESS: Ours = Line(LISTEN, "address = \"0.0.0.0:80\"");
const CACHE: Ours = Line(SITE, "cache_control = \"1h\"");
const BUFFER: Ours = Line(ROUTE, "buffer = false");
const ANSWER: Ours = Line(ROUTE, "answer_timeout = \"1m\"");
const RATE: Ours = Line(CONDITIONING, "rate_max = \"100/s\"");
const CERTIFICATE: Ours = Line(SITE, "certificate = \"/etc/letsencrypt/live/example.org/fullchain.pem\"");
const KEY: Ours = Line(SITE, "key = \"/etc/letsencrypt/live/example.org/privkey.pem\"");
const NETWORKS: Ours = Line(SITE, "deny = \"all\"");
const FILES_FIRST: Ours = Line(ROUTE, "try_files = [\"$uri\", \"/index.html\"]");
const PATH: Ours = Line(ROUTE, "path = \"/api/\"");
const IDLE: Ours = Line(LIMITS, "idle_timeout = \"1m\"");
const CONNECTIONS: Ours = Line(LIMITS, "connections = 8192");
const ERROR_LOG: Ours = Line(LOG, "error_file = \"/var/log/bulkhead/error.log\"");
const FORMAT: Ours = Line(LOG, "access_format = \"json\"");
const HEAD_TIME: Ours = Line(CONDITIONING, "head_timeout = \"10s\"");
const COMMAND: Ours = Line(SERVICE, "command = [\"bin/app\"]");
const VARIABLES: Ours = Line(SERVICE, "environment = { NAME = \"value\" }");
const FORWARDED: Ours = Nothing(
    "a server behind this one is sent `Host`, `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` as they are: \
     leave it out",
);
const MODULES: Ours = Nothing("there are no modules and no parts of the file elsewhere: leave it out");
const MEDIA: Ours = Line(SITE, "media_types = { \".wasm\" = \"application/wasm\" }");
const SENT: Ours = Line(ROUTE, "request_headers = { Host = \"app.internal\" }");
const HIDDEN: Ours = Line(ROUTE, "hide_headers = [\"X-Powered-By\"]");
const PATTERN: Ours = Line(ROUTE, "pattern = '^/article/(\\d+)$'");
const ANSWERED: Ours =
    Nothing("no text of the configuration is an answer: put a file into `root`, or redirect elsewhere");
const FOLDER: Ours = Line(ROUTE, "alias = \"/srv/media\"");
const LINKS: Ours = Line(SITE, "follow_links = [\"/srv/shared\"]");
const SITES_ALONE: Ours = Nothing("a site is a [[site]] of its own, with its `host` and `root`");
const ACME: Ours = Nothing(
    "certificates are files, which another program renews: `certbot certonly --webroot`; a changed file is noticed",
);

/// The names, whose they are, and ours.
const TABLE: &[(&[&str], &str, Ours)] = &[
    (&["proxy_pass", "proxy", "grpc_pass", "uwsgi_pass", "scgi_pass"], NGINX, UPSTREAM),
    (&["reverse_proxy", "to_upstreams"], CADDY, UPSTREAM),
    (&["ProxyPass", "ProxyPassMatch", "ProxyPassReverse"], APACHE, UPSTREAM),
    (&["fastcgi_pass", "fastcgi_index", "fastcgi_split_path_info"], NGINX, FASTCGI),
    (&["php_fastcgi"], CADDY, PHP),
    (&["AddHandler", "SetHandler", "php_admin_value"], APACHE, PHP),
    (
        &["fastcgi_param", "fastcgi_params", "uwsgi_param"],
        NGINX,
        Nothing("the parameters of CGI are sent as they are; a script of one's own is `script` of the route"),
    ),
    (&["client_max_body_size", "client_body_buffer_size"], NGINX, BODY),
    (&["proxy_request_buffering", "fastcgi_request_buffering"], NGINX, BUFFER),
    (&["client_body_temp_path"], NGINX, Line(SITE, "spool_bytes = \"1GiB\"")),
    (&["request_body", "max_size"], CADDY, BODY),
    (&["LimitRequestBody"], APACHE, BODY),
    (&["max_body_size"], UNIT, BODY),
    (
        &["client_header_buffer_size", "large_client_header_buffers"],
        NGINX,
        Line(LIMITS, "head_bytes = \"64KiB\""),
    ),
    (&["LimitRequestFieldSize", "LimitRequestLine"], APACHE, Line(LIMITS, "head_bytes = \"64KiB\"")),
    (&["client_header_timeout"], NGINX, HEAD_TIME),
    (&["RequestReadTimeout"], APACHE, HEAD_TIME),
    (&["header_read_timeout"], UNIT, HEAD_TIME),
    (&["client_body_timeout"], NGINX, Line(CONDITIONING, "body_min_rate = \"500B/s\"")),
    (&["send_timeout"], NGINX, Line(CONDITIONING, "response_min_rate = \"500B/s\"")),
    (&["keepalive_timeout", "keepalive_requests"], NGINX, IDLE),
    (&["KeepAliveTimeout", "KeepAlive"], APACHE, IDLE),
    (&["worker_processes"], NGINX, Line(SERVER, "gates = 4")),
    (&["worker_connections", "worker_rlimit_nofile"], NGINX, CONNECTIONS),
    (&["MaxRequestWorkers", "MaxClients"], APACHE, CONNECTIONS),
    (&["ssl_certificate"], NGINX, CERTIFICATE),
    (&["ssl_certificate_key", "certificate_key"], NGINX, KEY),
    (&["SSLCertificateFile", "SSLCertificateChainFile"], APACHE, CERTIFICATE),
    (&["SSLCertificateKeyFile"], APACHE, KEY),
    (&["tls_certificate", "cert", "cert_file"], CADDY, CERTIFICATE),
    (&["key_file", "private_key"], CADDY, KEY),
    (&["ssl"], NGINX, Line(LISTEN, "tls = true")),
    (&["SSLEngine"], APACHE, Line(LISTEN, "tls = true")),
    (&["ssl_protocols"], NGINX, Line(TLS, "min_version = \"1.3\"")),
    (&["SSLProtocol"], APACHE, Line(TLS, "min_version = \"1.3\"")),
    (
        &["ssl_ciphers", "ssl_prefer_server_ciphers", "ssl_dhparam", "SSLCipherSuite"],
        NGINX,
        Nothing(
            "all suites that are spoken are good ones, and `min_version` of [tls] is the one choice: leave it out",
        ),
    ),
    (
        &["ssl_client_certificate", "ssl_trusted_certificate"],
        NGINX,
        Line(SITE, "client_ca = \"clients.pem\""),
    ),
    (&["SSLCACertificateFile"], APACHE, Line(SITE, "client_ca = \"clients.pem\"")),
    (&["client_auth"], CADDY, Line(SITE, "client_ca = \"clients.pem\"")),
    (&["ssl_crl"], NGINX, Line(SITE, "client_crl = [\"revoked.pem\"]")),
    (&["ssl_verify_client"], NGINX, Line(SITE, "client_certificates = \"require\"")),
    (&["SSLVerifyClient"], APACHE, Line(SITE, "client_certificates = \"require\"")),
    (&["ssl_stapling", "ssl_stapling_verify"], NGINX, Line(TLS, "ocsp = true")),
    (&["ssl_session_tickets", "ssl_session_cache"], NGINX, Line(TLS, "resumption = \"tickets\"")),
    (&["acme", "acme_ca", "email", "auto_https"], CADDY, ACME),
    (
        &["http2", "http3", "protocols"],
        NGINX,
        Nothing("HTTP/2 is spoken wherever `tls` is, HTTP/3 nowhere; without TLS it is `h2c` of [[listen]]"),
    ),
    (&["server_name", "server_names"], NGINX, HOST),
    (&["ServerName", "ServerAlias"], APACHE, HOST),
    (&["hosts", "domain", "domains", "hostname"], CADDY, HOST),
    (&["document_root", "docroot", "www_root", "webroot"], NGINX, DOCUMENTS),
    (&["DocumentRoot"], APACHE, DOCUMENTS),
    (&["file_server"], CADDY, DOCUMENTS),
    (&["share"], UNIT, DOCUMENTS),
    (&["VirtualDocumentRoot"], APACHE, Line(SITE, "vhosts = \"vhosts\"")),
    (&["DirectoryIndex"], APACHE, Line(SITE, "index = [\"index.html\"]")),
    (&["autoindex", "browse"], NGINX, Line(SITE, "listing = true")),
    (&["alias"], NGINX, FOLDER),
    (&["Alias", "AliasMatch"], APACHE, FOLDER),
    (&["ScriptAlias"], APACHE, COMMAND),
    (&["disable_symlinks"], NGINX, LINKS),
    (&["FollowSymLinks", "SymLinksIfOwnerMatch"], APACHE, LINKS),
    (&["FallbackResource"], APACHE, FILES_FIRST),
    (&["types", "default_type"], NGINX, MEDIA),
    (&["AddType", "ForceType"], APACHE, MEDIA),
    (&["return"], NGINX, REDIRECT),
    (&["Redirect", "RedirectMatch", "RedirectPermanent"], APACHE, REDIRECT),
    (&["redir"], CADDY, REDIRECT),
    (&["RewriteRule", "RewriteEngine", "RewriteCond", "LocationMatch"], APACHE, PATTERN),
    (&["uri", "handle_errors"], CADDY, Line(ROUTE, "rewrite = \"/index.html\"")),
    (&["respond", "abort"], CADDY, ANSWERED),
    (&["ErrorDocument"], APACHE, Line(SITE, "error_page = { 404 = \"404.html\" }")),
    (&["add_header", "more_set_headers"], NGINX, HEADERS),
    (&["header", "response_headers"], CADDY, HEADERS),
    (&["Header"], APACHE, HEADERS),
    (&["proxy_http_version", "proxy_redirect"], NGINX, FORWARDED),
    (&["proxy_set_header"], NGINX, SENT),
    (&["proxy_hide_header", "fastcgi_hide_header"], NGINX, HIDDEN),
    (&["header_up"], CADDY, SENT),
    (&["header_down"], CADDY, HIDDEN),
    (&["RequestHeader"], APACHE, SENT),
    (&["ProxyPreserveHost"], APACHE, FORWARDED),
    (
        &["proxy_read_timeout", "proxy_connect_timeout", "proxy_send_timeout", "fastcgi_read_timeout"],
        NGINX,
        ANSWER,
    ),
    (&["ProxyTimeout", "TimeOut"], APACHE, ANSWER),
    (
        &["gzip", "gzip_types", "gzip_static", "gzip_comp_level", "brotli", "brotli_types", "zstd"],
        NGINX,
        COMPRESS,
    ),
    (&["encode"], CADDY, COMPRESS),
    (&["AddOutputFilterByType", "SetOutputFilter"], APACHE, COMPRESS),
    (&["expires", "etag"], NGINX, CACHE),
    (&["ExpiresDefault", "ExpiresActive", "ExpiresByType", "FileETag"], APACHE, CACHE),
    (
        &["proxy_cache", "proxy_cache_path", "fastcgi_cache"],
        NGINX,
        Nothing(
            "answers of other servers are not cached: leave it out, and let them say what browsers may keep",
        ),
    ),
    (&["limit_req", "limit_req_zone"], NGINX, RATE),
    (&["rate_limit"], CADDY, RATE),
    (&["limit_conn", "limit_conn_zone"], NGINX, Line(CONDITIONING, "share_max = { \"/24\" = 0.1 }")),
    (&["limit_rate"], NGINX, Nothing("no client is slowed down: leave it out")),
    (&["max_conns", "max_fails"], NGINX, Line(ROUTE, "requests = 100")),
    (&["auth_basic", "auth_basic_user_file", "satisfy"], NGINX, AUTH),
    (&["basicauth", "basic_auth"], CADDY, AUTH),
    (&["AuthUserFile", "AuthType", "AuthName", "AuthBasicProvider"], APACHE, AUTH),
    (&["deny_all", "denied"], NGINX, NETWORKS),
    (&["Require", "Order"], APACHE, NETWORKS),
    (&["remote_ip"], CADDY, Line(SITE, "allow = [\"10.0.0.0/8\"]")),
    (
        &["auth_request"],
        NGINX,
        Nothing("a program that decides about requests is one of `filters`, or a `hook`"),
    ),
    (
        &["forward_auth"],
        CADDY,
        Nothing("a program that decides about requests is one of `filters`, or a `hook`"),
    ),
    (&["error_log"], NGINX, ERROR_LOG),
    (&["ErrorLog"], APACHE, ERROR_LOG),
    (&["log_format"], NGINX, FORMAT),
    (&["LogFormat"], APACHE, FORMAT),
    (&["CustomLog"], APACHE, Line(SITE, "access_log = \"blog.access.log\"")),
    (&["location"], NGINX, PATH),
    (&["Location", "Directory", "Files", "FilesMatch"], APACHE, PATH),
    (&["handle", "match"], CADDY, PATH),
    (&["handle_path"], CADDY, Line(ROUTE, "strip_prefix = true")),
    (&["path_regexp"], CADDY, PATTERN),
    (
        &["AllowOverride", "htaccess", "AccessFileName", "Options"],
        APACHE,
        Nothing(
            "files in `root` change nothing of how it is served, `.htaccess` neither: write what it says as [[site.route]]",
        ),
    ),
    (&["VirtualHost", "NameVirtualHost"], APACHE, SITES_ALONE),
    (&["http", "events", "stream", "vhost", "virtual_host"], NGINX, SITES_ALONE),
    (&["load_module"], NGINX, MODULES),
    (&["import", "snippet"], CADDY, MODULES),
    (&["LoadModule", "Include", "IncludeOptional", "IfModule"], APACHE, MODULES),
    (
        &["pid", "daemon", "master_process"],
        NGINX,
        Nothing("`bulkhead run` stays in the foreground, and its pid file is in `run_dir`: leave it out"),
    ),
    (
        &["server_tokens", "sendfile", "tcp_nopush", "tcp_nodelay", "open_file_cache"],
        NGINX,
        Nothing("that is as it should be without a key: leave it out"),
    ),
    (
        &["ServerTokens", "ServerSignature", "EnableSendfile"],
        APACHE,
        Nothing("that is as it should be without a key: leave it out"),
    ),
    (
        &["if", "set", "map", "geo", "split_clients"],
        NGINX,
        Nothing(
            "there are no variables and no conditions: a [[site.route]] for each path, or a `hook` in a worker of your own",
        ),
    ),
    (
        &["resolver", "resolver_timeout", "resolve", "valid"],
        NGINX,
        Nothing("the DNS servers of `/etc/resolv.conf` are asked, again when the TTL is over: leave it out"),
    ),
    (&["proxy_ssl_verify"], NGINX, Nothing("no TLS is spoken to servers behind a site: leave it out")),
    (
        &["real_ip_header", "set_real_ip_from", "real_ip_recursive"],
        NGINX,
        Line(LISTEN, "trusted = [\"10.0.0.0/8\"]"),
    ),
    (&["trusted_proxies"], CADDY, Line(LISTEN, "trusted = [\"10.0.0.0/8\"]")),
    (&["bind", "port"], CADDY, ADDRESS),
    (&["Listen"], APACHE, ADDRESS),
    (&["listeners"], UNIT, ADDRESS),
    (&["applications", "executable", "ExecStart", "exec", "cmd"], UNIT, COMMAND),
    (&["env"], NGINX, VARIABLES),
    (&["SetEnv", "PassEnv"], APACHE, VARIABLES),
    (
        &["group"],
        NGINX,
        Nothing(
            "each process has a uid and a gid of its own, and a site's can be named by `user`: leave it out",
        ),
    ),
];

/// What to write in the place of `name`, if it is a key of another server's.
pub(crate) fn help(name: &str) -> Option<String> {
    let (name, server, ours) = find(name)?;
    Some(match ours {
        Line((header, _), line) => {
            format!("`{name}` is a word of {server}'s; here it is `{line}` in {header}")
        }
        Nothing(instead) => format!("`{name}` is a word of {server}'s; here {instead}"),
    })
}

/// The key that stands for `name` here, if there is one.
pub(crate) fn key(name: &str) -> Option<&'static str> {
    match find(name)? {
        (.., Line(_, line)) => line.split(" = ").next(),
        _ => None,
    }
}

/// The name as its server writes it, the server, and ours.
fn find(name: &str) -> Option<(&'static str, &'static str, &'static Ours)> {
    let entry = |same: &dyn Fn(&str) -> bool| {
        TABLE
            .iter()
            .find_map(|(names, server, ours)| Some((*names.iter().find(|known| same(known))?, *server, ours)))
    };
    // nginx and Apache have names that differ by case alone.
    entry(&|known| known == name).or_else(|| entry(&|known| known.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;
    use crate::rules::{ROOT, TABLES};
    use crate::{Config, Diagnostics};

    fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().flat_map(|(names, ..)| names.iter().copied())
    }

    /// The smallest file in which `line` stands in the table `header`.
    fn file(header: &str, line: &str) -> String {
        let key = line.split(' ').next().unwrap_or_default();
        let mut file: Vec<(&str, Vec<&str>)> = vec![
            ("[[listen]]", vec!["address = \"127.0.0.1:443\"", "tls = true", "unfiltered = true"]),
            (
                "[[site]]",
                vec![
                    "name = \"a\"",
                    "host = [\"a.test\"]",
                    "root = \"public\"",
                    "certificates = [\"a.pem\"]",
                ],
            ),
        ];
        match key {
            "client_crl" | "client_certificates" => file[1].1.push("client_ca = \"clients.pem\""),
            "key" => file[1].1.push("certificate = \"a.pem\""),
            "vhosts" => file[1].1.retain(|line| !line.starts_with("root")),
            "trusted" => file[0].1.push("proxy_protocol = true"),
            _ => {}
        }
        match header {
            "[[site.route]]" => file.push((
                header,
                match key {
                    "path" | "pattern" => vec!["internal = true"],
                    "strip_prefix" => vec!["path = \"/x/\"", "upstream = \"127.0.0.1:3000\""],
                    "fallback" => vec!["path = \"/\"", "upstream = \"127.0.0.1:3000\""],
                    "answer_timeout" | "requests" | "buffer" => {
                        vec!["path = \"/x/\"", "upstream = \"127.0.0.1:3000\""]
                    }
                    "fastcgi" => vec!["suffix = \".php\""],
                    _ => vec!["path = \"/x/\""],
                },
            )),
            "[[site.service]]" => file.push((
                header,
                match key {
                    "command" => vec!["name = \"s\"", "path = \"/s\""],
                    _ => vec!["name = \"s\"", "path = \"/s\"", "command = [\"bin/s\"]"],
                },
            )),
            "[[listen]]" | "[[site]]" => {}
            _ => file.push((header, Vec::new())),
        }
        let same = |other: &&str| other.split(' ').next() == Some(key);
        let text = file.iter_mut().map(|(found, lines)| {
            if *found == header {
                lines.retain(|other| !same(other));
                lines.push(line);
            }
            if ["certificate", "key"].contains(&key) {
                lines.retain(|other| !other.starts_with("certificates"));
            }
            if key == "rate_max" && *found == header {
                lines.push("rate_burst = 100");
            }
            format!("{found}\n{}\n", lines.join("\n"))
        });
        text.collect()
    }

    #[test]
    fn every_line_of_ours_is_right() {
        let lines = TABLE.iter().filter_map(|(.., ours)| match ours {
            Line((header, keys), line) => Some((*header, *keys, *line)),
            Nothing(_) => None,
        });
        for (header, keys, line) in lines {
            let key = line.split(" = ").next().unwrap();
            assert!(keys.contains(&key), "{header} has no `{key}`");
            let text = file(header, line);
            let read = Config::parse(&text, "f", Path::new("/srv"));
            assert!(read.is_ok(), "{text}\n{}", read.err().unwrap_or(Diagnostics(Vec::new())));
        }
    }

    /// What stands in place of a missing key names keys that exist.
    #[test]
    fn every_word_of_ours_is_a_key() {
        let known: HashSet<&str> = TABLES.iter().flat_map(|(_, keys)| keys.iter().copied()).collect();
        for (names, _, ours) in TABLE {
            let Nothing(instead) = ours else { continue };
            let words = instead.split('`').skip(1).step_by(2);
            let key = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            for word in words.filter(key) {
                assert!(known.contains(word), "`{word}` in what is said of {names:?} is no key");
            }
        }
    }

    #[test]
    fn names_are_many_and_not_ours() {
        assert!(names().count() >= 150, "{}", names().count());
        let mut seen = HashSet::new();
        for name in names() {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(!ROOT.1.contains(&name), "{name} is a key of ours");
        }
    }

    #[test]
    fn names_are_known_in_any_case() {
        let pass = help("PROXY_PASS").unwrap();
        assert_eq!(
            pass,
            "`proxy_pass` is a word of nginx's; here it is `upstream = \"127.0.0.1:3000\"` in [[site.route]]"
        );
        assert!(help("certificate_key").unwrap().contains("`key = "));
        assert!(help("documentroot").unwrap().contains("root = \"public\""));
        assert!(help("alias").unwrap().contains("nginx") && help("Alias").unwrap().contains("Apache"));
        assert_eq!((help("verbose"), key("verbose"), key("alias")), (None, None, Some("alias")));
        assert_eq!(key("ServerName"), Some("host"));
    }
}
