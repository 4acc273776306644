//! The life of the process: told its source and its statements, then one task per channel, until the launcher is done
//! with it.
//!
//! Sees: the launcher's messages (trusted: a malformed one ends the process); the operator's files. Never: serves
//! anybody before the database has prepared every statement.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::task::JoinSet;
use wire::data::{LauncherToDataProxy, Token};
use wire::{ChildToLauncher, NO_PARTITION};
use worker::dialer::Dialer;
use worker::log::Log;
use worker::server_stream::ServerStream;
use worker::{ProcessFault, ProcessStart};

use crate::client::{ProxyState, ServiceId, attend};
use crate::database::Database;
use crate::remote;
use crate::renewal::Renewal;
use crate::setup::{DataProxyControl, ProxySetup};
use crate::told::ProcessLog;

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, the database cannot be opened, or a statement is wrong: with every mistake.
pub async fn serve(start: ProcessStart) -> Result<(), ProcessFault> {
    let control = DataProxyControl::control(start.control, start.say)?;
    let Some((setup, flush_ms)) = ProxySetup::receive(&control).await? else { return Ok(()) };
    let log = Log::new(start.log, NO_PARTITION, flush_ms)?;
    let mut opening = Opening { control, setup: Rc::new(setup), dialer: Rc::default(), early: Vec::new() };
    let told = Rc::new(ProcessLog::new(log));
    let Some(database) = opening.open(&told).await? else { return Ok(()) };
    opening.control.send(&ChildToLauncher::Ready {}, None).await?;
    let renewal = Renewal::new(database.clone(), told.clone(), opening.setup.login_files.clone());
    Proxy { opening, database, renewal, told, clients: JoinSet::new() }.serve().await
}

/// A source that is being opened, which may take a while, and what the launcher says meanwhile.
struct Opening {
    control: DataProxyControl,
    setup: Rc<ProxySetup>,
    dialer: Rc<Dialer<ServerStream>>,
    /// Messages for later.
    early: Vec<(LauncherToDataProxy, Option<OwnedFd>)>,
}

impl Opening {
    /// Opens the source, or knocks at the doors to it; `None` if the launcher does not want it any more.
    async fn open(&mut self, told: &Rc<ProcessLog>) -> Result<Option<Database>, ProcessFault> {
        if let Some(door) = self.setup.door(&self.dialer).map(Rc::new) {
            let trying = door.clone();
            let tried = self.wait_for(async move { trying.try_all().await }).await?;
            return Ok(tried.map(|()| Database::Elsewhere(door)));
        }
        let opened = self.setup.clone().open(self.dialer.clone());
        Ok(self.wait_for(opened).await?.map(|(mut source, catalog)| {
            source.start();
            let (queue, told) = (source.queue().clone(), told.clone());
            let shared = Rc::new(ProxyState { queue, catalog: RefCell::new(catalog), told });
            Database::Own { source: Rc::new(source), shared }
        }))
    }

    /// Waits until the source is open; `None` if the launcher does not want it any more.
    async fn wait_for<T: 'static>(
        &mut self,
        opened: impl Future<Output = Result<T, String>> + 'static,
    ) -> Result<Option<T>, ProcessFault> {
        let mut opened = tokio::task::spawn_local(opened);
        loop {
            tokio::select! {
                biased;
                opened = &mut opened => {
                    let opened = opened.map_err(|error| ProcessFault::Operator(error.to_string()))?;
                    return opened.map(Some).map_err(ProcessFault::Operator);
                }
                message = self.control.receive() => match message? {
                    Some((LauncherToDataProxy::Connector {}, Some(channel))) => self.dialer.attach(channel)?,
                    Some(other) => self.early.push(other),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The launcher's next message.
    async fn next(&mut self) -> Result<Option<(LauncherToDataProxy, Option<OwnedFd>)>, ProcessFault> {
        match self.early.is_empty() {
            true => Ok(self.control.receive().await?),
            false => Ok(Some(self.early.remove(0))),
        }
    }
}

/// A data proxy that serves.
struct Proxy {
    opening: Opening,
    database: Database,
    renewal: Renewal,
    told: Rc<ProcessLog>,
    clients: JoinSet<()>,
}

impl Proxy {
    async fn serve(mut self) -> Result<(), ProcessFault> {
        while let Some((message, descriptor)) = self.opening.next().await? {
            match (message, descriptor) {
                (LauncherToDataProxy::Attach { service, token }, Some(channel)) => {
                    self.attach(service.as_str(), token, channel)?;
                }
                (LauncherToDataProxy::Connector {}, Some(channel)) => self.opening.dialer.attach(channel)?,
                (LauncherToDataProxy::Statements {}, Some(file)) => {
                    self.renewal.statements(self.opening.setup.read_statements(&file));
                }
                (
                    message @ (LauncherToDataProxy::Password {}
                    | LauncherToDataProxy::Authorities { .. }
                    | LauncherToDataProxy::Certificate {}
                    | LauncherToDataProxy::Key {}),
                    Some(file),
                ) => self.renewal.login(&message, &file),
                (LauncherToDataProxy::Report {}, _) => {
                    self.opening.control.report(self.told.counters.snapshot());
                }
                (other, _) => return Err(ProcessFault::Launcher(format!("after Begin: {other:?}"))),
            }
            while self.clients.try_join_next().is_some() {}
        }
        // Services have calls under way, or are on their way to the process that takes this one's place.
        while self.clients.join_next().await.is_some() {}
        self.renewal.end().await;
        self.told.log.flush().await;
        if let Database::Own { source, .. } = self.database
            && let Some(source) = Rc::into_inner(source)
        {
            source.close().await;
        }
        Ok(())
    }

    fn attach(&mut self, service: &str, token: Token, channel: OwnedFd) -> Result<(), ProcessFault> {
        let known = self.opening.setup.services.iter().position(|name| name == service);
        let number = known.ok_or_else(|| ProcessFault::Launcher(format!("no service {service:?}")))?;
        let service = ServiceId { name: service.to_owned(), number };
        match &self.database {
            Database::Own { shared, .. } => {
                self.clients.spawn_local(attend(shared.clone(), service, token, channel));
            }
            Database::Elsewhere(door) => {
                let both = (self.told.clone(), door.clone());
                self.clients.spawn_local(remote::attend(both, service, token, channel));
            }
        }
        Ok(())
    }
}
