//! The file that bodies wait in, and which of its blocks are taken.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: bodies of clients, written and read unseen. Must
//! never: write beyond the blocks that it may have, or where the disk is nearly full.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// LIMIT: bytes of a block, and of a body that is kept in memory.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// LIMIT: of the disk, so much is left to others: a twentieth, at most 1 GiB. Tables of uids, logs and databases may be
/// on it.
const LEFT_PART: u64 = 20;
const LEFT_BYTES: u64 = 1 << 30;
/// How many blocks, 4 MiB, are taken between two looks at the disk.
const LOOK_BLOCKS: u32 = 64;
/// LIMIT: blocks of the file, 1 MiB, that stay as they are however long nobody needs them: what is used again costs no
/// new pages.
const STAY_BLOCKS: u32 = 16;
/// LIMIT: blocks, 16 MiB, that are cut off at once: 2 ms.
const CUT_BLOCKS: u32 = 256;

/// Why a body has no place in the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lack {
    /// All of the file is taken, and the range of the client's address holds the most, or there is nothing to be taken
    /// from others.
    #[error("bodies that wait take all of `spool_bytes`, and the client's range of addresses holds the most")]
    Full,
    /// The range of the client's address has as much of the file with servers as one may.
    #[error(
        "bodies that servers have not read to the end take what the client's range of addresses may have of \
         `spool_bytes`"
    )]
    Share,
    /// The disk is full, or nearly so, or fails.
    #[error("a body cannot be kept in a file: {0}")]
    Disk(#[from] io::Error),
}

/// So many bytes from the byte `from` of a block on, and of those that follow it in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockExtent {
    pub block: u32,
    pub from: usize,
    pub count: usize,
}

impl BlockExtent {
    fn offset(self) -> u64 {
        offset(self.block) + self.from as u64
    }
}

/// See the file's head.
#[derive(Default)]
pub(super) struct Blocks {
    file: Option<OwnedFd>,
    /// How many there may be.
    most: u32,
    /// All that are taken are below.
    top: u32,
    /// How long the file is.
    length: u32,
    /// How long it had to be since it was looked at last.
    peak: u32,
    /// Up to here the disk was found to have room.
    looked: u32,
    /// Blocks below `top` that nobody has.
    free: BTreeSet<u32>,
}

impl Blocks {
    pub fn new(file: Option<OwnedFd>, most: u32) -> Self {
        Self { file, most, ..Self::default() }
    }

    /// How many are taken.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        u64::from(self.top) - self.free.len() as u64
    }

    /// Takes the first that is free.
    pub fn take(&mut self) -> Result<u32, Lack> {
        if let Some(block) = self.free.pop_first() {
            return Ok(block);
        }
        if self.top == self.most {
            return Err(Lack::Full);
        }
        if self.top >= self.looked {
            self.look()?;
            self.looked = self.top + LOOK_BLOCKS;
        }
        self.top += 1;
        self.length = self.length.max(self.top);
        self.peak = self.peak.max(self.top);
        Ok(self.top - 1)
    }

    /// Takes some back. The file stays as long as it is, as the next body may need it so.
    pub fn give_back(&mut self, blocks: Vec<u32>) {
        self.free.extend(blocks);
        while self.free.last().is_some_and(|&last| last + 1 == self.top) {
            self.free.pop_last();
            self.top -= 1;
        }
    }

    /// Whether the file is longer than it is when nobody needs it.
    pub fn is_long(&self) -> bool {
        self.length > STAY_BLOCKS
    }

    /// Cuts off a part of what nobody has needed since this was last done; whether there is more to be cut off at once.
    pub fn cut(&mut self) -> bool {
        let needed = self.peak.max(STAY_BLOCKS);
        let length = needed.max(self.length.saturating_sub(CUT_BLOCKS));
        if length < self.length
            && let Some(file) = &self.file
            && rustix::fs::ftruncate(file, offset(length)).is_ok()
        {
            self.length = length;
            self.looked = self.looked.min(length);
            if length > needed {
                return true;
            }
        }
        self.peak = self.top;
        false
    }

    /// Whether the disk has room for some more.
    fn look(&self) -> io::Result<()> {
        let Ok(disk) = rustix::fs::fstatfs(self.file()?) else { return Ok(()) };
        let block = u64::try_from(disk.f_bsize).unwrap_or_default();
        let (all, free) = (disk.f_blocks.saturating_mul(block), disk.f_bavail.saturating_mul(block));
        let left = (all / LEFT_PART).min(LEFT_BYTES);
        match free >= left + offset(LOOK_BLOCKS) {
            true => Ok(()),
            false => Err(Errno::NOSPC.into()),
        }
    }

    fn file(&self) -> io::Result<&OwnedFd> {
        self.file.as_ref().ok_or_else(|| io::Error::other("the launcher could make none below `state_dir`"))
    }

    /// Writes as many bytes as the extent has.
    pub fn write(&self, extent: BlockExtent, mut bytes: &[u8]) -> io::Result<()> {
        debug_assert_eq!(bytes.len(), extent.count);
        let mut at = extent.offset();
        while !bytes.is_empty() {
            match rustix::io::pwrite(self.file()?, bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Reads what is there.
    pub fn read(&self, extent: BlockExtent) -> io::Result<Vec<u8>> {
        let count = extent.count;
        let mut bytes = Vec::with_capacity(count);
        let mut at = extent.offset();
        while bytes.len() < count {
            let room = rustix::buffer::spare_capacity(&mut bytes);
            match rustix::io::pread(self.file()?, room, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => at += more as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // There may have been more room than was asked for.
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// Where a block begins.
fn offset(block: u32) -> u64 {
    u64::from(block) * BLOCK_BYTES as u64
}
