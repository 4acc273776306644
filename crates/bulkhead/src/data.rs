//! `bulkhead data check`: statements beside their databases.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the operator's files, and what `dataproxy check` prints. Never: opens
//! a database itself, or changes one.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use config::{Config, DataSource, Database, Site};
use serde::Serialize;

use crate::explain::data_name;
use crate::fault::Fault;
use crate::locate;
use crate::table::print;

/// What is to be said of one source.
#[derive(Debug, Serialize)]
struct Checked {
    source: String,
    statements: PathBuf,
    /// What the statements were prepared with: the database, or the schema of a new one.
    with: Option<String>,
    mistakes: Vec<String>,
}

/// Checks the statements of all sources, or of those that are named.
pub fn check(config: Option<&Path>, names: &[String], json: bool) -> Result<ExitCode, Fault> {
    let config = locate::load(&locate::config(config)?)?;
    let program = locate::data_proxy()?;
    let sources: Vec<(&Site, &DataSource)> =
        config.sites.iter().flat_map(|site| site.data.iter().map(move |data| (&**site, data))).collect();
    let known: Vec<String> = sources.iter().map(|(site, data)| data_name(site, data)).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Fault::Usage(format!("there is no data source {name:?}; the configuration has {known}")));
    }
    let wanted = sources.iter().zip(&known).filter(|(_, name)| names.is_empty() || names.contains(name));
    let checked = wanted.map(|((site, data), name)| ask(&program, &config, (site, data), name.clone()));
    let checked: Vec<Checked> = checked.collect::<Result<_, _>>()?;
    if json {
        print(&serde_json::to_string_pretty(&checked).map_err(|error| Fault::Failed(error.to_string()))?)?;
    } else {
        print(&checked.iter().map(Checked::text).collect::<Vec<_>>().join("\n"))?;
    }
    let is_good = checked.iter().all(|one| one.mistakes.is_empty());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

impl Checked {
    fn text(&self) -> String {
        let with = match &self.with {
            Some(database) => format!("with {database}"),
            None => "without tables: neither a database nor a `schema` is there".into(),
        };
        if self.mistakes.is_empty() {
            return format!("{}: ok, {with}", self.source);
        }
        let lines = self.mistakes.iter().map(|mistake| format!("\n  {mistake}"));
        format!("{}: {}, {with}:{}", self.source, self.statements.display(), lines.collect::<String>())
    }
}

/// Has the data proxy's program prepare the statements of a source.
fn ask(
    program: &Path,
    config: &Config,
    (site, data): (&Site, &DataSource),
    source: String,
) -> Result<Checked, Fault> {
    let mut command = Command::new(program);
    command.arg("check").arg("--statements").arg(&data.statements);
    let with = match &data.database {
        Database::Sqlite { schema } => {
            let file = data.file(&config.server, &site.name).filter(|path| path.is_file());
            match (&file, schema) {
                (Some(path), _) => drop(command.arg("--database").arg(path)),
                (None, Some(schema)) => drop(command.arg("--schema").arg(schema)),
                (None, None) => {}
            }
            file.or_else(|| schema.clone()).map(|path| path.display().to_string())
        }
        Database::Server(server) => {
            command.args([
                "--engine",
                server.engine.word(),
                "--name",
                &server.database,
                "--user",
                &server.user,
            ]);
            command.args(["--server", &server.target.to_string()]);
            if let Some(password) = &server.password {
                command.arg("--password").arg(password);
            }
            Some(format!("{} at {}", server.database, server.target))
        }
    };
    for service in site.services_with(&data.name) {
        command.arg("--service").arg(&service.name);
    }
    let done = command.output().map_err(Fault::io(format!("cannot run {}", program.display())))?;
    let printed = String::from_utf8_lossy(&done.stdout);
    let mistakes: Vec<String> = match done.status.code() {
        Some(0) => Vec::new(),
        Some(1) => printed.lines().map(str::to_owned).collect(),
        _ => {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(Fault::Failed(format!(
                "{} failed: {}{}",
                program.display(),
                done.status,
                said.trim()
            )));
        }
    };
    Ok(Checked { source, statements: data.statements.clone(), with, mistakes })
}
