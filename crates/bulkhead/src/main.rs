//! The `bulkhead` command: what an administrator types.
//!
//! Runs as: whoever types it, and ends as the launcher for `run`. Sees: that person's words and files, and answers
//! of the admin role, which may be compromised. Never: needs more rights than its user has; what it tells of a
//! jail is what the kernel says, not what a process of the server claims.

mod address;
mod admin;
mod bans;
mod certificates;
mod check;
mod cli;
mod commands;
mod conditioning;
mod data;
mod explain;
mod fault;
mod find;
mod guard;
mod isolation;
mod layers;
mod left_out;
mod locate;
mod memory;
mod new;
mod probe;
mod ps;
mod reload;
mod republish;
mod run;
mod score;
mod send;
mod serve;
mod site;
mod status;
mod table;
mod templates;
mod upgrade;

use std::process::ExitCode;

use cli::{Command, DataCommand};
use fault::Fault;

fn main() -> ExitCode {
    // Ends here for `--help`, and for words that make no sense.
    let cli = serve::options::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run_command(cli.command) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("{fault}");
            fault.code()
        }
    }
}

fn run_command(command: Command) -> Result<ExitCode, Fault> {
    match command {
        Command::Run { config } => run::run(config.as_deref()),
        Command::Serve(serve) => serve::serve(&serve),
        Command::Guard(options) => guard::guard(&options),
        Command::Check { config, json, need: true, .. } => {
            check::need(&locate::config(config.as_deref())?, json)
        }
        Command::Check { config, json, strict, .. } => {
            let warnings = if strict { check::Warnings::Mistakes } else { check::Warnings::Said };
            check::check(&locate::config(config.as_deref())?, json, warnings)
        }
        Command::Ps { json } => ps::ps(json),
        Command::Status { server, view } if view.conditioning => {
            conditioning::conditioning(&find::run_dir(&server)?, view.json)
        }
        Command::Status { server, view } if view.certificates => {
            certificates::certificates(&find::run_dir(&server)?, view.json)
        }
        Command::Status { server, view } => status::status(&find::run_dir(&server)?, &view),
        Command::Probe { name, server, json } => probe::probe(&find::run_dir(&server)?, &name, json),
        Command::Explain { partition, config, form } => {
            explain::explain(config.as_deref(), partition.as_deref(), form.form())
        }
        Command::Relaunch { name, leave_out, server } => {
            let bad = if leave_out {
                commands::BadCertificates::LeaveOut
            } else {
                commands::BadCertificates::Refuse
            };
            commands::relaunch(&find::run_dir(&server)?, &name, bad)
        }
        Command::Bans { clear: Some(address), server, .. } => bans::clear(&find::run_dir(&server)?, address),
        Command::Bans { clear: None, server, json } => bans::list(&find::run_dir(&server)?, json),
        Command::Reload { site, server, all_or_nothing, dry_run, json } => {
            let what = reload::Order { site, all_or_nothing, dry_run };
            reload::reload(&find::run_dir(&server)?, &what, json)
        }
        Command::Send { words, all, server, json } => send::send(&find::run_dir(&server)?, &words, all, json),
        Command::Republish { site, server, json } => {
            republish::republish(&find::run_dir(&server)?, site.as_deref(), json)
        }
        Command::Upgrade { server, to, dry_run, json } => {
            upgrade::upgrade(&find::run_dir(&server)?, to.as_deref(), dry_run, json)
        }
        Command::Site { config, command } => site::site(config.as_deref(), &command),
        Command::Data { config, command: DataCommand::Check { names, json } } => {
            data::check(config.as_deref(), &names, json)
        }
        Command::Data { config, command: DataCommand::Gen(what) } => data::generate(config.as_deref(), &what),
        Command::New(what) => new::new(&what),
        Command::Reopen { server } => commands::reopen(&find::run_dir(&server)?),
        Command::Stop { server } => commands::stop(&find::any(&server)?),
    }
}
