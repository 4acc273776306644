//! A SQLite database: one thread that writes, and some that read.
//!
//! Sees: the operator's statements, values from services. Never: makes a statement's text of a value.
//!
//! The database is in WAL mode, so that those who read wait for nobody, and each change is on disk before it is
//! acknowledged.

mod describe;
mod fault;
mod functions;
mod limits;
mod open;
mod pattern;
mod run;
mod search;
mod threads;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Statement};
use statements::Statements;
use wire::data::{CallFault, READERS};

use crate::catalog::{Catalog, CatalogError};
use crate::queue::{Lane, Queue, Work};
use crate::sql::mistake;
pub(crate) use describe::describe;
pub(crate) use open::open_to_look;
use search::TextTables;
use threads::Threads;
use watch::Watch;

/// LIMIT: how long a database that cannot be opened is left alone.
const REOPEN_EVERY: Duration = Duration::from_secs(1);

/// A database, with the threads that work on it.
#[derive(Debug)]
pub struct SqliteSource {
    path: PathBuf,
    /// The jobs to be done.
    pub queue: Arc<Queue>,
    threads: JoinHandle<()>,
}

impl SqliteSource {
    /// Opens a database, or makes one, by `schema` if it has no tables; then its threads begin to work. SQLite may have
    /// so many bytes of memory in this process.
    ///
    /// # Errors
    /// In words for the operator.
    pub fn open(path: &Path, schema: Option<&str>, heap_bytes: u64) -> Result<Self, String> {
        open::create(path, schema, heap_bytes)?;
        let queue = Queue::new(READERS);
        let threads = Threads::start(path, &queue, serve).map_err(|error| format!("no threads: {error}"))?;
        Ok(Self { path: path.to_owned(), queue, threads })
    }

    /// Has the database prepare all statements.
    ///
    /// # Errors
    /// Each statement that it does not prepare, or that is not of its kind, with its line.
    pub fn prepare(&self, file: Statements) -> Result<Catalog, CatalogError> {
        let connection = open::connect(&self.path, Lane::Write, &Watch::default());
        let mut connection = connection.map_err(|error| CatalogError::Database(error.to_string()))?;
        prepare(&mut connection, file)
    }

    /// Does what there is to do, and ends.
    pub fn close(self) {
        self.queue.close();
        drop(self.threads.join());
    }
}

/// Has a database prepare all statements; its mistakes, each with its line.
pub(crate) fn prepare(connection: &mut Connection, file: Statements) -> Result<Catalog, CatalogError> {
    let tables = TextTables::of(connection).map_err(|error| CatalogError::Database(error.to_string()))?;
    let mut mistakes = Vec::new();
    let mut reads = Vec::new();
    for (number, statement) in file.statements.iter().enumerate() {
        let is_step = file.transactions.iter().any(|transaction| transaction.steps.contains(&number));
        let checked = open::check(connection, statement).and_then(|only_reads| {
            if !only_reads || is_step {
                open::check_search(connection, &tables, statement)?;
            }
            Ok(only_reads)
        });
        reads.push(checked.unwrap_or_else(|(line, rule)| {
            mistakes.push(mistake(statement, line, &rule));
            false
        }));
    }
    if mistakes.is_empty() {
        Ok(Catalog::new(file, reads, true))
    } else {
        Err(CatalogError::Mistakes(mistakes))
    }
}

/// The life of a thread: opens the database, again if it has to, and does what comes.
fn serve(path: &Path, lane: Lane, queue: &Arc<Queue>, watch: &Watch) {
    let timer = sys::pause::Timer::new(lane == Lane::Read);
    match &timer {
        Ok(timer) => watch.may_pause(timer),
        Err(error) => eprintln!("warning: {}: long statements do not pause: {error}", path.display()),
    }
    let mut first = None;
    while !queue.is_closed() || first.is_some() {
        match open::connect(path, lane, watch).and_then(|connection| watch.over(connection, lane)) {
            Ok(connection) => match work((&connection, watch), lane, queue, &mut first) {
                ConnectionEnd::Closed => return,
                ConnectionEnd::Broken => {}
            },
            Err(error) if fault::lacks_memory(&error) => std::thread::sleep(run::MEMORY_AGAIN),
            Err(error) => {
                let reason = format!("the database cannot be opened: {error}");
                eprintln!("error: {}: {reason}", path.display());
                let until = Instant::now() + REOPEN_EVERY;
                let left = || queue.next_within(lane, until.saturating_duration_since(Instant::now()));
                let refused = first.take().into_iter().chain(std::iter::from_fn(left));
                refused.for_each(|work| work.job.fail(CallFault::Database, reason.as_str()));
            }
        }
    }
}

/// Why a connection is not used any longer.
enum ConnectionEnd {
    /// There will be no more calls for this thread.
    Closed,
    /// The database has failed in a way that a new connection may not.
    Broken,
}

/// Does what comes, `next` first, with the statements of its catalog prepared.
fn work(
    (connection, watch): (&Connection, &Watch),
    lane: Lane,
    queue: &Arc<Queue>,
    next: &mut Option<Work>,
) -> ConnectionEnd {
    loop {
        let Some(first) = next.take().or_else(|| queue.next(lane)) else { return ConnectionEnd::Closed };
        let catalog = first.job.catalog.clone();
        let mut prepared = match prepare_all(connection, &catalog, lane) {
            Ok(prepared) => prepared,
            Err(error) if fault::lacks_memory(&error) && first.job.can_begin_again() => {
                std::thread::sleep(run::MEMORY_AGAIN);
                *next = Some(first);
                continue;
            }
            Err(error) => {
                let is_broken = fault::is_broken(&error);
                fault::answer(&first.job, error);
                if is_broken {
                    return ConnectionEnd::Broken;
                }
                continue;
            }
        };
        let mut work = first;
        loop {
            if let Err(error) = run::run((connection, watch), &mut prepared, &work.job) {
                let is_broken = fault::is_broken(&error);
                fault::answer(&work.job, error);
                if is_broken {
                    return ConnectionEnd::Broken;
                }
            }
            drop(work);
            if watch.is_replaced() {
                return ConnectionEnd::Closed;
            }
            work = match queue.next(lane) {
                Some(work) => work,
                None => return ConnectionEnd::Closed,
            };
            if !Arc::ptr_eq(&work.job.catalog, &catalog) {
                *next = Some(work);
                break;
            }
        }
    }
}

/// The statements that a thread of this lane carries out, by number.
fn prepare_all<'c>(
    connection: &'c Connection,
    catalog: &Catalog,
    lane: Lane,
) -> rusqlite::Result<Vec<Option<Statement<'c>>>> {
    let statements = catalog.file.statements.iter().zip(&catalog.reads);
    let prepared = statements.map(|(statement, reads)| {
        // A transaction has statements that read as well.
        let is_ours = lane == Lane::Write || *reads;
        is_ours.then(|| connection.prepare(&open::sql(statement))).transpose()
    });
    prepared.collect()
}
