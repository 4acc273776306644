//! What the launcher tells the worker of a site: its limits, files, rules and backends.
//!
//! Runs in: the launcher (root) and site workers. Sees: what the operator has configured. Never: bytes of a client.

use crate::codec::{Bytes, Text, choice, messages, record};
use crate::control::{Conditioning, WorkerLimits};
use crate::tls::{ClientAuth, Resume, TICKET_KEY_BYTES};

choice! {
    /// Whose a path below a site's host is.
    pub enum RouteTarget {
        /// The site's own, to be answered from its files.
        0 => Files,
        /// A service of the site.
        1 => Service,
        /// Another site's: a connection whose next request goes there is handed back.
        2 => Elsewhere,
        /// The same of a site without a certificate below a host of this one: a request that came under TLS is relayed
        /// to its partition.
        3 => Relayed,
    }
}

choice! {
    /// What is done with requests under a rule.
    pub enum RuleAction {
        /// Nothing special.
        0 => Terms,
        /// The client is sent to `to`.
        1 => Redirect,
        /// They are answered as if for `to`.
        2 => Rewrite,
        /// They are passed on by HTTP.
        3 => Upstream,
        /// They are passed on by FastCGI.
        4 => Fastcgi,
        /// The function called `to` answers.
        5 => Hook,
        /// They are answered as for the first of the paths of `RuleTry` at which there is a file.
        6 => TryFiles,
    }
}

choice! {
    /// Which headers a rule changes.
    pub enum HeaderOf {
        /// Those of answers: set to the value.
        0 => Answer,
        /// Those of requests: set to the value, or taken away if that is empty.
        1 => Request,
        /// Those of what backends answer: taken away.
        2 => Backend,
    }
}

choice! {
    /// What a server behind a site speaks.
    pub enum Speech {
        /// HTTP/1.1.
        0 => Http,
        /// FastCGI.
        1 => FastCgi,
    }
}

choice! {
    /// Which header of the PROXY protocol begins a connection.
    pub enum ProxyHeader {
        /// None.
        0 => None,
        /// The line of version 1.
        1 => Version1,
        /// The binary header of version 2.
        2 => Version2,
    }
}

record! {
    /// How a target is talked to.
    pub struct Backend {
        /// What it speaks.
        speech: Speech,
        /// How its connections begin.
        proxy_header: ProxyHeader,
        /// How long its answer may take to begin, and how long it may then be silent, in milliseconds.
        answer_timeout_ms: u32,
        /// How many requests it may have at once; 0 for its share of the worker's places.
        requests: u32,
        /// Whether it hears of a request when all of the body has come.
        buffer: bool,
        /// The script that answers all of its requests, as a path below the root; none if empty.
        script: Text<1024>,
    }
}

messages! {
    /// From the launcher to a site worker.
    pub enum LauncherToSite {
        /// First of all: the limits.
        1 => Limits { limits: WorkerLimits, site: u16 },
        /// The descriptor of the directory of static files comes along.
        2 => Root {},
        /// A name to try in a directory; in order of preference.
        3 => Index { name: Text<255> },
        /// Requests for `host` whose path begins with `path` go to `target`; `partition` is that of the service, or of
        /// the site that they are relayed to.
        4 => Route { host: Text<255>, path: Text<1024>, target: RouteTarget, partition: u16 },
        /// All of the above has been said: serve.
        5 => Begin {},
        /// A channel from a gate comes along.
        6 => Attach {},
        /// A channel to a worker of the service `partition` comes along.
        7 => AttachService { partition: u16 },
        /// Whether the service, or the site, `partition` is broken.
        8 => Broken { partition: u16, broken: bool },
        /// Asks for `Counters`.
        9 => Report {},
        /// After the limits, before `Begin`: the policies.
        10 => Conditioning { conditioning: Conditioning },
        /// Asks for `TopRange` and `Shed`.
        11 => ReportShed {},
        /// Before `Begin`: requests go through filters, so that a connection is handed back with its second one.
        12 => Filtered {},
        /// Before `Begin`: the service `partition` may have so many requests at once; its share of the places without.
        13 => Requests { partition: u16, requests: u32 },
        /// Before `Begin`: a network whose clients have no shares and no rates.
        14 => Exempt { network: Text<64> },
        /// Before `Begin`: what comes in at this port is from a load balancer, whose address says nothing of clients.
        15 => SharedConnections { port: u16 },
        /// A channel to a worker of the site `partition` comes along, for requests that `Route` says are relayed.
        16 => AttachSite { partition: u16 },
        /// A channel comes along from the worker of a site that has the certificate of a host of ours, and relays to us
        /// what is ours.
        17 => AttachRelay {},
        /// Before `Begin`: TLS is spoken, from version `version_min` (as on the wire) on. `hsts` goes with each answer,
        /// if it is not empty; `tamper` is whether clients whose records fail to decrypt are to be named.
        20 => Tls { version_min: u16, resume: Resume, client_auth: ClientAuth, tamper: bool, hsts: Text<256> },
        /// A secret comes for tickets, the newest of all; `generation` counts them.
        21 => TicketKey { generation: u64, secret: Bytes<TICKET_KEY_BYTES> },
        /// The channel to a signer comes along; it replaces an earlier one.
        22 => Signer {},
        /// After `Tls`: the file with the authorities of clients' certificates comes along, which is at `path`. Again
        /// when it has changed.
        23 => ClientAuthorities { path: Text<4096> },
        /// The channel from a stapler comes along.
        24 => Stapler {},
        /// After `Tls`: file `number` with lists of clients' certificates that are revoked comes along, which is at
        /// `path`.
        /// Again when it has changed.
        25 => ClientRevoked { number: u16, path: Text<4096> },
        /// Before `Begin`: how files are answered with. `cache_control` in seconds, all bits set for none;
        /// `stat_interval_ms` 0 for the worker's own choice. An encoding's number is its place in the order of
        /// preference, from 1; 0 for not at all.
        30 => Statics { cache_control: u32, stat_interval_ms: u32, listing: bool, br: u8, zstd: u8, gzip: u8,
            static_level: u8, dynamic_level: u8, max_bytes: u64 },
        /// A file below the root that is the page of an error.
        31 => ErrorPage { status: u16, page: Text<512> },
        /// Rule 0 is the site's own, the others are its routes in the order of the file: what is done with requests at
        /// or below `path`, for names that end with `suffix`, in whose paths `pattern` finds something; what is empty
        /// is not asked for. `to` and `status` are the action's, of backends where they listen; if `internal`, only
        /// internal redirects lead there; if `strip_prefix`, backends get the path without the rule's. Bodies of
        /// requests have at most `body_bytes`, if not all bits of that are set.
        32 => Rule { rule: u16, path: Text<512>, suffix: Text<64>, pattern: Text<512>, action: RuleAction, status: u16,
            to: Text<1024>, fallback: bool, internal: bool, strip_prefix: bool, body_bytes: u64 },
        /// A header that is changed under a rule.
        33 => RuleHeader { rule: u16, of: HeaderOf, name: Text<64>, value: Text<2048> },
        /// A network whose clients may, or may not, ask for what is under a rule.
        34 => RuleNetwork { rule: u16, network: Text<64>, allow: bool },
        /// The file at `path` comes along, of the users who may ask for what is under a rule. Again when it has
        /// changed.
        35 => RuleUsers { rule: u16, realm: Text<128>, path: Text<4096> },
        /// The descriptor of the directory comes along that has a directory of static files for each host.
        36 => Vhosts {},
        /// A name that begins with a dot and is served all the same.
        37 => SendHidden { name: Text<255> },
        /// Scripts with this suffix are sent as files.
        38 => SendSource { suffix: Text<64> },
        /// The next of the paths that a rule tries; the last may be a status (`=404`).
        39 => RuleTry { rule: u16, to: Text<1024> },
        /// Files with this suffix are of this media type.
        45 => MediaType { suffix: Text<64>, media: Text<128> },
        /// The channel to the site's connector comes along; it takes the place of an earlier one.
        40 => Connector {},
        /// Before `Begin`: the servers that target `target` of the connector stands for, and how they are talked to.
        41 => Backend { target: u16, backend: Backend },
        /// Before `Begin`: the path of the root directory, as FastCGI servers are told it and links may name it.
        42 => RootPath { path: Text<4096> },
        /// Before `Begin`, after the rule: the descriptor of `folder` comes along, in which the files at or below the
        /// path of a rule are.
        46 => RuleFolder { rule: u16, folder: Text<4096> },
        /// Before `Begin`: the descriptor of `folder` comes along, into which symbolic links may lead.
        47 => LinkFolder { folder: Text<4096> },
        /// Before `Begin`: the file comes along in which bodies of requests wait until they are whole, so many bytes of
        /// them; if none comes, none could be made.
        49 => Spool { bytes: u64 },
        /// Once the worker serves: whose each path is follows anew, as `Route`. What was said before holds until
        /// `Commit`; another `Update` instead discards what has followed. The services stay those that they were.
        43 => Update {},
        /// The routes are complete, and hold from here on.
        44 => Commit {},
        /// Take nothing more, answer what is here, and end. What this needs is said as before: gates to hand
        /// connections back to, workers of services and of other sites, the connector, the signer.
        48 => Retire {},
        /// There is no room for a worker of the service, or the site, `partition`: it is answered with 503 until the
        /// channel to one comes along.
        50 => NoRoom { partition: u16 },
    }
}
