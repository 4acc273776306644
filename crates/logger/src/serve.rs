//! The logger at work: the launcher's messages, and the channels and pipes that come along with them.
//!
//! Runs in: the logger. Sees: the launcher's messages (trusted: a malformed one ends the process), batches and
//! lines of everyone (not trusted). Never: sends anything to a client.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use wire::{ChildToLauncher, DecodeError, LauncherToLogger, MESSAGE_MAX};
use worker::ProcessStart;
use worker::channel::{Channel, ChannelError, watch};
use worker::counters::Counters;

use crate::client::LogClient;
use crate::format::Format;
use crate::lines::LineReader;
use crate::output::{LogFiles, RETRY};
use crate::syslog::Syslog;
use crate::terminal::Terminal;

/// How many messages of one source are read before others have their turn.
const TURN: usize = 8;

/// LIMIT: turns in which the last of what one process has printed is read, at once: more than a pipe holds.
const LAST_TURNS: usize = 64;

/// How long the last of what is queued is read after the launcher has closed its channel.
///
/// LIMIT: a usual queue (208 KiB a client) takes milliseconds; only a client that goes on writing takes longer.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Why the logger had to end.
#[derive(Debug)]
pub enum ServeError {
    /// The channel from the launcher failed.
    Control(ChannelError),
    /// A message came without the descriptor that belongs to it.
    NoDescriptor,
    /// The launcher named a format that does not exist.
    NoSuchFormat(u8),
    /// The event loop refused a descriptor, or a message to the launcher could not be sent.
    Io(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control(error) => write!(f, "from the launcher: {error}"),
            Self::NoDescriptor => write!(f, "from the launcher: a message without its descriptor"),
            Self::NoSuchFormat(number) => {
                write!(f, "from the launcher: access log format {number}, known are 0 to 2")
            }
            Self::Io(error) => write!(f, "logger: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Control(error) => Some(error),
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the logger until the launcher closes the control channel.
pub async fn serve(start: ProcessStart) -> Result<(), ServeError> {
    let control = Rc::new(Channel::<LauncherToLogger, ChildToLauncher>::control(start.control, start.say)?);
    let logger = Rc::new(Logger::default());
    tokio::task::spawn_local(logger.clone().write_when_quiet());
    let asking = tokio::task::spawn_local(logger.clone().ask_for_logs(control.clone()));
    let result = logger.handle_messages(&control).await;
    asking.abort();
    logger.drain();
    logger.files.take().close();
    result
}

/// Where all tasks of the logger meet.
#[derive(Debug)]
struct Logger {
    files: RefCell<LogFiles>,
    sources: RefCell<Vec<Rc<LogSource>>>,
    /// Whether the launcher has said `Read`: all logs are there, and no other logger reads the same sources.
    ///
    /// INVARIANT: what is looked at and then discarded is one message, as nobody else takes any.
    reads: Cell<bool>,
    counters: Counters,
    terminal: RefCell<Option<Terminal>>,
    /// One buffer for all sources: each message is done with before the next is read.
    buffer: RefCell<Vec<u8>>,
    dirty: Notify,
    /// Sites whose access logs are to be asked for.
    wanted: RefCell<Vec<u16>>,
    asks: Notify,
    /// Says that a log was opened.
    opened: Notify,
}

/// A channel or a pipe from which the logger reads.
#[derive(Debug)]
struct LogSource {
    descriptor: AsyncFd<OwnedFd>,
    reader: RefCell<SourceReader>,
}

#[derive(Debug)]
enum SourceReader {
    Batches(LogClient),
    Lines(LineReader),
}

/// The rest that a source has after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadRemainder {
    Nothing,
    More,
    /// A batch with a line for a log that is not open.
    Held,
    Ended,
}

impl Default for Logger {
    fn default() -> Self {
        Self {
            files: RefCell::default(),
            sources: RefCell::default(),
            reads: Cell::new(false),
            counters: Counters::default(),
            terminal: RefCell::default(),
            buffer: RefCell::new(vec![0; MESSAGE_MAX]),
            dirty: Notify::new(),
            wanted: RefCell::default(),
            asks: Notify::new(),
            opened: Notify::new(),
        }
    }
}

impl Logger {
    /// Does what the launcher says until it closes the channel.
    async fn handle_messages(
        self: &Rc<Self>,
        control: &Channel<LauncherToLogger, ChildToLauncher>,
    ) -> Result<(), ServeError> {
        while let Some((message, descriptor)) = control.receive().await.map_err(ServeError::Control)? {
            let answer = match message {
                LauncherToLogger::Begin {} => ChildToLauncher::Ready {},
                LauncherToLogger::Read {} => {
                    self.read_all();
                    continue;
                }
                LauncherToLogger::Report {} => {
                    ChildToLauncher::Counters { counters: self.counters.snapshot() }
                }
                LauncherToLogger::Last {} => {
                    self.files.borrow_mut().open_no_more();
                    self.opened.notify_waiters();
                    continue;
                }
                // Messages before this one are done by now: lines that waited for the old files are in them.
                LauncherToLogger::Confirm { ticket } => ChildToLauncher::Confirmed { ticket },
                other => {
                    self.set_up(other, descriptor)?;
                    continue;
                }
            };
            match control.send(&answer, None).await {
                // Its end is what the next message is then.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn set_up(
        self: &Rc<Self>,
        message: LauncherToLogger,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ServeError> {
        let descriptor = descriptor.ok_or(ServeError::NoDescriptor);
        match message {
            // `flush_ms` is for the clients: here, a line waits for no more than the rest of a turn.
            LauncherToLogger::Format { format, flush_ms: _, access_bytes } => {
                let known = Format::from_number(format).ok_or(ServeError::NoSuchFormat(format))?;
                self.files.borrow_mut().set_format(known);
                self.files.borrow_mut().set_access_bytes(access_bytes);
            }
            LauncherToLogger::AccessLog { site, name } => {
                self.files.borrow_mut().set_access(site, name.as_str(), File::from(descriptor?));
                self.opened.notify_waiters();
            }
            LauncherToLogger::AccessLogLater { site, name } => {
                self.files.borrow_mut().close_access(site, name.as_str());
            }
            LauncherToLogger::ErrorLog {} => self.files.borrow_mut().set_error(File::from(descriptor?)),
            LauncherToLogger::Client { label, right } => {
                self.counters.connected();
                self.add(descriptor?, SourceReader::Batches(LogClient::new(label.as_str(), right)))?;
            }
            LauncherToLogger::Stderr { label } => {
                let tail = self.terminal.borrow_mut().as_mut().map(|terminal| terminal.tail(label.as_str()));
                self.add(descriptor?, SourceReader::Lines(LineReader::new(label.as_str()).with_tail(tail)))?;
            }
            LauncherToLogger::Syslog {} => self.files.borrow_mut().set_syslog(Some(Syslog::new(descriptor?))),
            LauncherToLogger::NoSyslog {} => self.files.borrow_mut().set_syslog(None),
            LauncherToLogger::Terminal {} => {
                *self.terminal.borrow_mut() = Some(Terminal::new(File::from(descriptor?)));
            }
            LauncherToLogger::LastLines { label } => self.show_last_lines(label.as_str()),
            LauncherToLogger::Begin {}
            | LauncherToLogger::Read {}
            | LauncherToLogger::Report {}
            | LauncherToLogger::Last {}
            | LauncherToLogger::Confirm { .. } => {}
        }
        Ok(())
    }

    /// Shows the last lines of a process that has ended, with what of them nobody has read yet.
    fn show_last_lines(&self, label: &str) {
        let Some(tail) = self.terminal.borrow().as_ref().and_then(|terminal| terminal.tail_of(label)) else {
            return;
        };
        let fills = |source: &&Rc<LogSource>| matches!(&*source.reader.borrow(), SourceReader::Lines(lines) if lines.fills(&tail));
        let source = self.sources.borrow().iter().find(fills).cloned();
        if let Some(source) = source.filter(|_| self.reads.get()) {
            // Its surviving descendants may go on writing.
            let mut turns = 0..LAST_TURNS;
            while turns.next().is_some() && self.read(&source) == ReadRemainder::More {}
            source.finish(&mut self.files.borrow_mut());
        }
        if let Some(terminal) = &mut *self.terminal.borrow_mut() {
            terminal.show(label);
        }
    }

    fn add(self: &Rc<Self>, descriptor: OwnedFd, reader: SourceReader) -> Result<(), ServeError> {
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(io::Error::from)?;
        let source = Rc::new(LogSource { descriptor: watch(descriptor)?, reader: RefCell::new(reader) });
        self.sources.borrow_mut().push(source.clone());
        if self.reads.get() {
            tokio::task::spawn_local(self.clone().attend(source));
        }
        Ok(())
    }

    fn read_all(self: &Rc<Self>) {
        if !self.reads.replace(true) {
            for source in self.sources.borrow().iter() {
                tokio::task::spawn_local(self.clone().attend(source.clone()));
            }
        }
    }

    /// Reads one source until it ends.
    async fn attend(self: Rc<Self>, source: Rc<LogSource>) {
        loop {
            match self.read(&source) {
                ReadRemainder::More => tokio::task::yield_now().await,
                // The launcher may have been unable to answer.
                ReadRemainder::Held => drop(tokio::time::timeout(RETRY, self.opened.notified()).await),
                ReadRemainder::Nothing => {
                    if self.wait(&source).await == ReadRemainder::Ended {
                        break;
                    }
                }
                ReadRemainder::Ended => break,
            }
        }
        self.end(&source);
    }

    /// Waits until a source has something, or something is due to be said of it.
    async fn wait(&self, source: &LogSource) -> ReadRemainder {
        let now = Instant::now();
        let due = source.due(now);
        let report_at = tokio::time::Instant::from_std(due.unwrap_or(now));
        tokio::select! {
            ready = source.descriptor.readable() => match ready {
                Ok(mut ready) => {
                    // Only an attempt made under this guard may clear readiness, or a wake-up could be lost.
                    let left = self.read(source);
                    if left == ReadRemainder::Nothing {
                        ready.clear_ready();
                    }
                    left
                }
                Err(_) => ReadRemainder::Ended,
            },
            () = tokio::time::sleep_until(report_at), if due.is_some() => ReadRemainder::More,
        }
    }

    /// Reads some of what a source has, and says what is due of it.
    fn read(&self, source: &LogSource) -> ReadRemainder {
        let now = Instant::now();
        let mut buffer = self.buffer.borrow_mut();
        let mut files = self.files.borrow_mut();
        let mut left = ReadRemainder::More;
        for _ in 0..TURN {
            left = self.read_one(source, &mut buffer, &mut files, now);
            if left != ReadRemainder::More {
                break;
            }
            files.write_large(now);
        }
        source.report(&mut files, now);
        if files.waits() {
            self.dirty.notify_one();
        }
        left
    }

    /// Reads one message, or one piece of a pipe's stream.
    fn read_one(
        &self,
        source: &LogSource,
        buffer: &mut [u8],
        files: &mut LogFiles,
        now: Instant,
    ) -> ReadRemainder {
        let result = match &mut *source.reader.borrow_mut() {
            SourceReader::Batches(client) => self.read_batch(source, client, buffer, files, now),
            SourceReader::Lines(lines) => read_lines(source, lines, buffer, files, now),
        };
        result.unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ReadRemainder::Nothing,
            io::ErrorKind::Interrupted => ReadRemainder::More,
            _ => {
                eprintln!("error: a source of log records failed: {error}");
                ReadRemainder::Ended
            }
        })
    }

    /// Writes the records of the next batch, and then takes the batch out of the channel: the next logger finds there
    /// what one that is killed has not written.
    fn read_batch(
        &self,
        source: &LogSource,
        client: &mut LogClient,
        buffer: &mut [u8],
        files: &mut LogFiles,
        now: Instant,
    ) -> io::Result<ReadRemainder> {
        match sys::seqpacket::peek(&source.descriptor, buffer) {
            Ok(None) => return Ok(ReadRemainder::Ended),
            Ok(Some(length)) => {
                let lacking = client.lacking(&buffer[..length], files);
                if !lacking.is_empty() {
                    self.want(lacking, files);
                    return Ok(ReadRemainder::Held);
                }
                let records = client.take(&buffer[..length], files, now);
                self.counters.requests.set(self.counters.requests.get() + records);
                files.write(now);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                client.malformed(DecodeError::Limit(MESSAGE_MAX));
            }
            Err(error) => return Err(error),
        }
        sys::seqpacket::discard(&source.descriptor)?;
        Ok(ReadRemainder::More)
    }

    /// Has logs asked for that are not open.
    fn want(&self, sites: Vec<u16>, files: &mut LogFiles) {
        let new = sites.into_iter().filter(|&site| files.asks_for(site));
        self.wanted.borrow_mut().extend(new);
        self.asks.notify_one();
    }

    /// Asks the launcher for logs.
    async fn ask_for_logs(self: Rc<Self>, control: Rc<Channel<LauncherToLogger, ChildToLauncher>>) {
        loop {
            self.asks.notified().await;
            for site in self.wanted.take() {
                // Without a launcher, the next logger finds what is held.
                let _ = control.send(&ChildToLauncher::LogWanted { site }, None).await;
            }
        }
    }

    /// Forgets a source, and says what is still to be said of it.
    fn end(&self, source: &Rc<LogSource>) {
        source.finish(&mut self.files.borrow_mut());
        if matches!(*source.reader.borrow(), SourceReader::Batches(_)) {
            self.counters.disconnected();
        }
        self.sources.borrow_mut().retain(|other| !Rc::ptr_eq(other, source));
        self.dirty.notify_one();
    }

    /// Reads all that is queued anywhere, unless another logger does.
    fn drain(&self) {
        if !self.reads.get() {
            return;
        }
        let until = Instant::now() + DRAIN_MAX;
        for source in self.sources.take() {
            while self.read(&source) == ReadRemainder::More && Instant::now() < until {}
            source.finish(&mut self.files.borrow_mut());
            self.files.borrow_mut().write_large(Instant::now());
        }
    }

    /// Writes the files once per turn of the loop in which something arrived.
    async fn write_when_quiet(self: Rc<Self>) {
        loop {
            // Lines that could not be written are tried again even if nothing arrives.
            let waits = self.files.borrow().waits();
            if waits {
                let _ = tokio::time::timeout(RETRY, self.dirty.notified()).await;
            } else {
                self.dirty.notified().await;
            }
            // A turn of the loop later, what the same turn brings is in the same write.
            tokio::task::yield_now().await;
            self.files.borrow_mut().write(Instant::now());
        }
    }
}

fn read_lines(
    source: &LogSource,
    lines: &mut LineReader,
    buffer: &mut [u8],
    files: &mut LogFiles,
    now: Instant,
) -> io::Result<ReadRemainder> {
    let count = rustix::io::read(&source.descriptor, &mut *buffer)?;
    lines.take(&buffer[..count], files, now);
    Ok(if count > 0 { ReadRemainder::More } else { ReadRemainder::Ended })
}

impl LogSource {
    fn due(&self, now: Instant) -> Option<Instant> {
        match &*self.reader.borrow() {
            SourceReader::Batches(client) => client.limiter.due(now),
            SourceReader::Lines(lines) => lines.limiter.due(now),
        }
    }

    fn report(&self, files: &mut LogFiles, now: Instant) {
        match &mut *self.reader.borrow_mut() {
            SourceReader::Batches(client) => client.limiter.report(files, now),
            SourceReader::Lines(lines) => lines.limiter.report(files, now),
        }
    }

    fn finish(&self, files: &mut LogFiles) {
        match &mut *self.reader.borrow_mut() {
            SourceReader::Batches(client) => client.limiter.finish(files),
            SourceReader::Lines(lines) => lines.finish(files, Instant::now()),
        }
    }
}
