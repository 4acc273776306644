//! The gate's own work, done so well that nobody need notice: new connections go to where their head says.
//!
//! Runs in: `rogue`, in the place of a gate. Sees: heads of requests. Never: answers one.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, getpeername, getsockname, recv};
use wire::{Bundle, Bytes, Role, ToWorker};

use crate::hands::{encoded, send};
use crate::place::{Place, Waiting};
use std::os::fd::AsFd as _;

impl Place {
    /// Accepts, and passes on what has its head.
    pub fn pass_on(&mut self) {
        if self.role != Role::Gate {
            return;
        }
        let mut came = Vec::new();
        for listener in &self.listeners {
            while let Ok((stream, _)) =
                acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                came.push(stream);
            }
        }
        came.into_iter().for_each(|stream| self.came(stream, Vec::new()));
        for waiting in std::mem::take(&mut self.waiting) {
            if let Err(again) = self.pass(waiting) {
                self.waiting.push(again);
            }
        }
    }

    /// Takes a connection; one that is gone already is dropped.
    pub fn came(&mut self, stream: OwnedFd, preread: Vec<u8>) {
        let peer = getpeername(&stream).ok().flatten().and_then(|at| SocketAddr::try_from(at).ok());
        let local = getsockname(&stream).ok().and_then(|at| SocketAddr::try_from(at).ok());
        if let (Some(peer), Some(local)) = (peer, local) {
            self.waiting.push(Waiting { stream, peer, local, preread });
        }
    }

    fn pass(&mut self, waiting: Waiting) -> Result<(), Waiting> {
        let mut seen = vec![0; 16 << 10];
        let count = match recv(&waiting.stream, &mut seen, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) if waiting.preread.is_empty() => return Ok(()),
            Ok((count, _)) => count,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(_) => return Ok(()),
        };
        let head = String::from_utf8_lossy(&[&waiting.preread, &seen[..count]].concat()).to_lowercase();
        let Some((head, _)) = head.split_once("\r\n\r\n") else { return Err(waiting) };
        let path = head.split(' ').nth(1).unwrap_or("/");
        let host = head.split("\r\nhost: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or("");
        let fits =
            self.routes.iter().filter(|(known, below, _)| known == host && path.starts_with(below.as_str()));
        let Some(partition) = fits.max_by_key(|(_, below, _)| below.len()).map(|(.., partition)| *partition)
        else {
            return Ok(());
        };
        // The newest channel is that of the newest worker.
        let Some(line) = self.lines.iter_mut().rfind(|line| line.partition == partition && line.credits > 0)
        else {
            return Err(waiting);
        };
        let Waiting { stream, peer, local, preread } = waiting;
        let bundle =
            Bundle { id: line.next_id, peer, local, kind: wire::Kind::Plain, preread: Bytes(preread) };
        line.next_id += 1;
        line.credits -= 1;
        send(&line.channel, &encoded(&ToWorker::Connection { bundle }), &[stream.as_fd()]);
        Ok(())
    }
}
