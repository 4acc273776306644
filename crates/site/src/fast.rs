//! The fast path: a plain `GET` or `HEAD` of a cached answer, in one system call and without allocation; of a
//! larger file, by `sendfile`.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head. Must never: answer what
//! the general path would answer differently.

use std::rc::Rc;

use crate::cache::{self, Entry};
use crate::dispatch;
use crate::files::File;
use crate::head::{Framing, Head, Refusal, Verb};
use crate::partition::{Partition, Site};
use crate::socket::Socket;

/// What came of it.
pub(crate) enum Fast {
    /// It is not for the fast path; nothing was sent.
    General,
    /// Sent, all but `rest`.
    Sent { status: u16, body_bytes: u64, rest: Option<Vec<u8>> },
    /// It is refused; nothing was sent.
    Refused(Refusal),
    /// To be sent with this head; nothing was sent.
    File { head: Vec<u8>, file: File },
    /// The connection is broken.
    Broken,
}

/// How a head's conditions compare with an entry.
enum Compared {
    Whole,
    Unchanged,
    Unsure,
}

/// Answers `head`, checked from `raw`, on `socket`, if it can be done at once.
pub(crate) fn answer<P: Partition>(
    site: &Site<P>,
    head: &Head<'_>,
    raw: &[u8],
    socket: &mut Socket,
    tick: u64,
) -> Fast {
    let hsts = site.hsts_over(socket);
    let secure: &[u8] = hsts.as_ref().map_or(&[], |hsts| &hsts.line);
    let plain = head.verb != Verb::Other && head.framing == Framing::None && !head.unusual && !head.expects;
    let ready = plain.then(|| site.cache.get(site.files.as_ref()?, head.path, tick)).flatten();
    let entry = match ready {
        Some(entry) => entry,
        // What has an answer here has a path that is known to be good, and nobody behind will see its head. All
        // others are checked: the gate has seen the first head of a connection only.
        None => match site.examine(raw) {
            Err(refusal) => return Fast::Refused(refusal),
            Ok(()) if !plain => return Fast::General,
            Ok(()) => match fill(site, head.path, tick) {
                Ok(entry) => entry,
                Err(Some(file)) if head.if_none_match.is_none() && head.if_modified_since.is_none() => {
                    let lines = [secure, connection_line(head)].concat();
                    let head = cache::head(&file, &lines, site.clock.date());
                    return Fast::File { head, file };
                }
                Err(_) => return Fast::General,
            },
        },
    };
    let (ready, status) = match compare(head, &entry) {
        Compared::Whole => (&entry.whole, 200),
        Compared::Unchanged => (&entry.unchanged, 304),
        Compared::Unsure => return Fast::General,
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
    match socket.send(slices) {
        Ok(sent) if sent == whole && !socket.unsent() => Fast::Sent { status, body_bytes, rest: None },
        Ok(sent) => Fast::Sent { status, body_bytes, rest: Some(rest(slices, sent)) },
        Err(_) => Fast::Broken,
    }
}

/// The answer to `head` that is in the cache, or can be put there, and whether the client has it already.
pub(crate) fn cached<P: Partition>(site: &Site<P>, head: &Head<'_>, tick: u64) -> Option<(Rc<Entry>, bool)> {
    if head.verb == Verb::Other || head.framing != Framing::None || head.unusual || head.expects {
        return None;
    }
    let kept = site.cache.get(site.files.as_ref()?, head.path, tick);
    let entry = kept.or_else(|| fill(site, head.path, tick).ok())?;
    match compare(head, &entry) {
        Compared::Whole => Some((entry, false)),
        Compared::Unchanged => Some((entry, true)),
        Compared::Unsure => None,
    }
}

/// Makes the answer for `path`, or finds the file to be sent for it.
fn fill<P: Partition>(site: &Site<P>, path: &str, tick: u64) -> Result<Rc<Entry>, Option<File>> {
    let files = site.files.as_ref().ok_or(None)?;
    let plan = site.rules.plan(path).map_err(|_| None)?;
    // What not everybody may have is not kept where everybody is answered from.
    let acts = plan.rule.is_some_and(|rule| !rule.fallback) || plan.guarded;
    if acts || plan.headers().next().is_some() || dispatch::service_of(site, &plan, path).is_some() {
        return Err(None);
    }
    site.cache.fill(files, path, tick)
}

fn compare(head: &Head<'_>, entry: &Entry) -> Compared {
    match (head.if_none_match, head.if_modified_since) {
        (None, None) => Compared::Whole,
        (Some(tag), _) if tag == entry.etag.as_bytes() => Compared::Unchanged,
        // Another single strong tag; lists and weak tags are for the general path.
        (Some([b'"', inner @ .., b'"']), _) if !inner.contains(&b'"') => Compared::Whole,
        (None, Some(date)) if date == entry.last_modified => Compared::Unchanged,
        _ => Compared::Unsure,
    }
}

fn connection_line(head: &Head<'_>) -> &'static [u8] {
    match (head.keep, head.minor) {
        (true, 1) => b"",
        (true, _) => b"Connection: keep-alive\r\n",
        (false, _) => b"Connection: close\r\n",
    }
}

/// What is left after `sent` bytes, copied, because the date in the buffer may change before it is sent.
#[cold]
fn rest(slices: [&[u8]; 4], sent: usize) -> Vec<u8> {
    let mut all = slices.concat();
    all.drain(..sent);
    all
}
