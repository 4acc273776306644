//! A request whose body came with its head, written in one piece to a socket that connects with it; and its answer, if
//! that came in one piece. Everything else is for the general path, which takes it over where it is.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head of a request, and every byte of
//! the server. Must never: say anything else than the general path would, or take what it would refuse.

use std::borrow::Cow;

use fastcgi::parameters::begin_of_lines;
use fastcgi::record::{CONTENT_MAX, RecordDecoder, RecordPart, STDIN_END, stdin_head};
use fastcgi::reply;
use tokio::time::Instant;

use super::connections::FastCgiConnection;
use super::{FastCgi, around};
use crate::head::{RequestField, RequestHead};
use crate::http1::direct::{CommonHeaders, WrittenResponse, is_bodiless, pass_back_parts};
use crate::http1::response::RequestTraits;
use crate::proxy::backend::{AtOnce, RequestContext};
use crate::proxy::response::HEAD_BYTES_MAX;
use crate::proxy::stream::BackendStream;
use crate::proxy::timeout::Timeouts;

/// LIMIT: lines of the head of an answer that goes back so: more than most have.
const LINES_MAX: usize = 32;

/// Bytes behind the body of a request.
pub(crate) const BEHIND_BODY: usize = STDIN_END.len();

impl AtOnce for FastCgi {
    fn is_ready(&self) -> bool {
        self.dialer.has_aimed(self.target)
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn begin(
        &self,
        out: &mut Vec<u8>,
        RequestContext { conn, files, root }: RequestContext<'_>,
        (head, lines): (&RequestHead<'_>, &[RequestField<'_>]),
        body: &[u8],
    ) -> Option<(BackendStream, u64)> {
        if body.len() > CONTENT_MAX {
            return None;
        }
        let script = self.scripts.find(files, head.path).ok()?;
        let filename = files.map(|files| files.path_seen(&script.name, root));
        let around = around(conn, root, (&script, filename.as_deref()), Some(body.len() as u64));
        *out = begin_of_lines(std::mem::take(out), &around, head, lines)?;
        out.reserve(body.len() + 2 * STDIN_END.len());
        for part in [&stdin_head(body.len()), body, &STDIN_END] {
            out.extend_from_slice(part);
        }
        // A kept connection goes for it, as on the general path.
        drop(self.connections.take());
        let FastCgiConnection { stream, generation, .. } =
            self.connections.begin(self.dialer.aimed(self.target)?);
        Some((stream, generation))
    }

    fn leave(&self, stream: BackendStream, generation: u64, since: Instant) {
        self.connections.put(FastCgiConnection::since(since, stream, generation));
    }
}

/// As [`http1::direct::pass_back`](crate::http1::direct::pass_back), of the records that `data` is.
pub(crate) fn pass_back_reply(
    out: &mut Vec<u8>,
    mut data: &[u8],
    request: RequestTraits,
    said: &CommonHeaders<'_>,
) -> Option<WrittenResponse> {
    let (mut decoder, mut content, mut is_over) = (RecordDecoder::default(), Cow::Borrowed(&[][..]), false);
    while let Some(part) = decoder.take(&mut data).ok()? {
        match part {
            RecordPart::Stdout(bytes) if content.is_empty() && !is_over => content = Cow::Borrowed(bytes),
            RecordPart::Stdout(bytes) if !is_over => content.to_mut().extend_from_slice(bytes),
            RecordPart::End { complete: true } if !is_over => is_over = true,
            // The general path passes the server's lines on to the log.
            RecordPart::Stdout(_) | RecordPart::Stderr(_) | RecordPart::End { .. } => return None,
        }
    }
    let length = reply::length(&content, 0).filter(|&length| length <= HEAD_BYTES_MAX)?;
    if !is_over || !decoder.is_empty() {
        return None;
    }
    let (head, body) = content.split_at(length);
    let (mut lines, mut count) = ([RequestField { name: "", value: &[] }; LINES_MAX], 0);
    let status = reply::read(head, LINES_MAX, |line| {
        lines[count] = line;
        count += 1;
        Ok(())
    });
    let status = status.ok()?;
    let whole = |said: Option<u64>| {
        let length = if is_bodiless(status) { 0 } else { said.unwrap_or(body.len() as u64) };
        (body.len() as u64 == length).then_some(body)
    };
    let reason = status.canonical_reason()?.as_bytes();
    pass_back_parts(out, (status, Some(reason), &lines[..count]), whole, (request, said))
}
