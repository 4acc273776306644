//! The command line: what there is to type, and what `--help` says of it.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::address;

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
  bulkhead status                    see what runs, and in which jail

EXIT CODES: 0 done, 1 failed, 2 wrong command line or configuration"
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
    /// Serve a folder of static files, without a configuration file, until SIGTERM or SIGINT.
    #[command(after_help = "\
EXAMPLES:
  bulkhead serve ./public
  bulkhead serve ./public --listen 0.0.0.0:80
  bulkhead serve ./public --print-config > bulkhead.toml")]
    Serve(Serve),
    /// Find every mistake in a configuration, without running anything.
    #[command(after_help = "\
EXAMPLES:
  bulkhead check bulkhead.toml
  bulkhead check bulkhead.toml --json | jq '.[].message'")]
    Check {
        /// The configuration file.
        config: PathBuf,
        /// Print an array of {file, line, column, message, helps}; empty if all is well.
        #[arg(long)]
        json: bool,
    },
    /// List the processes of a running server, and the layers of jail that the kernel reports for each.
    #[command(after_help = "\
EXAMPLES:
  bulkhead status
  bulkhead status --config /srv/www/bulkhead.toml
  bulkhead status --run-dir /run/bulkhead --json | jq '.processes[].layers'

COLUMNS: CONNS now/total; MEMORY proportional share (Pss), else resident; AGE since its start.
LAYERS: identity caps nnp root rlimits; `-name` is missing, `?` cannot be read (try as root); fds:N are open.")]
    Status {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Print one JSON object; memory in bytes, ages in milliseconds.
        #[arg(long)]
        json: bool,
    },
    /// Replace a site, a service or a role by a new process; the old one goes when the new one serves.
    #[command(after_help = "\
EXAMPLES:
  bulkhead relaunch packages         the worker of the site `packages`
  bulkhead relaunch packages/search  its service `search`
  bulkhead relaunch gate             all gates (as well: logger, admin)")]
    Relaunch {
        /// A site, SITE/SERVICE, or gate, logger, admin.
        name: String,
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
    /// Stop a running server: connections are finished first; waits for up to 60 s.
    #[command(after_help = "\
EXAMPLES:
  bulkhead stop
  bulkhead stop --run-dir /run/bulkhead")]
    Stop {
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
}

/// How to serve a folder.
#[derive(Debug, Args)]
pub struct Serve {
    /// The folder.
    pub dir: PathBuf,
    /// The address to listen at: PORT, :PORT or IP:PORT; a port alone is on 127.0.0.1.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address::parse)]
    pub listen: SocketAddr,
    /// Print the configuration that would be used, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// Which running server is meant.
#[derive(Debug, Args)]
pub struct Server {
    /// The configuration it runs with [default: ./bulkhead.toml, else /etc/bulkhead/bulkhead.toml]
    #[arg(long, value_name = "CONFIG", conflicts_with = "run_dir")]
    pub config: Option<PathBuf>,
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
        assert!(Cli::try_parse_from(["bulkhead", "serve", "d", "--listen", "x"]).is_err());
    }
}
