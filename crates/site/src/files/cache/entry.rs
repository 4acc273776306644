//! The answers for one path: as it is, and in each encoding that was asked for.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: contents of files. Must never: give two encodings
//! of one file the same entity tag.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::{Rc, Weak};

use http::header::{HeaderName, HeaderValue};
use request::accept_encoding::{AcceptedEncodings, Encoding};
use request::date::DATE_BYTES;
use tokio::sync::OnceCell;

use super::prebuilt::PrebuiltResponse;
use crate::config::settings::Settings;
use crate::files::root;
use crate::files::{File, FileValidators};
use crate::http::compress;
use sys::file_version::FileVersion;

/// The cost of an entry beside its bytes: structures, hash table, queue.
const OVERHEAD_BYTES: usize = 512;
/// The cost of the header fields of a form that HTTP/2 has asked for; counted for all, so that the budget holds.
const FIELDS_BYTES: usize = 1536;

/// The headers of a file's answer that do not come from the file itself.
#[derive(Clone, Debug, Default)]
pub struct ResponseHeaders {
    /// The value of `Cache-Control`.
    pub cache_control: Option<String>,
    /// Headers of the rules that cover the path; they stand in place of ours.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether everybody may have it and no rule answers in its place, so that the rules need not be asked.
    pub open: bool,
}

impl ResponseHeaders {
    /// For a path under these rules.
    pub fn new(settings: &Settings, route: &crate::router::rules::RouteMatch<'_>) -> ResponseHeaders {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (name, value) in route.headers() {
            headers.retain(|(other, _)| other != name);
            headers.push((name.clone(), value.clone()));
        }
        let cache_control = settings.cache_control.map(|seconds| cache_control(seconds, route.private()));
        ResponseHeaders { cache_control, headers, open: route.is_open() }
    }

    fn line(&self, out: &mut String, name: &str, value: &str) {
        if !self.headers.iter().any(|(other, _)| other.as_str().eq_ignore_ascii_case(name)) {
            // INVARIANT: writing to a string does not fail.
            let _ = write!(out, "{name}: {value}\r\n");
        }
    }

    /// The lines that every answer has, a 304 as well.
    fn common(&self, out: &mut String, vary: bool) {
        if let Some(value) = &self.cache_control {
            self.line(out, "Cache-Control", value);
        }
        if vary {
            out.push_str("Vary: Accept-Encoding\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(out, "{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
    }
}

/// For how long copies may be used unasked, as in rwasa: shared caches three times as long, and not at all for what
/// only users with a password may have.
fn cache_control(seconds: u32, private: bool) -> String {
    match (seconds, private) {
        (0, _) => "no-cache".to_owned(),
        (_, true) => format!("private, max-age={seconds}"),
        (_, false) => format!("public, max-age={seconds}, s-maxage={}", u64::from(seconds) * 3),
    }
}

/// One form of a file.
pub struct Representation {
    /// 200 with the body; without one for a large file as it is.
    pub whole: PrebuiltResponse,
    /// 304.
    pub unchanged: PrebuiltResponse,
    /// The entity tag, with its quotes.
    pub etag: String,
    /// The neighbour that it was read from, if it was compressed already.
    pub(super) precompressed: Option<FileVersion>,
}

impl Representation {
    pub(super) fn new(
        facts: &FileHeaders<'_>,
        etag: String,
        coding: Option<Encoding>,
        body: &[u8],
    ) -> Representation {
        let length = if facts.large && coding.is_none() { facts.size } else { body.len() as u64 };
        let (whole, unchanged) = (facts.fields(&etag, coding, Some(length)), facts.validators(&etag));
        Representation {
            whole: PrebuiltResponse::new("200 OK", &whole, body),
            unchanged: PrebuiltResponse::new("304 Not Modified", &unchanged, b""),
            etag,
            precompressed: None,
        }
    }

    pub(super) fn cost(&self) -> usize {
        self.whole.length() + self.unchanged.length() + OVERHEAD_BYTES / 2 + FIELDS_BYTES
    }
}

/// The values from which the heads of a file's answers are made.
pub(crate) struct FileHeaders<'a> {
    pub(crate) media: &'static str,
    pub(crate) last_modified: [u8; DATE_BYTES],
    pub(crate) size: u64,
    pub(crate) large: bool,
    pub(crate) vary: bool,
    pub(crate) response_headers: &'a ResponseHeaders,
}

impl FileHeaders<'_> {
    pub(crate) fn fields(&self, etag: &str, coding: Option<Encoding>, length: Option<u64>) -> String {
        let mut out = String::with_capacity(320);
        self.response_headers.line(&mut out, "Content-Type", self.media);
        if let Some(length) = length {
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        out.push_str(&self.validators(etag));
        match coding {
            Some(coding) => {
                let _ = write!(out, "Content-Encoding: {}\r\n", coding.token());
            }
            None => out.push_str("Accept-Ranges: bytes\r\n"),
        }
        self.response_headers.line(&mut out, "X-Content-Type-Options", "nosniff");
        out
    }

    fn validators(&self, etag: &str) -> String {
        let date = String::from_utf8_lossy(&self.last_modified);
        let mut out = format!("Last-Modified: {date}\r\nETag: {etag}\r\n");
        self.response_headers.common(&mut out, self.vary);
        out
    }
}

/// The tag of a file in an encoding.
pub fn coded_tag(etag: &str, encoding: Encoding) -> String {
    format!("{}-{}\"", etag.strip_suffix('"').unwrap_or(etag), encoding.suffix())
}

/// Whether files of this type and size have several forms.
pub fn has_representations(settings: &Settings, media: &str, size: u64) -> bool {
    !settings.encodings.is_empty()
        && (compress::BYTES_MIN..=settings.max_bytes).contains(&size)
        && compress::is_worth(media.as_bytes())
}

/// The entries of one root, by the path of a request as sent.
pub type CacheTable = RefCell<HashMap<Box<str>, Rc<CacheEntry>>>;

/// A folder with its entries.
pub type CachedRoot = root::FileRoot<CacheTable>;

/// The answers for one path.
pub struct CacheEntry {
    /// As it is.
    pub plain: Rc<Representation>,
    /// Whether the plain form's body is not here, but to be sent from the file.
    pub large: bool,
    /// Whether it has forms in encodings.
    pub vary: bool,
    /// Whether everybody may have it.
    pub open: bool,
    /// In each encoding, once that was asked for; `None` in it: not worth it.
    coded: [OnceCell<Option<Rc<Representation>>>; 3],
    /// Whether an encoding of it is being made, and sent to whoever asked first.
    pub(crate) under_way: [Cell<bool>; 3],
    /// The value of `Last-Modified`.
    pub last_modified: [u8; DATE_BYTES],
    pub(super) key: Box<str>,
    pub(super) root: Weak<CachedRoot>,
    pub(crate) version: FileVersion,
    /// The path of the index file below the root, where the path is that of its folder.
    index: Option<Box<[u8]>>,
    pub(super) media: &'static str,
    pub(super) response_headers: ResponseHeaders,
    /// The tick at which the file is to be looked at again, and the changes seen when it was looked at.
    pub(super) until: Cell<u64>,
    pub(super) changes: Cell<u64>,
    pub(super) used: Cell<bool>,
    pub(super) cost: Cell<usize>,
    /// Whether it is in the table, so that what is added to it counts.
    pub(super) live: Cell<bool>,
}

/// The cached answer that the fast path picks for a request.
pub enum Pick<'e> {
    /// This form.
    Representation(&'e Rc<Representation>),
    /// The form is still to be made.
    Absent,
}

impl CacheEntry {
    pub(super) fn new(
        (root, key): (&Rc<CachedRoot>, &str),
        file: &File,
        (large, vary): (bool, bool),
        body: &[u8],
        response_headers: ResponseHeaders,
    ) -> CacheEntry {
        let last_modified = file.version.last_modified();
        let facts = FileHeaders {
            media: file.media,
            last_modified,
            size: file.version.size,
            large,
            vary,
            response_headers: &response_headers,
        };
        let plain = Rc::new(Representation::new(&facts, file.version.etag(), None, body));
        let index: Option<Box<[u8]>> = key.ends_with('/').then(|| file.path.as_slice().into());
        let cost = OVERHEAD_BYTES + key.len() + index.as_ref().map_or(0, |index| index.len()) + plain.cost();
        CacheEntry {
            plain,
            large,
            vary,
            open: response_headers.open,
            coded: [const { OnceCell::const_new() }; 3],
            under_way: Default::default(),
            last_modified,
            key: key.into(),
            root: Rc::downgrade(root),
            version: file.version,
            index,
            media: file.media,
            response_headers,
            until: Cell::new(0),
            changes: Cell::new(0),
            used: Cell::new(false),
            cost: Cell::new(cost),
            live: Cell::new(false),
        }
    }

    /// The form for whoever accepts these encodings.
    #[inline]
    pub fn pick(&self, accepted: AcceptedEncodings) -> Pick<'_> {
        if self.vary {
            for encoding in accepted.iter() {
                match self.coded[encoding as usize].get() {
                    Some(Some(representation)) => return Pick::Representation(representation),
                    Some(None) => {}
                    None => return Pick::Absent,
                }
            }
        }
        Pick::Representation(&self.plain)
    }

    /// Whether the entry's path has led to this file before, whatever the file was then.
    pub(super) fn is_of(&self, file: &File) -> bool {
        self.index.as_ref().is_none_or(|index| **index == *file.path)
    }

    pub(crate) fn response_headers(&self) -> &ResponseHeaders {
        &self.response_headers
    }

    pub(crate) fn coded(&self, encoding: Encoding) -> &OnceCell<Option<Rc<Representation>>> {
        &self.coded[encoding as usize]
    }

    /// The forms that were made.
    pub(super) fn made(&self) -> impl Iterator<Item = (Encoding, Option<&Rc<Representation>>)> {
        Encoding::ALL.into_iter().filter_map(|one| Some((one, self.coded(one).get()?.as_ref())))
    }

    pub(crate) fn facts(&self) -> FileHeaders<'_> {
        FileHeaders {
            media: self.media,
            last_modified: self.last_modified,
            size: self.version.size,
            large: self.large,
            vary: self.vary,
            response_headers: &self.response_headers,
        }
    }

    /// A form in this encoding with this body.
    pub(crate) fn representation(
        &self,
        encoding: Encoding,
        body: &[u8],
        precompressed: Option<FileVersion>,
    ) -> Representation {
        let base = precompressed.map_or_else(|| self.version.etag(), |version| version.etag());
        let representation =
            Representation::new(&self.facts(), coded_tag(&base, encoding), Some(encoding), body);
        Representation { precompressed, ..representation }
    }
}
