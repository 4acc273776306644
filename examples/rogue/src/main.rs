//! A compromised process, for the tests: it is put in the place of a role's program or is a service's command, is
//! started in the real jail with the real channels, and then sends on each of them what it must not.
//!
//! Runs in: the jail of the role whose place it takes. Sees: all that this role is given. Never: is installed; it is
//! no part of the server.
//!
//! Which process misbehaves is told by its title. Of several that share a program (gates, sites, connectors), those
//! that are not `gate 1` and of no site called `rogue` do their work as if nothing was wrong, with the code of the real
//! program. What it has done it says in lines that begin with `rogue:`, and the end of each stage with `rogue: stage
//! NAME`.

mod batches;
mod databases;
mod deeds;
mod descriptors;
mod hands;
mod helpers;
mod orders;
mod pages;
mod place;
mod serving;

use std::process::ExitCode;

use wire::Role;

/// Of a site, and of its database.
const ROGUE_CONNECTORS: [&str; 2] = ["connector rogue", "connector rogue/catalog:data"];

fn main() -> ExitCode {
    let title = std::env::args().next().unwrap_or_default();
    let title = title.strip_prefix("bulkhead: ").unwrap_or_default().to_owned();
    let role = match title.split(' ').next() {
        Some("gate") if title != "gate 1" => return worker::run(gate::run),
        Some("site") if title != "site rogue" => return worker::run(site::worker::run),
        // Nothing starts with files that nobody can examine.
        Some("signer") if title == "signer check" => return signer::check::main(),
        Some("connector") if !ROGUE_CONNECTORS.contains(&&*title) => return worker::run(connector::serve),
        Some("gate") => Role::Gate,
        Some("site") => Role::Site,
        Some("logger") => Role::Logger,
        Some("admin") => Role::Admin,
        Some("signer") => Role::Signer,
        Some("stapler") => Role::Stapler,
        Some("connector") => Role::Connector,
        Some("dataproxy") => Role::DataProxy,
        Some("publisher") => Role::Publisher,
        _ => Role::Service,
    };
    match place::Place::take(role).and_then(deeds::all) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rogue: cannot go on: {error}");
            ExitCode::FAILURE
        }
    }
}
