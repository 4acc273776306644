//! Parameters of a query or of a submitted form.
//!
//! Runs in: a service's worker. Sees: text that a client made up. Never: gives it out with dangerous characters, unless
//! the service asks for the raw text by that name.

mod filter;
mod form;
mod multipart;

use std::fmt::Display;
use std::str::FromStr;

use http::StatusCode;

use crate::{Response, escape};
pub use filter::filter;
use filter::first_dangerous;
pub use form::{FormError, FormLimits};
#[doc(hidden)]
pub use multipart::fuzz_multipart;
pub use multipart::{Multipart, Part};

/// Decoded parameters, in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

/// Why a parameter is not what the service asked for; converts into the [`Response`] to be given, 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// There is none, or an empty one.
    #[error("the parameter `{name}` is missing")]
    Missing {
        /// The parameter that was asked for.
        name: String,
    },
    /// It has a character that the filter would take out.
    #[error("the parameter `{name}` must not contain {character:?}")]
    Dangerous {
        /// The parameter that was asked for.
        name: String,
        /// The first such character.
        character: char,
    },
    /// It is not of the type that was asked for.
    #[error("the parameter `{name}` is not valid: {reason}")]
    Invalid {
        /// The parameter that was asked for.
        name: String,
        /// The reason, in the type's words.
        reason: String,
    },
}

impl Params {
    /// Decodes `application/x-www-form-urlencoded` text.
    ///
    /// ```
    /// let params = bulkhead_service::Params::parse("q=web+server&page=2&q=%3Cb%3E%C3%A4");
    /// assert_eq!(params.get("q").as_deref(), Some("web server"));
    /// assert_eq!(params.get_as::<u32>("page"), Ok(2));
    /// assert_eq!(params.all("q").collect::<Vec<_>>(), ["web server", "bä"]);
    /// assert_eq!(params.all_raw("q").collect::<Vec<_>>(), ["web server", "<b>ä"]);
    /// ```
    pub fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of `name`, [filtered](filter). Where it is put out, it must be escaped all the same.
    pub fn get(&self, name: &str) -> Option<String> {
        self.raw(name).map(|value| filter(value).into_owned())
    }

    /// The first value of `name`, as a `T`.
    ///
    /// # Errors
    /// There is none, it is empty, it has a character that the [filter] would take out, or it is no `T`.
    pub fn get_as<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, ParamError> {
        self.optional_as(name)?.ok_or_else(|| ParamError::Missing { name: name.to_owned() })
    }

    /// The first value of `name`, as a `T`; `None` if there is none, or an empty one, as browsers send of a field that
    /// was left empty.
    ///
    /// # Errors
    /// It has a character that the [filter] would take out, or it is no `T`.
    pub fn optional_as<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, ParamError> {
        self.raw(name).map_or(Ok(None), |value| typed(name, value))
    }

    /// The first value of `name`, as the client meant it. It must be escaped wherever it is put out.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.iter_raw().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Every value of `name`, [filtered](filter).
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = String> {
        self.all_raw(name).map(|value| filter(value).into_owned())
    }

    /// Every value of `name`, as the client meant it.
    pub fn all_raw<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter_raw().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Every name and value, as the client meant them.
    pub fn iter_raw(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// A value as a `T`; `None` if it is empty.
fn typed<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<Option<T>, ParamError> {
    let name = || name.to_owned();
    if value.is_empty() {
        return Ok(None);
    }
    // SECURITY: a `T` that is made of text must not bring in what `get` keeps out; a number that is changed on the way
    // would be another number.
    if let Some(character) = first_dangerous(value) {
        return Err(ParamError::Dangerous { name: name(), character });
    }
    value
        .parse()
        .map(Some)
        .map_err(|error: T::Err| ParamError::Invalid { name: name(), reason: error.to_string() })
}

impl From<ParamError> for Response {
    fn from(error: ParamError) -> Self {
        Self::status_text(StatusCode::BAD_REQUEST, &escape(&error.to_string()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_form_stays_text() {
        for (text, decoded) in
            [("100%", "100%"), ("%4", "%4"), ("%zz%41", "%zzA"), ("%ff", "\u{fffd}"), ("g++", "g  ")]
        {
            assert_eq!(Params::parse(&format!("q={text}")).raw("q"), Some(decoded), "{text}");
        }
        let params = Params::parse("&&=x&flag&a=b=c");
        let pairs: Vec<_> = params.iter_raw().collect();
        assert_eq!(pairs, [("", "x"), ("flag", ""), ("a", "b=c")]);
    }

    #[test]
    fn a_value_has_no_metacharacters_unless_it_is_asked_for_raw() {
        let params = Params::parse("q=%3Cscript%3Ealert(1)%3B%0a%26%23&name=O%27Brien&firm=AT%26T");
        assert_eq!(params.get("q").as_deref(), Some("scriptalert1"));
        assert_eq!(params.raw("q"), Some("<script>alert(1);\n&#"));
        assert_eq!(params.get("name").as_deref(), Some("O'Brien"));
        assert_eq!((params.get("firm").as_deref(), params.raw("firm")), (Some("ATT"), Some("AT&T")));
        assert_eq!(params.get("other"), None);
    }

    #[test]
    fn a_typed_value_is_right_or_refused() {
        let params = Params::parse("id=17&sum=1%3C2&word=a%26b&empty=&name=Ann");
        assert_eq!(params.get_as::<i64>("id"), Ok(17));
        assert_eq!(params.get_as::<String>("name"), Ok("Ann".to_owned()));
        assert_eq!(params.optional_as::<u8>("other"), Ok(None));
        assert_eq!(params.optional_as::<u8>("empty"), Ok(None));
        let said = |error: ParamError| error.to_string();
        assert_eq!(said(params.get_as::<u8>("other").unwrap_err()), "the parameter `other` is missing");
        assert_eq!(said(params.get_as::<u8>("empty").unwrap_err()), "the parameter `empty` is missing");
        assert_eq!(
            said(params.get_as::<i64>("sum").unwrap_err()),
            "the parameter `sum` must not contain '<'"
        );
        assert_eq!(
            said(params.get_as::<String>("word").unwrap_err()),
            "the parameter `word` must not contain '&'"
        );
        let error = params.get_as::<i64>("name").unwrap_err();
        assert_eq!(said(error.clone()), "the parameter `name` is not valid: invalid digit found in string");
        assert_eq!(Response::from(error).status(), StatusCode::BAD_REQUEST);
    }
}
