//! `bulkhead data`: statements beside their databases.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the operator's files, and what `dataproxy check` and
//! `dataproxy describe` print. Never: opens a database itself, or changes one.

mod generate;
mod python;
mod rust;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use config::{Config, DataSource, Database, Engine, Site};
use serde::Serialize;
use serde_json::{Value, json};

use crate::explain::data_name;
use crate::fault::Fault;
use crate::left_out;
use crate::locate;
use crate::table::print;

pub use generate::{Generate, generate};

/// What is to be said of one source.
#[derive(Debug, Serialize)]
struct SourceCheck {
    source: String,
    /// The file; none of a database that another machine holds.
    statements: Option<PathBuf>,
    /// What the statements were prepared with: the database, or the schema of a new one.
    with: Option<String>,
    mistakes: Vec<String>,
}

/// Checks the statements of all sources, or of those that are named.
pub fn check(config: Option<&Path>, names: &[String], json: bool) -> Result<ExitCode, Fault> {
    let (config, left_out) = left_out::read(&locate::config(config)?, names)?;
    let program = locate::data_proxy()?;
    let sources = sources(&config, names).map_err(|fault| left_out.beside(fault))?;
    let checked = sources.iter().map(|(name, site, data)| ask(&program, &config, (site, data), name.clone()));
    let checked: Vec<SourceCheck> = checked.collect::<Result<_, _>>()?;
    if json {
        let files = left_out.0.iter().map(|left| json!({ "left_out": left }));
        let all: Vec<Value> = checked.iter().map(|one| json!(one)).chain(files).collect();
        print(&format!("{:#}", Value::from(all)))?;
    } else {
        print(&checked.iter().map(SourceCheck::text).collect::<Vec<_>>().join("\n"))?;
    }
    let code = left_out.say();
    let is_good = checked.iter().all(|one| one.mistakes.is_empty());
    Ok(if is_good { code } else { ExitCode::from(2) })
}

/// The sources of these names, or all.
fn sources<'c>(
    config: &'c Config,
    names: &[String],
) -> Result<Vec<(String, &'c Site, &'c DataSource)>, Fault> {
    let of_site = |site: &'c Site| site.data.iter().map(move |data| (data_name(site, data), site, data));
    let mut sources: Vec<_> = config.sites.iter().flat_map(|site| of_site(site)).collect();
    if let Some(name) = names.iter().find(|name| sources.iter().all(|(known, ..)| known != *name)) {
        let known: Vec<&str> = sources.iter().map(|(known, ..)| &**known).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Fault::Usage(format!("there is no data source {name:?}; the configuration has {known}")));
    }
    sources.retain(|(name, ..)| names.is_empty() || names.contains(name));
    Ok(sources)
}

impl SourceCheck {
    fn text(&self) -> String {
        let with = match &self.with {
            Some(database) => format!("with {database}"),
            None => "without tables: neither a database nor a `schema` is there".into(),
        };
        if self.mistakes.is_empty() {
            return format!("{}: ok, {with}", self.source);
        }
        let lines = self.mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect::<String>();
        match &self.statements {
            Some(path) => format!("{}: {}, {with}:{lines}", self.source, path.display()),
            None => format!("{}: {with}:{lines}", self.source),
        }
    }
}

/// What the data proxy's program is to do with the statements of a source, and with what it will prepare them.
fn command_for(
    program: &Path,
    what: &str,
    config: &Config,
    (site, data): (&Site, &DataSource),
) -> (Command, Option<String>) {
    let mut command = Command::new(program);
    command.arg(what);
    if let Some(statements) = &data.statements {
        command.arg("--statements").arg(statements);
    }
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
            let what = if server.engine == Engine::Redis { "database " } else { "" };
            Some(format!("{what}{} at {}", server.database, server.target))
        }
        Database::Remote(remote) => {
            let there = remote.target.to_string();
            command.args(["--engine", "remote", "--name", &data.name, "--server", &there]);
            Some(format!("{} at {there}", data.name))
        }
    };
    if let Some((name, secured)) = data.certificate_name().zip(data.secured()) {
        command.arg("--server-ca").arg(secured.server_ca).args(["--certificate-name", &name]);
        if let Some(identity) = secured.identity {
            command.arg("--certificate").arg(&identity.certificate).arg("--key").arg(&identity.key);
        }
    }
    for service in site.services_with(&data.name) {
        command.arg("--service").arg(&service.name);
    }
    (command, with)
}

/// What the data proxy's program prints, or else every mistake.
fn run(mut command: Command) -> Result<Result<String, Vec<String>>, Fault> {
    let program = command.get_program().to_owned();
    let program = Path::new(&program).display();
    let done = command.output().map_err(Fault::io(format!("cannot run {program}")))?;
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.code() {
        Some(0) => Ok(Ok(printed)),
        Some(1) => Ok(Err(printed.lines().map(str::to_owned).collect())),
        _ => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(Fault::Failed(format!("{program} failed: {}{}", done.status, said.trim())))
        }
    }
}

/// Has the data proxy's program prepare the statements of a source.
fn ask(
    program: &Path,
    config: &Config,
    (site, data): (&Site, &DataSource),
    source: String,
) -> Result<SourceCheck, Fault> {
    let (command, with) = command_for(program, "check", config, (site, data));
    let mistakes = run(command)?.err().unwrap_or_default();
    Ok(SourceCheck { source, statements: data.statements.clone(), with, mistakes })
}
