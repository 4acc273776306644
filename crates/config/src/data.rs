//! `[[site.data]]`: databases, of which services call named statements.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! password stand in the configuration, which many may read.

use std::path::{Path, PathBuf};

use suggest::closest;

use crate::data_schema::{DataSource, Database, DatabaseServer, Engine};
use crate::decode::{Entry, Table};
use crate::diagnostic::{Problems, quote};
use crate::parse::{KeyFault, names, one_of, web};
use crate::raw::parts::{RawData, RawDatabase};
use crate::raw::site::RawSite;
use crate::remote::{self, REMOTE};
use crate::rules;
use crate::schema::Server;
use crate::seen::FirstSeen;
use crate::statics_schema::Target;

/// The word of `engine` for what holds without it: a file, and no server.
const SQLITE: &str = "sqlite";
/// The keys that say where a server is, and how to log in.
const OF_SERVER: [&str; 8] =
    ["server", "server_ca", "database", "user", "password", "connections", "certificate", "key"];

/// What `engine` says.
#[derive(Clone, Copy)]
enum EngineKind {
    Sqlite,
    Server(Engine),
    Remote,
}

impl DataSource {
    /// The file of a SQLite database, in a folder that belongs to its data proxy.
    pub fn file(&self, server: &Server, site: &str) -> Option<PathBuf> {
        matches!(self.database, Database::Sqlite { .. }).then(|| {
            server.state_dir.join("data").join(site).join(&self.name).join(format!("{}.db", self.name))
        })
    }

    /// The server that it is at, if it is at one.
    pub fn server(&self) -> Option<&DatabaseServer> {
        match &self.database {
            Database::Sqlite { .. } | Database::Remote(_) => None,
            Database::Server(server) => Some(server),
        }
    }

    /// The file that makes the tables of a new database.
    pub fn schema(&self) -> Option<&Path> {
        match &self.database {
            Database::Sqlite { schema } => schema.as_deref(),
            Database::Server(_) | Database::Remote(_) => None,
        }
    }
}

pub(crate) fn sources(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Vec<RawData> {
    let tables = table.get("data").map(|entry| entry.tables(rules::DATA.0, problems));
    tables.into_iter().flatten().map(|table| source(table, dir, problems)).collect()
}

fn source(mut table: Table<'_>, dir: &Path, problems: &mut Problems) -> RawData {
    table.label_by_name("data source");
    table.check_keys(rules::DATA, problems);
    let name = table.require("name", "\"catalog\"", problems);
    let is_remote = table.get("engine").is_some_and(|entry| entry.plain() == Some(REMOTE));
    let statements = match is_remote {
        true => None,
        false => table.require("statements", "\"catalog.sql\"", problems),
    };
    let path = |key, problems: &mut Problems| table.get(key).and_then(|entry| entry.path(dir, problems));
    RawData {
        offset: table.offset,
        name: name.and_then(|entry| entry.string(names::name, problems)).map(|name| name.value),
        statements: statements.and_then(|entry| entry.path(dir, problems)),
        schema: path("schema", problems),
        password: path("password", problems),
        server_ca: path("server_ca", problems),
        certificate: path("certificate", problems),
        key: path("key", problems),
        memory_max: table.bytes("memory_max", &rules::DATA_MEMORY_MAX, problems),
        database: database(&table, dir, problems),
        label: table.label,
    }
}

fn database(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Option<RawDatabase> {
    let kind = match table.get("engine") {
        Some(entry) => entry.parsed(kind, problems)?.value,
        None => EngineKind::Sqlite,
    };
    match kind {
        EngineKind::Sqlite => {
            for entry in OF_SERVER.iter().filter_map(|key| table.get(key)) {
                let message = format!("`{}` goes with a database server, and this is SQLite's", entry.key());
                let help =
                    "say `engine = \"postgresql\"`, `\"mysql\"`, `\"redis\"` or `\"remote\"`, or remove it";
                problems.report_help(entry.offset, message, help);
            }
            Some(RawDatabase::Sqlite)
        }
        EngineKind::Server(engine) => database_server(table, engine, dir, problems).map(RawDatabase::Server),
        EngineKind::Remote => remote::target(table, dir, problems).map(RawDatabase::Remote),
    }
}

fn database_server(
    table: &Table<'_>,
    engine: Engine,
    dir: &Path,
    problems: &mut Problems,
) -> Option<DatabaseServer> {
    remote::check_identity(table, problems);
    if let Some(entry) = table.get("schema") {
        let message =
            "`schema` makes the tables of a SQLite database; a server's are made with its own tools";
        problems.report_help(entry.offset, message.to_owned(), "remove it");
    }
    let server = table.require("server", "\"unix:/run/postgresql/.s.PGSQL.5432\"", problems);
    let target = server.and_then(|entry| server_of(&entry, table.get("server_ca"), dir, problems));
    let (database, user) = match engine {
        Engine::Redis => of_redis(table, problems),
        Engine::Postgresql | Engine::Mysql => of_sql(table, problems),
    };
    let connections = table.count("connections", &rules::DATA_CONNECTIONS, problems);
    let connections = u16::try_from(connections).unwrap_or(u16::MAX);
    let (target, database, user) = (target?, database?, user?);
    let (password, server_ca, identity) = (None, None, None);
    Some(DatabaseServer { engine, target, database, user, password, server_ca, identity, connections })
}

/// The database and the user, which have names.
fn of_sql(table: &Table<'_>, problems: &mut Problems) -> (Option<String>, Option<String>) {
    let mut name = |key| {
        let entry = table.require(key, "\"shop\"", problems);
        entry.and_then(|entry| entry.string(login_name, problems)).map(|name| name.value)
    };
    (name("database"), name("user"))
}

/// The same of Redis: the database has a number, 0 unless said otherwise, and the user need not be named.
fn of_redis(table: &Table<'_>, problems: &mut Problems) -> (Option<String>, Option<String>) {
    let number = table.count("database", &rules::REDIS_DATABASE, problems);
    let user = match table.get("user") {
        Some(entry) => entry.string(login_name, problems).map(|name| name.value),
        None => Some(String::new()),
    };
    let no_password = "a `user` of Redis's goes with a `password`";
    if let Some(entry) = table.get("user").filter(|_| table.get("password").is_none()) {
        problems.report_help(entry.offset, no_password, "name its file: `password = \"secrets/shop\"`");
    }
    (Some(number.to_string()), user)
}

/// Where the server listens; without TLS, everybody on the way from another machine reads along.
fn server_of(
    entry: &Entry<'_>,
    server_ca: Option<Entry<'_>>,
    dir: &Path,
    problems: &mut Problems,
) -> Option<Target> {
    let target = entry.parsed(|text| web::target(text, dir), problems)?.value;
    let is_here = match &target {
        Target::Unix(_) => true,
        Target::Tcp(address) => address.ip().is_loopback(),
        Target::Name(..) => false,
    };
    match server_ca {
        Some(entry) if matches!(target, Target::Unix(_)) => {
            let message = "`server_ca` is for TLS, which is not spoken over a Unix socket";
            problems.report_help(entry.offset, message.to_owned(), "remove it");
        }
        None if !is_here => {
            let message = "what is said to this server and what it answers goes over the network as it is";
            let help = "add `server_ca = \"ca.pem\"`, the authority of its certificate: then TLS is spoken";
            problems.warn(entry.offset, message.to_owned(), help.to_owned());
        }
        _ => {}
    }
    Some(target)
}

fn kind(text: &str) -> Result<EngineKind, KeyFault> {
    match text {
        SQLITE => return Ok(EngineKind::Sqlite),
        REMOTE => return Ok(EngineKind::Remote),
        _ => {}
    }
    Engine::of(text).map(EngineKind::Server).ok_or_else(|| {
        let near = match text {
            "postgres" | "pg" => "postgresql",
            "mariadb" => "mysql",
            "valkey" => "redis",
            text => text,
        };
        let engines = Engine::ALL.map(|(word, _)| word);
        let words: Vec<&str> = [SQLITE].into_iter().chain(engines).chain([REMOTE]).collect();
        one_of("`engine` is one of", near, &words)
    })
}

/// The name of a database or of a user.
fn login_name(text: &str) -> Result<(), KeyFault> {
    names::no_nul(text)?;
    match text.len() {
        1..=rules::LOGIN_NAME_MAX => Ok(()),
        bytes => {
            Err(KeyFault::new(format!("it has 1 to {} bytes, and this has {bytes}", rules::LOGIN_NAME_MAX)))
        }
    }
}

/// Data sources have names of their own, and services name those that there are.
pub(crate) fn check(site: &RawSite, problems: &mut Problems) {
    let mut names = FirstSeen::new();
    for data in &site.data {
        let first = data.name.as_ref().and_then(|name| names.first(name, data.offset));
        if let Some(first) = first {
            let message = format!("{} is defined twice (first at {})", data.label, problems.place(first));
            problems.report_help(data.offset, message, "give one of the two another name");
        }
    }
    let known: Vec<&str> = site.data.iter().filter_map(|data| data.name.as_deref()).collect();
    for service in &site.services {
        let mut wanted = FirstSeen::new();
        for name in &service.data {
            let (shown, label) = (quote(&name.value), &service.label);
            if let Some(first) = wanted.first(&name.value, name.offset) {
                let message =
                    format!("`data` {shown} is twice in {label} (first at {})", problems.place(first));
                problems.report_help(name.offset, message, "remove one of the two");
            } else if !known.contains(&&*name.value) {
                let message =
                    format!("`data` {shown} of {label} is the `name` of no [[site.data]] of its site");
                let help = match (closest(&name.value, &known), known.is_empty()) {
                    (Some(near), _) => format!("did you mean `\"{near}\"`?"),
                    (None, false) => format!("known here: {}", known.join(", ")),
                    (None, true) => format!("add a `[[site.data]]` with `name = {shown}`"),
                };
                problems.report_help(name.offset, message, help);
            }
        }
    }
    for data in site.data.iter().filter(|data| data.name.is_some()) {
        if site.services_with(data).next().is_none() {
            let message = format!(
                "no service of the site has {} in its `data`: nobody can call its statements",
                data.label
            );
            let name = data.name.as_deref().unwrap_or_default();
            problems.warn(data.offset, message, format!("add `data = [\"{name}\"]` to a [[site.service]]"));
        }
    }
}
