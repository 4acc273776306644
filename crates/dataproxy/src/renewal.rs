//! Reads statements and logins again while the proxy serves.
//!
//! Sees: the operator's files, what the database says of them. Never: lets what the database does not take hold in
//! place of what it took.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use statements::Statements;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::data::LauncherToDataProxy;
use wire::log::Level;

use crate::catalog::CatalogError;
use crate::client::ProxyState;
use crate::database::Database;
use crate::server::{LoginFault, LoginFiles, PAUSE_MAX, PAUSE_MIN};
use crate::source::DatabaseSource;
use crate::told::ProcessLog;

/// LIMIT: how long a certificate waits for its key, or the other way round, until the operator is told.
const HALF_TIMEOUT: Duration = Duration::from_secs(3);

/// See the file's head. Of each kind the latest counts.
pub(crate) struct Renewal {
    database: Database,
    told: Rc<ProcessLog>,
    /// The files that were read last.
    files: LoginFiles,
    statements: JoinSet<()>,
    login: JoinSet<()>,
    /// The keys whose files the server has not taken yet.
    keys: Vec<&'static str>,
}

impl Renewal {
    pub(crate) fn new(database: Database, told: Rc<ProcessLog>, files: LoginFiles) -> Self {
        let (statements, login, keys) = (JoinSet::new(), JoinSet::new(), Vec::new());
        Self { database, told, files, statements, login, keys }
    }

    /// Has other statements hold, if nothing is wrong with them.
    pub(crate) fn statements(&mut self, read: Result<Statements, CatalogError>) {
        // Another machine has its own file.
        let Database::Own { source, shared } = &self.database else { return };
        only_latest(&mut self.statements);
        match read {
            Ok(read) => {
                self.statements.spawn_local(hold_statements(source.clone(), shared.clone(), read));
            }
            Err(refusal) => statements_stay(&self.told, &refusal),
        }
    }

    /// Has another password, certificate or key, or other authorities, hold for connections from here on, if the other
    /// side takes them. Those that are there stay: the other side has let them in.
    pub(crate) fn login(&mut self, message: &LauncherToDataProxy, file: &OwnedFd) {
        let Some(way) = self.database.way() else { return };
        let mut files = self.files.clone();
        let taken = files.take(message, file).map_err(LoginFault::File);
        match taken.and_then(|key| Ok((key, files.login()?))) {
            Ok((key, login)) => {
                self.files = files;
                self.keys.retain(|known| *known != key && !way.is_taken());
                self.keys.push(key);
                way.offer(login);
                only_latest(&mut self.login);
                let words = format!("`{}`", self.keys.join("`, `"));
                self.login.spawn_local(hold_login(self.database.clone(), self.told.clone(), words));
            }
            Err(fault @ LoginFault::Halves) => {
                self.files = files;
                only_latest(&mut self.login);
                self.login.spawn_local(wait_for_half(self.told.clone(), fault));
            }
            Err(fault @ LoginFault::File(_)) => stays(&self.told, &fault),
        }
    }

    /// Leaves what the database has not taken yet.
    pub(crate) async fn end(mut self) {
        self.statements.shutdown().await;
        self.login.shutdown().await;
    }
}

/// Ends what an earlier file has begun.
fn only_latest(tasks: &mut JoinSet<()>) {
    tasks.abort_all();
    while tasks.try_join_next().is_some() {}
}

/// Asks the database until it has said something of the statements: it may be down.
async fn hold_statements(source: Rc<DatabaseSource>, shared: Rc<ProxyState>, read: Statements) {
    let (mut pause, mut said) = (PAUSE_MIN, String::new());
    let catalog = loop {
        match source.prepare(read.clone()).await {
            Ok(catalog) => break catalog,
            Err(CatalogError::Database(reason)) => {
                if said != reason {
                    let text = format_args!(
                        "the statements of before stay until the database has prepared the new ones: {reason}"
                    );
                    shared.told.log.event(Level::Error, text);
                    said = reason;
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(mistakes) => return statements_stay(&shared.told, &mistakes),
        }
    };
    let count = catalog.file.statements.len();
    *shared.catalog.borrow_mut() = catalog;
    shared.told.log.event(Level::Info, format_args!("{count} statements were read again"));
}

fn statements_stay(told: &ProcessLog, refusal: &CatalogError) {
    told.log.event(Level::Error, format_args!("the statements of before stay: {refusal}"));
}

/// Says that a certificate and a key do not go together, if the other half does not come.
async fn wait_for_half(told: Rc<ProcessLog>, fault: LoginFault) {
    sleep(HALF_TIMEOUT).await;
    stays(&told, &fault);
}

fn stays(told: &ProcessLog, fault: &LoginFault) {
    told.log.event(Level::Error, format_args!("{fault}; what was there before stays"));
}

async fn hold_login(database: Database, told: Rc<ProcessLog>, keys: String) {
    let Some(way) = database.way() else { return };
    if let Err(reason) = database.try_login().await {
        let text = format_args!(
            "{keys}: what was there before stays until the server takes what was read again: {reason}"
        );
        told.log.event(Level::Error, text);
    }
    way.taken().await;
    let text = format_args!("{keys}: what was read again holds for connections from here on");
    told.log.event(Level::Info, text);
}
