//! The life of the process: told its source and its statements, then one task per channel, until the launcher is done with it.
//!
//! Sees: the launcher's messages (trusted: a malformed one ends the process); the operator's files. Never: serves anybody before
//! the database has prepared every statement.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use statements::{FILE_MAX, Statements};
use tokio::task::JoinSet;
use wire::data::LauncherToDataProxy;
use wire::log::Level;
use wire::{ChildToLauncher, NO_PARTITION};
use worker::channel::Channel;
use worker::files;
use worker::log::Log;
use worker::{Fault, Start};

use crate::catalog::Catalog;
use crate::client::{Service, Shared, attend};
use crate::sqlite::Source;

type Control = Channel<LauncherToDataProxy, ChildToLauncher>;

/// What the launcher says before `Begin`.
#[derive(Debug, Default)]
struct Setup {
    path: Option<PathBuf>,
    statements: Option<OwnedFd>,
    schema: Option<OwnedFd>,
    services: Vec<String>,
}

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, the database cannot be opened, or a statement is wrong: with every mistake.
pub async fn serve(start: Start) -> Result<(), Fault> {
    let control = Control::new(start.control)?;
    let Some((setup, flush_ms)) = Setup::receive(&control).await? else { return Ok(()) };
    let log = Log::new(start.log, NO_PARTITION, flush_ms)?;
    let (source, catalog) = setup.open().map_err(Fault::Operator)?;
    let shared = Rc::new(Shared {
        queue: source.queue.clone(),
        catalog: RefCell::new(Arc::new(catalog)),
        counters: Default::default(),
        log,
        refused: Cell::new(0),
        limiter: Default::default(),
    });
    control.send(&ChildToLauncher::Ready {}, None).await?;
    let mut clients = JoinSet::new();
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToDataProxy::Attach { service, token }, Some(channel)) => {
                let known = setup.services.iter().position(|name| name == service.as_str());
                let number = known.ok_or_else(|| Fault::Launcher(format!("no service {service:?}")))?;
                let service = Service { name: service.as_str().to_owned(), number };
                clients.spawn_local(attend(shared.clone(), service, token, channel));
            }
            (LauncherToDataProxy::Statements {}, Some(file)) => {
                replace(&shared, &source, &setup.services, &file)
            }
            (LauncherToDataProxy::Report {}, _) => control.report(shared.counters.snapshot()),
            (other, _) => return Err(Fault::Launcher(format!("after Begin: {other:?}"))),
        }
        while clients.try_join_next().is_some() {}
    }
    // Services have calls under way, or are on their way to the process that takes this one's place.
    while clients.join_next().await.is_some() {}
    shared.log.flush().await;
    source.close();
    Ok(())
}

/// Has another file of statements hold, if nothing is wrong with it.
fn replace(shared: &Shared, source: &Source, services: &[String], file: &OwnedFd) {
    match read_statements(file, services).and_then(|file| source.prepare(file)) {
        Ok(catalog) => {
            let count = catalog.file.statements.len();
            *shared.catalog.borrow_mut() = Arc::new(catalog);
            shared.log.event(Level::Info, format_args!("{count} statements were read again"));
        }
        Err(mistakes) => {
            let mistakes = mistakes.join("; ");
            shared.log.event(Level::Error, format_args!("the statements of before stay: {mistakes}"));
        }
    }
}

impl Setup {
    /// Receives everything up to `Begin`; `None` if the launcher wants no data proxy any more.
    async fn receive(control: &Control) -> Result<Option<(Self, u32)>, Fault> {
        let Some((LauncherToDataProxy::Limits { flush_ms }, _)) = control.receive().await? else {
            return Err(Fault::Launcher("it did not begin with the limits".into()));
        };
        let mut setup = Self::default();
        while let Some((message, descriptor)) = control.receive().await? {
            match (message, descriptor) {
                (LauncherToDataProxy::Sqlite { path }, _) => setup.path = Some(path.as_str().into()),
                (LauncherToDataProxy::Statements {}, Some(file)) => setup.statements = Some(file),
                (LauncherToDataProxy::Schema {}, Some(file)) => setup.schema = Some(file),
                (LauncherToDataProxy::Service { name }, _) => setup.services.push(name.as_str().to_owned()),
                (LauncherToDataProxy::Begin {}, _) => return Ok(Some((setup, flush_ms))),
                (other, _) => return Err(Fault::Launcher(format!("before Begin: {other:?}"))),
            }
        }
        Ok(None)
    }

    /// Opens the source, and has it prepare the statements.
    fn open(&self) -> Result<(Source, Catalog), String> {
        let path = self.path.as_deref().ok_or("the launcher has named no source")?;
        let file = self.statements.as_ref().ok_or("the launcher has sent no statements")?;
        let in_words = |mistakes: Vec<String>| format!("the statements: {}", mistakes.join("; "));
        let statements = read_statements(file, &self.services).map_err(in_words)?;
        let schema = self.schema.as_ref().map(read).transpose();
        let schema = schema.map_err(|reason| format!("the schema: {reason}"))?;
        let source = Source::open(path, schema.as_deref())?;
        let catalog = source.prepare(statements).map_err(in_words)?;
        Ok((source, catalog))
    }
}

/// Reads a file of statements that grant nothing to anybody but these services.
fn read_statements(file: &OwnedFd, services: &[String]) -> Result<Statements, Vec<String>> {
    parse_statements(&read(file).map_err(|reason| vec![reason])?, services)
}

/// The same, of its text.
pub(crate) fn parse_statements(text: &str, services: &[String]) -> Result<Statements, Vec<String>> {
    let found = statements::parse(text)
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let unknown = |(name, line): (&str, usize)| {
        format!("line {line}: no service `{name}` of this site has the source in its `data`")
    };
    let mistakes: Vec<String> = found.unknown_services(services).into_iter().map(unknown).collect();
    if mistakes.is_empty() { Ok(found) } else { Err(mistakes) }
}

fn read(file: &OwnedFd) -> Result<String, String> {
    let bytes = files::read(file, FILE_MAX)?;
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))
}
