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
use worker::channel::{Channel, ChannelEnd};
use worker::log::Log;
use worker::{Fault, Start};

use crate::accept;
use crate::attend;
use crate::gate::{Gate, Limits};
use crate::listener::{Listener, Protocol};
use crate::policies::Policies;
use crate::report;
use crate::workers;

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
    let gate = Gate::new(limits, Log::new(start.log, wire::NO_PARTITION, flush_ms)?)?;
    let control = Rc::new(control);
    let mut setup = Setup { gate: gate.clone(), control, stage: Stage::default(), tasks: Vec::new() };
    while let Some((message, descriptor)) = setup.control.receive().await? {
        setup.handle(message, descriptor).await?;
    }
    // The sockets stay with the launcher, and with them whoever waits there; those already here are passed on.
    setup.tasks.iter().for_each(JoinHandle::abort);
    let _ = tokio::time::timeout(LAST_HEADS, gate.empty()).await;
    gate.log.flush().await;
    Ok(())
}

struct Setup {
    gate: Rc<Gate>,
    control: Rc<Control>,
    stage: Stage,
    /// Those that accept.
    tasks: Vec<JoinHandle<()>>,
}

/// How far the launcher has come.
enum Stage {
    /// It says what is to be; nothing is accepted yet.
    SetUp { policies: Option<Conditioning>, exempt: Exempt, listeners: Vec<(Rc<Listener>, OwnedFd)> },
    /// It has said all that must be known before. Sockets of guarded servers come later; whoever connects to one of
    /// which it is not said yet where it leads waits in the kernel's queue.
    Serving { unrouted: Vec<(Rc<Listener>, OwnedFd)> },
}

impl Default for Stage {
    fn default() -> Self {
        Self::SetUp { policies: None, exempt: Exempt::default(), listeners: Vec::new() }
    }
}

impl Setup {
    async fn handle(&mut self, message: LauncherToGate, descriptor: Option<OwnedFd>) -> Result<(), Fault> {
        match (&mut self.stage, message, descriptor) {
            (stage, LauncherToGate::Listen { index }, Some(socket)) => {
                let listener = self.gate.listen(index, accept::address_of(&socket)?);
                match stage {
                    Stage::SetUp { listeners, .. } => listeners.push((listener, socket)),
                    // The socket of a guarded server, which has only now come so far.
                    Stage::Serving { unrouted } => unrouted.push((listener, socket)),
                }
            }
            (Stage::SetUp { policies, .. }, LauncherToGate::Conditioning { conditioning }, None) => {
                *policies = Some(conditioning);
            }
            (Stage::SetUp { exempt, .. }, LauncherToGate::Exempt { network }, None) => {
                let wrong = |error| Fault::Launcher(format!("exempt: {error}"));
                exempt.0.push(network.as_str().parse().map_err(wrong)?);
            }
            (Stage::SetUp { .. }, LauncherToGate::TamperExempt { network }, None) => {
                let wrong = |error| Fault::Launcher(format!("tamper_exempt: {error}"));
                self.gate.tamper_exempt.borrow_mut().0.push(network.as_str().parse().map_err(wrong)?);
            }
            (Stage::SetUp { .. }, LauncherToGate::Protocol { listener, tls, h2c }, None) => {
                match (tls, h2c) {
                    (true, _) => self.gate.set_protocol(listener, Protocol::Tls),
                    (false, true) => self.gate.set_protocol(listener, Protocol::PlainOrHttp2),
                    (false, false) => self.gate.set_protocol(listener, Protocol::Plain),
                }
            }
            (Stage::SetUp { .. }, LauncherToGate::Redirect { listener, host, path, port }, None) => {
                self.gate.redirect(listener, host.as_str(), path.as_str(), port);
            }
            (Stage::SetUp { .. }, LauncherToGate::Begin {}, None) => return self.begin().await,
            (Stage::Serving { unrouted }, message @ LauncherToGate::Route { listener, .. }, None) => {
                let routed: Vec<_> = unrouted.extract_if(.., |(known, _)| known.number == listener).collect();
                self.handle_at_any_stage(message, None)?;
                routed.into_iter().try_for_each(|(listener, socket)| self.accept(listener, socket))?;
            }
            (Stage::Serving { .. }, message @ LauncherToGate::Begin {}, None) => {
                return Err(Fault::Launcher(format!("after Begin: {message:?}")));
            }
            (_, message, descriptor) => self.handle_at_any_stage(message, descriptor)?,
        }
        Ok(())
    }

    /// What may be said before `Begin` and after it.
    fn handle_at_any_stage(&self, message: LauncherToGate, descriptor: Option<OwnedFd>) -> Result<(), Fault> {
        let gate = &self.gate;
        match (message, descriptor) {
            (LauncherToGate::Route { listener, host, path, partition, site }, None) => {
                workers::add_route(gate, listener, host.as_str(), path.as_str(), partition, site);
            }
            (LauncherToGate::SharedConnections { listener }, None) => gate.share_connections(listener),
            (LauncherToGate::ProxyTrusted { listener, network }, None) => {
                let wrong = |error| Fault::Launcher(format!("a proxy: {error}"));
                gate.trust_proxy(listener, network.as_str().parse().map_err(wrong)?);
            }
            (LauncherToGate::Unfiltered { listener }, None) => gate.allow_unfiltered(listener),
            (LauncherToGate::ChainFirst {}, Some(channel)) => workers::chain(gate).begin(channel)?,
            (LauncherToGate::ChainLast { chain }, Some(channel)) => {
                self.receive_from_chain(chain, channel)?
            }
            (LauncherToGate::Attach { partition }, Some(channel)) => {
                workers::partition(gate, partition).dispatcher.attach(channel)?
            }
            (LauncherToGate::AttachShared { partition }, Some(channel)) => {
                let partition = workers::partition(gate, partition);
                partition.guarded.set(true);
                partition.dispatcher.attach_shared(channel, &gate.guarded)?;
            }
            (LauncherToGate::AttachProcess { partition }, Some(channel)) => {
                gate.guarded.attach(channel, workers::partition(gate, partition).dispatcher.clone())?
            }
            (LauncherToGate::Capacity { partition, connections }, None) => {
                workers::partition(gate, partition).dispatcher.limit(connections);
            }
            (LauncherToGate::Broken { partition, broken }, None) => {
                workers::partition(gate, partition).set_broken(broken);
            }
            (LauncherToGate::Ban { partition, address_high, address_low, seconds }, None) => {
                let client = wire::address_of(address_high, address_low).to_canonical();
                let now = Instant::now();
                let until = (seconds > 0).then(|| now + Duration::from_secs(seconds.into()));
                if !gate.tamper_exempt.borrow().contains(client) {
                    workers::partition(gate, partition).ban(client, until, now);
                }
            }
            (LauncherToGate::Report {}, None) => self.control.report(gate.counters()),
            (LauncherToGate::ReportShed {}, None) => {
                for message in report::report(gate) {
                    let _ = self.control.try_send(&message, None);
                }
            }
            (other, _) => return Err(Fault::Launcher(format!("out of place: {other:?}"))),
        }
        Ok(())
    }

    /// Takes what comes from the last filter of a chain. One that sends nonsense is cut off, which nobody else sees: the
    /// launcher is told, who replaces the chain.
    fn receive_from_chain(&self, chain: u32, channel: OwnedFd) -> std::io::Result<()> {
        let received = workers::end_chain(&self.gate, channel)?;
        let control = self.control.clone();
        tokio::task::spawn_local(async move {
            if received.await == ChannelEnd::ProtocolViolations {
                // If the launcher is gone, so is this process.
                let _ = control.send(&ChildToLauncher::ChainCut { chain }, None).await;
            }
        });
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        if let Stage::SetUp { policies, exempt, listeners } =
            std::mem::replace(&mut self.stage, Stage::Serving { unrouted: Vec::new() })
        {
            self.gate.adopt(Policies::new(policies.as_ref(), exempt));
            self.control.send(&ChildToLauncher::Ready {}, None).await?;
            tokio::task::spawn_local(attend::arrivals(self.gate.clone()));
            tokio::task::spawn_local(attend::deadlines(self.gate.clone()));
            listeners.into_iter().try_for_each(|(listener, socket)| self.accept(listener, socket))?;
        }
        Ok(())
    }

    fn accept(&mut self, listener: Rc<Listener>, socket: OwnedFd) -> Result<(), Fault> {
        // A guarded server may close and open sockets again and again.
        self.tasks.retain(|task| !task.is_finished());
        let accepting = accept::accept(self.gate.clone(), listener, socket)?;
        self.tasks.push(tokio::task::spawn_local(accepting));
        Ok(())
    }
}
