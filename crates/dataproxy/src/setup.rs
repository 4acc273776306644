//! What the launcher says before a data proxy opens its source.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use statements::{Dialect, FILE_MAX, Statements};
use wire::ChildToLauncher;
use wire::data::LauncherToDataProxy;
use worker::channel::Channel;
use worker::dialer::Dialer;
use worker::server_stream::ServerStream;
use worker::{Fault, files};

use crate::catalog::{Catalog, Refusal};
use crate::server::{Login, Road, Tls, Way};
use crate::source::{DatabasePlace, Source};

/// LIMIT: bytes of a file with a password.
const PASSWORD_MAX: usize = 4096;

pub(crate) type Control = Channel<LauncherToDataProxy, ChildToLauncher>;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    place: Option<DatabasePlace>,
    login: Login,
    statements: Option<OwnedFd>,
    schema: Option<OwnedFd>,
    pub(crate) services: Vec<String>,
}

impl Setup {
    /// Receives everything up to `Begin`, and how often log records are handed over; `None` if the launcher wants no data proxy any
    /// more.
    pub(crate) async fn receive(control: &Control) -> Result<Option<(Self, u32)>, Fault> {
        let Some((LauncherToDataProxy::Limits { flush_ms }, _)) = control.receive().await? else {
            return Err(Fault::Launcher("it did not begin with the limits".into()));
        };
        let mut setup = Self::default();
        while let Some((message, descriptor)) = control.receive().await? {
            match (message, descriptor) {
                (LauncherToDataProxy::Sqlite { path }, _) => {
                    setup.place = Some(DatabasePlace::Sqlite(path.as_str().into()));
                }
                (LauncherToDataProxy::Server { engine, database, user, connections }, _) => {
                    setup.place = Some(DatabasePlace::Server(engine, connections));
                    setup.login.database = database.as_str().to_owned();
                    setup.login.user = user.as_str().to_owned();
                }
                (
                    message @ (LauncherToDataProxy::Password {} | LauncherToDataProxy::Authorities { .. }),
                    Some(file),
                ) => {
                    read_login(&mut setup.login, &message, &file).map_err(Fault::Operator)?;
                }
                (LauncherToDataProxy::Statements {}, Some(file)) => setup.statements = Some(file),
                (LauncherToDataProxy::Schema {}, Some(file)) => setup.schema = Some(file),
                (LauncherToDataProxy::Service { name }, _) => setup.services.push(name.as_str().to_owned()),
                (LauncherToDataProxy::Begin {}, _) => return Ok(Some((setup, flush_ms))),
                (other, _) => return Err(Fault::Launcher(format!("before Begin: {other:?}"))),
            }
        }
        Ok(None)
    }

    /// Whose SQL the statements are.
    pub(crate) fn dialect(&self) -> Dialect {
        self.place.as_ref().map(DatabasePlace::dialect).unwrap_or_default()
    }

    /// Opens the source, and has it prepare the statements.
    pub(crate) async fn open(
        self: Rc<Self>,
        dialer: Rc<Dialer<ServerStream>>,
    ) -> Result<(Source, Arc<Catalog>), String> {
        let place = self.place.as_ref().ok_or("the launcher has named no source")?;
        let file = self.statements.as_ref().ok_or("the launcher has sent no statements")?;
        let statements = self.read_statements(file).map_err(|refusal| refusal.to_string())?;
        let schema = self.schema.as_ref().map(read).transpose();
        let schema = schema.map_err(|reason| format!("the schema: {reason}"))?;
        let way = Way::new(Road::Connector(dialer), self.login.clone());
        Source::open(place, schema.as_deref(), way, statements).await
    }

    /// Reads a file of statements that grant nothing to anybody but the services that may have the source.
    pub(crate) fn read_statements(&self, file: &OwnedFd) -> Result<Statements, Refusal> {
        let text = read(file).map_err(Refusal::Database)?;
        parse_statements(&text, self.dialect(), &self.services)
    }
}

/// Reads the text of a file of statements.
pub(crate) fn parse_statements(
    text: &str,
    dialect: Dialect,
    services: &[String],
) -> Result<Statements, Refusal> {
    let said = |mistakes: Vec<statements::Mistake>| mistakes.iter().map(ToString::to_string).collect();
    let found = statements::parse(text, dialect).map_err(|mistakes| Refusal::Mistakes(said(mistakes)))?;
    let unknown = |(name, line): (&str, usize)| {
        format!("line {line}: no service `{name}` of this site has the source in its `data`")
    };
    let mistakes: Vec<String> = found.unknown_services(services).into_iter().map(unknown).collect();
    if mistakes.is_empty() { Ok(found) } else { Err(Refusal::Mistakes(mistakes)) }
}

/// Changes a login by a file that has come along; the key of the configuration that names it.
pub(crate) fn read_login(
    login: &mut Login,
    message: &LauncherToDataProxy,
    file: &OwnedFd,
) -> Result<&'static str, String> {
    let LauncherToDataProxy::Authorities { name } = message else {
        login.password = Some(password(file)?);
        return Ok("password");
    };
    let text = files::read(file, certificate::authorities::FILE_BYTES_MAX)?;
    login.tls = Some(Tls::new(&text, name.as_str())?);
    Ok("server_ca")
}

/// The password in a file.
fn password(file: &OwnedFd) -> Result<String, String> {
    let in_words = |reason: &dyn std::fmt::Display| format!("the password: {reason}");
    let bytes = files::read(file, PASSWORD_MAX).map_err(|reason| in_words(&reason))?;
    let text = String::from_utf8(bytes).map_err(|_| in_words(&"it is not UTF-8"))?;
    Ok(password_of(&text))
}

/// The password that a text is, without the end of its line.
pub(crate) fn password_of(text: &str) -> String {
    text.trim_end_matches(['\n', '\r']).to_owned()
}

fn read(file: &OwnedFd) -> Result<String, String> {
    let bytes = files::read(file, FILE_MAX)?;
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))
}
