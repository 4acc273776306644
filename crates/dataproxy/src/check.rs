//! Checks a file of statements against a database, or describes the rows of its statements.
//!
//! Runs in: the programs `dataproxy check` and `dataproxy describe`, as the user who checks a configuration. Sees:
//! files of the operator's, what a database server says. Never: changes a database, or asks it for a row.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use statements::{Engine, Statements};
use tokio::runtime::{LocalOptions, LocalRuntime};

use crate::catalog::CatalogError;
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::remote::Door;
use crate::server::{LoginFiles, Road, ServerSession, Way, password_of};
use crate::{describe, setup, sqlite};

/// The files to be checked, by the words of the command line.
#[derive(Debug, Default)]
struct Options {
    statements: PathBuf,
    schema: Option<PathBuf>,
    database: Option<PathBuf>,
    engine: Option<Engine>,
    /// Whether another machine has the database.
    is_remote: bool,
    server: String,
    /// The login's settings without the files.
    login: LoginFiles,
    password: Option<PathBuf>,
    server_ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    services: Vec<String>,
}

impl Options {
    /// `--statements FILE [--service NAME]...`, then `[--schema FILE] [--database FILE]`, or
    /// `--engine NAME --server ADDRESS --name DATABASE --user NAME [--password FILE]` and
    /// `[--server-ca FILE --certificate-name NAME [--certificate FILE --key FILE]]`, as `bulkhead data check` writes
    /// them. Where `--engine` is `remote`, there are neither statements nor a user.
    fn read(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let value = words.next()?;
            let text = || value.clone().into_string().ok();
            match word.to_str()? {
                "--statements" => options.statements = value.into(),
                "--schema" => options.schema = Some(value.into()),
                "--database" => options.database = Some(value.into()),
                "--engine" if value == "remote" => options.is_remote = true,
                "--engine" => options.engine = Some(Engine::of(&text()?)?),
                "--server" => options.server = text()?,
                "--name" => options.login.database = text()?,
                "--user" => options.login.user = text()?,
                "--password" => options.password = Some(value.into()),
                "--server-ca" => options.server_ca = Some(value.into()),
                "--certificate-name" => options.login.name = text()?,
                "--certificate" => options.certificate = Some(value.into()),
                "--key" => options.key = Some(value.into()),
                "--service" => options.services.push(text()?),
                _ => return None,
            }
        }
        Some(options)
    }

    /// The columns of the statements, a line for each; or every mistake, if there is any.
    fn check(self) -> Result<String, Vec<String>> {
        if self.is_remote {
            return self.check_doors();
        }
        let text = read(&self.statements)?;
        let file = setup::parse_statements(&text, self.engine, &self.services).map_err(lines)?;
        let Some(engine) = self.engine else { return self.check_sqlite(file) };
        let way = self.way()?;
        runtime()?.block_on(async {
            match engine {
                Engine::Postgresql => described::<Postgres>(&way, &file).await,
                Engine::Mysql => described::<Mysql>(&way, &file).await,
                Engine::Redis => described::<Redis>(&way, &file).await,
            }
            .map_err(lines)
        })
    }

    /// Whether each service has a door on the other machine, which has the statements.
    fn check_doors(self) -> Result<String, Vec<String>> {
        let way = self.way()?;
        let door = Door::new(way, (self.login.database, self.server), self.services);
        let tried = runtime()?.block_on(door.try_all());
        tried.map(|()| String::new()).map_err(|reason| vec![reason])
    }

    /// The way to the server or the other machine.
    fn way(&self) -> Result<Way, Vec<String>> {
        let bytes = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let mut files = self.login.clone();
        files.password = bytes(&self.password)?.as_deref().map(password_of);
        files.authorities = bytes(&self.server_ca)?.map(String::into_bytes);
        files.certificate = bytes(&self.certificate)?.map(String::into_bytes);
        files.key = bytes(&self.key)?.map(String::into_bytes);
        let login = files.login().map_err(|fault| vec![fault.to_string()])?;
        Ok(Way::new(Road::Direct(self.server.clone()), login))
    }

    fn check_sqlite(&self, file: Statements) -> Result<String, Vec<String>> {
        let schema = self.schema.as_deref().map(read).transpose()?;
        let connection = sqlite::open_to_look(self.database.as_deref(), schema.as_deref());
        let mut connection = connection.map_err(|error| vec![error])?;
        let catalog = sqlite::prepare(&mut connection, file).map_err(lines)?;
        let columns = sqlite::describe(&connection, &catalog.file);
        columns
            .map(|columns| describe::lines(&catalog.file, &columns))
            .map_err(|error| vec![error.to_string()])
    }
}

fn runtime() -> Result<LocalRuntime, Vec<String>> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default());
    runtime.map_err(|error| vec![format!("no event loop: {error}")])
}

async fn described<S: ServerSession>(way: &Way, file: &Statements) -> Result<String, CatalogError> {
    let (mut session, prepared) = way.prepare::<S>(file).await?;
    let columns = session.describe(&prepared).await?;
    Ok(describe::lines(file, &columns))
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    std::fs::read_to_string(path).map_err(|error| vec![format!("{}: {error}", path.display())])
}

fn lines(refusal: CatalogError) -> Vec<String> {
    match refusal {
        CatalogError::Database(reason) => vec![reason],
        CatalogError::Mistakes(mistakes) => mistakes,
    }
}

/// The whole program: fails if there are mistakes, and prints each on a line; else prints what statements give, if that
/// is wanted.
pub fn main(describes: bool) -> ExitCode {
    let Some(options) = Options::read(std::env::args_os().skip(2)) else {
        eprintln!("error: this program is started by `bulkhead data check`");
        return ExitCode::from(2);
    };
    match options.check() {
        Ok(columns) => {
            if describes {
                print!("{columns}");
            }
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| println!("{mistake}"));
            ExitCode::FAILURE
        }
    }
}
