//! The worker's life: set up, initialise, serve, retire.
//!
//! Runs in: a service's worker, inside its jail. Sees: the launcher's messages (trusted: nonsense from there
//! ends the process), and connections, which it passes on. Never: asks for a connection before `init` is done.
//!
//! Source: seed 000, 4.1-4.2; architecture.md, "The life of a connection".

use std::os::fd::OwnedFd;
use std::rc::Rc;

use wire::{ChildToLauncher, LauncherToService, Source, WorkerLimits};
use worker::Start;
use worker::channel::Channel;
use worker::inlet::Inlets;
use worker::log::Log;

use crate::connection;
use crate::context::{Context, Error};
use crate::{Body, Bytes, Request, Response, Service};

type Control = Channel<LauncherToService, ChildToLauncher>;

/// Whatever answers requests.
pub(crate) trait Process: 'static {
    /// Answers one request; an error is answered with 500 and goes to the error log.
    fn answer(&self, request: Request) -> impl Future<Output = Result<Response, Error>>;
}

/// A service of our own kind.
pub(crate) struct Native<S>(pub(crate) S);

impl<S: Service> Process for Native<S> {
    async fn answer(&self, request: Request) -> Result<Response, Error> {
        Ok(self.0.process(request).await)
    }
}

/// A service of tower's kind.
pub(crate) struct Tower<T>(pub(crate) T);

impl<T, B> Process for Tower<T>
where
    T: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    T::Error: Into<Error>,
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<Error>,
{
    async fn answer(&self, request: Request) -> Result<Response, Error> {
        let mut service = self.0.clone();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
        let response = service.call(request.into_http()).await.map_err(Into::into)?;
        Ok(response.into())
    }
}

/// What all connections of the worker share.
pub(crate) struct Worker<P> {
    pub(crate) process: P,
    pub(crate) context: Context,
    pub(crate) inlets: Rc<Inlets>,
    pub(crate) log: Log,
    pub(crate) site: u16,
    /// Whether a client's connection may be kept after its first request.
    pub(crate) owns_host: bool,
}

/// What the launcher says before `Begin`.
struct Setup {
    limits: WorkerLimits,
    site: u16,
    owns_host: bool,
    /// Sources that wait until the service is initialised.
    sources: Vec<(Source, OwnedFd)>,
}

/// Runs a worker from its start to its end.
///
/// # Errors
/// When `init` fails or the launcher talks nonsense.
pub(crate) async fn serve<P: Process>(
    start: Start,
    arguments: Vec<String>,
    init: impl AsyncFnOnce(&Context) -> Result<P, Error>,
) -> Result<(), Error> {
    let control = Control::new(start.control)?;
    let Some(setup) = Setup::receive(&control).await? else {
        return Ok(());
    };
    let log = Log::new(start.log, setup.site, setup.limits.flush_ms)?;
    let context = Context::new(arguments, (&setup.limits).into(), log.clone());
    let outcome = match init(&context).await {
        Ok(process) => {
            let worker = Worker {
                process,
                context,
                inlets: Inlets::new(setup.limits.connections),
                log: log.clone(),
                site: setup.site,
                owns_host: setup.owns_host,
            };
            worker.run(&control, setup.sources).await
        }
        Err(error) => Err(error),
    };
    log.flush().await;
    outcome
}

impl Setup {
    /// Receives everything up to `Begin`; `None` if the launcher has closed its channel before.
    async fn receive(control: &Control) -> Result<Option<Self>, Error> {
        let Some((LauncherToService::Limits { limits, site, owns_host }, _)) = control.receive().await?
        else {
            return Ok(None);
        };
        let mut setup = Self { limits, site, owns_host, sources: Vec::new() };
        while let Some(message) = control.receive().await? {
            match message {
                (LauncherToService::Begin {}, _) => return Ok(Some(setup)),
                (LauncherToService::Attach { source }, Some(descriptor)) => {
                    setup.sources.push((source, descriptor))
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Ok(None)
    }
}

impl<P: Process> Worker<P> {
    /// Serves until the launcher closes its channel, and then until everything has been answered.
    async fn run(self, control: &Control, sources: Vec<(Source, OwnedFd)>) -> Result<(), Error> {
        // A launcher that does not hear it has closed the channel, which is the next thing we notice.
        let _ = control.send(&ChildToLauncher::Ready {}, None).await;
        for (source, descriptor) in sources {
            self.attach(source, descriptor)?;
        }
        let worker = Rc::new(self);
        tokio::try_join!(worker.clone().obey(control), worker.accept())?;
        Ok(())
    }

    fn attach(&self, source: Source, descriptor: OwnedFd) -> Result<(), Error> {
        Ok(self.inlets.attach(descriptor, source == Source::Site)?)
    }

    /// Follows the launcher's orders; their end is the order to retire.
    async fn obey(self: Rc<Self>, control: &Control) -> Result<(), Error> {
        while let Some(message) = control.receive().await? {
            match message {
                (LauncherToService::Attach { source }, Some(descriptor)) => {
                    self.attach(source, descriptor)?
                }
                (LauncherToService::Report {}, _) => {
                    let counters = self.inlets.counters.snapshot();
                    let _ = control.send(&ChildToLauncher::Counters { counters }, None).await;
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        self.inlets.drain();
        Ok(())
    }

    /// Serves every connection, also those that are still on their way when the worker retires.
    async fn accept(self: Rc<Self>) -> Result<(), Error> {
        while let Some(arrival) = self.inlets.next().await {
            tokio::task::spawn_local(connection::serve(self.clone(), arrival));
        }
        self.inlets.idle().await;
        Ok(())
    }
}

fn unexpected(message: &LauncherToService) -> Error {
    format!("the launcher sent {message:?} out of turn or without its descriptor").into()
}
