//! The fast path: a plain `GET` or `HEAD` of a cached answer, in one system call and without allocation; of a
//! larger file, by `sendfile`.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head. Must never: answer what
//! the general path would answer differently.

use std::rc::Rc;

use request::path::NormalPath;

use crate::connection::socket::ConnectionSocket;
use crate::context::SiteContext;
use crate::files::cache::CachedRoot;
use crate::files::cache::{self, CacheEntry, Pick, Representation, ResponseHeaders};
use crate::files::serve;
use crate::files::{File, FoundPath};
use crate::head::{Framing, HeadRefusal, RequestField, RequestHead, Verb};
use crate::router::rules::RouteMatch;

/// The outcome of the fast path.
pub(crate) enum Fast<'r> {
    /// It is not for the fast path; nothing was sent. Has the rules for its path, if they were looked up.
    General(Option<RouteMatch<'r>>),
    /// Sent, all but `rest`.
    Sent { status: u16, body_bytes: u64, rest: Option<Vec<u8>> },
    /// It is refused; nothing was sent.
    Refused(HeadRefusal),
    /// To be sent with this head; nothing was sent.
    File { head: Vec<u8>, file: File },
    /// The connection is broken.
    Broken,
}

/// How a head's conditions compare with an entry.
enum ConditionResult {
    Whole,
    Unchanged,
    Unsure,
}

/// Answers `head`, which has these lines, on `socket`, if it can be done at once.
pub(crate) fn answer<'r>(
    site: &'r SiteContext,
    head: &RequestHead<'_>,
    lines: &[RequestField<'_>],
    socket: &mut ConnectionSocket,
    tick: u64,
) -> Fast<'r> {
    let hsts = site.hsts_over(socket);
    let secure: &[u8] = hsts.as_ref().map_or(&[], |hsts| &hsts.line);
    let plain = head.verb != Verb::Other && head.framing == Framing::None && !head.unusual && !head.expects;
    let root = if plain { site.roots.find(head.host, tick) } else { None };
    let ready =
        root.as_ref().and_then(|root| site.cache.get(root, head.path, tick)).filter(|entry| entry.open);
    let entry = match ready {
        Some(entry) => entry,
        // A path that has an answer here is known to be good, and no backend will see its head. All other heads are
        // checked: the gate has seen the first head of a connection only.
        None => match (examine(site, head, lines), &root) {
            (Err(refusal), _) => return Fast::Refused(refusal),
            (Ok(()), None) => return Fast::General(None),
            (Ok(()), Some(root)) => match fill(site, head, secure, root, tick) {
                Ok(entry) => entry,
                Err(fast) => return fast,
            },
        },
    };
    let representation = match entry.vary {
        false => &entry.plain,
        true => match entry.pick(site.negotiator.accepted(head.accept_encoding)) {
            Pick::Representation(representation) => representation,
            Pick::Absent => return Fast::General(None),
        },
    };
    let (ready, status) = match compare(head, &representation.etag, &entry.last_modified) {
        ConditionResult::Whole if entry.large && Rc::ptr_eq(representation, &entry.plain) => {
            return large(site, head, secure, &entry, root.as_ref());
        }
        ConditionResult::Whole => (&representation.whole, 200),
        ConditionResult::Unchanged => (&representation.unchanged, 304),
        ConditionResult::Unsure => return Fast::General(None),
    };
    let bytes = ready.bytes(tick, || site.clock.date());
    let end = if head.verb == Verb::Head { ready.split + 2 } else { bytes.len() };
    let lines = [secure, connection_line(head)];
    let body_bytes = (end - ready.split - 2) as u64;
    let slices = match lines {
        [[], []] => [&bytes[..end], &[], &[], &[]],
        [one, other] => [&bytes[..ready.split], one, other, &bytes[ready.split..end]],
    };
    let whole = end + lines[0].len() + lines[1].len();
    match socket.send(slices, !head.keep) {
        Ok(sent) if sent == whole && !socket.unsent() => Fast::Sent { status, body_bytes, rest: None },
        Ok(sent) => Fast::Sent { status, body_bytes, rest: Some(rest(slices, sent)) },
        Err(_) => Fast::Broken,
    }
}

fn examine(
    site: &SiteContext,
    head: &RequestHead<'_>,
    lines: &[RequestField<'_>],
) -> Result<(), HeadRefusal> {
    site.examine(head.method, head.target, lines.iter().map(|line| (line.name.as_bytes(), line.value)))
}

/// The form of an answer that is in the cache, or can be put there, for HTTP/2; and whether the client has it already.
pub(crate) fn cached(
    site: &SiteContext,
    head: &RequestHead<'_>,
    tick: u64,
) -> Option<(Rc<Representation>, bool)> {
    if head.verb == Verb::Other || head.framing != Framing::None || head.unusual || head.expects {
        return None;
    }
    let root = site.roots.find(head.host, tick)?;
    let kept = site.cache.get(&root, head.path, tick);
    let entry = kept.or_else(|| fill(site, head, &[], &root, tick).ok()).filter(|entry| entry.open)?;
    let Pick::Representation(representation) = entry.pick(site.negotiator.accepted(head.accept_encoding))
    else {
        return None;
    };
    match compare(head, &representation.etag, &entry.last_modified) {
        // Its body is not here.
        ConditionResult::Whole if entry.large && Rc::ptr_eq(representation, &entry.plain) => None,
        ConditionResult::Whole => Some((representation.clone(), false)),
        ConditionResult::Unchanged => Some((representation.clone(), true)),
        ConditionResult::Unsure => None,
    }
}

/// Makes the answer for a path, or finds the file to be sent for it.
#[cold]
fn fill<'r>(
    site: &'r SiteContext,
    head: &RequestHead<'_>,
    secure: &[u8],
    root: &Rc<CachedRoot>,
    tick: u64,
) -> Result<Rc<CacheEntry>, Fast<'r>> {
    let path = NormalPath::parse(head.path).map_err(|_| Fast::General(None))?;
    let mut route = site.rules.find(&path).map_err(|_| Fast::General(None))?;
    if !route.is_open() {
        return Err(Fast::General(Some(route)));
    }
    // A path of two readings may be another site's.
    if path.is_ambiguous() {
        return Err(Fast::General(None));
    }
    let resolved = serve::resolve(&site.rules, root, &path, &mut route);
    let file = match resolved.found {
        Ok(FoundPath::File(file)) if route.is_open() && resolved.run.is_none() => file,
        _ => return Err(Fast::General(None)),
    };
    let response_headers = ResponseHeaders::new(site.cache.settings(), &route);
    match site.cache.fill(root, &path, &file, &response_headers, tick) {
        Some(entry) => Ok(entry),
        None if head.if_none_match.is_none() && head.if_modified_since.is_none() => {
            let settings = site.cache.settings();
            let lines = [secure, connection_line(head)].concat();
            let lead = cache::head(&file, settings, &response_headers, &lines, site.clock.date());
            Err(Fast::File { head: lead, file })
        }
        None => Err(Fast::General(None)),
    }
}

/// A large file as it is: only its head is kept.
#[cold]
fn large<'r>(
    site: &'r SiteContext,
    head: &RequestHead<'_>,
    secure: &[u8],
    entry: &CacheEntry,
    root: Option<&Rc<CachedRoot>>,
) -> Fast<'r> {
    let path = NormalPath::parse(head.path).ok();
    let found = root.zip(path).and_then(|(root, path)| root.files.lookup(&path).ok());
    match found {
        Some(FoundPath::File(file)) if file.version == entry.version => {
            let (settings, response_headers) = (site.cache.settings(), entry.response_headers());
            let lines = [secure, connection_line(head)].concat();
            let lead = cache::head(&file, settings, response_headers, &lines, site.clock.date());
            Fast::File { head: lead, file }
        }
        _ => Fast::General(None),
    }
}

fn compare(head: &RequestHead<'_>, etag: &str, last_modified: &[u8]) -> ConditionResult {
    match (head.if_none_match, head.if_modified_since) {
        (None, None) => ConditionResult::Whole,
        (Some(tag), _) if tag == etag.as_bytes() => ConditionResult::Unchanged,
        // Another single strong tag; lists and weak tags are for the general path.
        (Some([b'"', inner @ .., b'"']), _) if !inner.contains(&b'"') => ConditionResult::Whole,
        (None, Some(date)) if date == last_modified => ConditionResult::Unchanged,
        _ => ConditionResult::Unsure,
    }
}

fn connection_line(head: &RequestHead<'_>) -> &'static [u8] {
    match (head.keep, head.minor) {
        (true, 1) => b"",
        (true, _) => b"Connection: keep-alive\r\n",
        (false, _) => b"Connection: close\r\n",
    }
}

/// Copies the bytes left after `sent`, because the date in the buffer may change before they are sent.
#[cold]
fn rest(slices: [&[u8]; 4], sent: usize) -> Vec<u8> {
    let mut all = slices.concat();
    all.drain(..sent);
    all
}
