//! The roles: the facts about each kind of process, in one row.
//!
//! Runs in: every process. Sees no untrusted bytes. Never: says what a process does, which its crate and its file in
//! the launcher do.
//!
//! A new role is a row here. What others ask of a role is a field of [`RoleFacts`], so that no list of roles stands
//! elsewhere.

/// The facts about a role.
#[derive(Clone, Copy, Debug)]
pub struct RoleFacts {
    /// The name of the crate, the program and the process.
    pub name: &'static str,
    /// The work of its processes, in a few words: for `explain`, which says more of those of a site.
    pub does: &'static str,
    /// How many there are, for people.
    pub count: &'static str,
    /// The data of others that they see, for people.
    pub sees: &'static str,
    /// The rights and data that they never have, for people.
    pub lacks: &'static str,
    /// Whether its processes work for the server or for a site.
    pub scope: Scope,
    /// The end of a process's name, after that of the site, service or data source that it works for. No name of those
    /// has a colon.
    pub suffix: &'static str,
    /// Whether there may be several of the server, which are called by their number.
    pub is_numbered: bool,
    /// The beginning of its uid's name in the table of uids: `data/blog/catalog`.
    pub uid_of: &'static str,
    /// Whose program it is.
    pub program: Whose,
    /// Whether gates or other workers send it requests: it has a partition.
    pub is_worker: bool,
    /// How much sooner than the launcher the kernel kills its processes when memory runs out: what their
    /// `oom_score_adj` is above the launcher's, where one is a thousandth of all memory.
    ///
    /// Programs of others come first; then what works for one site; then what works for all, without which no site is
    /// served.
    pub oom_step: u16,
    /// When its processes are asked whether they are there.
    pub heartbeat: Heartbeat,
    /// KiB that a process takes when it has come up and has done nothing yet (`bench/footprint`).
    pub kib: u64,
    /// How many times the usual share of a processor it gets that others want as well.
    pub cpu_weight: u32,
    /// Which access logs it may write to.
    pub access_log: AccessLogRight,
    /// After which role its processes go at the end of the server; after [`Role::Launcher`]: first.
    pub stops_after: Role,
    /// After which role its processes are replaced by an upgrade; after [`Role::Launcher`]: first.
    pub replaced_after: Role,
    /// Whether others have channels to its processes: where a successor is given up, they are made again to the one
    /// that stays.
    pub has_peers: bool,
    /// Whether some of its processes are in the machine's network: they make connections for others.
    pub has_network: bool,
    /// The roles whose processes of the same site may need it.
    pub users: &'static [Role],
}

/// Whom the processes of a role work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole server. Commands know them by the name of the role: no site may be called so.
    Server,
    /// One site. They have the site's name, and start on demand where the site does.
    Site,
}

/// Whose program a role is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It is installed beside the launcher.
    Ours,
    /// The operator's.
    Operators,
}

/// When the launcher asks a process whether it is there, by `Report`. One that does not answer, and is not merely
/// starved, is replaced as one that has crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// Several times a second while connections come: those in its accept queue are served by nobody else.
    Short,
    /// While it is in use itself, as those say that give it connections.
    InUse,
    /// While a process of its site is in use.
    SiteInUse,
    /// Always; more often while anything is in use.
    Always,
    /// Never: it has no control channel, or it is the launcher.
    Never,
}

/// Which access logs a role may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogRight {
    /// None.
    None,
    /// That of its site.
    Site,
    /// Each: it answers for sites that cannot.
    Every,
}

impl RoleFacts {
    /// The defaults of a row: those of a role that works for one site.
    const OF_A_SITE: Self = Self {
        name: "",
        does: "",
        count: "one per site",
        sees: "",
        lacks: "",
        scope: Scope::Site,
        suffix: "",
        is_numbered: false,
        uid_of: "role",
        program: Whose::Ours,
        is_worker: false,
        oom_step: 400,
        heartbeat: Heartbeat::SiteInUse,
        kib: 704,
        cpu_weight: 1,
        access_log: AccessLogRight::None,
        stops_after: Role::Launcher,
        replaced_after: Role::Launcher,
        has_peers: true,
        has_network: false,
        users: &[],
    };
    /// The defaults of a role that works for all sites.
    const OF_ALL: Self = Self {
        count: "one",
        scope: Scope::Server,
        oom_step: 200,
        heartbeat: Heartbeat::Always,
        ..Self::OF_A_SITE
    };
}

/// Makes the type, the list of all, and the table of facts.
macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident = $number:literal: $($key:ident: $value:expr,)* ..$rest:ident;)*) => {
        /// A kind of process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Role {
            $($(#[$doc])* $role = $number,)*
        }

        impl Role {
            /// Every role.
            pub const ALL: &'static [Self] = &[$(Self::$role),*];

            /// The facts about it.
            pub const fn facts(self) -> &'static RoleFacts {
                match self {
                    $(Self::$role => const { &RoleFacts { $($key: $value,)* ..RoleFacts::$rest } },)*
                }
            }
        }
    };
}

roles! {
    /// `bulkheadd`, which is root and starts all others.
    Launcher = 0: name: "bulkheadd",
        does: "the launcher, which starts and ends all others",
        count: "one",
        sees: "the configuration; exits of its children; numbers from them",
        lacks: "a byte from the network, a string from a child, an HTTP parser, a second thread",
        oom_step: 0, heartbeat: Heartbeat::Never, kib: 0, has_peers: false, ..OF_ALL;
    /// Accepts connections and finds their partition.
    Gate = 1: name: "gate",
        does: "all gates, which accept connections; they have one uid",
        count: "one per core",
        sees: "the first bytes of each connection",
        lacks: "keys, files, the rest of a connection that it passed on",
        is_numbered: true, heartbeat: Heartbeat::Short, kib: 512, cpu_weight: 2, access_log: AccessLogRight::Every,
        replaced_after: Role::Filter, has_peers: false, ..OF_ALL;
    /// Serves one site.
    Site = 2: name: "site",
        does: "serves a site",
        count: "one or more per site",
        sees: "that site's connections, TLS and HTTP/2 included; its folders of files, and one file that it may \
            write to, in which bodies wait, as descriptors",
        lacks: "a private key; another site's files or connections, but for requests under TLS to sites with a \
            `path` below its host",
        uid_of: "site", is_worker: true, heartbeat: Heartbeat::InUse, cpu_weight: 4, access_log: AccessLogRight::Site,
        stops_after: Role::Filter, replaced_after: Role::Service, has_peers: false, ..OF_A_SITE;
    /// Runs one service.
    Service = 3: name: "service",
        does: "runs a service",
        count: "one or more per `[[site.service]]`: the operator's program, or `datadoor` in its place where it has \
            `remote`",
        sees: "requests for its path; `datadoor`: calls of another machine, which has shown a certificate, and \
            their answers",
        lacks: "the network: granted connections are handed to it; capabilities; another partition's files, memory \
            or connections; a way to the launcher but \"ready\" and counters",
        uid_of: "service", program: Whose::Operators, is_worker: true, oom_step: OOM_STEP_MAX, heartbeat: Heartbeat::InUse,
        kib: 520, access_log: AccessLogRight::Site, stops_after: Role::Site, replaced_after: Role::Publisher,
        users: &[Role::Site], has_peers: false, ..OF_A_SITE;
    /// Writes the logs.
    Logger = 4: name: "logger",
        does: "the logger, which writes every log",
        count: "one",
        sees: "log records and what processes print",
        lacks: "a file that it opened itself",
        kib: 768, stops_after: Role::Admin, has_peers: false, ..OF_ALL;
    /// Passes the administrator's orders on. An upgrade replaces it last: it passes the answer on.
    Admin = 5: name: "admin",
        does: "passes the administrator's orders on",
        count: "one",
        sees: "orders of root (or of who started Bulkhead)",
        lacks: "anything to say to the launcher but numbers",
        stops_after: Role::Stapler, replaced_after: Role::Gate, has_peers: false, ..OF_ALL;
    /// A filter of the operator's, any program: gets requests from the gates, and passes them on or drops them.
    Filter = 6: name: "filter",
        does: "all filters, which see every request; each has a uid of its own",
        count: "one per `[[conditioning.filter]]`: a program of the operator's",
        sees: "the head and the connection of every request",
        lacks: "the network, bodies unless it reads them, a way to the launcher, the logs or a worker",
        is_numbered: true, uid_of: "filter", program: Whose::Operators, oom_step: 300, heartbeat: Heartbeat::Never, kib: 352,
        stops_after: Role::Gate, replaced_after: Role::Site, has_peers: false, ..OF_ALL;
    /// Holds the private keys of all sites, and signs with them.
    Signer = 7: name: "signer",
        does: "the signer, which holds the private keys of all sites",
        count: "one, where sites have certificates",
        sees: "private keys, as descriptors; what sites ask it to sign",
        lacks: "the network, a file that it opened itself, a signature over anything but a handshake",
        stops_after: Role::Publisher, replaced_after: Role::Logger, ..OF_ALL;
    /// Makes one site's connections to its upstreams and FastCGI servers, or those that one service was granted.
    Connector = 8: name: "connector",
        does: "makes connections",
        count: "one per site with servers behind it, per service with `network`, per `[[site.data]]` at a server",
        sees: "which server is to be reached; answers of DNS servers, if one has a name",
        lacks: "a byte of what is said on a connection; another port or socket than those of its routes, grants or \
            source, and 53 if a server has a name",
        suffix: ":connector", uid_of: "connector", kib: 256, stops_after: Role::DataProxy, replaced_after: Role::Stapler,
        users: &[Role::Site, Role::Service, Role::DataProxy], has_network: true, ..OF_A_SITE;
    /// Asks the responders of authorities about sites' certificates.
    Stapler = 9: name: "stapler",
        does: "the stapler, which asks responders whether certificates are valid",
        count: "one, where sites have certificates",
        sees: "certificates; answers of authorities' responders and of DNS servers",
        lacks: "a key; a word of a site's or a client's; other ports than 53 and those of `ocsp_ports`",
        kib: 544, stops_after: Role::Signer, replaced_after: Role::Signer, has_network: true, ..OF_ALL;
    /// Answers the calls by which one service asks for sockets and connections. It reads what these point at, which the
    /// kernel lets processes of the same uid do.
    Broker = 10: name: "broker",
        does: "answers a service's calls",
        count: "one per service with `network`",
        sees: "the calls by which the service connects",
        lacks: "the network; anything that is not the service's own",
        suffix: ":broker", uid_of: "service", kib: 352, stops_after: Role::Service, replaced_after: Role::Connector,
        users: &[Role::Site, Role::Service], ..OF_A_SITE;
    /// Carries out named statements on one of a site's databases. It has a connection to SQLite for each thread.
    DataProxy = 11: name: "dataproxy",
        does: "carries out named statements",
        count: "one per `[[site.data]]`",
        sees: "names of statements and values from services; the operator's files of statements, of a password, and \
            of a certificate with its key; what the server says, or the other machine that has the database",
        lacks: "the network; a file outside the folder of its database; SQL from a service",
        suffix: ":data", uid_of: "data", kib: 2240, stops_after: Role::Broker, replaced_after: Role::Broker,
        users: &[Role::Service], ..OF_A_SITE;
    /// Reads one site's templates, and publishes them to the site's services.
    Publisher = 12: name: "publisher",
        does: "reads templates",
        count: "one per site with `[site.templates]`",
        sees: "the operator's templates, by the descriptor of their folder; of services, whether they have compiled \
            a version; the version that the publisher before has kept",
        lacks: "the network; another file; what services put into pages; a file that it can write, but for memory in \
            which it keeps versions for its successor",
        suffix: ":templates", uid_of: "publisher", kib: 416, stops_after: Role::Connector, replaced_after: Role::DataProxy,
        users: &[Role::Service], ..OF_A_SITE;
}

/// How many roles there are beside the launcher.
const OTHERS: usize = Role::ALL.len() - 1;

impl Role {
    /// In which order the roles go at the end: a role that passes work on goes before the one that does it.
    pub const STOP_ORDER: [Self; OTHERS] = order(false);
    /// In which order an upgrade replaces processes: what others need first.
    pub const REPLACEMENT_ORDER: [Self; OTHERS] = order(true);

    /// The name of the crate, the program and the process.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// See [`RoleFacts::oom_step`].
    pub const fn oom_step(self) -> u16 {
        self.facts().oom_step
    }

    /// See [`RoleFacts::heartbeat`].
    pub const fn heartbeat(self) -> Heartbeat {
        self.facts().heartbeat
    }

    /// See [`RoleFacts::is_worker`].
    pub const fn is_worker(self) -> bool {
        self.facts().is_worker
    }

    /// Whether its processes work for one site.
    pub fn is_of_a_site(self) -> bool {
        self.facts().scope == Scope::Site
    }

    /// The name without what names of this role end in.
    pub fn base(self, name: &str) -> &str {
        name.strip_suffix(self.facts().suffix).unwrap_or(name)
    }

    /// Whether it is a program of the operator's.
    pub fn is_operators(self) -> bool {
        self.facts().program == Whose::Operators
    }
}

/// The roles beside the launcher, each right after the one that its row names.
const fn order(is_of_replacement: bool) -> [Role; OTHERS] {
    let (mut order, mut len) = ([Role::Launcher; OTHERS], 0);
    while len < OTHERS {
        let (before, mut number) = (len, 1);
        while number < Role::ALL.len() {
            let role = Role::ALL[number];
            let facts = role.facts();
            let after = if is_of_replacement { facts.replaced_after } else { facts.stops_after };
            let is_first = after as u8 == Role::Launcher as u8;
            if let (None, Some(place)) = (place(&order, len, role), place(&order, len, after)) {
                len = put(&mut order, len, role, place + 1);
            } else if is_first && place(&order, len, role).is_none() {
                len = put(&mut order, len, role, 0);
            }
            number += 1;
        }
        assert!(len > before, "roles name each other in a circle");
    }
    order
}

/// Where a role stands among the first `len` of an order.
const fn place(order: &[Role; OTHERS], len: usize, role: Role) -> Option<usize> {
    let mut place = 0;
    while place < len {
        if order[place] as u8 == role as u8 {
            return Some(place);
        }
        place += 1;
    }
    None
}

/// Puts a role in a place of an order of `len`; how long the order is then.
const fn put(order: &mut [Role; OTHERS], len: usize, role: Role, place: usize) -> usize {
    let mut at = len;
    while at > place {
        order[at] = order[at - 1];
        at -= 1;
    }
    order[place] = role;
    len + 1
}

/// The same as [`RoleFacts::oom_step`] of the reaper and of the closer, without which nothing is served worse.
pub const OOM_STEP_REAPER: u16 = 100;
/// The same of what works for the launcher for a moment. What it does can be done again.
pub const OOM_STEP_HELPER: u16 = 300;
/// The largest step.
pub const OOM_STEP_MAX: u16 = 500;
