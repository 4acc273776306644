//! What is wrong with a file of statements, beside a database; or what its statements give.
//!
//! Runs in: the programs `dataproxy check` and `dataproxy describe`, as the user who checks a configuration. Sees: files of the operator's, what a database
//! server says. Never: changes a database, or asks it for a row.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use statements::{Engine, Statements};
use tokio::runtime::LocalOptions;

use crate::catalog::Refusal;
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::server::{Login, Road, Session, Tls, Way};
use crate::{describe, setup, sqlite};

/// What is to be checked, by the words of the command line.
#[derive(Debug, Default)]
struct Options {
    statements: PathBuf,
    schema: Option<PathBuf>,
    database: Option<PathBuf>,
    engine: Option<Engine>,
    server: String,
    login: Login,
    password: Option<PathBuf>,
    server_ca: Option<PathBuf>,
    certificate_name: String,
    services: Vec<String>,
}

impl Options {
    /// `--statements FILE [--service NAME]...`, then `[--schema FILE] [--database FILE]`, or `--engine NAME --server ADDRESS --name
    /// DATABASE --user NAME [--password FILE] [--server-ca FILE --certificate-name NAME]`, as `bulkhead data check` writes them.
    fn read(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let value = words.next()?;
            let text = || value.clone().into_string().ok();
            match word.to_str()? {
                "--statements" => options.statements = value.into(),
                "--schema" => options.schema = Some(value.into()),
                "--database" => options.database = Some(value.into()),
                "--engine" => options.engine = Some(Engine::of(&text()?)?),
                "--server" => options.server = text()?,
                "--name" => options.login.database = text()?,
                "--user" => options.login.user = text()?,
                "--password" => options.password = Some(value.into()),
                "--server-ca" => options.server_ca = Some(value.into()),
                "--certificate-name" => options.certificate_name = text()?,
                "--service" => options.services.push(text()?),
                _ => return None,
            }
        }
        Some(options)
    }

    /// What the statements give, a line for each column; or every mistake, if there is any.
    fn check(mut self) -> Result<String, Vec<String>> {
        let text = read(&self.statements)?;
        let file = setup::parse_statements(&text, self.engine, &self.services).map_err(lines)?;
        let Some(engine) = self.engine else { return self.check_sqlite(file) };
        if let Some(path) = &self.password {
            self.login.password = Some(setup::password_of(&read(path)?));
        }
        if let Some(path) = &self.server_ca {
            let tls = Tls::new(read(path)?.as_bytes(), &self.certificate_name);
            self.login.tls = Some(tls.map_err(|reason| vec![format!("{}: {reason}", path.display())])?);
        }
        let way = Way::new(Road::Direct(self.server), self.login);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| vec![format!("no event loop: {error}")])?;
        runtime.block_on(async {
            match engine {
                Engine::Postgresql => described::<Postgres>(&way, &file).await,
                Engine::Mysql => described::<Mysql>(&way, &file).await,
                Engine::Redis => described::<Redis>(&way, &file).await,
            }
            .map_err(lines)
        })
    }

    fn check_sqlite(&self, file: Statements) -> Result<String, Vec<String>> {
        let schema = self.schema.as_deref().map(read).transpose()?;
        let connection = sqlite::open_to_look(self.database.as_deref(), schema.as_deref());
        let connection = connection.map_err(|error| vec![error])?;
        let catalog = sqlite::prepare(&connection, file).map_err(lines)?;
        let columns = sqlite::describe(&connection, &catalog.file);
        columns
            .map(|columns| describe::lines(&catalog.file, &columns))
            .map_err(|error| vec![error.to_string()])
    }
}

async fn described<S: Session>(way: &Way, file: &Statements) -> Result<String, Refusal> {
    let (mut session, prepared) = way.prepare::<S>(file).await?;
    let columns = session.describe(&prepared).await?;
    Ok(describe::lines(file, &columns))
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    std::fs::read_to_string(path).map_err(|error| vec![format!("{}: {error}", path.display())])
}

fn lines(refusal: Refusal) -> Vec<String> {
    match refusal {
        Refusal::Database(reason) => vec![reason],
        Refusal::Mistakes(mistakes) => mistakes,
    }
}

/// The whole program: fails if there are mistakes, and prints each on a line; else prints what statements give, if that is wanted.
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
