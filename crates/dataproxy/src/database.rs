//! The databases that carry out the calls of a data proxy.

use std::rc::Rc;

use crate::client::ProxyState;
use crate::remote::Door;
use crate::server::Way;
use crate::source::DatabaseSource;

/// See the file's head.
#[derive(Clone)]
pub(crate) enum Database {
    /// This process, with a database in a file or at a server.
    Own { source: Rc<DatabaseSource>, shared: Rc<ProxyState> },
    /// The data proxy of another machine.
    Elsewhere(Rc<Door>),
}

impl Database {
    /// The way to the database's server or the other machine, if there is one.
    pub(crate) fn way(&self) -> Option<&Way> {
        match self {
            Self::Own { source, .. } => source.way(),
            Self::Elsewhere(door) => Some(door.way()),
        }
    }

    /// Has the other side say whether it takes the login that was read last.
    ///
    /// # Errors
    /// The database's reason for a refusal.
    pub(crate) async fn try_login(&self) -> Result<(), String> {
        match self {
            Self::Own { source, .. } => source.try_login().await,
            Self::Elsewhere(door) => door.try_login().await,
        }
    }
}
