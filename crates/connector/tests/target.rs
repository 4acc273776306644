//! Targets against real listeners: dead ones, several, and one whose queue is full.
//!
//! Runs in: `cargo test`.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use connector::{Address, ServerGroup};
use tokio::time::Instant;
use wire::Unreachable;

/// The way to a Unix socket begins in the directory in which the process is, and a connector has one thread.
static ALONE: Mutex<()> = Mutex::new(());

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(test)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bulkhead-connector-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn address(&self, name: &str) -> Address {
        let directory: OwnedFd = std::fs::File::open(&self.0).unwrap().into();
        Address::Unix(directory, name.into())
    }

    /// A listener with room for one connection that nobody has accepted.
    fn listen(&self, name: &str) -> UnixListener {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let path = self.0.join(name);
        let _ = std::fs::remove_file(&path);
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        listener.into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn target(addresses: impl IntoIterator<Item = Address>) -> ServerGroup {
    let mut target = ServerGroup::default();
    addresses.into_iter().for_each(|address| target.add(address));
    target
}

async fn connect(target: &ServerGroup, timeout: Duration) -> Result<OwnedFd, Unreachable> {
    target.connect(Instant::now() + timeout, &|_| {}).await
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn dead_servers_are_told_apart_and_told_once() {
    block_on(async {
        let folder = Folder::new("dead");
        drop(folder.listen("gone"));
        let logged = RefCell::new(Vec::new());
        for name in ["gone", "never"] {
            let target = target([folder.address(name)]);
            for _ in 0..3 {
                let log = |text| logged.borrow_mut().push(text);
                let outcome = target.connect(Instant::now() + SECOND, &log).await;
                assert_eq!(outcome.unwrap_err(), Unreachable::Refused);
            }
        }
        assert_eq!(logged.borrow().len(), 2, "{logged:?}");
        assert!(logged.borrow()[0].starts_with("Unix socket gone cannot be connected to"), "{logged:?}");
    });
}

#[test]
fn one_of_several_is_enough_and_those_that_live_take_turns() {
    block_on(async {
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let live: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = live.iter().map(|listener| listener.local_addr().unwrap());
        let target = target(addresses.chain([dead]).map(Address::Tcp));
        for _ in 0..12 {
            connect(&target, SECOND).await.unwrap();
        }
        for listener in live {
            listener.set_nonblocking(true).unwrap();
            let mut count = 0;
            while listener.accept().is_ok() {
                count += 1;
            }
            assert!(count >= 4, "{count} of 12");
        }
    });
}

#[test]
fn a_full_queue_is_waited_for_in_order() {
    block_on(async {
        let folder = Folder::new("full");
        let listener = folder.listen("full");
        let target = target([folder.address("full")]);
        let mut held = Vec::new();
        // The queue has room for one or two, as the kernel counts.
        while let Ok(socket) = connect(&target, Duration::from_millis(60)).await {
            held.push(socket);
            assert!(held.len() < 4);
        }
        let order = RefCell::new(Vec::new());
        let waiting = |number: u32| {
            let (target, order) = (&target, &order);
            async move {
                let socket = connect(target, 5 * SECOND).await;
                order.borrow_mut().push(number);
                socket
            }
        };
        let accepting = async {
            for _ in 0..held.len() + 3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                listener.accept().unwrap();
            }
        };
        let (one, two, three, ()) = tokio::join!(waiting(1), waiting(2), waiting(3), accepting);
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(*order.borrow(), [1, 2, 3]);
    });
}

#[test]
fn a_full_queue_that_stays_full_is_late() {
    block_on(async {
        let folder = Folder::new("late");
        let _listener = folder.listen("late");
        let target = target([folder.address("late")]);
        let mut held = Vec::new();
        let outcome = loop {
            let began = Instant::now();
            match connect(&target, Duration::from_millis(200)).await {
                Ok(socket) => held.push(socket),
                Err(why) => break (why, began.elapsed()),
            }
        };
        assert_eq!(outcome.0, Unreachable::Late);
        assert!(outcome.1 >= Duration::from_millis(190) && outcome.1 < SECOND, "{outcome:?}");
    });
}

#[test]
fn where_one_server_is_full_another_is_asked() {
    block_on(async {
        let folder = Folder::new("other");
        let (_full, other) = (folder.listen("full"), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = other.local_addr().unwrap();
        let target = target([folder.address("full"), Address::Tcp(address)]);
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(connect(&target, Duration::from_millis(300)).await.unwrap());
        }
    });
}
