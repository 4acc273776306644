//! Set-up of a gate by the launcher's messages, and its end.
//!
//! Runs in: the gate. Sees: messages of the launcher, which is trusted. Never: goes on after one that makes no
//! sense.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::Exempt;
use tokio::task::JoinHandle;
use wire::{ChildToLauncher, Conditioning, LauncherToGate};
use worker::channel::{Channel, Silence};
use worker::log::Log;
use worker::{Fault, Start};

use crate::accept;
use crate::desk::{Desk, Limits, Listener};
use crate::incomplete::Incomplete;
use crate::policies::Policies;
use crate::report;
use crate::tls::Speaks;

/// LIMIT: how long a retiring gate waits for heads that have begun to arrive.
const LAST_HEADS: Duration = Duration::from_secs(5);

type Control = Channel<LauncherToGate, ChildToLauncher>;

/// The whole life of the process.
pub async fn run(start: Start) -> Result<(), Fault> {
    let control: Control = Channel::new(start.control)?;
    let Some(limits) = control.receive().await? else {
        return Ok(());
    };
    let (
        LauncherToGate::Limits { head_bytes, head_timeout_ms, start_timeout_ms, connections, flush_ms },
        None,
    ) = limits
    else {
        return Err(Fault::Launcher("it did not begin with the limits".into()));
    };
    let limits = Limits {
        head_bytes: head_bytes as usize,
        head_timeout: Duration::from_millis(head_timeout_ms.into()),
        start_timeout: Duration::from_millis(start_timeout_ms.into()),
        connections,
    };
    let desk = Desk::new(limits, Log::new(start.log, wire::NO_PARTITION, flush_ms)?)?;
    let control = Rc::new(control);
    let mut gate = Gate { desk: desk.clone(), control, stage: Stage::default(), tasks: Vec::new() };
    while let Some((message, descriptor)) = gate.control.receive().await? {
        gate.obey(message, descriptor).await?;
    }
    // The sockets stay with the launcher, and with them whoever waits there; those already here are passed on.
    gate.tasks.iter().for_each(JoinHandle::abort);
    let _ = tokio::time::timeout(LAST_HEADS, desk.empty()).await;
    desk.log.flush().await;
    Ok(())
}

struct Gate {
    desk: Rc<Desk>,
    control: Rc<Control>,
    stage: Stage,
    /// Those that accept.
    tasks: Vec<JoinHandle<()>>,
}

/// How far the launcher has come.
enum Stage {
    /// It says what is to be; nothing is accepted yet.
    SetUp { ordered: Option<Conditioning>, exempt: Exempt, listeners: Vec<(Rc<Listener>, OwnedFd)> },
    /// It has said all that must be known before. Sockets of guarded servers come later; whoever connects to one of
    /// which it is not said yet where it leads waits in the kernel's queue.
    Serving { unrouted: Vec<(Rc<Listener>, OwnedFd)> },
}

impl Default for Stage {
    fn default() -> Self {
        Self::SetUp { ordered: None, exempt: Exempt::default(), listeners: Vec::new() }
    }
}

impl Gate {
    async fn obey(&mut self, message: LauncherToGate, descriptor: Option<OwnedFd>) -> Result<(), Fault> {
        match (&mut self.stage, message, descriptor) {
            (stage, LauncherToGate::Listen { index }, Some(socket)) => {
                let listener = self.desk.listen(index, accept::address_of(&socket)?);
                match stage {
                    Stage::SetUp { listeners, .. } => listeners.push((listener, socket)),
                    // The socket of a guarded server, which has only now come so far.
                    Stage::Serving { unrouted } => unrouted.push((listener, socket)),
                }
            }
            (Stage::SetUp { ordered, .. }, LauncherToGate::Conditioning { conditioning }, None) => {
                *ordered = Some(conditioning);
            }
            (Stage::SetUp { exempt, .. }, LauncherToGate::Exempt { network }, None) => {
                let wrong = |error| Fault::Launcher(format!("exempt: {error}"));
                exempt.0.push(network.as_str().parse().map_err(wrong)?);
            }
            (Stage::SetUp { .. }, LauncherToGate::TamperExempt { network }, None) => {
                let wrong = |error| Fault::Launcher(format!("tamper_exempt: {error}"));
                self.desk.tamper_exempt.borrow_mut().0.push(network.as_str().parse().map_err(wrong)?);
            }
            (Stage::SetUp { .. }, LauncherToGate::Speaks { listener, tls, h2c }, None) => match (tls, h2c) {
                (true, _) => self.desk.speak(listener, Speaks::Tls),
                (false, true) => self.desk.speak(listener, Speaks::PlainOrHttp2),
                (false, false) => self.desk.speak(listener, Speaks::Plain),
            },
            (Stage::SetUp { .. }, LauncherToGate::Redirect { listener, host, path, port }, None) => {
                self.desk.redirect(listener, host.as_str(), path.as_str(), port);
            }
            (Stage::SetUp { .. }, LauncherToGate::Begin {}, None) => return self.begin().await,
            (Stage::Serving { unrouted }, message @ LauncherToGate::Route { listener, .. }, None) => {
                let led: Vec<_> = unrouted.extract_if(.., |(known, _)| known.number == listener).collect();
                self.obey_always(message, None)?;
                led.into_iter().try_for_each(|(listener, socket)| self.accept(listener, socket))?;
            }
            (Stage::Serving { .. }, message @ LauncherToGate::Begin {}, None) => {
                return Err(Fault::Launcher(format!("after Begin: {message:?}")));
            }
            (_, message, descriptor) => self.obey_always(message, descriptor)?,
        }
        Ok(())
    }

    /// What may be said before `Begin` and after it.
    fn obey_always(&self, message: LauncherToGate, descriptor: Option<OwnedFd>) -> Result<(), Fault> {
        let desk = &self.desk;
        match (message, descriptor) {
            (LauncherToGate::Route { listener, host, path, partition, site }, None) => {
                desk.route(listener, host.as_str(), path.as_str(), partition, site);
            }
            (LauncherToGate::SharedConnections { listener }, None) => desk.share_connections(listener),
            (LauncherToGate::ProxyTrusted { listener, network }, None) => {
                let wrong = |error| Fault::Launcher(format!("a proxy: {error}"));
                desk.trust_proxy(listener, network.as_str().parse().map_err(wrong)?);
            }
            (LauncherToGate::Unfiltered { listener }, None) => desk.allow_unfiltered(listener),
            (LauncherToGate::ChainFirst {}, Some(channel)) => desk.chain().begin(channel)?,
            (LauncherToGate::ChainLast { chain }, Some(channel)) => self.hear_chain(chain, channel)?,
            (LauncherToGate::Attach { partition }, Some(channel)) => {
                desk.partition(partition).outlets.attach(channel)?
            }
            (LauncherToGate::AttachShared { partition }, Some(channel)) => {
                let partition = desk.partition(partition);
                partition.guarded.set(true);
                partition.outlets.attach_shared(channel, &desk.guarded)?;
            }
            (LauncherToGate::AttachProcess { partition }, Some(channel)) => {
                desk.guarded.attach(channel, &desk.partition(partition).outlets)?
            }
            (LauncherToGate::Capacity { partition, connections }, None) => {
                desk.partition(partition).outlets.limit(connections);
            }
            (LauncherToGate::Broken { partition, broken }, None) => {
                desk.partition(partition).set_broken(broken);
            }
            (LauncherToGate::Ban { partition, address_high, address_low, seconds }, None) => {
                let client = wire::address_of(address_high, address_low).to_canonical();
                let now = Instant::now();
                let until = (seconds > 0).then(|| now + Duration::from_secs(seconds.into()));
                if !desk.tamper_exempt.borrow().contains(client) {
                    desk.partition(partition).ban(client, until, now);
                }
            }
            (LauncherToGate::Report {}, None) => self.control.report(desk.counters()),
            (LauncherToGate::ReportShed {}, None) => {
                for message in report::report(desk) {
                    let _ = self.control.try_send(&message, None);
                }
            }
            (other, _) => return Err(Fault::Launcher(format!("out of place: {other:?}"))),
        }
        Ok(())
    }

    /// Takes what comes from the last filter of a chain. One that sends nonsense is cut off, which nobody else sees: the
    /// launcher is told, who replaces the chain.
    fn hear_chain(&self, chain: u32, channel: OwnedFd) -> std::io::Result<()> {
        let heard = self.desk.chain().end(channel)?;
        let control = self.control.clone();
        tokio::task::spawn_local(async move {
            if heard.await == Silence::Nonsense {
                // If the launcher is gone, so is this process.
                let _ = control.send(&ChildToLauncher::ChainCut { chain }, None).await;
            }
        });
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        if let Stage::SetUp { ordered, exempt, listeners } =
            std::mem::replace(&mut self.stage, Stage::Serving { unrouted: Vec::new() })
        {
            self.desk.adopt(Policies::new(ordered.as_ref(), exempt));
            self.control.send(&ChildToLauncher::Ready {}, None).await?;
            tokio::task::spawn_local(Incomplete::attend(self.desk.clone()));
            tokio::task::spawn_local(Incomplete::watch(self.desk.clone()));
            listeners.into_iter().try_for_each(|(listener, socket)| self.accept(listener, socket))?;
        }
        Ok(())
    }

    fn accept(&mut self, listener: Rc<Listener>, socket: OwnedFd) -> Result<(), Fault> {
        // A guarded server may close and open sockets again and again.
        self.tasks.retain(|task| !task.is_finished());
        let accepting = accept::accept(self.desk.clone(), listener, socket)?;
        self.tasks.push(tokio::task::spawn_local(accepting));
        Ok(())
    }
}
