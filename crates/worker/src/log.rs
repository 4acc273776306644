//! Log records on their way to the logger.
//!
//! Runs in: every process but the launcher and the logger, with that process's privilege. Sees: requests' own
//! words, as opaque bytes, which the logger escapes. Never: waits for the logger, so that a slow disk cannot
//! hold up an answer; never loses a record without leaving a gap in the numbers.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.3:
//! batches when full and on a timer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use wire::log::{Access, BATCH_MAX, Level, RECORD_MAX, Record, TEXT_MAX, append, begin};

use crate::channel::with_room;

/// How many full batches wait in memory while the logger does not read.
///
/// LIMIT: 1 MiB of batches: about 5,000 usual records, or a quarter of a second at 20,000 requests a second,
/// which is longer than the restart of a logger takes.
const WAITING_MAX: usize = 1024 * 1024 / BATCH_MAX;

/// How long [`Log::flush`] tries, before the process exits anyway.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The log of this process; a clone writes to the same place.
#[derive(Clone, Debug)]
pub struct Log(Rc<LogState>);

#[derive(Debug)]
struct LogState {
    /// The logger; without it, events go to standard error and accesses nowhere.
    channel: Option<OwnedFd>,
    site: Cell<u16>,
    flush_ms: Cell<u32>,
    buffers: RefCell<Buffers>,
    /// Whether the timer runs; it does so only while a record waits for it.
    timing: Cell<bool>,
    time: Notify,
    blocked: Notify,
}

/// Encoded records and their numbers; no bytes if nothing waits.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    first: u64,
    /// The number after the last record.
    end: u64,
}

/// INVARIANT: the numbers from `sent_to` to `next` are those of the records in `waiting` and `current`, in this
/// order, and of those that were lost; within one batch none is lost.
#[derive(Debug, Default)]
struct Buffers {
    current: Pending,
    /// Full batches that did not fit into the channel.
    waiting: VecDeque<Pending>,
    /// Memory for the next batch.
    spare: Vec<u8>,
    /// The number of the next record.
    next: u64,
    /// The number after the last record of the last batch that was sent.
    sent_to: u64,
    lost: u64,
}

/// The time now, in microseconds since 1970 (UTC).
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Log {
    /// Takes over the channel to the logger; must be called where local tasks can be spawned.
    ///
    /// `site` is for [`Log::site`]; a record waits at most about `flush_ms` milliseconds.
    pub fn new(channel: Option<OwnedFd>, site: u16, flush_ms: u32) -> io::Result<Self> {
        if let Some(descriptor) = &channel {
            rustix::io::ioctl_fionbio(descriptor, true)?;
        }
        let log = Self(Rc::new(LogState {
            channel,
            site: Cell::new(site),
            flush_ms: Cell::new(flush_ms),
            buffers: RefCell::default(),
            timing: Cell::new(false),
            time: Notify::new(),
            blocked: Notify::new(),
        }));
        if log.0.channel.is_some() {
            tokio::task::spawn_local(log.clone().send_on_time());
            tokio::task::spawn_local(log.clone().send_when_writable());
        }
        Ok(log)
    }

    /// Sets what arrives only after the start.
    pub fn configure(&self, site: u16, flush_ms: u32) {
        self.0.site.set(site);
        self.set_flush_ms(flush_ms);
    }

    /// Sets how long a record may wait, in milliseconds; holds from the next batch on.
    pub fn set_flush_ms(&self, flush_ms: u32) {
        self.0.flush_ms.set(flush_ms);
    }

    /// The site of this process, for [`Access::site`].
    pub fn site(&self) -> u16 {
        self.0.site.get()
    }

    /// How many records were lost because the logger did not read.
    pub fn lost(&self) -> u64 {
        self.0.buffers.borrow().lost
    }

    /// Notes an answered request.
    pub fn access(&self, access: &Access<'_>) {
        self.append(&Record::Access(*access));
    }

    /// Notes an event; what is longer than [`TEXT_MAX`] bytes is cut.
    pub fn event(&self, level: Level, text: impl fmt::Display) {
        if self.0.channel.is_none() {
            eprintln!("{}: {text}", name(level));
            return;
        }
        let mut text_buffer = TextBuffer { bytes: [0; TEXT_MAX], length: 0 };
        // The only error is that the line is full.
        let _ = write!(text_buffer, "{text}");
        self.append(&Record::Event {
            time_us: now_us(),
            level,
            text: &text_buffer.bytes[..text_buffer.length],
        });
    }

    /// Sends everything that waits, for at most two seconds; for use before the process exits.
    pub async fn flush(&self) {
        let _ = tokio::time::timeout(FLUSH_MAX, self.drain()).await;
    }

    fn append(&self, record: &Record<'_>) {
        if self.0.channel.is_none() {
            return;
        }
        let mut buffers = self.0.buffers.borrow_mut();
        if buffers.full() && !self.pass_on(&mut buffers) {
            buffers.next += 1;
            buffers.lost += 1;
            return;
        }
        if buffers.current.bytes.is_empty() {
            buffers.begin();
            self.start_timer();
        }
        buffers.append(record);
        if buffers.full() {
            self.pass_on(&mut buffers);
        }
    }

    fn start_timer(&self) {
        if !self.0.timing.replace(true) {
            self.0.time.notify_one();
        }
    }

    /// Empties the current batch, into the channel or the queue before it; false if there is no room.
    fn pass_on(&self, buffers: &mut Buffers) -> bool {
        if buffers.waiting.is_empty() && self.send_current(buffers) {
            return true;
        }
        self.0.blocked.notify_one();
        buffers.enqueue()
    }

    /// Sends the current batch, unless the channel is full.
    fn send_current(&self, buffers: &mut Buffers) -> bool {
        match self.0.offer(&buffers.current) {
            Offer::Full => return false,
            Offer::Sent => {}
            Offer::Gone => buffers.lost += buffers.current.end - buffers.current.first,
        }
        buffers.sent_to = buffers.current.end;
        buffers.current.bytes.clear();
        true
    }

    /// Sends everything, unless the channel gets full before.
    fn send_all(&self) -> bool {
        let mut buffers = self.0.buffers.borrow_mut();
        while let Some(batch) = buffers.waiting.pop_front() {
            match self.0.offer(&batch) {
                Offer::Full => {
                    buffers.waiting.push_front(batch);
                    return false;
                }
                Offer::Sent => {}
                Offer::Gone => buffers.lost += batch.end - batch.first,
            }
            buffers.sent_to = batch.end;
            buffers.keep_spare(batch.bytes);
        }
        while !buffers.current.bytes.is_empty() || buffers.sent_to != buffers.next {
            if buffers.current.bytes.is_empty() {
                // A batch of no records, so that the logger sees a gap at the end as well.
                buffers.begin();
            }
            if !self.send_current(&mut buffers) {
                return false;
            }
        }
        true
    }

    /// Sends everything, waiting for room.
    async fn drain(&self) {
        let Some(channel) = &self.0.channel else {
            return;
        };
        let _ = with_room(channel.as_fd(), || self.send_all().then_some(())).await;
    }

    /// Sends a batch that is not full some time after its first record.
    async fn send_on_time(self) {
        loop {
            self.0.time.notified().await;
            let wait = Duration::from_millis(u64::from(self.0.flush_ms.get()));
            tokio::time::sleep(wait).await;
            self.0.timing.set(false);
            let mut buffers = self.0.buffers.borrow_mut();
            // While others wait, the batch may as well grow: it is sent when they are.
            let due = buffers.waiting.is_empty() && !buffers.current.bytes.is_empty();
            if due && !self.send_current(&mut buffers) {
                self.0.blocked.notify_one();
            }
        }
    }

    /// Sends what did not fit into the channel once there is room.
    async fn send_when_writable(self) {
        loop {
            self.0.blocked.notified().await;
            self.drain().await;
        }
    }
}

/// The outcome of offering a batch to the logger.
enum Offer {
    Sent,
    Full,
    Gone,
}

impl LogState {
    fn offer(&self, batch: &Pending) -> Offer {
        let Some(channel) = &self.channel else {
            return Offer::Gone;
        };
        loop {
            return match sys::seqpacket::send(channel, &batch.bytes, None) {
                Ok(()) => Offer::Sent,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => Offer::Full,
                    // The launcher keeps the other end as long as it lives, so the end of this process is near.
                    _ => Offer::Gone,
                },
            };
        }
    }
}

impl Buffers {
    /// Whether the longest record might not fit into the current batch any more.
    fn full(&self) -> bool {
        self.current.bytes.len() + RECORD_MAX > BATCH_MAX
    }

    fn begin(&mut self) {
        if self.current.bytes.capacity() == 0 {
            self.current.bytes.reserve_exact(BATCH_MAX);
        }
        begin(&mut self.current.bytes, self.next);
        self.current.first = self.next;
        self.current.end = self.next;
    }

    fn append(&mut self, record: &Record<'_>) {
        append(&mut self.current.bytes, record);
        self.next += 1;
        self.current.end = self.next;
    }

    /// Queues the current batch; false if the queue is full.
    fn enqueue(&mut self) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        let batch = std::mem::take(&mut self.current);
        self.waiting.push_back(batch);
        self.current.bytes = std::mem::take(&mut self.spare);
        true
    }

    fn keep_spare(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare = bytes;
    }
}

/// A line on the stack that cuts what is too long.
struct TextBuffer {
    bytes: [u8; TEXT_MAX],
    length: usize,
}

impl fmt::Write for TextBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = text.floor_char_boundary(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        if count < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use wire::log::Batch;

    const ACCESS: Access<'static> = Access {
        time_us: 0,
        duration_us: 7,
        site: 3,
        peer: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1),
        status: 200,
        body_bytes: 1,
        version: 1,
        method: b"GET",
        target: b"/",
        host: b"a.example",
        referer: b"",
        agent: b"",
    };

    fn run(test: impl AsyncFnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test());
    }

    /// The batches that have arrived: their first numbers and counts of records.
    fn arrived(logger: &OwnedFd) -> Vec<(u64, u64)> {
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        let mut batches = Vec::new();
        while let Ok(Some(got)) = sys::seqpacket::receive(logger, &mut buffer) {
            let batch = Batch::decode(&buffer[..got.len]).unwrap();
            let first = batch.sequence;
            let records: Result<Vec<_>, _> = batch.collect();
            batches.push((first, records.unwrap().len() as u64));
        }
        batches
    }

    #[test]
    fn sends_on_time_and_in_order() {
        run(async || {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            let log = Log::new(Some(ours), 3, 20).unwrap();
            log.access(&ACCESS);
            log.event(Level::Info, "x".repeat(5000));
            assert!(arrived(&theirs).is_empty());
            tokio::time::sleep(Duration::from_millis(60)).await;
            assert_eq!(arrived(&theirs), [(0, 2)]);
            log.access(&ACCESS);
            log.flush().await;
            assert_eq!(arrived(&theirs), [(2, 1)]);
        });
    }

    #[test]
    fn sends_a_full_batch_at_once() {
        run(async || {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            let log = Log::new(Some(ours), 3, 60_000).unwrap();
            (0..1000).for_each(|_| log.access(&ACCESS));
            let first = arrived(&theirs);
            assert!(!first.is_empty() && first[0].1 > 400, "{first:?}");
            log.flush().await;
            let sum: u64 = first.iter().chain(&arrived(&theirs)).map(|batch| batch.1).sum();
            assert_eq!(sum, 1000);
        });
    }

    #[test]
    fn sent_and_lost_add_up() {
        run(async || {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            let log = Log::new(Some(ours), 3, 1).unwrap();
            (0..50_000).for_each(|_| log.access(&ACCESS));
            assert!(log.lost() > 0);
            let (mut next, mut written, mut gaps) = (0, 0, 0);
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                for (first, count) in arrived(&theirs) {
                    assert!(first >= next);
                    gaps += first - next;
                    written += count;
                    next = first + count;
                }
            }
            assert_eq!((next, gaps), (50_000, log.lost()));
            assert_eq!(written + gaps, 50_000);
        });
    }

    #[test]
    fn survives_the_end_of_the_logger() {
        run(async || {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            drop(theirs);
            let log = Log::new(Some(ours), 3, 1).unwrap();
            (0..2000).for_each(|_| log.access(&ACCESS));
            log.flush().await;
            assert_eq!(log.lost(), 2000);
        });
    }
}
