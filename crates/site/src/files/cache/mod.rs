//! Complete answers for files, ready to be sent.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the paths that are asked for. Must never:
//! serve a file's old contents for longer than its interval, or grow beyond its budget.

mod entry;
mod policy;
mod prebuilt;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

pub(crate) use entry::FileHeaders;
pub use entry::{
    CacheEntry, CacheTable, CachedRoot, Pick, Representation, ResponseHeaders, coded_tag, has_representations,
};
pub use policy::{ClockPolicy, EvictionPolicy};
pub use prebuilt::PrebuiltResponse;

use request::accept_encoding::Encoding;
use request::date::DATE_BYTES;
use request::path::NormalPath;

use crate::config::settings::Settings;
use crate::files::root;
use crate::files::watch::{FolderWatch, WatchStatus};
use crate::files::{self, File, FileValidators, FoundPath};
use sys::file_version::FileVersion;

/// LIMIT: bytes of all entries together; a site's pages and images, yet a thousand workers fit in a machine.
pub const CACHE_BYTES: usize = 64 << 20;

/// LIMIT: bytes of a file in the cache; above it, the cost of a system call or two no longer shows.
pub const ENTRY_BYTES: u64 = 256 << 10;

/// LIMIT: the part of the budget that one compressed form may have.
const FORM_SHARE: usize = 8;

/// Ticks (seconds) after which a file is looked at again whose folder is watched: changes are told, so this is for
/// those that are not, such as writes through a memory map.
const WATCHED_TICKS: u64 = 120;

/// The folders that files are served from, with their entries.
pub type Roots = root::Roots<CacheTable>;

/// Entries with an encoding and the bytes in it.
pub(crate) type FinishedEncodings = Rc<RefCell<Vec<(Rc<CacheEntry>, Encoding, Vec<u8>)>>>;

/// The entries, by the path of a request as sent; each root has its own table.
pub struct Cache {
    policy: RefCell<Box<dyn EvictionPolicy>>,
    bytes: Cell<usize>,
    count: Cell<usize>,
    budget: usize,
    settings: Settings,
    /// Bodies that were compressed while they were sent, until the cache collects them.
    finished: FinishedEncodings,
    /// Reports changes of files, once the worker runs.
    pub(crate) watch: FolderWatch,
}

/// The head of a 200 for a file that is not kept, with the line `connection` in it.
pub(crate) fn head(
    file: &File,
    settings: &Settings,
    response_headers: &ResponseHeaders,
    connection: &[u8],
    date: [u8; DATE_BYTES],
) -> Vec<u8> {
    let vary = has_representations(settings, file.media, file.version.size);
    let last_modified = file.version.last_modified();
    let size = file.version.size;
    let facts = FileHeaders { media: file.media, last_modified, size, large: true, vary, response_headers };
    let prebuilt =
        PrebuiltResponse::new("200 OK", &facts.fields(&file.version.etag(), None, Some(size)), b"");
    let mut bytes = prebuilt.bytes(1, || date).clone();
    bytes.splice(prebuilt.split..prebuilt.split, connection.iter().copied());
    bytes
}

impl Cache {
    /// An empty cache of at most `budget` bytes.
    pub fn new(budget: usize) -> Cache {
        Cache::with(budget, Settings::default(), Box::<ClockPolicy>::default())
    }

    /// The same with these settings and another policy.
    pub fn with(budget: usize, settings: Settings, policy: Box<dyn EvictionPolicy>) -> Cache {
        let (bytes, count) = (Cell::new(0), Cell::new(0));
        let (policy, finished) = (RefCell::new(policy), FinishedEncodings::default());
        Cache { policy, bytes, count, budget, settings, finished, watch: FolderWatch::default() }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count.get()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry for `path`, compared with the file if that is due.
    #[inline]
    pub fn get(&self, root: &Rc<CachedRoot>, path: &str, tick: u64) -> Option<Rc<CacheEntry>> {
        let entry = root.entries.borrow().get(path).cloned()?;
        entry.used.set(true);
        if tick < entry.until.get() && entry.changes.get() == self.watch.changes() {
            Some(entry)
        } else {
            self.check(root, &entry, tick)
        }
    }

    #[cold]
    fn check(&self, root: &Rc<CachedRoot>, entry: &Rc<CacheEntry>, tick: u64) -> Option<Rc<CacheEntry>> {
        let changes = self.watch.changes();
        let found = NormalPath::parse(&entry.key).ok().map(|path| root.files.lookup(&path));
        match found {
            // The rules of another file, the next one of the names of index files, may be others: it is looked up anew.
            Some(Ok(FoundPath::File(file))) if entry.is_of(&file) => {
                let is_told_of = self.is_told_of(entry, &file);
                if !is_told_of && file.version == entry.version && self.same_precompressed(root, entry, &file)
                {
                    self.note(root, entry, &file, changes, tick);
                    return Some(entry.clone());
                }
                self.remove(entry);
                self.insert(root, &entry.key, &file, entry.response_headers.clone(), tick)
            }
            _ => {
                self.remove(entry);
                None
            }
        }
    }

    /// Notes when to look again at a file that was looked at, with so many changes seen before.
    fn note(&self, root: &CachedRoot, entry: &CacheEntry, file: &File, changes: u64, tick: u64) {
        let watched = if file.direct { self.watch.watches(root, &file.path) } else { WatchStatus::No };
        let asked =
            self.settings.stat_interval.map(|interval| interval.max(Duration::from_secs(1)).as_secs());
        let ticks = match watched {
            WatchStatus::No => asked.unwrap_or(1),
            WatchStatus::Now => 1,
            WatchStatus::Before => asked.unwrap_or(WATCHED_TICKS),
        };
        entry.until.set(tick + ticks);
        entry.changes.set(changes);
    }

    /// Whether the kernel has told of the file since it was looked at, or of one beside it that is compressed already.
    fn is_told_of(&self, entry: &CacheEntry, file: &File) -> bool {
        let name = file.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let since = |name: &[u8]| self.watch.is_named_since(name, entry.changes.get());
        let beside =
            |(encoding, _): (Encoding, _)| since(&[name, b".", encoding.suffix().as_bytes()].concat());
        since(name) || entry.made().any(beside)
    }

    /// Whether what was compressed already still is as it was, where it was looked for.
    fn same_precompressed(&self, root: &CachedRoot, entry: &CacheEntry, file: &File) -> bool {
        entry.made().all(|(encoding, representation)| {
            let precompressed = root.files.precompressed(file, encoding).map(|(_, version)| version);
            precompressed == representation.and_then(|representation| representation.precompressed)
        })
    }

    /// The entry for the file that `path` leads to, made now if there is none; nothing if the file cannot be kept. Only
    /// the one spelling of a path is kept, or a client could fill the cache with spellings of one file.
    pub fn fill(
        &self,
        root: &Rc<CachedRoot>,
        path: &NormalPath<'_>,
        file: &File,
        response_headers: &ResponseHeaders,
        tick: u64,
    ) -> Option<Rc<CacheEntry>> {
        let key = path.spelling();
        let kept = self.get(root, &key, tick).filter(|entry| entry.version == file.version);
        kept.or_else(|| self.insert(root, &key, file, response_headers.clone(), tick))
    }

    fn insert(
        &self,
        root: &Rc<CachedRoot>,
        path: &str,
        file: &File,
        response_headers: ResponseHeaders,
        tick: u64,
    ) -> Option<Rc<CacheEntry>> {
        let vary = has_representations(&self.settings, file.media, file.version.size);
        let large = file.version.size > ENTRY_BYTES;
        // A file in the middle of being written would be kept half-written, under a time that stays.
        if (large && !vary) || file.version.fresh() {
            return None;
        }
        let changes = self.watch.changes();
        let body = if large { Vec::new() } else { contents(file)? };
        let entry = Rc::new(CacheEntry::new((root, path), file, (large, vary), &body, response_headers));
        self.note(root, &entry, file, changes, tick);
        self.make_room(entry.cost.get())?;
        self.bytes.set(self.bytes.get() + entry.cost.get());
        self.count.set(self.count.get() + 1);
        entry.live.set(true);
        let old = root.entries.borrow_mut().insert(path.into(), entry.clone());
        if let Some(old) = old {
            self.policy.borrow_mut().forget(&old);
            self.discount(&old);
        }
        self.policy.borrow_mut().admit(entry.clone());
        Some(entry)
    }

    /// Counts a form that is added to an entry; whether there is room for it.
    pub(crate) fn count_representation(
        &self,
        entry: &Rc<CacheEntry>,
        representation: &Representation,
    ) -> bool {
        let cost = representation.cost();
        if cost > self.budget / FORM_SHARE {
            return false;
        }
        entry.used.set(true);
        if self.make_room(cost).is_none() || !entry.live.get() {
            return false;
        }
        entry.cost.set(entry.cost.get() + cost);
        self.bytes.set(self.bytes.get() + cost);
        true
    }

    fn make_room(&self, cost: usize) -> Option<()> {
        if cost > self.budget {
            return None;
        }
        while self.bytes.get() + cost > self.budget {
            let entry = self.policy.borrow_mut().victim()?;
            self.forget(&entry);
        }
        Some(())
    }

    fn remove(&self, entry: &Rc<CacheEntry>) {
        self.policy.borrow_mut().forget(entry);
        self.forget(entry);
    }

    fn forget(&self, entry: &Rc<CacheEntry>) {
        if let Some(root) = entry.root.upgrade() {
            let mut entries = root.entries.borrow_mut();
            if entries.get(&entry.key).is_some_and(|kept| Rc::ptr_eq(kept, entry)) {
                entries.remove(&entry.key);
            }
        }
        self.discount(entry);
    }

    fn discount(&self, entry: &Rc<CacheEntry>) {
        if entry.live.replace(false) {
            self.bytes.set(self.bytes.get() - entry.cost.get());
            self.count.set(self.count.get() - 1);
        }
    }

    /// Where it goes what was compressed as it was sent.
    pub(crate) fn finished(&self) -> FinishedEncodings {
        self.finished.clone()
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// A neighbour that is compressed already, read whole, if it is not too large to be kept. One that was changed a moment
/// ago is looked for once more with the next request.
pub(crate) fn precompressed(
    root: &CachedRoot,
    entry: &CacheEntry,
    file: &File,
    encoding: Encoding,
) -> Option<(Vec<u8>, FileVersion)> {
    /// LIMIT: as much as one form may have of the budget, head and all.
    const NEIGHBOUR_BYTES_MAX: u64 = (CACHE_BYTES / FORM_SHARE - (64 << 10)) as u64;
    let (fd, version) = root.files.precompressed(file, encoding)?;
    if version.size > NEIGHBOUR_BYTES_MAX {
        return None;
    }
    if version.fresh() {
        entry.until.set(0);
        return None;
    }
    let precompressed = File { fd, version, media: file.media, path: Vec::new(), direct: false };
    Some((contents(&precompressed)?, version))
}

/// All of a file, if it is the same after as before.
fn contents(file: &File) -> Option<Vec<u8>> {
    let size = usize::try_from(file.version.size).ok()?;
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
    (files::version(&file.fd)? == file.version).then_some(body)
}
