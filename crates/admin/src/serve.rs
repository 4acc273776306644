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
use worker::Start;
use worker::channel::ChannelError;

use crate::certified::Certificate;
use crate::client;
use crate::clients::Clients;
use crate::conditioned::TopRange;
use crate::desk::{Control, Desk};
use crate::reply::Process;
use crate::secret::Secret;

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
pub async fn serve(start: Start) -> Result<(), ServeError> {
    let desk = Rc::new(Desk::new(Control::new(start.control)?));
    let clients = Rc::new(Clients::default());
    let mut socket = None;
    let mut accepting = None;
    let result = loop {
        let (message, descriptor) = match desk.control.receive().await {
            Ok(Some(arrived)) => arrived,
            Ok(None) => break Ok(()),
            Err(error) => break Err(ServeError::Control(error)),
        };
        match message {
            LauncherToAdmin::Socket {} => socket = descriptor,
            LauncherToAdmin::Begin {} => {
                let listener = listener(socket.take())?;
                if desk.secret.get().is_none() {
                    break Err(ServeError::Incomplete("the secret"));
                }
                let task = accept(listener, desk.clone(), clients.clone());
                accepting = Some(tokio::task::spawn_local(task));
                desk.control.send(&AdminToLauncher::Ready {}, None).await?;
            }
            LauncherToAdmin::ProbeOutput { ticket } => {
                if let Some(output) = descriptor {
                    let desk = desk.clone();
                    tokio::task::spawn_local(async move { desk.probe_output(ticket, output).await });
                }
            }
            message => obey(&desk, message).await?,
        }
    };
    if let Some(task) = accepting {
        task.abort();
    }
    desk.close();
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
async fn obey(desk: &Desk, message: LauncherToAdmin) -> io::Result<()> {
    match message {
        LauncherToAdmin::Target { target, name } => desk.add_target(target, name.as_str()),
        // There is one for as long as the launcher lives.
        LauncherToAdmin::Secret { secret } => drop(desk.secret.set(Secret::new(secret.as_str()))),
        LauncherToAdmin::StatusEnd { ticket, missing } => desk.status_end(ticket, missing.as_str()),
        LauncherToAdmin::TopRange { ticket, name: _, address_high, address_low, bits, held, waiting } => {
            desk.heavy(ticket, TopRange::new((address_high, address_low), bits, held, waiting));
        }
        LauncherToAdmin::Shed { ticket, role, name, shed } => desk.shed(ticket, role, name.as_str(), &shed),
        LauncherToAdmin::ConditioningEnd { ticket } => desk.conditioning_end(ticket),
        LauncherToAdmin::Ban { ticket, name, address_high, address_low, seconds } => {
            desk.ban(ticket, name.as_str(), (address_high, address_low), seconds);
        }
        LauncherToAdmin::Certificate { ticket, name, file, verdict, holding, staple } => {
            let certificate = Certificate::new(name.as_str(), file.as_str(), verdict, holding, &staple);
            desk.certificate(ticket, certificate);
        }
        LauncherToAdmin::CertificatesEnd { ticket } => desk.certificates_end(ticket),
        LauncherToAdmin::BansEnd { ticket } => desk.bans_end(ticket),
        LauncherToAdmin::Answer { ticket, outcome, reason } => desk.answer(ticket, outcome, reason.as_str()),
        LauncherToAdmin::Report {} => {
            let counters = desk.counters.snapshot();
            desk.control.send(&AdminToLauncher::Counters { counters }, None).await?;
        }
        other => {
            if let Some((ticket, process)) = Process::from_message(other) {
                desk.process(ticket, process);
            }
        }
    }
    Ok(())
}

/// Takes clients from the socket.
async fn accept(listener: UnixListener, desk: Rc<Desk>, clients: Rc<Clients>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = clients.clone().place().await;
        let desk = desk.clone();
        tokio::task::spawn_local(async move {
            desk.counters.connected();
            client::serve(stream, &desk, &place).await;
            desk.counters.disconnected();
        });
    }
}
