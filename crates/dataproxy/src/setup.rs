//! The launcher's messages before a data proxy opens its source.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use statements::{Dialect, FILE_MAX, Statements};
use wire::ChildToLauncher;
use wire::data::LauncherToDataProxy;
use worker::channel::Channel;
use worker::dialer::Dialer;
use worker::server_stream::ServerStream;
use worker::{ProcessFault, files};

use crate::catalog::{Catalog, CatalogError};
use crate::remote::Door;
use crate::server::{Login, LoginFiles, Road, Way};
use crate::source::{DatabasePlace, DatabaseSource};

pub(crate) type DataProxyControl = Channel<LauncherToDataProxy, ChildToLauncher>;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct ProxySetup {
    place: Option<DatabasePlace>,
    /// How to log in, by the files of the start, and what these are.
    login: Login,
    pub(crate) login_files: LoginFiles,
    /// The other machine that has the source: what it calls it, and its host and port.
    remote: Option<(String, String)>,
    statements: Option<OwnedFd>,
    schema: Option<OwnedFd>,
    pub(crate) services: Vec<String>,
}

impl ProxySetup {
    /// Receives everything up to `Begin`, and how often log records are handed over; `None` if the launcher wants no
    /// data proxy any more.
    pub(crate) async fn receive(control: &DataProxyControl) -> Result<Option<(Self, u32)>, ProcessFault> {
        let Some((LauncherToDataProxy::Limits { flush_ms }, _)) = control.receive().await? else {
            return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
        };
        let mut setup = Self::default();
        while let Some((message, descriptor)) = control.receive().await? {
            match (message, descriptor) {
                (LauncherToDataProxy::Sqlite { path, heap_bytes }, _) => {
                    setup.place = Some(DatabasePlace::Sqlite(path.as_str().into(), heap_bytes));
                }
                (LauncherToDataProxy::Server { engine, database, user, connections }, _) => {
                    setup.place = Some(DatabasePlace::Server(engine, connections));
                    setup.login_files.database = database.as_str().to_owned();
                    setup.login_files.user = user.as_str().to_owned();
                }
                (LauncherToDataProxy::Remote { source, authority }, _) => {
                    setup.remote = Some((source.as_str().to_owned(), authority.as_str().to_owned()));
                }
                (
                    message @ (LauncherToDataProxy::Password {}
                    | LauncherToDataProxy::Authorities { .. }
                    | LauncherToDataProxy::Certificate {}
                    | LauncherToDataProxy::Key {}),
                    Some(file),
                ) => {
                    setup.login_files.take(&message, &file).map_err(ProcessFault::Operator)?;
                }
                (LauncherToDataProxy::Statements {}, Some(file)) => setup.statements = Some(file),
                (LauncherToDataProxy::Schema {}, Some(file)) => setup.schema = Some(file),
                (LauncherToDataProxy::Service { name }, _) => setup.services.push(name.as_str().to_owned()),
                (LauncherToDataProxy::Begin {}, _) => {
                    let login = setup.login_files.login();
                    setup.login = login.map_err(|fault| ProcessFault::Operator(fault.to_string()))?;
                    return Ok(Some((setup, flush_ms)));
                }
                (other, _) => return Err(ProcessFault::Launcher(format!("before Begin: {other:?}"))),
            }
        }
        Ok(None)
    }

    /// The way to the other machine that has the source; `None` if it is here, or at a server.
    pub(crate) fn door(&self, dialer: &Rc<Dialer<ServerStream>>) -> Option<Door> {
        let remote = self.remote.clone()?;
        let way = Way::new(Road::Connector(dialer.clone()), self.login.clone());
        Some(Door::new(way, remote, self.services.clone()))
    }

    /// Whose SQL the statements are.
    pub(crate) fn dialect(&self) -> Dialect {
        self.place.as_ref().map(DatabasePlace::dialect).unwrap_or_default()
    }

    /// Opens the source, and has it prepare the statements.
    pub(crate) async fn open(
        self: Rc<Self>,
        dialer: Rc<Dialer<ServerStream>>,
    ) -> Result<(DatabaseSource, Arc<Catalog>), String> {
        let place = self.place.as_ref().ok_or("the launcher has named no source")?;
        let file = self.statements.as_ref().ok_or("the launcher has sent no statements")?;
        let statements = self.read_statements(file).map_err(|refusal| refusal.to_string())?;
        let schema = self.schema.as_ref().map(read).transpose();
        let schema = schema.map_err(|reason| format!("the schema: {reason}"))?;
        let way = Way::new(Road::Connector(dialer), self.login.clone());
        DatabaseSource::open(place, schema.as_deref(), way, statements).await
    }

    /// Reads a file of statements that grant nothing to anybody but the services that may have the source.
    pub(crate) fn read_statements(&self, file: &OwnedFd) -> Result<Statements, CatalogError> {
        let text = read(file).map_err(CatalogError::Database)?;
        parse_statements(&text, self.dialect(), &self.services)
    }
}

/// Reads the text of a file of statements.
pub(crate) fn parse_statements(
    text: &str,
    dialect: Dialect,
    services: &[String],
) -> Result<Statements, CatalogError> {
    let said =
        |mistakes: Vec<statements::StatementMistake>| mistakes.iter().map(ToString::to_string).collect();
    let found =
        statements::parse(text, dialect).map_err(|mistakes| CatalogError::Mistakes(said(mistakes)))?;
    let unknown = |(name, line): (&str, usize)| {
        format!("line {line}: no service `{name}` of this site has the source in its `data`")
    };
    let mistakes: Vec<String> = found.unknown_services(services).into_iter().map(unknown).collect();
    if mistakes.is_empty() { Ok(found) } else { Err(CatalogError::Mistakes(mistakes)) }
}

fn read(file: &OwnedFd) -> Result<String, String> {
    let bytes = files::read(file, FILE_MAX)?;
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))
}
