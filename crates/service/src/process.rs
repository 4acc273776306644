//! The worker's life: set up, initialise, serve, retire.
//!
//! Runs in: a service's worker, inside its jail. Sees: the launcher's messages (trusted: nonsense from there
//! ends the process), and connections, which it passes on. Never: asks for a connection before `init` is done.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1-4.2.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::{ChildToLauncher, LauncherToService, Source, WorkerLimits};
use worker::ProcessStart;
use worker::channel::Channel;
use worker::idle;
use worker::log::Log;
use worker::receiver::Receiver;

use crate::connection;
use crate::context::{Context, Error};
use crate::data::{DataSource, Sources};
use crate::orders;
use crate::templates::{PublisherLink, Templates};
use crate::{Body, Bytes, Level, Request, Response, Service};

type ServiceControl = Channel<LauncherToService, ChildToLauncher>;

/// The code that answers requests.
pub(crate) trait RequestHandler: 'static {
    /// Answers one request; an error is answered with 500 and goes to the error log.
    fn answer(&self, request: Request) -> impl Future<Output = Result<Response, Error>>;

    /// Carries out an order of the administrator.
    fn command(&self, name: &str, argument: &str) -> impl Future<Output = Result<String, Error>>;
}

/// A service of our own kind.
pub(crate) struct Native<S>(pub(crate) S);

impl<S: Service> RequestHandler for Native<S> {
    async fn answer(&self, request: Request) -> Result<Response, Error> {
        Ok(self.0.process(request).await)
    }

    async fn command(&self, name: &str, argument: &str) -> Result<String, Error> {
        self.0.command(name, argument).await
    }
}

/// A service of tower's kind.
pub(crate) struct Tower<T>(pub(crate) T);

impl<T, B> RequestHandler for Tower<T>
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

    async fn command(&self, name: &str, _argument: &str) -> Result<String, Error> {
        Err(format!("this service has no order {name:?}").into())
    }
}

/// The state that all connections of the worker share.
pub(crate) struct Worker<P> {
    pub(crate) process: P,
    pub(crate) context: Context,
    pub(crate) receiver: Rc<Receiver>,
    pub(crate) log: Log,
    pub(crate) site: u16,
    /// Whether a client's connection may be kept after its first request.
    pub(crate) owns_host: bool,
    /// Without any connection, after which the launcher is told so.
    pub(crate) idle_stop: Option<Duration>,
    /// When it began to take requests.
    pub(crate) since: Instant,
    /// Its site's templates, if it has them.
    pub(crate) templates: Option<Templates>,
    links: Links,
}

/// The ways to those that serve the service.
struct Links {
    /// The data sources that it may have.
    data: Sources,
    /// Its site's publisher, if it has templates.
    publisher: Option<RefCell<PublisherLink>>,
}

/// The launcher's settings before `Begin`.
struct ServiceSetup {
    limits: WorkerLimits,
    site: u16,
    owns_host: bool,
    /// Whether it may make code while it serves.
    jit: bool,
    /// Sources that wait until the service is initialised.
    sources: Vec<(Source, OwnedFd)>,
    links: Links,
}

/// A message of the launcher, as it came.
type ControlMessage = (LauncherToService, Option<OwnedFd>);

/// Runs a worker from its start to its end.
///
/// # Errors
/// When `init` fails or the launcher talks nonsense.
pub(crate) async fn serve<P: RequestHandler>(
    start: ProcessStart,
    arguments: Vec<String>,
    init: impl AsyncFnOnce(&Context) -> Result<P, Error>,
) -> Result<(), Error> {
    let control = ServiceControl::control(start.control, start.say)?;
    let Some(setup) = ServiceSetup::receive(&control).await? else {
        return Ok(());
    };
    let log = Log::new(start.log, setup.site, setup.limits.flush_ms)?;
    let (links, limits) = (setup.links, (&setup.limits).into());
    let templates = links.publisher.as_ref().map(|link| link.borrow().templates().clone());
    let context = Context::new(arguments, limits, log.clone(), &links.data, templates.clone());
    let mut later = Vec::new();
    let first = links.publisher.as_ref().map(|link| link.borrow().first());
    let init = async {
        if let Some(first) = first {
            first.await?;
        }
        init(&context).await
    };
    let outcome = match initialise(&control, &links, &mut later, init).await {
        Ok(None) => {
            context.event(Level::Info, "the launcher closed its channel before `init` was done");
            Ok(())
        }
        Ok(Some(process)) => {
            // The service's code is loaded; from here on it sees bytes of clients.
            if !setup.jit {
                sys::notify::refuse_new_code()?;
            }
            let worker = Worker {
                process,
                context,
                receiver: Receiver::new(setup.limits.connections),
                log: log.clone(),
                site: setup.site,
                owns_host: setup.owns_host,
                idle_stop: idle::time(setup.limits.idle_stop_ms),
                since: Instant::now(),
                templates,
                links,
            };
            worker.run(&control, setup.sources, later).await
        }
        Err(error) => Err(error),
    };
    log.flush().await;
    outcome
}

impl ServiceSetup {
    /// Receives everything up to `Begin`; `None` if the launcher has closed its channel before.
    async fn receive(control: &ServiceControl) -> Result<Option<Self>, Error> {
        let (limits, site, owns_host, jit) = match control.receive().await? {
            Some((LauncherToService::Limits { limits, site, owns_host, dumps, jit }, _)) => {
                worker::allow_dump(dumps)?;
                (limits, site, owns_host, jit)
            }
            Some((other, _)) => return Err(unexpected(&other)),
            None => return Ok(None),
        };
        let links = Links { data: Sources::new(), publisher: None };
        let mut setup = Self { limits, site, owns_host, jit, sources: Vec::new(), links };
        while let Some(message) = control.receive().await? {
            match message {
                (LauncherToService::Begin {}, _) => return Ok(Some(setup)),
                (LauncherToService::DataSource { name }, _) => {
                    setup.links.data.insert(name.as_str().to_owned(), DataSource::unattached());
                }
                (LauncherToService::Templates {}, _) => {
                    setup.links.publisher = Some(RefCell::new(PublisherLink::new()));
                }
                (LauncherToService::Attach { source }, Some(descriptor)) => {
                    setup.sources.push((source, descriptor))
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Ok(None)
    }
}

/// Waits for the end of `init`, and keeps what the launcher says meanwhile for `later`; `None` if the launcher closes
/// its channel first.
///
/// Code that blocks the thread cannot be interrupted like this; the process can only be killed.
async fn initialise<P>(
    control: &ServiceControl,
    links: &Links,
    later: &mut Vec<ControlMessage>,
    init: impl Future<Output = Result<P, Error>>,
) -> Result<Option<P>, Error> {
    let mut init = pin!(init);
    loop {
        tokio::select! {
            biased;
            outcome = init.as_mut() => return outcome.map(Some),
            message = control.receive() => match message? {
                // `init` may wait for what it reads from there.
                Some((message @ (LauncherToService::DataProxy { .. } | LauncherToService::Publisher {}), channel)) => {
                    links.attach((message, channel))?;
                }
                Some(message) => later.push(message),
                None => return Ok(None),
            },
        }
    }
}

impl<P: RequestHandler> Worker<P> {
    /// Serves until the launcher closes its channel, and then until everything has been answered.
    async fn run(
        self,
        control: &ServiceControl,
        sources: Vec<(Source, OwnedFd)>,
        later: Vec<ControlMessage>,
    ) -> Result<(), Error> {
        if let Some(publisher) = &self.links.publisher {
            let go = publisher.borrow().serve();
            go.await;
        }
        // A launcher that does not hear it has closed the channel, which is the next thing we notice.
        let _ = control.send(&ChildToLauncher::Ready {}, None).await;
        for (source, descriptor) in sources {
            self.attach(source, descriptor)?;
        }
        let worker = Rc::new(self);
        for message in later {
            worker.clone().follow(control, message).await?;
        }
        let work =
            async { tokio::try_join!(worker.clone().handle_messages(control), worker.clone().accept()) };
        tokio::select! {
            ended = work => ended.map(|_| ()),
            () = idle::report(worker.receiver.clone(), control, worker.idle_stop) => Ok(()),
        }
    }

    fn attach(&self, source: Source, descriptor: OwnedFd) -> Result<(), Error> {
        Ok(self.receiver.attach(descriptor, source == Source::Site)?)
    }

    /// Follows the launcher's orders; their end is the order to retire.
    async fn handle_messages(self: Rc<Self>, control: &ServiceControl) -> Result<(), Error> {
        while let Some(message) = control.receive().await? {
            self.clone().follow(control, message).await?;
        }
        self.receiver.drain();
        self.context.tasks().drain();
        Ok(())
    }

    async fn follow(self: Rc<Self>, control: &ServiceControl, message: ControlMessage) -> Result<(), Error> {
        match message {
            (LauncherToService::Attach { source }, Some(descriptor)) => self.attach(source, descriptor)?,
            (LauncherToService::DataProxy { .. } | LauncherToService::Publisher {}, _) => {
                self.links.attach(message)?;
            }
            (LauncherToService::Orders {}, Some(channel)) => {
                tokio::task::spawn_local(orders::attend(self, channel));
            }
            (LauncherToService::Report {}, _) => {
                let counters = self.receiver.counters.snapshot();
                let _ = control.send(&ChildToLauncher::Counters { counters }, None).await;
            }
            (other, _) => return Err(unexpected(&other)),
        }
        Ok(())
    }

    /// Serves every connection, also those that are still on their way when the worker retires; then waits for what
    /// goes on in the background.
    async fn accept(self: Rc<Self>) -> Result<(), Error> {
        while let Some(arrival) = self.receiver.next().await {
            tokio::task::spawn_local(connection::serve(self.clone(), arrival));
        }
        self.receiver.idle().await;
        self.context.tasks().ended().await;
        Ok(())
    }
}

impl Links {
    /// Has another process of a data proxy be called, or another publisher be heard.
    fn attach(&self, message: ControlMessage) -> Result<(), Error> {
        match message {
            (LauncherToService::DataProxy { name, token }, Some(channel)) => {
                let attached = self.data.get(name.as_str());
                let attached =
                    attached.ok_or_else(|| format!("the launcher has sent no data source {name:?}"))?;
                // Where nobody calls any more, nobody needs the channel.
                let _ = attached.channels.send((channel, token));
                Ok(())
            }
            (LauncherToService::Publisher {}, Some(channel)) => match &self.publisher {
                Some(link) => link.borrow_mut().attach(channel),
                None => Err("the launcher has sent a publisher to a service without templates".into()),
            },
            (other, _) => Err(unexpected(&other)),
        }
    }
}

fn unexpected(message: &LauncherToService) -> Error {
    format!("the launcher sent {message:?} out of turn or without its descriptor").into()
}
