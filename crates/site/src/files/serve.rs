//! Answers from files, for the general path: in which form, and what is said of it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: method, path and headers of a request. Must never:
//! work on a file's encoding longer than a piece at a time, or twice where once is enough.

use std::rc::Rc;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use request::accept_encoding::{AcceptedEncodings, Encoding};
use request::path::NormalPath;

use crate::context::SiteContext;
use crate::files::cache::CachedRoot;
use crate::files::cache::{
    self, Cache, CacheEntry, ENTRY_BYTES, Representation, ResponseHeaders, has_representations,
};
use crate::files::listing;
use crate::files::response as file_response;
use crate::files::response::Shape;
use crate::files::{File, FoundPath, Missing};
use crate::http::body::{FileBody, ResponseBody};
use crate::http::compress::body::CompressedBody;
use crate::http::compress::dynamic::{accept_encoding, vary};
use crate::http::compress::{Effort, Encoder, PIECE_BYTES};
use crate::http::response;
use crate::router::authorize::{PathOrigin, authorize};
use crate::router::refused::LoggedHead;
use crate::router::rules::{RouteMatch, Rule, Rules};

/// Bytes by which an encoded form must be smaller than the file to be kept.
const GAIN_BYTES: u64 = 64;

/// The outcome of looking for a file.
pub(crate) enum FileOutcome<'r> {
    /// The answer.
    Answer(Response<ResponseBody>),
    /// There is no file, as this answer says.
    Missing(Response<ResponseBody>),
    /// The rule's server answers for the file at this path.
    Run(&'r Rule, NormalPath<'static>),
}

/// Answers a request for `path` from files; `root` is `None` where there are none. The rules of the file that the path
/// leads to are added to `route`, and hold as well.
pub(crate) async fn answer<'r>(
    site: &'r SiteContext,
    root: Option<&Rc<CachedRoot>>,
    (path, route): (&NormalPath<'_>, &mut RouteMatch<'r>),
    asked: LoggedHead<'_>,
) -> FileOutcome<'r> {
    let Some(root) = root else {
        let refusal = response::method(asked.method);
        return FileOutcome::Missing(refusal.unwrap_or_else(|| response::error(StatusCode::NOT_FOUND)));
    };
    let resolved = resolve(&site.rules, root, path, route);
    if let Some(refused) =
        authorize(site, &resolved.rules, PathOrigin::Server, asked.conn, asked.headers).await
    {
        return FileOutcome::Answer(refused);
    }
    if let Some((rule, name)) = resolved.run {
        return FileOutcome::Run(rule, name);
    }
    if let Some(refusal) = response::method(asked.method) {
        return FileOutcome::Answer(refusal);
    }
    match resolved.found {
        Ok(FoundPath::File(file)) => {
            FileOutcome::Answer(of_file(site, root, (path, route), asked, file).await)
        }
        Ok(FoundPath::Source(name)) => {
            asked.refuse_source(site, &name);
            FileOutcome::Missing(response::error(StatusCode::FORBIDDEN))
        }
        Ok(FoundPath::Elsewhere(path)) => {
            let location = response::with_query(path, asked.uri.query());
            FileOutcome::Answer(response::elsewhere(location, StatusCode::MOVED_PERMANENTLY))
        }
        Err(missing) if missing.is_absent() && site.cache.settings().listing => {
            asked.refuse_file(site, &root.files, path, missing);
            match listing::answer(&root.files, path, asked.headers) {
                Some(listed) => FileOutcome::Answer(listed),
                None => FileOutcome::Missing(response::error(StatusCode::NOT_FOUND)),
            }
        }
        Err(missing) => {
            asked.refuse_file(site, &root.files, path, missing);
            let refusal = file_response::missing(missing);
            if missing.is_absent() { FileOutcome::Missing(refusal) } else { FileOutcome::Answer(refusal) }
        }
    }
}

/// The file at a path, and the rules that hold for it.
pub(crate) struct ResolvedFile<'r> {
    pub found: Result<FoundPath, Missing>,
    /// The rules of the file that the path itself does not have.
    pub rules: Vec<&'r Rule>,
    /// The rule whose server answers for the file, and the file's path.
    pub run: Option<(&'r Rule, NormalPath<'static>)>,
}

/// Finds what `path` leads to, and adds the rules of an index file to `route`.
///
/// SECURITY: a rule is for a file, by whatever path it was found; the source of a script is nobody's.
pub(crate) fn resolve<'r>(
    rules: &'r Rules,
    root: &CachedRoot,
    path: &NormalPath<'_>,
    route: &mut RouteMatch<'r>,
) -> ResolvedFile<'r> {
    let found = root.files.lookup(path);
    let (name, is_source) = match &found {
        Ok(FoundPath::File(file)) => (&file.path, false),
        Ok(FoundPath::Source(name)) => (name, true),
        _ => return ResolvedFile { found, rules: Vec::new(), run: None },
    };
    let (Ok(name), is_index) = (NormalPath::of_file(name), path.is_folder()) else {
        return ResolvedFile { found: Err(Missing::NotFound), rules: Vec::new(), run: None };
    };
    let (mut rule, mut new) = (route.rule, Vec::new());
    if is_index {
        let Ok(of_file) = rules.find(&name) else {
            return ResolvedFile { found: Err(Missing::NotFound), rules: Vec::new(), run: None };
        };
        rule = of_file.rule;
        new = route.resolve_to(of_file);
    }
    // A rule that acts on what clients ask for, a redirect or a rewrite, has been asked by now, or not been theirs.
    let runs = |rule: &&Rule| rule.passes_on() && (is_source || (is_index && !rule.fallback));
    let run = rule.filter(runs).map(|rule| (rule, name));
    ResolvedFile { found, rules: new, run }
}

async fn of_file(
    site: &SiteContext,
    root: &Rc<CachedRoot>,
    (path, route): (&NormalPath<'_>, &RouteMatch<'_>),
    asked: LoggedHead<'_>,
    file: File,
) -> Response<ResponseBody> {
    let response_headers = ResponseHeaders::new(site.cache.settings(), route);
    let representations = has_representations(site.cache.settings(), file.media, file.version.size);
    let shape = match representations && !asked.headers.contains_key(header::RANGE) {
        // Boxed: it is large, and few files have another form.
        true => Box::pin(shape(site, root, (path, &file), asked.headers, &response_headers)).await,
        false => Shape::Plain,
    };
    let mut response = file_response::of_file(file, asked.method, asked.headers, shape);
    if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
        add_response_headers(response.headers_mut(), &response_headers, representations);
    }
    response
}

/// Adds the headers that the fast path has in its ready heads.
fn add_response_headers(headers: &mut HeaderMap, response_headers: &ResponseHeaders, representations: bool) {
    if let Some(value) =
        response_headers.cache_control.as_ref().and_then(|value| HeaderValue::try_from(value).ok())
    {
        headers.insert(header::CACHE_CONTROL, value);
    }
    if representations {
        vary(headers);
    }
}

/// The best form that the client takes.
async fn shape(
    site: &SiteContext,
    root: &Rc<CachedRoot>,
    (path, file): (&NormalPath<'_>, &File),
    headers: &HeaderMap,
    response_headers: &ResponseHeaders,
) -> Shape {
    let value = accept_encoding(headers);
    let accepted = site.negotiator.accepted(value.as_ref().map(HeaderValue::as_bytes));
    if accepted == AcceptedEncodings::default() {
        return Shape::Plain;
    }
    site.cache.take_finished();
    let tick = site.clock.tick(Instant::now());
    let Some(entry) = site.cache.fill(root, path, file, response_headers, tick) else {
        return Shape::Plain;
    };
    for encoding in accepted.iter() {
        match representation(&site.cache, root, &entry, file, encoding).await {
            EncodedForm::Representation(representation) => {
                return Shape::Representation(encoding, representation);
            }
            EncodedForm::Stream(compress) => return Shape::Stream(encoding, compress),
            EncodedForm::UnderWay => return Shape::Plain,
            EncodedForm::NotWorth => {}
        }
    }
    Shape::Plain
}

enum EncodedForm {
    Representation(Rc<Representation>),
    Stream(Box<dyn FnOnce(FileBody) -> ResponseBody>),
    UnderWay,
    NotWorth,
}

/// A form that is kept, or made now: small ones at once, large ones as they are sent to whoever asked first.
async fn representation(
    cache: &Cache,
    root: &CachedRoot,
    entry: &Rc<CacheEntry>,
    file: &File,
    encoding: Encoding,
) -> EncodedForm {
    let cell = entry.coded(encoding);
    if entry.large && cell.get().is_none() {
        let precompressed = || cache::precompressed(root, entry, file, encoding);
        match precompressed() {
            Some((body, meta)) => {
                let representation = Rc::new(entry.representation(encoding, &body, Some(meta)));
                cache.count_representation(entry, &representation);
                // Set meanwhile by somebody else, it is the same.
                let _ = cell.set(Some(representation));
            }
            None if entry.under_way[encoding as usize].get() => return EncodedForm::UnderWay,
            None => return stream(cache, entry, encoding).map_or(EncodedForm::NotWorth, EncodedForm::Stream),
        }
    }
    match cell.get_or_init(|| make(cache, root, entry, file, encoding)).await {
        Some(representation) => EncodedForm::Representation(representation.clone()),
        None => EncodedForm::NotWorth,
    }
}

async fn make(
    cache: &Cache,
    root: &CachedRoot,
    entry: &Rc<CacheEntry>,
    file: &File,
    encoding: Encoding,
) -> Option<Rc<Representation>> {
    let representation = match cache::precompressed(root, entry, file, encoding) {
        Some((body, meta)) => entry.representation(encoding, &body, Some(meta)),
        None => {
            let body = compressed(file, encoding, cache.settings().static_level).await?;
            worth(&body, file.version.size).then(|| entry.representation(encoding, &body, None))?
        }
    };
    let representation = Rc::new(representation);
    cache.count_representation(entry, &representation);
    Some(representation)
}

fn worth(body: &[u8], size: u64) -> bool {
    body.len() as u64 + GAIN_BYTES <= size
}

/// The file's contents compressed, a piece at a time: others have their turns between.
async fn compressed(file: &File, encoding: Encoding, level: u8) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(encoding, Effort::Static(level, file.version.size)).ok()?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < file.version.size {
        match rustix::io::pread(&file.fd, &mut buffer[..], offset) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return None,
            Ok(count) => {
                encoder.write(&buffer[..count]).ok()?;
                offset += count as u64;
                tokio::task::yield_now().await;
            }
        }
    }
    (crate::files::version(&file.fd)? == file.version).then(|| encoder.finish().ok()).flatten()
}

/// Marks an encoding as being made, until it is dropped.
struct EncodingInProgress(Rc<CacheEntry>, Encoding);

impl Drop for EncodingInProgress {
    fn drop(&mut self) {
        self.0.under_way[self.1 as usize].set(false);
    }
}

/// Compresses a large file as it is sent, and keeps what comes out, if it comes to its end.
fn stream(
    cache: &Cache,
    entry: &Rc<CacheEntry>,
    encoding: Encoding,
) -> Option<Box<dyn FnOnce(FileBody) -> ResponseBody>> {
    let effort = Effort::Static(cache.settings().static_level, entry.version.size);
    let encoder = Encoder::new(encoding, effort).ok()?;
    entry.under_way[encoding as usize].set(true);
    let mark = EncodingInProgress(entry.clone(), encoding);
    let finished = cache.finished();
    let keep = move |body: Vec<u8>| {
        let entry = mark.0.clone();
        finished.borrow_mut().push((entry, mark.1, body));
        drop(mark);
    };
    Some(Box::new(move |file| {
        ResponseBody::stream(CompressedBody::new(ResponseBody::File(file), encoder, Some(Box::new(keep))))
    }))
}

impl Cache {
    /// Takes in what was compressed while it was sent.
    pub(crate) fn take_finished(&self) {
        for (entry, encoding, body) in self.finished().take() {
            let representation = worth(&body, entry.version.size)
                .then(|| Rc::new(entry.representation(encoding, &body, None)));
            // An encoding for which the cache has no room is not made again for every request.
            let representation =
                representation.filter(|representation| self.count_representation(&entry, representation));
            let _ = entry.coded(encoding).set(representation);
        }
    }
}

const _: () = assert!(ENTRY_BYTES <= 1 << 20, "small forms are made in one go");
