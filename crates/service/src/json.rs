//! JSON, in requests and responses.
//!
//! Runs in: a service's worker. Sees: bytes that a client made up. Never: reads more of them than the limit, or what is
//! not said to be JSON: a page of another site can send that without asking first.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::BodyError;
use crate::{Request, Response, escape};

/// LIMIT: bytes of a JSON body, unless the service says another number.
const BYTES_MAX: u64 = 1 << 20;

/// Why a JSON body could not be read; converts into the [`Response`] to be given.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The body could not be read, or is too long.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body is said to be something else, or nothing is said; 415.
    #[error("the body is not said to be JSON")]
    NotJson,
    /// The body is no JSON, or not of the type that was asked for; 400.
    #[error("the body is not the JSON that is expected: {0}")]
    Invalid(#[from] serde_json::Error),
}

impl Request {
    /// The body, from JSON of at most 1 MiB. The request has none afterwards.
    ///
    /// # Errors
    /// [`JsonError`] converts into the [`Response`] to be given.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, JsonError> {
        self.json_up_to(BYTES_MAX).await
    }

    /// As [`Self::json`], with another limit, in bytes; `body_bytes` of the configuration holds besides.
    ///
    /// # Errors
    /// As there.
    pub async fn json_up_to<T: DeserializeOwned>(&mut self, limit: u64) -> Result<T, JsonError> {
        if !self.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_json) {
            return Err(JsonError::NotJson);
        }
        let bytes = self.take_body().read_up_to(limit).await?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// Whether a media type is `application/json`, or another one whose syntax is that of JSON (RFC 6839 3.1).
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.starts_with("application/") && essence.ends_with("+json")
}

impl Response {
    /// `value` as JSON; 500 if it cannot be written so.
    pub fn json(value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self::new("application/json", bytes),
            Err(_) => Self::status_page(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl From<JsonError> for Response {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Body(error) => error.into(),
            // The rest of the body cannot be told from a next request.
            JsonError::NotJson => Self::status_page(StatusCode::UNSUPPORTED_MEDIA_TYPE).with_close(),
            JsonError::Invalid(error) => {
                Self::status_text(StatusCode::BAD_REQUEST, &escape(&error.to_string()).to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, body: &'static str) -> Result<Vec<u8>, u16> {
        let mut request = Request::post("/", body);
        request.headers_mut().insert(CONTENT_TYPE, content_type.parse().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(request.json_up_to::<Vec<u8>>(20));
        outcome.map_err(|error| Response::from(error).status().as_u16())
    }

    #[test]
    fn only_what_is_json_by_word_and_content_is_read() {
        assert_eq!(read("application/json", "[1, 2]"), Ok(vec![1, 2]));
        assert_eq!(read("Application/Vnd.Us+JSON; charset=utf-8", "[]"), Ok(vec![]));
        for other in ["text/plain", "text/json", "application/x-www-form-urlencoded", "image/x+json"] {
            assert_eq!(read(other, "[1]"), Err(415), "{other}");
        }
        assert_eq!(read("application/json", "[1"), Err(400));
        assert_eq!(read("application/json", "[256]"), Err(400));
        assert_eq!(read("application/json", "[1, 2, 3, 4, 5, 6, 7]"), Err(413));
    }

    #[test]
    fn a_value_is_written() {
        let response = Response::json(&serde_json::json!({"a": [1, "b"]}));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let wrong = Response::json(&std::collections::HashMap::from([(vec![1], 2)]));
        assert_eq!(wrong.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
