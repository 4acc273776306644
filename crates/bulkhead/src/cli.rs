//! The command line: what there is to type, and what `--help` says of it.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::data::Generate;
use crate::explain::Form;
use crate::guard;
use crate::new::New;
use crate::serve::options::Serve;

/// Bulkhead, a web server whose parts cannot reach each other.
#[derive(Debug, Parser)]
#[command(
    name = "bulkhead",
    version,
    after_help = "\
EXAMPLES:
  bulkhead serve ./public            serve a folder at http://127.0.0.1:8080/
  bulkhead check bulkhead.toml       find mistakes in a configuration
  bulkhead run bulkhead.toml         run a server
  bulkhead guard -- COMMAND          put a gate before a server of anybody's
  bulkhead ps                        see which servers run
  bulkhead status                    see what runs in one, and in which jail
  bulkhead explain                   see what falls with each process
  bulkhead probe gate                see what an attacker gets who owns a process

EXIT CODES: 0 done, 1 failed, 2 wrong command line or configuration, 3 done in part, which the command says"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Everything that can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server that a configuration describes, until SIGTERM or SIGINT.
    #[command(after_help = "\
EXAMPLES:
  bulkhead run                       ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml
  bulkhead run /srv/www/bulkhead.toml")]
    Run {
        /// The configuration file [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
        config: Option<PathBuf>,
    },
    /// Serve folders, virtual hosts, FastCGI and upstreams without a configuration file, until SIGTERM or SIGINT.
    #[command(after_help = "\
EXAMPLES:
  bulkhead serve ./public                            http://127.0.0.1:8080/ and nobody else
  bulkhead serve ./public --listen 0.0.0.0:80
  bulkhead serve --bind 80 --sandbox /var/www/html --fastcgi .php /run/php.sock --log-dir /var/log/bulkhead
  bulkhead serve --tls /root/example.pem --bind 443 --sandbox /var/www/html
  bulkhead serve --bind 80 --vhost /var/www                         /var/www/HOST for each host
  bulkhead serve --bind 80 --host-sandbox a.example /srv/a --host-sandbox b.example /srv/b
  bulkhead serve --bind 80 --redirect https://example.org/ --new --tls example.pem --bind 443 --sandbox /var/www/html
  bulkhead serve --bind 80 --sandbox /srv/static --backpath 127.0.0.1:3000     files first, then the application
  bulkhead serve ./public --print-config > bulkhead.toml

--tls stands before the --bind that it is about. --log-dir, --error-log, --error-syslog and --cpu are about the whole
server, so that it does not matter in which configuration they stand; --run-as is for every configuration that names no
other. Each folder (of --sandbox, --vhost, --host-sandbox) is a site with a process and a uid of its own.")]
    Serve(Box<Serve>),
    /// Guard a server of anybody's: a gate accepts for it, and hands it connections on which a whole request waits.
    #[command(after_help = "\
EXAMPLES:
  bulkhead guard -- apache2 -DFOREGROUND               the server listens where it always did
  bulkhead guard --listen 0.0.0.0:80 -- ./my-server    the gate listens there in its place
  bulkhead guard --report 10 --share-of-24 0.05 -- nginx -g 'daemon off;'
  bulkhead guard --config bulkhead.toml -- node server.js

The server is not changed and not configured: it sees its clients' own connections and addresses. SIGTERM, SIGINT,
SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 and SIGWINCH are passed on to it.

WHAT CANNOT BE GUARDED: setuid programs, 32-bit programs, sockets that systemd has opened, io_uring, UDP (HTTP/3).

EXIT CODES: those of the command, 128 and its number if a signal has ended it; 2 wrong command line")]
    Guard(Box<guard::Guard>),
    /// Find every mistake in a configuration, without running anything.
    #[command(after_help = "\
EXAMPLES:
  bulkhead check
  bulkhead check /etc/bulkhead/bulkhead.toml
  bulkhead check bulkhead.toml --json | jq '.[].message'
  bulkhead check --need                     what it needs of processes, descriptors and memory, beside the limits
  bulkhead check --strict bulkhead.toml     for a pipeline: warnings are errors

Certificates, keys, lists and users are read in a jail; nothing is changed. `run` and `reload` refuse what this refuses.
Check as the user who starts the server: as root, folders are looked at for the uids of sites and services.

EXIT CODES: 0 it can be run (perhaps with warnings), 2 it cannot")]
    Check {
        /// The configuration [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
        config: Option<PathBuf>,
        /// Print an array of {file, line, column, message, helps}, empty if all is well; with `--need`, of {resource, needed, limit}.
        #[arg(long)]
        json: bool,
        /// Say what a server needs that is started from here, and which limit of each resource is reached first.
        #[arg(long, conflicts_with = "strict")]
        need: bool,
        /// Exit with 2 if there is a warning, as if it were an error.
        #[arg(long)]
        strict: bool,
    },
    /// List this user's running servers: by `run`, `serve` and `guard`.
    #[command(after_help = "\
EXAMPLES:
  bulkhead ps
  bulkhead ps --json | jq -r '.servers[] | select(.state == \"serving\").pid'
  sudo bulkhead ps                       root's

Commands find a server by its pid in the list (--pid), by its configuration, broken or removed by now (--config), by a
folder that it serves (--folder), or without any of these if it is the only one.

STATES: `starting` until every listener accepts; `dead`: ended without saying so, by SIGKILL for example. A dead one is
listed once.")]
    Ps {
        /// Print an object with the array `servers`; ages in milliseconds.
        #[arg(long)]
        json: bool,
    },
    /// List the processes of a running server, and the layers of jail that the kernel reports for each.
    #[command(after_help = "\
EXAMPLES:
  bulkhead status
  bulkhead status --config /srv/www/bulkhead.toml
  bulkhead status --folder ./public      one that `bulkhead serve` has started
  bulkhead status --isolation            one column for each layer of jail
  bulkhead status --isolation --score    and how exposed each process is, tried from inside its jail
  bulkhead status --conditioning         what was shed, and why
  bulkhead status --certificates         which certificates end soon, are revoked, or have no staple
  bulkhead status --run-dir /run/bulkhead --json | jq '.processes[].layers'
  bulkhead status --site shop            its workers, services and what belongs to them
  bulkhead status --role service --limit 100 --json | jq .next         the next page: --after with this

COLUMNS: CONNS now/total; MEMORY proportional share (Pss), else resident; AGE since its start.
LAYERS: those that are missing; with `?` those that cannot be read (try as root; nobody can read landlock).")]
    Status {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// What to say of it.
        #[command(flatten)]
        view: View,
    },
    /// Try more than 200 ways out of a jail, from inside: what an attacker who owns this process gets.
    #[command(after_help = "\
EXAMPLES:
  bulkhead probe packages/search     what gets out of the jail of a service
  bulkhead probe gate                (as well: a site, logger, admin)
  bulkhead probe packages --json | jq '.summary'

The server starts the program bulkhead-probe in one more jail of that kind; the process itself goes on as it is.

EXIT CODES: 0 all was as it should be, 1 something succeeded that should be refused (or failed), 2 wrong name")]
    Probe {
        /// A site, SITE/SERVICE, or gate, logger, admin.
        name: String,
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Print the probe's report, one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Say what falls with a process that an attacker owns: sites, services, files, logs, users' connections.
    #[command(after_help = "\
EXAMPLES:
  bulkhead explain                   a line for each process, and other servers beside it
  bulkhead explain packages/search   one service (as well: a site, gate, logger, admin, bulkheadd)
  bulkhead explain --config /srv/www/bulkhead.toml --svg > falls.svg
  bulkhead explain --json | jq '.processes[] | {name, lost: .blast.all}'

Asks the server that runs for uids and pids; without one, the configuration alone is explained. Files of sites that are wrong are
left out as by a start, and said.

EXIT CODES: 0 done, 1 failed, 2 wrong name or configuration, 3 done, but for files of sites that were left out")]
    Explain {
        /// A site, SITE/SERVICE, or a role: bulkheadd, gate, logger, admin, signer, stapler, filters [default: all]
        partition: Option<String>,
        /// The configuration [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
        #[arg(long, value_name = "CONFIG")]
        config: Option<PathBuf>,
        /// How to say it.
        #[command(flatten)]
        form: Explained,
    },
    /// Replace a site, a service or a role by a new process; the old one goes when the new one serves.
    #[command(after_help = "\
EXAMPLES:
  bulkhead relaunch packages         the worker of the site `packages`; packages/search is its service `search`
  bulkhead relaunch packages#2       the second of its workers alone, where it has several (the first is packages#1)
  bulkhead relaunch gate             all gates (as well: logger, admin, signer, stapler)

A relaunch loses no request. If the new process does not come up, the old one keeps running. Of several workers, the first is
tried alone; all take over together. Exit code 3: certificates that cannot be read are left out of a new signer.")]
    Relaunch {
        /// A site, SITE/SERVICE, one worker of either (NAME#2), `filter` for all filters, or a role: gate, logger, admin, signer, stapler.
        name: String,
        /// Relaunch the signer without certificates that cannot be read any more; handshakes with their sites fail.
        #[arg(long)]
        leave_out: bool,
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
    /// Give one, some or all services an order, and print what each of their processes answers.
    #[command(after_help = "\
EXAMPLES:
  bulkhead send shop/cart diagnostics           (what it has done and is doing; --json for programs)
  bulkhead send --all diagnostics
  bulkhead send shop/cart shop/search relaunch
  bulkhead send shop/cart flush-cache 10        (a word of the service's own, and its argument)

ORDERS: relaunch, republish (the templates of the services' sites), log-turn (as `bulkhead reopen`), diagnostics. Any other
word is one that the service knows itself: `Service::command` of its program. The exit code is 1 if one has failed.")]
    Send {
        /// Services, as SITE/SERVICE; then the order, and its argument.
        #[arg(required = true, value_name = "SERVICE... ORDER [ARGUMENT]")]
        words: Vec<String>,
        /// All services that have a process.
        #[arg(long)]
        all: bool,
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read the templates of a site again, or those of all sites, and have them hold in all processes; or change nothing.
    #[command(after_help = "\
EXAMPLES:
  bulkhead republish                (all sites that have templates)
  bulkhead republish shop
  bulkhead check && bulkhead republish --json

All processes of the site's services compile the new templates first; when all have, they hold for every request that begins
from then on. A mistake is printed with its line, and what held before holds: the exit code is then 1.")]
    Republish {
        /// The site; without it, all.
        site: Option<String>,
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read the configuration of a running server again, and change what has changed; a file of a site that is wrong is left out.
    #[command(after_help = "\
EXAMPLES:
  bulkhead reload
  bulkhead reload blog              (the file of this site, and nothing else)
  bulkhead reload --dry-run         (what would change, and which processes would start, get successors or end)
  bulkhead reload --all-or-nothing  (nothing changes if anything is wrong)
  bulkhead check && bulkhead reload --run-dir run

With a file for each site (`include`), what is good is taken in. A file that has a mistake, wants what another site has, or
whose service does not come up, is left out: its sites go on as they run. A mistake in the main file refuses everything.
Exit status: 0 all of it is done, 3 the same but for files that were left out, 1 nothing has changed.

Sites, services, listeners, filters, logs, limits and policies that have changed get new processes or routes; what they
have begun, the processes of before finish. Some keys of [server] take a restart: the refusal says which, and why. SIGHUP
to the launcher does the same; its result is in the log.")]
    Reload {
        /// Take in the file of this site alone; all others, and the main file, stay as they run.
        site: Option<String>,
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Change nothing if one file of a site is wrong.
        #[arg(long)]
        all_or_nothing: bool,
        /// Say what would change, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Say it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put the programs that are installed now in the place of those of a running server; no connection is refused or reset.
    #[command(after_help = "\
EXAMPLES:
  bulkhead upgrade                           after a package has put other programs in the place of those that run
  bulkhead upgrade --to /opt/bulkhead-2/bin/bulkheadd

The new launcher is tried first, while the old one serves: one that does not read the configuration, or what the old one
hands to it, is refused, and nothing has changed. Then it takes over in the same process, and every process gets a
successor. What does not come up leaves the process of before: the upgrade has ended half, which the answer, the exit code,
`bulkhead status` and the log say; run it again when that is put right. A certificate that cannot be read any more is left
out, which they say as well. SIGUSR2 to the launcher does the same. To go back to the version before, upgrade to that.

EXIT CODES: 0 upgraded, 1 nothing has changed, 2 wrong words, 3 upgraded half, or without some certificates")]
    Upgrade {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// The new `bulkheadd`, with the programs of the roles beside it or in ../libexec/bulkhead [default: where the running one was]
        #[arg(long, value_name = "PROGRAM")]
        to: Option<PathBuf>,
        /// Try the new launcher, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Print an object with the array `roles`, `ended` (\"whole\" or \"half\"), `error`, and the array `left_out`.
        #[arg(long)]
        json: bool,
    },
    /// Add, remove, enable, disable and list the sites of the folder that `include` names; a server that runs follows at once.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site list
  bulkhead site add blog --host blog.example --root /srv/blog
  bulkhead site add shop --host shop.example --upstream 127.0.0.1:3000 --certificate /etc/ssl/shop.pem
  bulkhead site add forum --from forum.toml          a file with one [[site]], called forum
  bulkhead site disable blog && bulkhead site enable blog
  bulkhead site --config /etc/bulkhead/bulkhead.toml remove blog
  bulkhead site remove --purge blog                  its files and data as well
  bulkhead site uids                                 whose each uid is

The configuration has `include = \"sites/*.toml\"` at its top; the site NAME is in sites/NAME.toml. What the server
refuses, or `bulkhead check` where none runs, leaves the folder as it was. The server takes in this file alone: the files of
other sites, and the main file, stay as they run until a reload.")]
    Site {
        /// The configuration [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
        #[arg(long, value_name = "CONFIG", global = true)]
        config: Option<PathBuf>,
        /// What to do.
        #[command(subcommand)]
        command: SiteCommand,
    },
    /// Check the statements of databases, or write functions that call them.
    #[command(after_help = "\
EXAMPLES:
  bulkhead data check                    all of them
  bulkhead data check shop/catalog --json
  bulkhead data gen shop/catalog > src/catalog.rs

Each statement is prepared as its data proxy will prepare it: with the database, if this user can read it, or with the
`schema` of a new one. Nothing is changed. Files of sites that are wrong are left out as by a start, and said.

EXIT CODES: 0 all is well, 1 failed, 2 there is a mistake, 3 all is well, but for files of sites that were left out")]
    Data {
        /// The configuration [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
        #[arg(long, value_name = "CONFIG", global = true)]
        config: Option<PathBuf>,
        /// What to do.
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Make the folder of a new service: a program, its tests, and a configuration that runs it.
    #[command(after_help = "\
EXAMPLES:
  bulkhead new hello
  bulkhead new hello --lang python
  bulkhead new hello --lang rust --sdk ~/src/bulkhead/crates/service

The folder must not be there. What is printed are the next three commands: into the folder, build the program, run it.")]
    New(New),
    /// List the clients that sites refuse since their records failed to decrypt (`tamper_ban`).
    #[command(after_help = "\
EXAMPLES:
  bulkhead bans
  bulkhead bans --clear 192.0.2.1    (an end of that client's, at all sites)")]
    Bans {
        /// Make an end of the bans of this client.
        #[arg(long, value_name = "ADDRESS")]
        clear: Option<std::net::IpAddr>,
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Print an object with the array `bans`.
        #[arg(long)]
        json: bool,
    },
    /// Open the logs of a running server anew, after they were moved away; returns when the old ones are complete.
    #[command(after_help = "\
EXAMPLES:
  bulkhead reopen
  mv log/blog.access.log log/blog.access.log.1 && bulkhead reopen --run-dir run && gzip log/blog.access.log.1")]
    Reopen {
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
    /// Stop a running server, or a guard with its server: connections are finished first; waits for up to 60 s.
    #[command(after_help = "\
EXAMPLES:
  bulkhead stop                          the only one, or that of ./bulkhead.toml
  bulkhead stop --pid 4711               one of several, by its number in `bulkhead ps`
  bulkhead stop --config old.toml        also if old.toml is broken, or gone, by now
  bulkhead stop --folder ./public        one that `bulkhead serve` has started
  bulkhead stop --run-dir /run/bulkhead")]
    Stop {
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
}

/// What can be done with sites.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// List all sites, and where each is written down. The exit code is 3 if files of sites are wrong, and left out.
    List {
        /// Print an object with the arrays `sites` and `left_out`.
        #[arg(long)]
        json: bool,
    },
    /// Add a site.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site add blog --host blog.example --root /srv/blog
  bulkhead site add forum --from forum.toml
  bulkhead site add forum --from forum.toml --adopt       (with the files and data of a forum that was removed)

If a site of this name has left files or data, the command fails, and says how to delete or to adopt them.")]
    Add {
        /// The name of the site, and of its file.
        name: String,
        /// Take this file, which has one [[site]]; `-` is standard input. Paths in it count from the folder of sites.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "root", "vhosts", "php", "upstream", "certificate"])]
        from: Option<PathBuf>,
        /// Or what is to be in it.
        #[command(flatten)]
        site: NewSite,
        /// Take over what a site of this name has left: its uids, files and data.
        #[arg(long)]
        adopt: bool,
        /// Print an object {ok, site, done}, or {ok, site, error, left, remedies} if something is left.
        #[arg(long)]
        json: bool,
    },
    /// Have the site that the configuration has take over what one of its name has left.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site adopt blog         (its `root` belongs to another user now, and it is the same site)
  bulkhead site adopt blog --json")]
    Adopt {
        /// The name of the site.
        name: String,
        /// Print an object {ok, site, done}.
        #[arg(long)]
        json: bool,
    },
    /// Remove a site: what it has begun it finishes. What it leaves is nobody's.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site remove blog
  bulkhead site remove --purge blog         (with its files and data; also those of one that was removed before)
  bulkhead site remove --purge blog --json

The uids, files/SITE and data/SITE of the site go to nobody: as long as files or data are there, no site of this name is added or
started, unless it takes them over: `bulkhead site add --adopt`. With --purge, they are deleted when the last process of the site
has ended, for which the command waits for up to 60 s. Logs and core files are kept.")]
    Remove {
        /// The name of the site.
        name: String,
        /// Delete its files and data as well.
        #[arg(long)]
        purge: bool,
        /// Print an object {ok, site, done, left, deleted}.
        #[arg(long)]
        json: bool,
    },
    /// List the uids of `user_range` that were given out, or give back those that sites have left.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site uids
  bulkhead site uids blog
  bulkhead site uids --give-back blog         (after `bulkhead site remove --purge blog`)
  bulkhead site uids --give-back --all --json

STATES: in use, by the configuration; kept, for a site that is disabled or was taken out by hand; left, by a site that was removed,
or by something that the configuration has no more. A uid goes to nobody else before it is given back. What is left is given back if
no process runs under the uid, and if no file is its own, or its group's, in `state_dir`, `log_dir`, the folder of the
configuration, the folders of all sites, and those of `--search`: a process of its own searches these, for up to 300 s. What
could not be searched is not given back.

EXIT CODES: 0 all is given back, 1 something is not, 2 wrong words; of the list: 3 if files of sites are wrong, and left out")]
    Uids(UidsOf),
    /// Serve a site that was disabled.
    Enable {
        /// The name of the site.
        name: String,
    },
    /// Serve a site no more, and keep its file.
    Disable {
        /// The name of the site.
        name: String,
    },
}

/// Which uids, and what is done with them.
#[derive(Debug, Args)]
pub struct UidsOf {
    /// Those of these sites, or names as the list has them, such as service/blog/app [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Give back those that are left.
    #[arg(long)]
    pub give_back: bool,
    /// Give back all that are left.
    #[arg(long, requires = "give_back", conflicts_with = "names")]
    pub all: bool,
    /// Search this folder as well; can be given several times.
    #[arg(long, value_name = "FOLDER", requires = "give_back")]
    pub search: Vec<PathBuf>,
    /// Print an object {range, taken, free, uids, left_out}, or {ok, searched, uids} of what was given back.
    #[arg(long)]
    pub json: bool,
}

/// What can be done with data sources.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Say what is wrong with statements.
    Check {
        /// Sources, as SITE/SOURCE [default: all]
        #[arg(value_name = "SOURCE")]
        names: Vec<String>,
        /// Print an array of {source, statements, with, mistakes}, and of {left_out} for files of sites.
        #[arg(long)]
        json: bool,
    },
    /// Write a typed function for each statement of a source.
    #[command(after_help = "\
EXAMPLES:
  bulkhead data gen shop/catalog > src/catalog.rs
  bulkhead data gen shop/catalog --service search --lang python --out app/catalog.py

Types are those of the parameters in the file of statements, and of the columns as the database says; nothing is changed there.")]
    Gen(Generate),
}

/// A site in a few words; for all others there is `--from`.
#[derive(Debug, Args)]
pub struct NewSite {
    /// A host of the site; can be given several times.
    #[arg(long, value_name = "HOST", required_unless_present = "from")]
    pub host: Vec<String>,
    /// The folder of its files.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// A folder with a folder of files for each host.
    #[arg(long, value_name = "DIR")]
    pub vhosts: Option<PathBuf>,
    /// A FastCGI server for `.php`: unix:/run/php.sock, or HOST:PORT.
    #[arg(long, value_name = "SERVER")]
    pub php: Option<String>,
    /// The server behind all paths: HOST:PORT, or unix:/run/app.sock.
    #[arg(long, value_name = "SERVER")]
    pub upstream: Option<String>,
    /// A certificate with its key; can be given several times.
    #[arg(long, value_name = "FILE")]
    pub certificate: Vec<PathBuf>,
}

/// What to say of a running server.
#[derive(Debug, Args)]
pub struct View {
    /// Print a table with one column for each layer.
    #[arg(long)]
    pub isolation: bool,
    /// Probe each jail from inside (some seconds each): exposure from 0 (best) to 10, and what costs points.
    #[arg(long, requires = "isolation")]
    pub score: bool,
    /// Print what each gate and site has shed, and why, and the address ranges that weigh most.
    #[arg(long, conflicts_with = "isolation")]
    pub conditioning: bool,
    /// Print each certificate of each site: its key, until when it is valid, and what its authority says of it (OCSP).
    #[arg(long, conflicts_with_all = ["isolation", "conditioning"])]
    pub certificates: bool,
    /// Print one JSON object; memory in bytes, ages in milliseconds.
    #[arg(long)]
    pub json: bool,
    /// Which processes to list.
    #[command(flatten)]
    pub part: Part,
}

/// Which part of the list of processes to print.
#[derive(Debug, Args)]
pub struct Part {
    /// Only the processes of this site: its workers, services, connectors, data proxies.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["conditioning", "certificates"])]
    pub site: Option<String>,
    /// Only the processes of this role: gate, site, service, connector, dataproxy, ...
    #[arg(long, value_name = "ROLE", conflicts_with_all = ["conditioning", "certificates"])]
    pub role: Option<String>,
    /// At most so many processes.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["conditioning", "certificates"],
        value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Go on behind a page: what `next` of its JSON says, or the last line of its table.
    #[arg(long, value_name = "NEXT", conflicts_with_all = ["conditioning", "certificates"])]
    pub after: Option<u32>,
}

/// How an explanation is to look: a table, unless one of these says otherwise.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct Explained {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Print a picture, in which a named process is framed.
    #[arg(long)]
    svg: bool,
}

impl Explained {
    /// The form that was asked for.
    pub fn form(&self) -> Form {
        match (self.json, self.svg) {
            (true, _) => Form::Json,
            (_, true) => Form::Svg,
            _ => Form::Text,
        }
    }
}

/// Which running server is meant: without any of these, that of ./bulkhead.toml or /etc/bulkhead/bulkhead.toml, or the only
/// one.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct Server {
    /// The configuration that the server was started with [default: ./bulkhead.toml, or that of the only server]
    #[arg(long, value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// A folder that `bulkhead serve` serves.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// The server's pid, as `bulkhead ps` lists it.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Its run directory, the one with admin.sock in it.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_help_has_examples() {
        let mut cli = Cli::command();
        cli.clone().debug_assert();
        assert!(cli.render_long_help().to_string().contains("EXAMPLES"));
        let own = cli.get_subcommands_mut().filter(|command| command.get_name() != "help");
        for command in own {
            let help = command.render_long_help().to_string();
            assert!(help.contains("EXAMPLES"), "{}", command.get_name());
            assert!(!help.starts_with("Usage"), "{} has no purpose", command.get_name());
        }
    }

    #[test]
    fn two_ways_to_name_a_server_exclude_each_other() {
        let both = ["bulkhead", "stop", "--config", "a", "--run-dir", "b"];
        assert!(Cli::try_parse_from(both).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "stop", "--pid", "1", "--folder", "b"]).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "bans", "--pid", "1"]).is_ok());
        assert!(Cli::try_parse_from(["bulkhead", "serve", "d", "--listen", "x"]).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "explain", "--json", "--svg"]).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "status", "--score"]).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "status", "--conditioning", "--isolation"]).is_err());
        assert!(Cli::try_parse_from(["bulkhead", "status", "--conditioning", "--json"]).is_ok());
        assert!(Cli::try_parse_from(["bulkhead", "status", "--certificates", "--json"]).is_ok());
        assert!(Cli::try_parse_from(["bulkhead", "status", "--certificates", "--conditioning"]).is_err());
    }
}
