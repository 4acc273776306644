//! The bodies in the file: written piece by piece, then read from the beginning; and which of them goes when there is
//! no room.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients, written and read unseen, and
//! their addresses. Must never: keep a body longer than its request, or read what it has not written.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use conditioning::{Exempt, ItemKey, ShareLimits};
use tokio::sync::Notify;

use super::blocks::{BLOCK_BYTES, BlockExtent, Blocks, Lack};
use super::ranges::{Ranges, SentBlocks};

/// LIMIT: blocks of a body that weigh as much as one body more, 1 MiB: bounds what is counted of large ones.
const WEIGHT_BLOCKS: usize = 16;

/// LIMIT: how long the file stays as long as bodies needed it: to make and to free pages for each upload costs more
/// than to copy it.
pub(super) const STAY_TIME: Duration = Duration::from_secs(1);

/// LIMIT: bytes that are read at once: what a record of FastCGI takes, in whole words.
const STEP_BYTES: usize = 65_528;

/// The file of a worker; clones are of the same.
#[derive(Clone)]
pub(crate) struct Spool(Rc<RefCell<SpoolState>>);

struct SpoolState {
    blocks: Blocks,
    /// The bodies by the addresses of their clients, each as often as it weighs.
    ranges: Ranges<Rc<HeldBlocks>>,
    /// Told when the file has become long.
    grown: Rc<Notify>,
}

/// The blocks that a body holds.
#[derive(Default)]
struct HeldBlocks {
    blocks: RefCell<Vec<u32>>,
    /// Its names among the ranges.
    keys: RefCell<Vec<[ItemKey; 2]>>,
    /// The share that it counts for once its server has heard of it.
    passed_on: Cell<Option<SentBlocks>>,
    /// Whether it was given up for another.
    is_lost: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Spool {
    /// One that has so many bytes of a file; without a file, none at all. Ranges of addresses have shares of it.
    pub fn new(file: Option<OwnedFd>, bytes: u64, limits: ShareLimits, exempt: Exempt) -> Self {
        let most = u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let blocks = Blocks::new(file, most);
        let ranges = Ranges::new(most, limits, exempt);
        Self(Rc::new(RefCell::new(SpoolState { blocks, ranges, grown: Rc::default() })))
    }

    /// Cuts off the file what no body has needed for a while; goes on for ever.
    pub async fn cut_unneeded(&self) {
        let grown = self.0.borrow().grown.clone();
        loop {
            grown.notified().await;
            while self.0.borrow().blocks.is_long() {
                tokio::time::sleep(STAY_TIME).await;
                while self.0.borrow_mut().blocks.cut() {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// The part of a body that comes from `client`: nothing yet.
    pub fn begin(&self, client: IpAddr) -> SpooledBody {
        SpooledBody::new(self.clone(), client)
    }

    /// Bytes that bodies take now.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        self.0.borrow().blocks.taken() * BLOCK_BYTES as u64
    }
}

impl SpoolState {
    /// Finds a block for a body, if need be one of the heaviest range's.
    fn allot(&mut self, held: &Rc<HeldBlocks>, client: IpAddr) -> Result<u32, Lack> {
        let was_long = self.blocks.is_long();
        let block = match self.blocks.take() {
            Err(Lack::Full) => {
                self.make_room(client)?;
                self.blocks.take()?
            }
            taken => taken?,
        };
        if !was_long && self.blocks.is_long() {
            self.grown.notify_one();
        }
        let mut blocks = held.blocks.borrow_mut();
        if blocks.len().is_multiple_of(WEIGHT_BLOCKS) {
            held.keys.borrow_mut().push(self.ranges.insert(client, held.clone()));
        }
        blocks.push(block);
        Ok(block)
    }

    /// Where the bytes of a body from `length` on go, of which there are `wanted`: as far as its blocks follow each
    /// other.
    fn extent(
        &mut self,
        held: &Rc<HeldBlocks>,
        client: IpAddr,
        length: u64,
        wanted: usize,
    ) -> Result<BlockExtent, Lack> {
        let mut number = (length / BLOCK_BYTES as u64) as usize;
        let from = (length % BLOCK_BYTES as u64) as usize;
        let first = self.block(held, client, number)?;
        let (mut last, mut count) = (first, BLOCK_BYTES - from);
        while count < wanted {
            number += 1;
            let next = self.block(held, client, number)?;
            if next != last + 1 {
                break;
            }
            last = next;
            count += BLOCK_BYTES;
        }
        Ok(BlockExtent { block: first, from, count: count.min(wanted) })
    }

    /// The block of a body with this number, which is one of those that it has, or the next.
    fn block(&mut self, held: &Rc<HeldBlocks>, client: IpAddr, number: usize) -> Result<u32, Lack> {
        let known = held.blocks.borrow().get(number).copied();
        known.map_or_else(|| self.allot(held, client), Ok)
    }

    /// Gives a body of the heaviest range up, unless that is the range that asks.
    fn make_room(&mut self, client: IpAddr) -> Result<(), Lack> {
        let heaviest = self.ranges.gives_way_to(client).ok_or(Lack::Full)?.clone();
        self.release(&heaviest);
        heaviest.is_lost.set(true);
        heaviest.waker.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Has a body not be given up any more, if its range may have as much with servers.
    fn keep(&mut self, held: &HeldBlocks, client: IpAddr) -> Result<(), Lack> {
        if held.is_lost.get() {
            return Err(Lack::Full);
        }
        if held.passed_on.get().is_some() {
            return Ok(());
        }
        let blocks = held.blocks.borrow().len() as u32;
        held.passed_on.set(Some(self.ranges.pass_on(client, blocks).ok_or(Lack::Share)?));
        held.keys.borrow().iter().for_each(|keys| self.ranges.keep(*keys));
        Ok(())
    }

    fn release(&mut self, held: &HeldBlocks) {
        held.keys.take().into_iter().for_each(|keys| self.ranges.remove(keys));
        held.passed_on.take().into_iter().for_each(|passed| self.ranges.forget(passed));
        self.blocks.give_back(held.blocks.take());
    }
}

impl HeldBlocks {
    /// Ready once the body was given up.
    fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_lost.get() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// One body in the file. Its blocks are free again when it is dropped.
pub(crate) struct SpooledBody {
    spool: Spool,
    client: IpAddr,
    held: Rc<HeldBlocks>,
    length: u64,
    /// How far it was read.
    read: u64,
}

impl SpooledBody {
    fn new(spool: Spool, client: IpAddr) -> Self {
        Self { spool, client, held: Rc::default(), length: 0, read: 0 }
    }

    /// Adds to it.
    ///
    /// # Errors
    /// There is no room, or the body was given up.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Lack> {
        let mut inner = self.spool.0.borrow_mut();
        if self.held.is_lost.get() {
            return Err(Lack::Full);
        }
        while !bytes.is_empty() {
            let extent = inner.extent(&self.held, self.client, self.length, bytes.len())?;
            let (now, later) = bytes.split_at(extent.count);
            inner.blocks.write(extent, now)?;
            self.length += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Bytes that are still to be read.
    pub fn left(&self) -> u64 {
        self.length - self.read
    }

    /// Has it read from its beginning once more.
    pub fn rewind(&mut self) {
        self.read = 0;
    }

    /// Waits until it is given up for the body of another range.
    pub async fn lost(&self) {
        poll_fn(|cx| self.held.poll_lost(cx)).await;
    }

    /// Has it not be given up any more, now that its server hears of it.
    ///
    /// # Errors
    /// It is too late for that, or its range of addresses has as much with servers as it may.
    pub fn keep(&self) -> Result<(), Lack> {
        self.spool.0.borrow_mut().keep(&self.held, self.client)
    }

    /// The next piece.
    pub fn next(&mut self) -> io::Result<Bytes> {
        let (at, from) = (self.read / BLOCK_BYTES as u64, (self.read % BLOCK_BYTES as u64) as usize);
        let blocks = self.held.blocks.borrow();
        let mut following = blocks.iter().skip(at as usize);
        let &first = following.next().ok_or(io::ErrorKind::UnexpectedEof)?;
        // Mostly, the next block of a body is the next one of the file.
        let together = if following.next() == Some(&(first + 1)) { 2 * BLOCK_BYTES } else { BLOCK_BYTES };
        let count = STEP_BYTES.min(together - from).min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        let piece = self.spool.0.borrow().blocks.read(BlockExtent { block: first, from, count })?;
        self.read += count as u64;
        Ok(Bytes::from(piece))
    }
}

impl Drop for SpooledBody {
    fn drop(&mut self) {
        self.spool.0.borrow_mut().release(&self.held);
    }
}
