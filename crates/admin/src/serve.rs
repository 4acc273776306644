//! The admin role at work: the launcher's messages, and the socket that comes along with the first of them.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted: a malformed one ends the process). Never:
//! accepts a client before it knows the secret that orders begin with.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixListener;
use wire::{AdminToLauncher, LauncherToAdmin};
use worker::ProcessStart;
use worker::channel::ChannelError;

use crate::admin::{Admin, AdminControl};
use crate::client;
use crate::clients::Clients;
use crate::gather::ticket_of;
use crate::secret::ServerSecret;

/// How long clients may take to get their answers after the launcher has closed its channel.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long to wait after a failed accept (too many open files) before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the admin role had to end.
#[derive(Debug)]
pub enum ServeError {
    /// The channel from the launcher failed.
    Control(ChannelError),
    /// The launcher said `Begin` before what must come before it.
    Incomplete(&'static str),
    /// The event loop refused a descriptor, or a message to the launcher could not be sent.
    Io(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control(error) => write!(f, "from the launcher: {error}"),
            Self::Incomplete(what) => write!(f, "from the launcher: nothing was said of {what}"),
            Self::Io(error) => write!(f, "admin: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Control(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Incomplete(_) => None,
        }
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the admin role until the launcher closes the control channel; must be called inside a `LocalSet`.
///
/// # Errors
/// When the launcher cannot be understood or reached.
pub async fn serve(start: ProcessStart) -> Result<(), ServeError> {
    let admin = Rc::new(Admin::new(AdminControl::control(start.control, start.say)?));
    let clients = Rc::new(Clients::default());
    let mut socket = None;
    let mut accepting = None;
    let result = loop {
        let (message, descriptor) = match admin.control.receive().await {
            Ok(Some(arrived)) => arrived,
            Ok(None) => break Ok(()),
            Err(error) => break Err(ServeError::Control(error)),
        };
        match message {
            LauncherToAdmin::Socket {} => socket = descriptor,
            LauncherToAdmin::Begin {} => {
                let listener = listener(socket.take())?;
                if admin.secret.get().is_none() {
                    break Err(ServeError::Incomplete("the secret"));
                }
                let task = accept(listener, admin.clone(), clients.clone());
                accepting = Some(tokio::task::spawn_local(task));
                admin.control.send(&AdminToLauncher::Ready {}, None).await?;
            }
            LauncherToAdmin::ProbeOutput { ticket } => {
                if let Some(output) = descriptor {
                    let admin = admin.clone();
                    tokio::task::spawn_local(async move { admin.probe_output(ticket, output).await });
                }
            }
            LauncherToAdmin::ServiceChannel { ticket, worker } => {
                descriptor.into_iter().for_each(|channel| admin.service_channel(ticket, worker, channel));
            }
            LauncherToAdmin::PublisherOutput { ticket } => {
                if let Some(output) = descriptor {
                    let admin = admin.clone();
                    tokio::task::spawn_local(async move { admin.publisher_output(ticket, output).await });
                }
            }
            message => {
                // The launcher may have closed its end: clients get their answers all the same.
                if let Err(error) = handle(&admin, message).await {
                    break Err(error.into());
                }
            }
        }
    };
    if let Some(task) = accepting {
        task.abort();
    }
    admin.close();
    let _ = tokio::time::timeout(DRAIN_MAX, clients.end()).await;
    result
}

fn listener(socket: Option<OwnedFd>) -> Result<UnixListener, ServeError> {
    let socket = socket.ok_or(ServeError::Incomplete("the administration socket"))?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(UnixListener::from_std(listener)?)
}

/// Does what any message but those of the set-up asks for.
async fn handle(admin: &Admin, message: LauncherToAdmin) -> io::Result<()> {
    if let Some(ticket) = ticket_of(&message) {
        admin.gather(ticket, message);
        return Ok(());
    }
    match message {
        LauncherToAdmin::Target { target, name } => admin.targets.borrow_mut().add(target, name.as_str()),
        LauncherToAdmin::Forget { target } => admin.targets.borrow_mut().forget(target),
        // There is one for as long as the launcher lives.
        LauncherToAdmin::Secret { secret } => drop(admin.secret.set(ServerSecret::new(secret.as_str()))),
        LauncherToAdmin::Report {} => {
            let counters = admin.counters.snapshot();
            admin.control.send(&AdminToLauncher::Counters { counters }, None).await?;
        }
        // The set-up's are taken where descriptors are.
        _ => {}
    }
    Ok(())
}

/// Takes clients from the socket.
async fn accept(listener: UnixListener, admin: Rc<Admin>, clients: Rc<Clients>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let slot = clients.clone().slot().await;
        let admin = admin.clone();
        tokio::task::spawn_local(async move {
            admin.counters.connected();
            client::serve(stream, &admin, &slot).await;
            admin.counters.disconnected();
        });
    }
}
