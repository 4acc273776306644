//! `bulkhead bans`: the clients that sites refuse since their records failed to decrypt, and an end of it.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised: its words are printed with control characters escaped. Never: asks a gate or a site itself.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use crate::admin::{self, give, printable};
use crate::fault::Fault;
use crate::table::{align, print};

const HEADER: [&str; 3] = ["CLIENT", "SITE", "SECONDS LEFT"];

/// A client that a site refuses.
#[derive(Debug, Deserialize)]
struct Ban {
    site: String,
    address: String,
    seconds: u32,
}

/// Asks the server at `run_dir` and prints what it says.
pub fn list(run_dir: &Path, json: bool) -> Result<ExitCode, Fault> {
    admin::list(run_dir, "bans", "bans", json, render)
}

fn render(bans: &[Ban]) -> String {
    if bans.is_empty() {
        return "no client is refused".to_owned();
    }
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(
        bans.iter().map(|ban| vec![printable(&ban.address), printable(&ban.site), ban.seconds.to_string()]),
    );
    align(&rows, &[2])
}

/// Makes an end of a client's bans.
pub fn clear(run_dir: &Path, address: IpAddr) -> Result<ExitCode, Fault> {
    give(run_dir, &json!({ "command": "unban", "address": address }))?;
    print(&format!("{address}: refused no more"))?;
    Ok(ExitCode::SUCCESS)
}
