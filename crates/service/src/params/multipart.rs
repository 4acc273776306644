//! A `multipart/form-data` body (RFC 7578), part by part.
//!
//! Runs in: a service's worker. Sees: bytes that a client made up. Never: holds more of a body than one piece and what
//! is needed to find the next boundary or the end of a part's head.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body, Frame};

use super::{FormError, FormLimits};
use crate::body::BodyError;

/// The longest head of a part, in bytes, as far as whole pieces go; also what may stand before the first part.
///
/// LIMIT: a name and a file name, four times as long as file systems have them, with room for other lines.
const HEAD_MAX: u64 = 16 * 1024;
/// LIMIT: bytes of a body that are passed on at once.
const PIECE: usize = 16 * 1024;

/// The parts of a body, made by [`crate::Request::multipart`].
pub struct Multipart {
    parser: multer::Multipart<'static>,
    current: Option<multer::Field<'static>>,
    feed: Arc<Feed>,
    limits: FormLimits,
    parts: usize,
    total: u64,
}

/// A part of a body: a field, or a file. The rest of one that is not read to its end is skipped.
pub struct Part<'m> {
    multipart: &'m mut Multipart,
}

/// The body as the parser is fed with it: a piece at a time, and only when it asked in vain.
///
/// The parser alone would take in whatever has arrived, however much.
struct Pieces<B> {
    body: B,
    rest: Bytes,
    feed: Arc<Feed>,
}

impl Multipart {
    pub(super) fn new<B>(body: B, boundary: String) -> Self
    where
        B: Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static,
    {
        let feed = Arc::new(Feed::default());
        let pieces = Pieces { body, rest: Bytes::new(), feed: feed.clone() };
        let limits = FormLimits { total_bytes_max: u64::MAX, ..FormLimits::default() };
        let parser = multer::Multipart::new(pieces, boundary);
        Self { parser, current: None, feed, limits, parts: 0, total: 0 }
    }

    /// The same with other limits: `value_bytes_max` holds for [`Part::text`], `total_bytes_max` for the contents of
    /// all parts together. Without this call, `body_bytes` of the configuration alone limits the total.
    #[must_use]
    pub fn with_limits(self, limits: FormLimits) -> Self {
        Self { limits, ..self }
    }

    /// The next part; `None` after the last one.
    ///
    /// # Errors
    /// [`FormError`] converts into the [`crate::Response`] to be given.
    pub async fn next(&mut self) -> Result<Option<Part<'_>>, FormError> {
        while self.chunk().await?.is_some() {}
        self.current = None;
        let Self { parser, feed, .. } = self;
        let Some(field) = feed.until(|cx| parser.poll_next_field(cx).map(Result::transpose)).await? else {
            return Ok(None);
        };
        if self.parts == self.limits.fields_max {
            return Err(FormError::TooMany(self.limits.fields_max));
        }
        self.parts += 1;
        if field.name().is_none() {
            return Err(FormError::Broken("a part has no name".to_owned()));
        }
        self.current = Some(field);
        Ok(Some(Part { multipart: self }))
    }

    /// The next piece of the current part.
    async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        let Self { current: Some(field), feed, .. } = self else {
            return Ok(None);
        };
        let Some(piece) = feed.until(|cx| Pin::new(&mut *field).poll_next(cx)).await? else {
            return Ok(None);
        };
        self.total += piece.len() as u64;
        if self.total > self.limits.total_bytes_max {
            return Err(BodyError::TooLong(self.limits.total_bytes_max).into());
        }
        Ok(Some(piece))
    }
}

impl Part<'_> {
    /// The name of the field in the form.
    pub fn name(&self) -> &str {
        self.field().and_then(multer::Field::name).unwrap_or_default()
    }

    /// The client's name for the file; `None` if this is no file. It must not be used as the name of a file.
    pub fn client_file_name(&self) -> Option<&str> {
        self.field()?.file_name()
    }

    /// The type of the content, as the client states it.
    pub fn client_content_type(&self) -> Option<&str> {
        self.field()?.headers().get(http::header::CONTENT_TYPE)?.to_str().ok()
    }

    /// The next piece of the content; `None` at its end.
    ///
    /// # Errors
    /// [`FormError`] converts into the [`crate::Response`] to be given.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        self.multipart.chunk().await
    }

    /// The whole content as raw text, at most `value_bytes_max` long; what is no UTF-8 is replaced.
    ///
    /// # Errors
    /// As [`Self::chunk`], and when it is longer.
    pub async fn text(&mut self) -> Result<String, FormError> {
        let limit = self.multipart.limits.value_bytes_max;
        let mut value = Vec::new();
        while let Some(piece) = self.chunk().await? {
            if value.len() + piece.len() > limit {
                return Err(FormError::ValueTooLong(limit));
            }
            value.extend_from_slice(&piece);
        }
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    fn field(&self) -> Option<&multer::Field<'static>> {
        self.multipart.current.as_ref()
    }
}

/// The state that the parser and its source of bytes share. [`Body`] has to be `Send`; hence atomics, on one thread.
#[derive(Default)]
struct Feed {
    /// Whether a piece may be passed on.
    wanted: AtomicBool,
    /// Whether the body has ended.
    ended: AtomicBool,
    /// How many bytes have been passed on.
    bytes: AtomicU64,
}

impl Feed {
    /// Waits for the parser, which is fed as long as it lacks something.
    async fn until<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Option<multer::Result<T>>>,
    ) -> Result<Option<T>, FormError> {
        let before = self.bytes.load(Ordering::Relaxed);
        let outcome = poll_fn(|cx| {
            loop {
                if let Poll::Ready(outcome) = poll(cx) {
                    return Poll::Ready(Ok(outcome));
                }
                if self.bytes.load(Ordering::Relaxed) - before > HEAD_MAX {
                    return Poll::Ready(Err("the head of a part is too long"));
                }
                if self.ended.load(Ordering::Relaxed) {
                    return Poll::Ready(Err("the body ends within a part"));
                }
                // Still wanted: the body has nothing yet, and knows whom to wake.
                if self.wanted.swap(true, Ordering::Relaxed) {
                    return Poll::Pending;
                }
            }
        });
        match outcome.await {
            Ok(outcome) => outcome.transpose().map_err(error),
            Err(reason) => Err(FormError::Broken(reason.to_owned())),
        }
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Stream for Pieces<B> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if !this.feed.wanted.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(frame) => this.rest = frame?.into_data().unwrap_or_default(),
                None => {
                    this.feed.ended.store(true, Ordering::Relaxed);
                    return Poll::Ready(None);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        this.feed.wanted.store(false, Ordering::Relaxed);
        this.feed.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(piece)))
    }
}

/// The parser's error, in our words; an error of the body stays as it is.
fn error(error: multer::Error) -> FormError {
    match error {
        multer::Error::StreamReadFailed(source) => match source.downcast::<BodyError>() {
            Ok(error) => FormError::Body(*error),
            Err(error) => FormError::Broken(error.to_string()),
        },
        other => FormError::Broken(other.to_string()),
    }
}

/// The entry for fuzzing: the same parts come of a body, however it arrives, and none is longer than the body.
pub fn fuzz_multipart(data: &[u8]) {
    let whole = read(data, &[]);
    let mut lengths = data.iter().map(|&byte| usize::from(byte % 64) + 1).take(64).collect::<Vec<_>>();
    assert_eq!(read(data, &lengths), whole);
    lengths = vec![1; data.len()];
    assert_eq!(read(data, &lengths), whole);
}

/// Names and lengths of the parts of a body that arrives in pieces of these lengths; `None` if it breaks the rules.
fn read(data: &[u8], lengths: &[usize]) -> Option<Vec<(String, usize)>> {
    let mut rest = Bytes::copy_from_slice(data);
    let mut frames = Vec::new();
    for &length in lengths {
        frames.push(rest.split_to(length.min(rest.len())));
    }
    frames.push(rest);
    let frames = frames.into_iter().filter(|frame| !frame.is_empty());
    let mut body = Multipart::new(Frames(frames.collect()), "XX".to_owned());
    let reading = async {
        let mut parts = Vec::new();
        while let Some(mut part) = body.next().await.ok()? {
            let mut length = 0;
            while let Some(piece) = part.chunk().await.ok()? {
                length += piece.len();
            }
            parts.push((part.name().to_owned(), length));
        }
        assert!(parts.iter().map(|(name, length)| name.len() + length).sum::<usize>() <= data.len());
        Some(parts)
    };
    // Nothing is waited for: the whole body is there.
    let Poll::Ready(parts) = pin!(reading).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a body that has ended is waited for");
    };
    parts
}

/// A body of these pieces.
struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutations::Mutations;

    use http::header::CONTENT_TYPE;

    use crate::{Params, Request};

    fn request(body: impl Into<Bytes>) -> Request {
        let mut request = Request::post("/", body);
        request.headers_mut().insert(CONTENT_TYPE, "multipart/form-data; boundary=XX".parse().unwrap());
        request
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
    }

    fn form(body: &str) -> Result<Params, FormError> {
        run(request(body.to_owned()).form())
    }

    fn part(lines: &str, content: &str) -> String {
        format!("--XX\r\nContent-Disposition: form-data; {lines}\r\n\r\n{content}\r\n")
    }

    #[test]
    fn fields_are_parameters() {
        let body = [
            part("name=\"q\"", "a\r\n--X <b>"),
            part("name=\"file\"; filename=\"\"", ""),
            part("name=q", "2"),
            "--XX--\r\n".to_owned(),
        ];
        let params = form(&body.concat()).unwrap();
        assert_eq!(params.all_raw("q").collect::<Vec<_>>(), ["a\r\n--X <b>", "2"]);
        assert_eq!(params.get("q").as_deref(), Some("a--X b"));
        assert_eq!(params.iter_raw().count(), 2);
    }

    #[test]
    fn a_file_comes_in_pieces_and_the_rest_is_skipped() {
        let content = "x".repeat(200_000);
        let lines = "name=\"f\"; filename=\"../a.txt\"\r\nContent-Type: text/plain";
        let body =
            [part("name=a", &content), part(lines, &content), part("name=b", "y"), "--XX--".to_owned()];
        run(async {
            let mut request = request(body.concat());
            let mut parts = request.multipart().unwrap();
            let mut first = parts.next().await.unwrap().unwrap();
            assert_eq!((first.name(), first.client_file_name()), ("a", None));
            assert!(matches!(first.text().await, Ok(text) if text == content));
            let mut file = parts.next().await.unwrap().unwrap();
            assert_eq!((file.name(), file.client_file_name()), ("f", Some("../a.txt")));
            assert_eq!(file.client_content_type(), Some("text/plain"));
            let piece = file.chunk().await.unwrap().unwrap();
            assert!(piece.len() <= HEAD_MAX as usize + PIECE, "{}", piece.len());
            let mut last = parts.next().await.unwrap().unwrap();
            assert_eq!(last.text().await.unwrap(), "y");
            assert_eq!(last.name(), "b");
            assert!(parts.next().await.unwrap().is_none());
            assert!(parts.next().await.unwrap().is_none());
        });
    }

    /// Changes a good body in the ways that random numbers bring about.
    #[test]
    fn no_body_does_harm() {
        let mut mutations = Mutations::new();
        let good =
            [part("name=\"a\"", "1"), part("name=b; filename=c", "x\r\n--X"), "--XX--".to_owned()].concat();
        let pieces: [&[u8]; 9] =
            [b"\r\n", b"--XX", b"--", b"\r", b"name=\"", b"\"", b"Content-Disposition: ", b"\xff", b";"];
        let mut read_well = 0;
        for _ in 0..5000 {
            let body = mutations.of(good.as_bytes(), &pieces, 30);
            fuzz_multipart(&body);
            read_well += usize::from(read(&body, &[]).is_some());
        }
        assert!((500..4500).contains(&read_well), "both outcomes were there: {read_well}");
    }

    #[test]
    fn what_is_broken_or_too_much_is_refused() {
        let end = "--XX--\r\n";
        let broken = |body: &str| assert!(matches!(form(body), Err(FormError::Broken(_))), "{body:.80}");
        broken("");
        broken("--XX\r\n");
        broken(&part("name=a", "1"));
        broken(&format!("--XX\r\nContent-Type: text/plain\r\n\r\n1\r\n{end}"));
        broken(&format!("--XX\r\nContent-Disposition: form-data; name=a\r\nX: {}", "x".repeat(100_000)));
        broken(&"x".repeat(100_000));
        let file = part("name=a; filename=b", "1") + end;
        assert!(matches!(form(&file), Err(FormError::UnexpectedFile)));
        let long = part("name=a", &"x".repeat(300_000)) + end;
        assert!(matches!(form(&long), Err(FormError::ValueTooLong(262_144))));
        let many = part("name=a", "").repeat(1001) + end;
        assert!(matches!(form(&many), Err(FormError::TooMany(1000))));
        let total = part("name=a", &"x".repeat(200_000)).repeat(6) + end;
        assert!(matches!(form(&total), Err(FormError::Body(BodyError::TooLong(1_048_576)))));
    }
}
