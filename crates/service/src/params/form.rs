//! The body of a submitted form, as parameters.
//!
//! Runs in: a service's worker. Sees: bytes that a client made up. Never: holds more of them than the limits.

use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::{Multipart, Params};
use crate::body::{Body, BodyError};
use crate::{Request, Response};

const URLENCODED: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";

/// The limits of a form that is read whole.
///
/// ```
/// use bulkhead_service::FormLimits;
///
/// let limits = FormLimits { value_bytes_max: 1000, ..FormLimits::default() };
/// # assert_eq!(limits.fields_max, 1000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormLimits {
    /// How many fields there may be; 1000.
    pub fields_max: usize,
    /// The longest value of a field, in bytes; 256 KiB.
    pub value_bytes_max: usize,
    /// The whole body, in bytes; 1 MiB. `body_bytes` of the configuration holds besides.
    pub total_bytes_max: u64,
}

impl Default for FormLimits {
    /// LIMIT: as much as people type into a form. Uploads are read part by part, by [`Request::multipart`].
    fn default() -> Self {
        Self { fields_max: 1000, value_bytes_max: 256 * 1024, total_bytes_max: 1 << 20 }
    }
}

/// Why a form could not be read; converts into the [`Response`] to be given.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The body could not be read, or is too long.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body is said to be something else; 415.
    #[error("the body is no form, but {found:?}")]
    NotAForm {
        /// The value of `Content-Type`.
        found: String,
    },
    /// There are more fields than the limit; 413.
    #[error("a form may have {0} fields")]
    TooMany(usize),
    /// A value is longer than the limit, in bytes; 413.
    #[error("a value of the form is over the limit of {0} bytes")]
    ValueTooLong(usize),
    /// A file was sent where the service reads text fields alone; 415.
    #[error("the form has a file, where text is expected")]
    UnexpectedFile,
    /// The body breaks the rules of its type; 400.
    #[error("the form could not be read: {0}")]
    Broken(String),
}

impl Request {
    /// The fields of a submitted form, be it `application/x-www-form-urlencoded`, which is also what a body without
    /// `Content-Type` counts as, or `multipart/form-data` without files. The limits are those of
    /// [`FormLimits::default`]. The request has no body afterwards.
    ///
    /// # Errors
    /// [`FormError`] converts into the [`Response`] to be given.
    pub async fn form(&mut self) -> Result<Params, FormError> {
        self.form_with(FormLimits::default()).await
    }

    /// As [`Self::form`], with other limits.
    ///
    /// # Errors
    /// As there.
    pub async fn form_with(&mut self, limits: FormLimits) -> Result<Params, FormError> {
        match media_type(self) {
            Some(MULTIPART) => fields(self.multipart()?.with_limits(limits)).await,
            Some(URLENCODED) | None => urlencoded(self.take_body(), limits).await,
            Some(other) => Err(FormError::NotAForm { found: other.to_owned() }),
        }
    }

    /// The parts of a `multipart/form-data` body, one after the other, each in pieces: for files, which may be as long
    /// as `body_bytes` lets them. The request has no body afterwards.
    ///
    /// # Errors
    /// The body is none of that type.
    pub fn multipart(&mut self) -> Result<Multipart, FormError> {
        let content_type =
            self.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let content_type = content_type.unwrap_or_default().into_owned();
        let Ok(boundary) = multer::parse_boundary(&content_type) else {
            return Err(FormError::NotAForm { found: content_type });
        };
        Ok(Multipart::new(self.take_body(), boundary))
    }
}

/// The media type of a body without its parameters; `None` if there is none.
fn media_type(request: &Request) -> Option<&str> {
    let value = request.headers().get(CONTENT_TYPE)?.to_str().unwrap_or("unreadable");
    let essence = value.split(';').next().unwrap_or_default().trim();
    let known = [URLENCODED, MULTIPART].into_iter().find(|known| known.eq_ignore_ascii_case(essence));
    Some(known.unwrap_or(essence))
}

async fn urlencoded(body: Body, limits: FormLimits) -> Result<Params, FormError> {
    let bytes = body.read_up_to(limits.total_bytes_max).await?;
    let mut pairs = Vec::new();
    for (name, value) in form_urlencoded::parse(&bytes) {
        if pairs.len() == limits.fields_max {
            return Err(FormError::TooMany(limits.fields_max));
        }
        if value.len() > limits.value_bytes_max {
            return Err(FormError::ValueTooLong(limits.value_bytes_max));
        }
        pairs.push((name.into_owned(), value.into_owned()));
    }
    Ok(Params(pairs))
}

/// The fields of a form without files.
async fn fields(mut parts: Multipart) -> Result<Params, FormError> {
    let mut pairs = Vec::new();
    while let Some(mut part) = parts.next().await? {
        match part.client_file_name() {
            // A browser sends that of a field for a file if its user has chosen none.
            Some("") => {}
            Some(_) => return Err(FormError::UnexpectedFile),
            None => pairs.push((part.name().to_owned(), part.text().await?)),
        }
    }
    Ok(Params(pairs))
}

impl From<FormError> for Response {
    fn from(error: FormError) -> Self {
        let status = match error {
            FormError::Body(error) => return error.into(),
            FormError::NotAForm { .. } | FormError::UnexpectedFile => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            FormError::TooMany(_) | FormError::ValueTooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            FormError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        // The rest of the body cannot be told from a next request.
        Self::status_page(status).with_close()
    }
}
