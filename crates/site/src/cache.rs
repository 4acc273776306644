//! Complete answers for small files, ready to be sent.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the paths that are asked for. Must never:
//! serve a file's old contents for longer than a second, or grow beyond its budget.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::answer::SERVER;
use crate::clock::DATE_BYTES;
use crate::files::{self, File, Files, Found, Meta};

/// LIMIT: bytes of all entries together; a site's pages and images, yet a thousand workers fit in a machine.
pub const CACHE_BYTES: usize = 64 << 20;

/// LIMIT: bytes of a file in the cache; above it, the cost of a system call or two no longer shows.
pub const ENTRY_BYTES: u64 = 256 << 10;

/// What an entry costs beside its bytes: structures, hash table, queue.
const OVERHEAD_BYTES: usize = 512;

/// A head with a date, and perhaps a body, in one buffer.
pub struct Ready {
    bytes: RefCell<Vec<u8>>,
    date_at: usize,
    /// Where the empty line begins, and where a `Connection` line can be put in.
    pub split: usize,
    tick: Cell<u64>,
}

impl Ready {
    fn new(status: &str, fields: &str, body: &[u8]) -> Ready {
        let mut bytes = format!("HTTP/1.1 {status}\r\nServer: {SERVER}\r\nDate: ").into_bytes();
        let date_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; DATE_BYTES]);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(fields.as_bytes());
        let split = bytes.len();
        bytes.reserve_exact(2 + body.len());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Ready { bytes: RefCell::new(bytes), date_at, split, tick: Cell::new(0) }
    }

    /// The bytes, with `date` put in if they bear that of another tick.
    #[inline]
    pub fn bytes(&self, tick: u64, date: impl FnOnce() -> [u8; DATE_BYTES]) -> Ref<'_, Vec<u8>> {
        if self.tick.replace(tick) != tick {
            let mut bytes = self.bytes.borrow_mut();
            bytes[self.date_at..self.date_at + DATE_BYTES].copy_from_slice(&date());
        }
        self.bytes.borrow()
    }

    fn length(&self) -> usize {
        self.bytes.borrow().len()
    }
}

/// The answers for one path.
pub struct Entry {
    /// 200 with the body.
    pub whole: Ready,
    /// 304.
    pub unchanged: Ready,
    /// The entity tag, with its quotes.
    pub etag: String,
    /// The value of `Last-Modified`.
    pub last_modified: [u8; DATE_BYTES],
    key: Box<str>,
    meta: Meta,
    checked: Cell<u64>,
    used: Cell<bool>,
    cost: usize,
}

impl Entry {
    fn new(key: &str, file: &File, body: &[u8], tick: u64) -> Entry {
        let meta = file.meta;
        let (etag, last_modified) = (meta.etag(), meta.last_modified());
        let validators = validators(&meta);
        let fields = fields(file, &validators);
        let whole = Ready::new("200 OK", &fields, body);
        let unchanged = Ready::new("304 Not Modified", &validators, b"");
        let cost = OVERHEAD_BYTES + key.len() + whole.length() + unchanged.length();
        let key = key.into();
        let (checked, used) = (Cell::new(tick), Cell::new(false));
        Entry { whole, unchanged, etag, last_modified, key, meta, checked, used, cost }
    }
}

fn validators(meta: &Meta) -> String {
    let date = meta.last_modified();
    format!("Last-Modified: {}\r\nETag: {}\r\n", String::from_utf8_lossy(&date), meta.etag())
}

fn fields(file: &File, validators: &str) -> String {
    format!(
        "Content-Type: {}\r\nContent-Length: {}\r\n{validators}Accept-Ranges: bytes\r\n\
         X-Content-Type-Options: nosniff\r\n",
        file.media, file.meta.size
    )
}

/// The head of a 200 for a file that is not kept, with the line `connection` in it.
pub(crate) fn head(file: &File, connection: &[u8], date: [u8; DATE_BYTES]) -> Vec<u8> {
    let ready = Ready::new("200 OK", &fields(file, &validators(&file.meta)), b"");
    let mut bytes = ready.bytes(1, || date).clone();
    bytes.splice(ready.split..ready.split, connection.iter().copied());
    bytes
}

/// The entries, by the path of a request as sent.
pub struct Cache {
    entries: RefCell<HashMap<Box<str>, Rc<Entry>>>,
    /// The clock's hand is at the front; entries no longer in the table are passed over.
    order: RefCell<VecDeque<Rc<Entry>>>,
    bytes: Cell<usize>,
    budget: usize,
}

impl Cache {
    /// An empty cache of at most `budget` bytes.
    pub fn new(budget: usize) -> Cache {
        Cache { entries: RefCell::default(), order: RefCell::default(), bytes: Cell::new(0), budget }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry for `path`, compared with the file if that has not been done in this tick.
    #[inline]
    pub fn get(&self, files: &Files, path: &str, tick: u64) -> Option<Rc<Entry>> {
        let entry = self.entries.borrow().get(path).cloned()?;
        entry.used.set(true);
        if entry.checked.get() == tick { Some(entry) } else { self.check(files, &entry, tick) }
    }

    #[cold]
    fn check(&self, files: &Files, entry: &Rc<Entry>, tick: u64) -> Option<Rc<Entry>> {
        match files.lookup(&entry.key) {
            Ok((Found::File(file), _)) if file.meta == entry.meta => {
                entry.checked.set(tick);
                Some(entry.clone())
            }
            Ok((Found::File(file), true)) => {
                self.remove(entry);
                self.insert(&entry.key, &file, tick)
            }
            _ => {
                self.remove(entry);
                None
            }
        }
    }

    /// Makes an entry for `path`; the file itself is given back if it cannot be kept.
    pub fn fill(&self, files: &Files, path: &str, tick: u64) -> Result<Rc<Entry>, Option<File>> {
        match files.lookup(path) {
            Ok((Found::File(file), true)) => self.insert(path, &file, tick).ok_or(Some(file)),
            Ok((Found::File(file), false)) => Err(Some(file)),
            _ => Err(None),
        }
    }

    fn insert(&self, path: &str, file: &File, tick: u64) -> Option<Rc<Entry>> {
        // A file in the middle of being written would be kept half-written, under a time that stays.
        if file.meta.size > ENTRY_BYTES || file.meta.fresh() {
            return None;
        }
        let body = contents(file)?;
        let entry = Rc::new(Entry::new(path, file, &body, tick));
        self.make_room(entry.cost)?;
        self.bytes.set(self.bytes.get() + entry.cost);
        self.entries.borrow_mut().insert(path.into(), entry.clone());
        self.order.borrow_mut().push_back(entry.clone());
        Some(entry)
    }

    fn make_room(&self, cost: usize) -> Option<()> {
        if cost > self.budget {
            return None;
        }
        while self.bytes.get() + cost > self.budget {
            let entry = self.order.borrow_mut().pop_front()?;
            if entry.used.take() {
                self.order.borrow_mut().push_back(entry);
            } else {
                self.forget(&entry);
            }
        }
        Some(())
    }

    fn remove(&self, entry: &Rc<Entry>) {
        self.order.borrow_mut().retain(|other| !Rc::ptr_eq(other, entry));
        self.forget(entry);
    }

    fn forget(&self, entry: &Rc<Entry>) {
        if self.entries.borrow_mut().remove(&entry.key).is_some() {
            self.bytes.set(self.bytes.get() - entry.cost);
        }
    }
}

/// All of a file, if it is the same after as before.
fn contents(file: &File) -> Option<Vec<u8>> {
    let size = usize::try_from(file.meta.size).ok()?;
    let mut body = Vec::with_capacity(size);
    while body.len() < size {
        let offset = body.len() as u64;
        match rustix::io::pread(&file.fd, rustix::buffer::spare_capacity(&mut body), offset) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    body.truncate(size);
    (files::meta(&file.fd)? == file.meta).then_some(body)
}
