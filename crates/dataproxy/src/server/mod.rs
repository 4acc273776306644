//! Databases at servers: a few connections, each of which carries out one call at a time, and is made again when it is
//! lost.
//!
//! Sees: the operator's statements, values from services; what the server says. Never: makes a statement's text of a
//! value, or makes a call again that may have been carried out.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.4 (persistent
//! connections, opened again by themselves).

mod login_files;
mod member;
mod session;
mod sql;
mod tls;
mod way;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use statements::Statements;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::catalog::{Catalog, CatalogError};
use crate::queue::Queue;
pub(crate) use login_files::{LoginFault, LoginFiles, password_of};
use member::PoolMember;
pub(crate) use session::{CallProgress, PreparedStatements, ServerSession, SessionFault};
pub(crate) use sql::{Sql, call};
pub(crate) use tls::{MaybeTlsStream, ServerTls};
pub(crate) use way::{Login, Road, Way};

/// LIMIT: how long a server that was lost is left alone between two attempts.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(3);
/// LIMIT: how long a server may take to prepare all statements.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);

impl Way {
    /// Has the server say what it thinks of all statements.
    pub(crate) async fn prepare<S: ServerSession>(
        &self,
        file: &Statements,
    ) -> Result<(S, PreparedStatements<S::Statement>), CatalogError> {
        let mut session: S = self.log_in().await.map_err(CatalogError::Database)?;
        let prepared = prepare(&mut session, file).await?.without_mistakes()?;
        Ok((session, prepared))
    }
}

/// Has the server prepare all statements for a session, in time. A later connection's fault in one of them does
/// not keep it from the others: a migration may have broken that one.
async fn prepare<S: ServerSession>(
    session: &mut S,
    file: &Statements,
) -> Result<PreparedStatements<S::Statement>, CatalogError> {
    let prepared = timeout(PREPARE_TIMEOUT, session.prepare(file)).await;
    prepared.unwrap_or_else(|_| Err(CatalogError::Database("the server does not answer".into())))
}

/// Statements that a server has prepared.
fn catalog<S: ServerSession>(file: Statements, prepared: &PreparedStatements<S::Statement>) -> Arc<Catalog> {
    let reads =
        file.statements.iter().zip(prepared.known()).map(|(about, known)| S::only_reads(about, known));
    let reads = reads.collect();
    S::warnings(&file, prepared).iter().for_each(|odd| eprintln!("warning: the statements: {odd}"));
    Arc::new(Catalog::new(file, reads, false))
}

/// The state that all connections of a source share.
struct Pool {
    way: Way,
    queue: Arc<Queue>,
    /// How many are there.
    up: Cell<usize>,
}

/// Statements, and what the server knows them by on one connection.
type PreparedCatalog<S> = (Arc<Catalog>, PreparedStatements<<S as ServerSession>::Statement>);

/// A database at a server that speaks what `S` does.
pub(crate) struct ServerSource<S: ServerSession> {
    pool: Rc<Pool>,
    members: JoinSet<()>,
    /// The connection of the start, whose statements are prepared.
    first: Option<(S, PreparedCatalog<S>)>,
    connections: u16,
}

impl<S: ServerSession> ServerSource<S> {
    /// Logs in, and has the server prepare all statements.
    ///
    /// # Errors
    /// Each statement that it does not prepare, with its line; or why it cannot be asked.
    pub(crate) async fn open(
        way: Way,
        connections: u16,
        file: Statements,
    ) -> Result<(Self, Arc<Catalog>), CatalogError> {
        let (session, prepared) = way.prepare::<S>(&file).await?;
        let queue = Queue::new(connections.into());
        let pool = Rc::new(Pool { way, queue, up: Cell::new(0) });
        let catalog = catalog::<S>(file, &prepared);
        let first = Some((session, (catalog.clone(), prepared)));
        Ok((Self { pool, members: JoinSet::new(), first, connections }, catalog))
    }

    /// Begins to carry out calls.
    pub(crate) fn start(&mut self) {
        let mut first = self.first.take();
        for _ in 0..self.connections {
            self.members.spawn_local(PoolMember::new(self.pool.clone(), first.take()).serve());
        }
        self.members.spawn_local(self.pool.queue.clone().keep_time());
    }

    /// Where calls go.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.pool.queue
    }

    /// The way to the server.
    pub(crate) fn way(&self) -> &Way {
        &self.pool.way
    }

    /// Has the server say whether it takes the login that was read last.
    ///
    /// # Errors
    /// The server's reason for a refusal.
    pub(crate) async fn try_login(&self) -> Result<(), String> {
        self.pool.way.try_newer(async |stream, login| S::log_in(stream, login).await).await
    }

    /// Has the server prepare other statements.
    ///
    /// # Errors
    /// As for those of the start.
    pub(crate) async fn prepare(&self, file: Statements) -> Result<Arc<Catalog>, CatalogError> {
        let (_, prepared) = self.pool.way.prepare::<S>(&file).await?;
        Ok(catalog::<S>(file, &prepared))
    }

    /// Does what there is to do, and ends.
    pub(crate) async fn close(mut self) {
        self.pool.queue.close();
        while self.members.join_next().await.is_some() {}
    }
}
