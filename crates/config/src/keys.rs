//! Each key of a table as one entry: what it is called, how it is read, what it becomes, what the page says of it,
//! what a reload replaces when it has changed, and who may set it.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none. Must never: say anything of a key in a
//! second place.
//!
//! A table is a macro that hands its entries to another macro, and that is called where something is made of them:
//! the list of keys in `rules`, the raw and the checked form, their reading and their comparison, and the
//! rows of the page in `reference`. So no module has to know all of that, and `rules` stays below all of them.
//!
//! An entry is
//!
//! ```text
//! /// The field.
//! "key" field: Type = KeyReader, what a reload replaces, who may set it, default in words, "rule";
//! ```
//!
//! The reader (`readers`) says how the value is written, with its bounds, and what holds without the key. The default
//! in words is `""` where the reader says it as well.

/// `[[site.service]]`.
macro_rules! service_keys {
    ($with:ident) => {
        $with! {
            "[[site.service]]" Service RawService;
            beside {
                /// `command[0]` as an absolute path.
                program: PathBuf = program
            }
            /// Unique in its site; the rule of a site's name.
            "name" name: String = ServiceName, Site, SiteFile, "", "unique in its site; the rule of a site's name";
            /// Inside the site's path; covers itself and what is below it, at a segment's border.
            "path" path: String = ServicePath, Site, SiteFile, "",
                "inside the site's `path`; no two services of a site with the same; see below";
            /// The argument vector as written, program first.
            "command" command: Vec<String> = ServiceCommand, Site, SiteFile, "",
                "the program and its arguments; a whole or relative path, an ELF executable";
            /// The only folders it may read.
            "read" read: Vec<PathBuf> = FolderList, Site, SiteFile, "",
                "the folders that it may read; beside them it sees only [its libraries and a few \
                 devices](guide/services.md)";
            /// Folders of root's that it may read, and of whose files it may load code.
            "libraries" libraries: Vec<PathBuf> = FolderList, Site, SiteFile, "",
                "folders of root's that it may read and load code from while it runs: for \
                 [interpreters](guide/python.md). `command` may then name a program of the machine's";
            /// The most memory it may use, in bytes; `None`: not limited here.
            "memory_max" memory_max: Option<u64> = Size(&MEMORY_MAX), Site, SiteFile, "no limit",
                "memory of all processes of a worker, where a control group can be made; and private writable memory \
                 of each of them (`RLIMIT_DATA`). This and the next three hold for each of its `workers`";
            /// The memory above which it is slowed down, in bytes; `None`: not limited here.
            "memory_high" memory_high: Option<u64> = Size(&MEMORY_MAX), Site, SiteFile, "no limit",
                "above this it is slowed down; needs a control group";
            /// How many processes and threads it may have, itself included.
            "processes_max" processes_max: u32 = Count(&PROCESSES_MAX), Site, SiteFile, "",
                "processes and threads, itself included";
            /// The most time of processors that it may use, in hundredths of one; `None`: not limited here.
            "cpu_percent" cpu_percent: Option<u32> = OptionalCount(&CPU_PERCENT), Site, SiteFile, "no limit",
                "time of processors, in hundredths of one: 150 is one and a half; needs a control group";
            /// Its rights in the network; by default none.
            "network" network: Network = GrantList, Site, SiteFile, "",
                "where it may connect to: a TCP port of any host, or of one host or network \
                 (`\"tcp:10.0.0.5:5432\"`, `\"tcp:10.0.0.0/8:5432\"`, `\"tcp:[fd00::1]:443\"`); UDP to and from \
                 anywhere. [Its connector](guide/services.md#network) makes the connections. It also gets \
                 `/etc/hosts`, `/etc/resolv.conf` and certificates; without, no network at all";
            /// Whether it runs on another machine: then this is its door to data sources, a program of the server.
            "remote" remote: bool = DoorPlace, Site, SiteFile, "",
                "the service runs on [another machine](guide/data.md#on-another-machine), and calls from there the \
                 statements that are granted to it: it has a `name` and `data`, and neither `path` nor `command`; the \
                 site has `client_ca`";
            /// The data sources of its site that it may have, by their names.
            "data" data: Vec<String> = NameList, Site, SiteFile, "",
                "the data sources of its site of which it may call statements: [databases](guide/data.md)";
            /// Whether it has a folder of its own, to write files in that outlive it.
            "files" files: bool = Flag, Site, SiteFile, "",
                "it has a folder of its own, to keep files in: `files/SITE/NAME` of `state_dir`, which it sees as \
                 `/files`. Nothing in it is executed: [uploads](guide/service-toolkit.md#uploads)";
            /// Whether it has its site's templates.
            "templates" templates: bool = PlacedFlag, Site, SiteFile, "",
                "it has the [templates](guide/templates.md) and public values of its site";
            /// Whether it may make code while it runs.
            "jit" jit: bool = Flag, Site, SiteFile, "",
                "it may make code while it runs, as Node.js, PyPy, LuaJIT, Java and .NET do: [executable \
                 memory](guide/services.md#executable-memory)";
            /// The largest core file that it may write, in bytes; `None`: it writes none.
            "core_max" core_max: Option<u64> = Size(&CORE_MAX), Site, SiteFile, "none",
                "the largest core file. It then starts in `/cores`, a folder of its own in memory with room for 15 \
                 files and so many bytes, which count as the service's memory (`memory_max` must have room for \
                 both); so its paths must be absolute. After a crash the newest file is copied to `cores` of \
                 `state_dir`, for root alone, the latest four. Needs `kernel.core_pattern` without a path";
            /// The label that SELinux or AppArmor gives its program.
            "label" program_label: Option<String> = OptionalText(names::program_label), Site, SiteFile, "none",
                "the SELinux context or AppArmor profile of its program; refused where neither is active";
            /// Whether the gate hands it plaintext connections instead of requests.
            "takes_connections" takes_connections: bool = Flag, Site, SiteFile, "",
                "the gate hands connections straight to it; [the price](guide/services.md#takes_connections--true)";
            /// How many requests its site's worker may pass on to it at once; `None`: a share of the connections.
            "requests" requests: Option<u32> = OptionalCount(&REQUESTS), Site, SiteFile, "a share of `connections`",
                "requests that its site's worker may pass on to it at once; the next wait, and get 503 after 10 s, \
                 [as for servers behind a site](guide/proxy.md#what-goes-wrong)";
            /// Its whole environment, sorted by name.
            "environment" environment: Vec<(String, String)> = Variables, Site, SiteFile, "",
                "its whole environment; names of letters, digits and `_`";
            /// How many processes it has.
            "workers" workers: Workers = WorkerCount, Site, SiteFile, "",
                "its processes: [so many, or as many as there is work for](guide/operating.md#several-processes)";
            /// After so many requests its process is replaced.
            "max_requests" max_requests: Option<u64> = OptionalNumber(&MAX_REQUESTS), Site, SiteFile, "never",
                "after so many requests a new process takes its place";
            /// After so many milliseconds its process is replaced.
            "max_age" max_age_ms: Option<u32> = OptionalDuration(&MAX_AGE_MS), Site, SiteFile, "never",
                "after so long a new process takes its place";
            /// With so many bytes of memory of its own its process is replaced.
            "recycle_memory" recycle_memory: Option<u64> = Size(&MEMORY_MAX), Site, SiteFile, "never",
                "with so much memory of its own a new process takes its place; a service cannot exceed its \
                 `memory_max`. Its old name, `max_memory`, is still read, with a warning";
        }
    };
}
pub(crate) use service_keys;

/// `[restart]`: when a process that keeps dying is given up.
macro_rules! restart_keys {
    ($with:ident) => {
        $with! {
            "[restart]" Restart;
            /// This many unclean exits ...
            "broken_after" broken_after: u32 = Count(&BROKEN_AFTER), Nothing, Operator, "", "this many unclean exits ...";
            /// ... within this many milliseconds make a partition broken.
            "within" within_ms: u32 = Duration(&WITHIN_MS), Nothing, Operator, "",
                "... in this time make a site or service broken";
            /// The longest pause before a restart, in milliseconds.
            "backoff_max" backoff_max_ms: u32 = Duration(&BACKOFF_MAX_MS), Nothing, Operator, "",
                "the longest pause before a restart; also capped at `within / (broken_after + 1)`";
            /// After how many milliseconds without a word a process that is in use is ended.
            "hang_after" hang_after_ms: u32 = Duration(&HANG_AFTER_MS), Nothing, Operator, "",
                "a process that does not say a word for so long, though it has a processor, is ended, and started \
                 again; a gate has less";
        }
    };
}
pub(crate) use restart_keys;

/// `[limits]`: what one request or connection may cost.
macro_rules! limits_keys {
    ($with:ident) => {
        $with! {
            "[limits]" Limits;
            /// The longest request head, in bytes.
            "head_bytes" head_bytes: u32 = Bytes32(&HEAD_BYTES), GatesAndSites, Operator, "",
                "the longest request head; above it, 431, or 414 where the target alone is longer";
            /// The longest a client may take to send a head, in milliseconds; also `[conditioning].head_timeout`.
            "head_timeout" head_timeout_ms: u32 = ReadElsewhere(&HEAD_TIMEOUT_MS), GatesAndSites, Operator, "",
                "an older place of `head_timeout` in `[conditioning]`; if both are given, they are the same";
            /// The longest request body, in bytes; 0 refuses bodies.
            "body_bytes" body_bytes: u64 = Bytes(&BODY_BYTES), Sites, Operator, "",
                "the longest request body; above it, 413. 0 refuses bodies";
            /// The longest a connection may be silent, in milliseconds.
            "idle_timeout" idle_timeout_ms: u32 = Duration(&IDLE_TIMEOUT_MS), Sites, Operator, "",
                "how long a kept-alive connection may be silent (60 s in a gate)";
            /// The longest a request waits for a worker to start before it gets 503, in milliseconds.
            "start_timeout" start_timeout_ms: u32 = Duration(&START_TIMEOUT_MS), GatesAndSites, Operator, "",
                "how long a request waits for a worker before 503; how long a relaunched process may take to be \
                 ready";
            /// The longest a retired worker may take to finish, in milliseconds.
            "drain_timeout" drain_timeout_ms: u32 = Duration(&DRAIN_TIMEOUT_MS), Nothing, Operator, "",
                "how long a retired process may take to finish";
            /// Connections one worker holds at once.
            "connections" connections: u32 = Count(&CONNECTIONS), GatesAndSites, Operator, "",
                "connections that one process (gate, site, service) holds at once; half of them may wait for one \
                 site or service";
        }
    };
}
pub(crate) use limits_keys;

/// The keys of a table, for `rules`.
macro_rules! key_list {
    ($header:literal $checked:ident $($raw:ident)?;
    $(beside { $($(#[$beside_doc:meta])* $beside:ident: $beside_type:ty = $beside_of:ident),* })?
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        ($header, &[$($key),*])
    };
}
pub(crate) use key_list;

/// The checked form, and how two of them are compared.
macro_rules! checked_form {
    ($header:literal $checked:ident $($raw:ident)?;
    $(beside { $($(#[$beside_doc:meta])* $beside:ident: $beside_type:ty = $beside_of:ident),* })?
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        #[doc = concat!("`", $header, "`.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $checked {
            $($($(#[$beside_doc])* pub $beside: $beside_type,)*)?
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $checked {
            /// The keys whose values differ.
            pub fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut keys = Vec::new();
                $(if self.$field != other.$field {
                    keys.push($key);
                })*
                keys
            }
        }
    };
}
pub(crate) use checked_form;

/// The raw form: the values with their places.
macro_rules! raw_form {
    ($header:literal $checked:ident $raw:ident;
    beside { $($(#[$beside_doc:meta])* $beside:ident: $beside_type:ty = $beside_of:ident),* }
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        #[doc = concat!("`", $header, "`.")]
        #[derive(Clone)]
        pub(crate) struct $raw {
            /// Where the header stands.
            pub(crate) offset: usize,
            /// The kind and the name, such as `service "search"`, or the header of one without a name.
            pub(crate) label: String,
            $(pub(crate) $field: <$reader as KeyReader>::Raw,)*
        }
    };
}
pub(crate) use raw_form;

/// How the raw form is read, and becomes the checked one.
macro_rules! reading {
    ($header:literal $checked:ident $raw:ident;
    beside { $($(#[$beside_doc:meta])* $beside:ident: $beside_type:ty = $beside_of:ident),* }
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        impl $raw {
            /// Reads the table.
            pub(crate) fn read(from: TableSource<'_, '_>, problems: &mut Problems) -> Self {
                $(let $field = $reader $(($argument))?.read($key, from, problems);)*
                Self { offset: from.table.offset, label: from.table.label.clone(), $($field),* }
            }

            /// The checked form; `None` only if a mistake was reported.
            pub(crate) fn finish(self) -> Option<$checked> {
                $(let $beside = self.$beside_of()?;)*
                Some($checked { $($beside,)* $($field: Finish::finish(self.$field)?),* })
            }
        }

        /// The defaults: a table without any key.
        impl Default for $checked {
            fn default() -> Self {
                Self {
                    $($beside: <$beside_type>::default(),)*
                    $($field: Finish::<$type>::finish($reader $(($argument))?.absent()).unwrap_or_default()),*
                }
            }
        }
    };
}
pub(crate) use reading;

/// How a table is read whose values are checked by themselves: it has no raw form.
macro_rules! plain_reading {
    ($header:literal $checked:ident;
    $($(#[$doc:meta])* $key:literal $field:ident: $type:ty = $reader:ident $(($argument:expr))?,
        $reload:ident, $setter:ident, $default:literal, $rule:literal;)*) => {
        impl $checked {
            /// Reads the table.
            pub(crate) fn read(from: TableSource<'_, '_>, problems: &mut Problems) -> Self {
                Self { $($field: $reader $(($argument))?.read($key, from, problems)),* }
            }
        }
    };
}
pub(crate) use plain_reading;
