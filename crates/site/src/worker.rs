//! The site worker: set up by the launcher's messages, then one task per connection, until the launcher is done
//! with it.
//!
//! Runs in: the site worker, under the site's uid, in its jail, with an empty root. Untrusted input: connections.
//! Must never: open anything that is not below the site's root directory, which came as a descriptor.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use wire::log::Level;
use wire::{ChildToLauncher, Kind, LauncherToSite, RouteTarget};
use worker::channel::Channel;
use worker::log::Log;
use worker::receiver::{Arrival, Receiver};
use worker::routes::Routes;
use worker::{ProcessFault, ProcessStart, idle};

use crate::config::limits::ClientLimits;
use crate::config::setup::SiteSetup;
use crate::connection::{AcceptedClient, ConnectionEnd, serve};
use crate::context::SiteContext;
use crate::context::state::{RouteOwner, WorkerState};
use crate::proxy::limit::BackendId;
use crate::proxy::relay::version_of;
use crate::router::access::users::Users;
use crate::router::hook::Hooks;
use crate::router::rules::RuleTarget;
use crate::tls::TlsContext;

type SiteControl = Channel<LauncherToSite, ChildToLauncher>;

/// The whole life of the process, if it is one without functions of its own.
pub async fn run(start: ProcessStart) -> Result<(), ProcessFault> {
    run_with(start, Hooks::default()).await
}

/// The whole life of the process.
pub async fn run_with(start: ProcessStart, hooks: Hooks) -> Result<(), ProcessFault> {
    let control: Rc<SiteControl> = Rc::new(Channel::control(start.control, start.say)?);
    let Some((site, tls)) = set_up(&control, start.log, hooks).await? else {
        return Ok(());
    };
    control.send(&ChildToLauncher::TakesRetire {}, None).await?;
    control.send(&ChildToLauncher::Ready {}, None).await?;
    site.watch_files();
    let accepting = tokio::task::spawn_local(accept(site.clone(), tls.clone()));
    tokio::task::spawn_local(watch_lists(site.clone(), tls.clone()));
    tokio::task::spawn_local(give_memory_back(site.clone()));
    let keeper = site.clone();
    tokio::task::spawn_local(async move { keeper.worker.cut_bodies_file().await });
    let receiver = &site.worker.receiver;
    let idle_stop = site.worker.limits().idle_stop;
    let reporting = (receiver.clone(), control.clone());
    tokio::task::spawn_local(async move { idle::report(reporting.0, &reporting.1, idle_stop).await });
    let mut staged = None;
    follow(&site, &tls, &control, &mut staged).await?;
    // Take what was sent, answer what was asked, say what was logged.
    receiver.drain();
    let finished = async {
        let _ = accepting.await;
        receiver.idle().await;
        site.worker.log().flush().await;
    };
    tokio::select! {
        () = finished => Ok(()),
        heard = follow_on(&site, &tls, &control, &mut staged) => heard,
    }
}

/// Does what the launcher says of a worker that serves, until the worker is to go: it is told so, or the channel ends.
async fn follow(
    site: &Rc<SiteContext>,
    tls: &TlsContext,
    control: &SiteControl,
    staged: &mut Option<Routes<RouteOwner>>,
) -> Result<(), ProcessFault> {
    while let Some((message, descriptor)) = control.receive().await? {
        if message == (LauncherToSite::Retire {}) {
            break;
        }
        if let Some((message, descriptor)) = tls.take_always(message, descriptor)?
            && let Some(message) = update(site, control, staged, message).await?
        {
            handle(site, tls, control, message, descriptor)?;
        }
    }
    Ok(())
}

/// The same while the worker goes: an upload that has yet to be passed on needs the service that there is by then.
/// Waits when nothing is said any more.
async fn follow_on(
    site: &Rc<SiteContext>,
    tls: &TlsContext,
    control: &SiteControl,
    staged: &mut Option<Routes<RouteOwner>>,
) -> Result<(), ProcessFault> {
    follow(site, tls, control, staged).await?;
    std::future::pending().await
}

/// Hears the launcher until it says to begin; `None` if it wants no worker any more.
async fn set_up(
    control: &Rc<SiteControl>,
    log: Option<OwnedFd>,
    hooks: Hooks,
) -> Result<Option<(Rc<SiteContext>, Rc<TlsContext>)>, ProcessFault> {
    let Some((LauncherToSite::Limits { limits, site }, _)) = control.receive().await? else {
        return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
    };
    let log = Log::new(log, site, limits.flush_ms)?;
    let mut state = WorkerState::new(ClientLimits::new(&limits), Receiver::new(limits.connections), log);
    let mut setup = SiteSetup::default();
    let mut tls = TlsContext::default();
    while let Some((message, descriptor)) = control.receive().await? {
        if let LauncherToSite::Spool { bytes } = message {
            state.keep_bodies_in(descriptor, bytes);
            continue;
        }
        let Some((message, descriptor)) = tls.take(message, descriptor)? else { continue };
        let Some(message) = setup.take(message, descriptor)? else { continue };
        match message {
            LauncherToSite::Route { host, path, target, partition } => {
                state.route(host.as_str(), path.as_str(), RouteOwner::new(target, partition));
                if target == RouteTarget::Service {
                    setup.service(path.as_str(), partition);
                }
            }
            LauncherToSite::Conditioning { conditioning } => state.condition(&conditioning),
            LauncherToSite::Exempt { network } => {
                let network = network.as_str().parse();
                state.exempt(
                    network.map_err(|error| ProcessFault::Launcher(format!("an exempt network: {error}")))?,
                );
            }
            LauncherToSite::SharedConnections { port } => state.share_port(port),
            LauncherToSite::Filtered {} => state.filtered = true,
            LauncherToSite::Requests { partition, requests } => {
                state.limit(BackendId::Service(partition), requests);
            }
            LauncherToSite::Backend { target, backend } => {
                state.limit(BackendId::Target(target), backend.requests);
                state.backends.announce(target, backend);
            }
            LauncherToSite::RootPath { path } => state.backends.set_root(path.as_str()),
            LauncherToSite::Begin {} => {
                setup.faults.drain(..).for_each(|fault| state.log().event(Level::Warning, fault));
                if tls.names_tampering() {
                    let control = control.clone();
                    state.on_tampered(move |message| drop(control.try_send(&message, None)));
                }
                let launcher = control.clone();
                state.tell_by(move |message| {
                    let launcher = launcher.clone();
                    tokio::task::spawn_local(async move { launcher.send(&message, None).await });
                });
                let site = SiteContext { hooks, ..SiteContext::set_up(state, setup) };
                has_functions(&site)?;
                *site.tls.borrow_mut() = tls.config()?;
                site.set_hsts(tls.hsts());
                return Ok(Some((Rc::new(site), Rc::new(tls))));
            }
            other => return Err(ProcessFault::Launcher(format!("before Begin: {other:?}"))),
        }
    }
    Ok(None)
}

/// Whether every function that a route names is there: its requests would find out one by one.
fn has_functions(site: &SiteContext) -> Result<(), ProcessFault> {
    let named = site.rules.iter().find_map(|rule| match &rule.target {
        RuleTarget::Hook(name) if !site.hooks.has(name) => Some(name),
        _ => None,
    });
    match named {
        None => Ok(()),
        Some(name) => Err(ProcessFault::Operator(format!(
            "a route names the hook {name:?}, which this worker does not have; it has: {}",
            site.hooks.names().join(", ")
        ))),
    }
}

/// Takes a part of an update of routes, which holds from its end on; anything else comes back.
async fn update(
    site: &SiteContext,
    control: &SiteControl,
    staged: &mut Option<Routes<RouteOwner>>,
    message: LauncherToSite,
) -> Result<Option<LauncherToSite>, ProcessFault> {
    match (message, staged.as_mut()) {
        (LauncherToSite::Update {}, _) => *staged = Some(Routes::default()),
        (LauncherToSite::Route { host, path, target, partition }, Some(routes)) => {
            routes.add(host.as_str(), path.as_str(), RouteOwner::new(target, partition));
        }
        (LauncherToSite::Commit {}, Some(routes)) => {
            site.worker.replace_routes(std::mem::take(routes));
            *staged = None;
            control.send(&ChildToLauncher::Committed {}, None).await?;
        }
        (other, _) => return Ok(Some(other)),
    }
    Ok(None)
}

/// Does what the launcher says of a worker that serves.
fn handle(
    site: &Rc<SiteContext>,
    tls: &TlsContext,
    control: &SiteControl,
    message: LauncherToSite,
    descriptor: Option<OwnedFd>,
) -> Result<(), ProcessFault> {
    match (message, descriptor) {
        (LauncherToSite::Connector {}, Some(channel)) => site.worker.backends.attach(channel)?,
        (LauncherToSite::Attach {}, Some(channel)) => site.worker.receiver.attach(channel, false)?,
        (LauncherToSite::AttachService { partition }, Some(channel)) => {
            site.worker.backends.service(partition).map_or(Ok(()), |service| service.attach(channel))?;
        }
        (LauncherToSite::AttachSite { partition }, Some(channel)) => {
            site.worker.attach_site(partition, channel)?;
        }
        (LauncherToSite::AttachRelay {}, Some(channel)) => site.worker.receiver.attach(channel, true)?,
        (LauncherToSite::Broken { partition, broken }, _) => site.worker.set_broken(partition, broken),
        (LauncherToSite::NoRoom { partition }, _) => site.worker.set_without_room(partition),
        (LauncherToSite::ClientAuthorities { path }, Some(file)) => {
            let renewed = tls.renew(&file).map(|config| *site.tls.borrow_mut() = config);
            tell_reread(site, &format!("`client_ca` {}", path.as_str()), renewed);
        }
        (LauncherToSite::ClientRevoked { number, path }, Some(file)) => {
            let renewed = tls.renew_revoked(number, path.as_str(), &file);
            let renewed = renewed.map(|config| *site.tls.borrow_mut() = config);
            tell_reread(site, &format!("`client_crl` {}", path.as_str()), renewed);
            warn(site, tls);
        }
        (LauncherToSite::RuleUsers { rule, path, .. }, Some(file)) => {
            let (users, faults) = Users::read(&file);
            let renewed =
                if faults.is_empty() { site.rules.renew(rule, users) } else { Err(faults.join("; ")) };
            tell_reread(site, &format!("`users` {}", path.as_str()), renewed);
        }
        (LauncherToSite::Report {}, _) => control.report(site.worker.receiver.counters.snapshot()),
        (LauncherToSite::ReportShed {}, _) => {
            for message in site.report() {
                let _ = control.try_send(&message, None);
            }
        }
        (other, _) => return Err(ProcessFault::Launcher(format!("after Begin: {other:?}"))),
    }
    Ok(())
}

fn warn(site: &SiteContext, tls: &TlsContext) {
    tls.warnings().into_iter().for_each(|warning| site.worker.log().event(Level::Error, warning));
}

/// Sets up connections anew whenever a list of revoked certificates is over.
async fn watch_lists(site: Rc<SiteContext>, tls: Rc<TlsContext>) {
    warn(&site, &tls);
    loop {
        tls.list_is_over().await;
        warn(&site, &tls);
        // Connections that could be set up before can be now: only the time has changed.
        if let Ok(config) = tls.config() {
            *site.tls.borrow_mut() = config;
        }
    }
}

/// Gives memory back after many requests at once: first what they held, later what their connections held.
async fn give_memory_back(site: Rc<SiteContext>) {
    loop {
        site.worker.requests_fall().await;
        for wait in [1, 30] {
            tokio::time::sleep(Duration::from_secs(wait)).await;
            sys::memory::give_back();
        }
    }
}

/// Says what became of a file that has changed.
fn tell_reread(site: &SiteContext, file: &str, renewed: Result<(), String>) {
    let log = site.worker.log();
    match renewed {
        Ok(()) => log.event(Level::Info, format!("{file} has changed and is in use")),
        Err(what) => {
            log.event(
                Level::Warning,
                format!("{file} has changed, and what it said before still holds: {what}"),
            );
        }
    }
}

/// Serves every connection that arrives, each in a task of its own.
async fn accept(site: Rc<SiteContext>, tls: Rc<TlsContext>) {
    while let Some(arrival) = site.worker.receiver.next().await {
        tokio::task::spawn_local(attend(site.clone(), tls.clone(), arrival));
    }
}

/// Not `async` as a whole, as [`serve`].
fn attend(site: Rc<SiteContext>, configured: Rc<TlsContext>, arrival: Arrival) -> impl Future<Output = ()> {
    let Arrival { stream, preread, peer, local, guard, kind, relayed: is_relayed } = arrival;
    let (tls, h2c) = (kind == Kind::Tls, kind == Kind::Http2);
    // SECURITY: what a gate sends is a client's, who is believed nothing that a worker which relays says; and what such
    // a worker sends is never a connection for a gate.
    let relayed = version_of(kind).filter(|_| is_relayed);
    let client = AcceptedClient { stream, preread, peer, local, tls, h2c, relayed };
    async move {
        if relayed.is_some() != is_relayed {
            return;
        }
        if client.tls {
            configured.ready().await;
        }
        if let ConnectionEnd::HandBack { stream, preread } = serve(&site, client).await {
            // Without a gate to take it, that is, at the end of everything, the connection is closed.
            let _ = guard.hand_back(stream, preread).await;
        }
    }
}
