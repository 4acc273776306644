//! The command line: what there is to type, and what `--help` says of it.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.

mod server;
mod site;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::data::Generate;
use crate::guard;
use crate::new::New;
use crate::serve::options::Serve;
pub use server::{ExplainForm, ServerOptions, StatusPart, StatusView};
pub use site::{NewSite, SiteCommand, UidsOf};

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
        /// Print an array of {file, line, column, message, helps}, empty if all is well; with `--need`, of {resource,
        /// needed, limit}.
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
        server: ServerOptions,
        /// What to say of it.
        #[command(flatten)]
        view: StatusView,
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
        server: ServerOptions,
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
        form: ExplainForm,
    },
    /// Replace a site, a service or a role by a new process; the old one goes when the new one serves.
    #[command(after_help = "\
EXAMPLES:
  bulkhead relaunch packages         the worker of the site `packages`
  bulkhead relaunch packages/search  its service `search`
  bulkhead relaunch packages#2       the second of its workers alone, where it has several (the first is packages#1)
  bulkhead relaunch gate             all gates (as well: logger, admin, signer, stapler)
  bulkhead relaunch filter           the chain of filters, as a whole
  bulkhead relaunch signer --leave-out   without certificates that cannot be read any more

A relaunch loses no request. If the new process does not come up, the old one keeps running. Of several workers, the first is
tried alone; all take over together. Exit code 3: certificates that cannot be read are left out of a new signer.")]
    Relaunch {
        /// A site, SITE/SERVICE, one worker of either (NAME#2), `filter` for all filters, or a role: gate, logger,
        /// admin, signer, stapler.
        name: String,
        /// Relaunch the signer without certificates that cannot be read any more; handshakes with their sites fail.
        #[arg(long)]
        leave_out: bool,
        /// Which server.
        #[command(flatten)]
        server: ServerOptions,
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
        server: ServerOptions,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read the templates of a site again, or those of all sites, and have them hold in all processes; or change
    /// nothing.
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
        server: ServerOptions,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read the configuration of a running server again, and change what has changed; a file of a site that is wrong is
    /// left out.
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
        server: ServerOptions,
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
    /// Put the programs that are installed now in the place of those of a running server; no connection is refused or
    /// reset.
    #[command(after_help = "\
EXAMPLES:
  bulkhead upgrade                           after a package has put other programs in the place of those that run
  bulkhead upgrade --to /opt/bulkhead-2/bin/bulkheadd
  bulkhead upgrade --dry-run                 (whether the new programs could take over)

The new launcher is tried first, while the old one serves: one that does not read the configuration, or what the old one
hands to it, is refused, and nothing has changed. Then it takes over in the same process, and every process gets a
successor. What does not come up leaves the process of before: the upgrade has ended half, which the answer, the exit code,
`bulkhead status` and the log say; run it again when that is put right. A certificate that cannot be read any more is left
out, which they say as well. SIGUSR2 to the launcher does the same. To go back to the version before, upgrade to that.

EXIT CODES: 0 upgraded, 1 nothing has changed, 2 wrong words, 3 upgraded half, or without some certificates")]
    Upgrade {
        /// Which server.
        #[command(flatten)]
        server: ServerOptions,
        /// The new `bulkheadd`, with the programs of the roles beside it or in ../libexec/bulkhead [default: where the
        /// running one was]
        #[arg(long, value_name = "PROGRAM")]
        to: Option<PathBuf>,
        /// Try the new launcher, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Print an object with the array `roles`, `ended` (\"whole\" or \"half\"), `error`, and the array `left_out`.
        #[arg(long)]
        json: bool,
    },
    /// Add, remove, enable, disable and list the sites of the folder that `include` names; a server that runs follows
    /// at once.
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
        server: ServerOptions,
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
        server: ServerOptions,
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
        server: ServerOptions,
    },
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
