//! The words that say which running server is meant, and what is to be said of it.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.

use std::path::PathBuf;

use clap::Args;

use crate::explain::Form;

/// What to say of a running server.
#[derive(Debug, Args)]
pub struct StatusView {
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
    pub part: StatusPart,
}

/// Which part of the list of processes to print.
#[derive(Debug, Args)]
pub struct StatusPart {
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
pub struct ExplainForm {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Print a picture, in which a named process is framed.
    #[arg(long)]
    svg: bool,
}

impl ExplainForm {
    /// The form that was asked for.
    pub fn form(&self) -> Form {
        match (self.json, self.svg) {
            (true, _) => Form::Json,
            (_, true) => Form::Svg,
            _ => Form::Text,
        }
    }
}

/// Which running server is meant: without any of these, that of ./bulkhead.toml or /etc/bulkhead/bulkhead.toml, or the
/// only one.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ServerOptions {
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
