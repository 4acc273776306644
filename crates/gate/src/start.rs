//! Set-up of a gate by the launcher's messages, its changes, and its end.
//!
//! All that is said of listeners, routes included, is said as a whole, and then committed: at the start, and in each
//! update. Settings for the whole life of the process, its limits and policies, come before the first commit.
//!
//! Runs in: the gate. Sees: messages of the launcher, which is trusted. Never: goes on after one that makes no
//! sense.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::{Exempt, IpNetwork};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use wire::{ChildToLauncher, Conditioning, LauncherToGate, Text};
use worker::channel::{Channel, ChannelEnd};
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::accept;
use crate::attend;
use crate::gate::{Gate, GateLimits};
use crate::listener::{GateListener, Protocol};
use crate::policies::Policies;
use crate::report;
use crate::tables::Tables;
use crate::workers;

/// LIMIT: how long a retiring gate waits for heads that have begun to arrive.
const LAST_HEADS: Duration = Duration::from_secs(5);

type GateControl = Channel<LauncherToGate, ChildToLauncher>;

/// The whole life of the process.
pub async fn run(start: ProcessStart) -> Result<(), ProcessFault> {
    let control: GateControl = Channel::control(start.control, start.say)?;
    let Some(limits) = control.receive().await? else {
        return Ok(());
    };
    let (
        LauncherToGate::Limits { head_bytes, head_timeout_ms, start_timeout_ms, connections, flush_ms },
        None,
    ) = limits
    else {
        return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
    };
    let limits = GateLimits {
        head_bytes: head_bytes as usize,
        head_timeout: Duration::from_millis(head_timeout_ms.into()),
        start_timeout: Duration::from_millis(start_timeout_ms.into()),
        connections,
    };
    let gate = Gate::new(limits, Log::new(start.log, wire::NO_PARTITION, flush_ms)?)?;
    control.send(&ChildToLauncher::TakesRetire {}, None).await?;
    let mut setup = GateSetup::new(gate.clone(), Rc::new(control));
    setup.follow().await?;
    setup.retire().await?;
    gate.log.flush().await;
    Ok(())
}

struct GateSetup {
    gate: Rc<Gate>,
    control: Rc<GateControl>,
    /// Until the first `Commit`: what holds for as long as the process lives.
    policies: Option<(Option<Conditioning>, Exempt)>,
    /// From `Update` to `Commit`, and before the first one: the listeners that are to be.
    staged: Option<StagedListeners>,
    /// Sockets of guarded servers come one by one; whoever connects to one of which it is not said yet where it leads
    /// waits in the kernel's queue.
    unrouted: Vec<(Rc<GateListener>, OwnedFd)>,
    /// Those that accept, by the addresses of their sockets.
    accepting: Vec<(SocketAddr, JoinHandle<()>)>,
    /// The task that receives from the last filter of the newest chain.
    from_chain: RefCell<Option<JoinHandle<()>>>,
    /// Whether other gates take what comes from the filters, and this one nothing more.
    leaves_chain: Cell<bool>,
    /// Whether it accepts nothing more.
    retires: bool,
}

/// Listeners that do not hold yet, and their sockets.
#[derive(Default)]
struct StagedListeners {
    tables: Tables,
    sockets: Vec<(Rc<GateListener>, OwnedFd)>,
    chain: StagedChain,
    /// Of a `Change`, in place of all that: what is said of routes.
    edits: Option<Vec<LauncherToGate>>,
}

/// An update's changes of filters; empty if the filters stay as they are.
#[derive(Default)]
struct StagedChain {
    first: Option<OwnedFd>,
    last: Option<(u32, OwnedFd)>,
    is_removed: bool,
}

impl GateSetup {
    fn new(gate: Rc<Gate>, control: Rc<GateControl>) -> Self {
        let (policies, staged) = (Some(Default::default()), Some(StagedListeners::default()));
        let launcher = control.clone();
        gate.speak(move |message| {
            let launcher = launcher.clone();
            // A message that waits here waits for the answer: it is sent as soon as there is room.
            tokio::task::spawn_local(async move { launcher.send(&message, None).await });
        });
        Self {
            gate,
            control,
            policies,
            staged,
            unrouted: Vec::new(),
            accepting: Vec::new(),
            from_chain: RefCell::default(),
            leaves_chain: Cell::new(false),
            retires: false,
        }
    }

    /// Does what the launcher says, until this gate is to go: it is told so, or the channel ends.
    async fn follow(&mut self) -> Result<(), ProcessFault> {
        while let Some((message, descriptor)) = self.control.receive().await? {
            if message == (LauncherToGate::Retire {}) {
                break;
            }
            self.handle(message, descriptor).await?;
        }
        Ok(())
    }

    /// Passes on what is here, also to workers that come meanwhile. The sockets stay with the launcher, and with them
    /// whoever waits there.
    async fn retire(&mut self) -> Result<(), ProcessFault> {
        self.retires = true;
        self.accepting.drain(..).for_each(|(_, task)| task.abort());
        let (gate, end) = (self.gate.clone(), tokio::time::Instant::now() + LAST_HEADS);
        let passed_on = timeout_at(end, gate.empty());
        tokio::select! {
            _ = passed_on => {}
            heard = self.follow_on() => return heard,
        }
        // No worker comes from here on that would have to be told to keep what it would hand back.
        let _ = timeout_at(end, gate.settle()).await;
        Ok(())
    }

    /// As [`Self::follow`], and waits when nothing is said any more.
    async fn follow_on(&mut self) -> Result<(), ProcessFault> {
        self.follow().await?;
        std::future::pending().await
    }

    async fn handle(
        &mut self,
        message: LauncherToGate,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ProcessFault> {
        match (&mut self.policies, message, descriptor) {
            (Some((policies, _)), LauncherToGate::Conditioning { conditioning }, None) => {
                *policies = Some(conditioning);
            }
            (Some((_, exempt)), LauncherToGate::Exempt { network }, None) => {
                exempt.0.push(parse("exempt", &network)?)
            }
            (Some(_), LauncherToGate::TamperExempt { network }, None) => {
                self.gate.tamper_exempt.borrow_mut().0.push(parse("tamper_exempt", &network)?);
            }
            (None, LauncherToGate::Update {}, None) => self.staged = Some(StagedListeners::default()),
            (None, LauncherToGate::Change {}, None) => {
                self.staged = Some(StagedListeners { edits: Some(Vec::new()), ..StagedListeners::default() });
            }
            (_, LauncherToGate::Commit {}, None) => return self.commit().await,
            // A gate that heard the last filter before it has its routes would refuse what comes from there.
            (_, message, descriptor) if self.staged.is_some() && is_of_chain(&message) => {
                self.stage_chain(message, descriptor)?;
            }
            (None, message, None)
                if is_of_routes(&message)
                    && self.staged.as_ref().is_some_and(|staged| staged.edits.is_some()) =>
            {
                if let Some(edits) = self.edits() {
                    edits.push(message);
                }
            }
            (_, message, descriptor) => {
                if let Some((message, descriptor)) = self.set_up_listener(message, descriptor)? {
                    self.handle_at_any_stage(message, descriptor)?;
                }
            }
        }
        Ok(())
    }

    /// The messages of a `Change` so far.
    fn edits(&mut self) -> Option<&mut Vec<LauncherToGate>> {
        self.staged.as_mut()?.edits.as_mut()
    }

    /// Changes the routes that there are.
    fn edit(&self, edits: Vec<LauncherToGate>) {
        let mut tables = self.gate.tables.borrow_mut();
        for edit in edits {
            match edit {
                LauncherToGate::Forget { listener, host } => tables.forget_host(listener, host.as_str()),
                LauncherToGate::Redirect { listener, host, path, port } => {
                    tables.redirect(listener, host.as_str(), path.as_str(), port);
                }
                LauncherToGate::Route { listener, host, path, partition, site } => {
                    let target = workers::route_target(&self.gate, partition, site);
                    tables.add_route(listener, host.as_str(), path.as_str(), &target);
                }
                _ => {}
            }
        }
    }

    fn stage_chain(
        &mut self,
        message: LauncherToGate,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ProcessFault> {
        let Some(StagedListeners { chain, .. }) = &mut self.staged else { return Ok(()) };
        match (message, descriptor) {
            (LauncherToGate::ChainFirst {}, Some(channel)) => chain.first = Some(channel),
            (LauncherToGate::ChainLast { chain: number }, Some(channel)) => {
                chain.last = Some((number, channel));
            }
            (LauncherToGate::NoChain {}, None) => chain.is_removed = true,
            (other, _) => return Err(ProcessFault::Launcher(format!("out of place: {other:?}"))),
        }
        Ok(())
    }

    /// Has what an update says of filters hold.
    fn adopt_chain(&self, chain: StagedChain) -> Result<(), ProcessFault> {
        if chain.is_removed {
            self.gate.remove_chain();
        }
        match (chain.first, chain.last) {
            (Some(first), Some((number, last))) => {
                workers::chain(&self.gate).begin(first)?;
                self.receive_from_chain(number, last)?;
            }
            (None, None) => {}
            _ => return Err(ProcessFault::Launcher("half a chain".into())),
        }
        Ok(())
    }

    /// Handles messages about listeners: about those that are to be, or else those that there are; anything else comes
    /// back.
    fn set_up_listener(
        &mut self,
        message: LauncherToGate,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<(LauncherToGate, Option<OwnedFd>)>, ProcessFault> {
        let gate = self.gate.clone();
        let mut serving = gate.tables.borrow_mut();
        let (tables, sockets) = match &mut self.staged {
            Some(staged) => (&mut staged.tables, &mut staged.sockets),
            None => (&mut *serving, &mut self.unrouted),
        };
        match (message, descriptor) {
            (LauncherToGate::Listen { index }, Some(socket)) => {
                sockets.push((tables.listen(index, accept::address_of(&socket)?), socket));
            }
            (LauncherToGate::Protocol { listener, tls, h2c }, None) => match (tls, h2c) {
                (true, _) => tables.set_protocol(listener, Protocol::Tls),
                (false, true) => tables.set_protocol(listener, Protocol::PlainOrHttp2),
                (false, false) => tables.set_protocol(listener, Protocol::Plain),
            },
            (LauncherToGate::Redirect { listener, host, path, port }, None) => {
                tables.redirect(listener, host.as_str(), path.as_str(), port);
            }
            (LauncherToGate::SharedConnections { listener }, None) => tables.share_connections(listener),
            (LauncherToGate::ProxyTrusted { listener, network }, None) => {
                tables.trust_proxy(listener, parse("a proxy", &network)?);
            }
            (LauncherToGate::Unfiltered { listener }, None) => tables.allow_unfiltered(listener),
            (LauncherToGate::Route { listener, host, path, partition, site }, None) => {
                let target = workers::route_target(&self.gate, partition, site);
                tables.add_route(listener, host.as_str(), path.as_str(), &target);
                if self.staged.is_none() {
                    drop(serving);
                    let routed = self.unrouted.extract_if(.., |(known, _)| known.number == listener);
                    let routed: Vec<_> = routed.collect();
                    routed.into_iter().try_for_each(|(listener, socket)| self.accept(listener, socket))?;
                }
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Handles messages that may come at any time.
    fn handle_at_any_stage(
        &self,
        message: LauncherToGate,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ProcessFault> {
        let gate = &self.gate;
        match (message, descriptor) {
            (LauncherToGate::ChainFirst {}, Some(channel)) => workers::chain(gate).begin(channel)?,
            (LauncherToGate::ChainLast { chain }, Some(channel)) => {
                self.receive_from_chain(chain, channel)?
            }
            (LauncherToGate::LeaveChain {}, None) => {
                self.leaves_chain.set(true);
                // Unread connections stay in the channel, which gates share.
                self.from_chain.take().into_iter().for_each(|task| task.abort());
            }
            (LauncherToGate::Attach { partition }, Some(channel)) => {
                workers::partition(gate, partition).attach(channel)?
            }
            (LauncherToGate::AttachShared { partition }, Some(channel)) => {
                let partition = workers::partition(gate, partition);
                partition.guarded.set(true);
                partition.dispatcher.attach_shared(channel, &gate.guarded)?;
            }
            (LauncherToGate::AttachProcess { partition }, Some(channel)) => {
                gate.guarded.attach(channel, workers::partition(gate, partition).dispatcher.clone())?
            }
            (LauncherToGate::Name { partition, name }, None) => {
                workers::partition(gate, partition).dispatcher.set_name(name.as_str());
            }
            (LauncherToGate::RemovePartition { partition }, None) => gate.remove_partition(partition),
            (LauncherToGate::Capacity { partition, connections }, None) => {
                workers::partition(gate, partition).dispatcher.limit(connections);
            }
            (LauncherToGate::Broken { partition, broken }, None) => {
                workers::partition(gate, partition).set_broken(broken);
            }
            (LauncherToGate::NoRoom { partition }, None) => {
                workers::partition(gate, partition).set_without_room();
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
            (other, _) => return Err(ProcessFault::Launcher(format!("out of place: {other:?}"))),
        }
        Ok(())
    }

    /// Takes what comes from the last filter of a chain. One that sends nonsense is cut off, which nobody else sees:
    /// the launcher is told, who replaces the chain.
    fn receive_from_chain(&self, chain: u32, channel: OwnedFd) -> std::io::Result<()> {
        if self.leaves_chain.get() {
            return Ok(());
        }
        let received = workers::end_chain(&self.gate, channel)?;
        let control = self.control.clone();
        let receiving = tokio::task::spawn_local(async move {
            if received.await == ChannelEnd::ProtocolViolations {
                // If the launcher is gone, so is this process.
                let _ = control.send(&ChildToLauncher::ChainCut { chain }, None).await;
            }
        });
        // An earlier one goes on to the end of its chain.
        drop(self.from_chain.replace(Some(receiving)));
        Ok(())
    }

    /// Puts the listeners that follow `Update` in the place of those that there are. The first time, connections are
    /// accepted from here on.
    async fn commit(&mut self) -> Result<(), ProcessFault> {
        let Some(StagedListeners { mut tables, sockets, chain, edits }) = self.staged.take() else {
            return Err(ProcessFault::Launcher("Commit without Update".into()));
        };
        if let Some(edits) = edits {
            self.edit(edits);
            return Ok(self.control.send(&ChildToLauncher::Committed {}, None).await?);
        }
        tables.replace(self.gate.tables.take());
        *self.gate.tables.borrow_mut() = tables;
        self.adopt_chain(chain)?;
        let answer = if let Some((policies, exempt)) = self.policies.take() {
            self.gate.adopt(Policies::new(policies.as_ref(), exempt));
            tokio::task::spawn_local(attend::arrivals(self.gate.clone()));
            tokio::task::spawn_local(attend::deadlines(self.gate.clone()));
            tokio::task::spawn_local(attend::uses(self.gate.clone()));
            ChildToLauncher::Ready {}
        } else {
            ChildToLauncher::Committed {}
        };
        let gate = self.gate.clone();
        let closed = |(address, task): &mut (SocketAddr, JoinHandle<()>)| {
            task.is_finished() || !gate.tables.borrow().listens_at(*address)
        };
        self.accepting.extract_if(.., closed).for_each(|(_, task)| task.abort());
        // A guarded server may have several sockets at one address; all of its own begin together.
        let kept: Vec<_> = self.accepting.iter().map(|(address, _)| *address).collect();
        let new = sockets.into_iter().filter(|(listener, _)| !kept.contains(&listener.address()));
        new.collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|(listener, socket)| self.accept(listener, socket))?;
        // A gate that cannot accept is not ready, and `serving on` is not written.
        Ok(self.control.send(&answer, None).await?)
    }

    fn accept(&mut self, listener: Rc<GateListener>, socket: OwnedFd) -> Result<(), ProcessFault> {
        if self.retires {
            return Ok(());
        }
        // A guarded server may close and open sockets again and again.
        self.accepting.retain(|(_, task)| !task.is_finished());
        let address = listener.address();
        let accepting = accept::accept(self.gate.clone(), listener, socket)?;
        self.accepting.push((address, tokio::task::spawn_local(accepting)));
        Ok(())
    }
}

fn is_of_routes(message: &LauncherToGate) -> bool {
    matches!(
        message,
        LauncherToGate::Forget { .. } | LauncherToGate::Redirect { .. } | LauncherToGate::Route { .. }
    )
}

fn is_of_chain(message: &LauncherToGate) -> bool {
    use LauncherToGate::{ChainFirst, ChainLast, NoChain};
    matches!(message, ChainFirst {} | ChainLast { .. } | NoChain {})
}

fn parse(what: &str, network: &Text<64>) -> Result<IpNetwork, ProcessFault> {
    network.as_str().parse().map_err(|error| ProcessFault::Launcher(format!("{what}: {error}")))
}
