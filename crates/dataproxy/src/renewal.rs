//! What is read again while the proxy serves: statements, and how to log in.
//!
//! Sees: the operator's files, what the database says of them. Never: lets what the database does not take hold in place of what it
//! took.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use statements::Statements;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::data::LauncherToDataProxy;
use wire::log::Level;

use crate::catalog::Refusal;
use crate::client::Shared;
use crate::server::{PAUSE_MAX, PAUSE_MIN};
use crate::setup::read_login;
use crate::source::Source;

/// See the file's head. Of each kind the latest counts.
pub(crate) struct Renewal {
    source: Rc<Source>,
    shared: Rc<Shared>,
    statements: JoinSet<()>,
    login: JoinSet<()>,
    /// The keys whose files the server has not taken yet.
    keys: Vec<&'static str>,
}

impl Renewal {
    pub(crate) fn new(source: Rc<Source>, shared: Rc<Shared>) -> Self {
        let (statements, login, keys) = (JoinSet::new(), JoinSet::new(), Vec::new());
        Self { source, shared, statements, login, keys }
    }

    /// Has other statements hold, if nothing is wrong with them.
    pub(crate) fn statements(&mut self, read: Result<Statements, Refusal>) {
        only_latest(&mut self.statements);
        match read {
            Ok(read) => {
                self.statements.spawn_local(hold_statements(self.source.clone(), self.shared.clone(), read));
            }
            Err(refusal) => statements_stay(&self.shared, &refusal),
        }
    }

    /// Has another password, or other authorities, hold for connections from here on, if the server takes them. Those that are there
    /// stay: the server has let them in.
    pub(crate) fn login(&mut self, message: &LauncherToDataProxy, file: &OwnedFd) {
        let Some(way) = self.source.way() else { return };
        let mut login = (*way.newest()).clone();
        match read_login(&mut login, message, file) {
            Ok(key) => {
                self.keys.retain(|known| *known != key && !way.is_taken());
                self.keys.push(key);
                way.offer(login);
                only_latest(&mut self.login);
                let words = format!("`{}`", self.keys.join("`, `"));
                self.login.spawn_local(hold_login(self.source.clone(), self.shared.clone(), words));
            }
            Err(reason) => {
                let text = format_args!("{reason}; what was there before stays");
                self.shared.log.event(Level::Error, text);
            }
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
async fn hold_statements(source: Rc<Source>, shared: Rc<Shared>, read: Statements) {
    let (mut pause, mut said) = (PAUSE_MIN, String::new());
    let catalog = loop {
        match source.prepare(read.clone()).await {
            Ok(catalog) => break catalog,
            Err(Refusal::Database(reason)) => {
                if said != reason {
                    let text = format_args!(
                        "the statements of before stay until the database has prepared the new ones: {reason}"
                    );
                    shared.log.event(Level::Error, text);
                    said = reason;
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(mistakes) => return statements_stay(&shared, &mistakes),
        }
    };
    let count = catalog.file.statements.len();
    *shared.catalog.borrow_mut() = catalog;
    shared.log.event(Level::Info, format_args!("{count} statements were read again"));
}

fn statements_stay(shared: &Shared, refusal: &Refusal) {
    shared.log.event(Level::Error, format_args!("the statements of before stay: {refusal}"));
}

async fn hold_login(source: Rc<Source>, shared: Rc<Shared>, keys: String) {
    let Some(way) = source.way() else { return };
    if let Err(reason) = source.try_login().await {
        let text = format_args!(
            "{keys}: what was there before stays until the server takes what was read again: {reason}"
        );
        shared.log.event(Level::Error, text);
    }
    way.taken().await;
    let text = format_args!("{keys}: what was read again holds for connections from here on");
    shared.log.event(Level::Info, text);
}
