//! A broker and a connector in one thread, and callers in others, whose calls the two answer.
//!
//! Runs in: `cargo test`.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use broker::Broker;
use connector::{Calls, Grants};
use sys::notify::{Listener, install_network_calls};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet};
use wire::NO_PARTITION;
use worker::log::Log;

/// How long a connection may take, and a connector may be away.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// How many calls of one process may wait.
pub const WAITING_MAX: usize = 300;

pub struct World {
    pub broker: Rc<Broker>,
    pub calls: Rc<Calls>,
    timeout: Duration,
    broker_process: Process,
    connector: Process,
    listeners: RefCell<Vec<OwnedFd>>,
}

/// The stand-in for a process: when it goes, all its tasks go, and with them the descriptors that they have open.
struct Process {
    tasks: Rc<LocalSet>,
    running: JoinHandle<()>,
}

impl Process {
    fn start() -> Self {
        let tasks = Rc::new(LocalSet::new());
        let own = tasks.clone();
        let running = tokio::task::spawn_local(async move { own.run_until(std::future::pending()).await });
        Self { tasks, running }
    }

    /// Ends it; another takes its place.
    async fn replace(&mut self) {
        let ended = std::mem::replace(self, Self::start());
        ended.running.abort();
        let _ = ended.running.await;
    }
}

/// Runs `test` in a world with these grants.
pub fn run(grants: Grants, timeout: Duration, test: impl AsyncFnOnce(&mut World)) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let mut world = World {
            broker: new_broker(timeout),
            calls: calls(grants, timeout),
            timeout,
            broker_process: Process::start(),
            connector: Process::start(),
            listeners: RefCell::default(),
        };
        test(&mut world).await;
    });
}

fn new_broker(timeout: Duration) -> Rc<Broker> {
    Rc::new(Broker::new(WAITING_MAX, timeout, Log::new(None, NO_PARTITION, 1).unwrap()))
}

fn calls(grants: Grants, timeout: Duration) -> Rc<Calls> {
    let log = Log::new(None, NO_PARTITION, 1).unwrap();
    Rc::new(Calls::new(grants, timeout, WAITING_MAX, Rc::default(), log))
}

impl World {
    /// Connects the broker with the connector.
    pub fn join(&self) {
        let (brokers, connectors) = sys::seqpacket::pair().unwrap();
        self.broker_process.tasks.spawn_local(self.broker.clone().attend_connector(brokers));
        let calls = self.calls.clone();
        self.connector.tasks.spawn_local(async move { calls.attend(connectors).await.unwrap() });
    }

    /// The connector ends, and with it what it had under way.
    pub async fn end_connector(&mut self, grants: Grants) {
        self.calls = calls(grants, self.timeout);
        self.connector.replace().await;
    }

    /// The broker ends, and a successor comes that gets all listeners.
    pub async fn replace_broker(&mut self) {
        self.broker = new_broker(self.timeout);
        self.broker_process.replace().await;
        let listeners = self.listeners.borrow();
        listeners.iter().for_each(|listener| self.attend(listener.try_clone().unwrap()));
    }

    fn attend(&self, listener: OwnedFd) {
        let listener = Listener::new(listener);
        let attending = self.broker.clone().attend_process(listener, std::process::id());
        self.broker_process.tasks.spawn_local(attending);
    }

    /// Runs `caller` in a thread whose calls are answered here.
    pub fn start<T: Send + 'static>(
        &self,
        caller: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let (sender, receiver) = oneshot::channel();
        let (installed, is_installed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            install_network_calls(|listener| sys::notify::hand_over(&theirs, listener)).unwrap();
            drop(theirs);
            installed.send(()).unwrap();
            // The filter's listener goes with the thread that has it open, which is the whole process here.
            let _ = sender.send(caller());
        });
        is_installed.recv().unwrap();
        let listener = Listener::take_over(&ours).unwrap().unwrap();
        self.listeners.borrow_mut().push(listener.again().unwrap());
        self.attend(listener.as_fd().try_clone_to_owned().unwrap());
        receiver
    }

    /// Waits until so many calls wait in the broker.
    pub async fn until_waiting(&self, count: u32) {
        while self.broker.counters().connections_now != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub fn grants(list: &[SocketAddr], udp: bool) -> Grants {
    let mut grants = Grants::default();
    list.iter().for_each(|address| grants.add(&address.ip().to_string(), address.port()).unwrap());
    if udp {
        grants.add_udp();
    }
    grants
}

/// A server whose queue is full, so that connections wait until it accepts some.
pub struct Full {
    pub listener: TcpListener,
    held: Vec<std::net::TcpStream>,
}

impl Full {
    pub fn new() -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            held.push(stream);
        }
        Self { listener, held }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Makes room; the kernel tries again within a second.
    pub fn accept_all(&mut self) {
        self.held.clear();
        self.listener.set_nonblocking(true).unwrap();
        while self.listener.accept().is_ok() {}
    }
}

pub fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().map(|error| error.raw_os_error().unwrap_or(0))
}
