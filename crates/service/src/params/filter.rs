//! The filter that takes dangerous characters out of parameters.
//!
//! Runs in: a service's worker. Sees: text that a client made up. Never: makes text safe for output by itself; that is
//! what escaping is for.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 5 (FilterCGI).

use std::borrow::Cow;

/// The characters that are special to HTML and to shells, as OKWS has them.
const METACHARACTERS: [char; 8] = ['<', '>', '(', ')', '#', '&', ';', '"'];

/// Whether the filter takes `character` out: one of `< > ( ) # & ; "`, or a control character, line ends included.
fn is_dangerous(character: char) -> bool {
    METACHARACTERS.contains(&character) || character.is_control()
}

/// The first character of `text` that the filter would take out.
pub(super) fn first_dangerous(text: &str) -> Option<char> {
    text.chars().find(|&character| is_dangerous(character))
}

/// `text` without the characters that are special to HTML and to shells, and without control characters.
///
/// ```
/// assert_eq!(bulkhead_service::filter("AT&T <b>(1)</b>"), "ATT b1/b");
/// assert_eq!(bulkhead_service::filter("O'Brien"), "O'Brien");
/// ```
pub fn filter(text: &str) -> Cow<'_, str> {
    if first_dangerous(text).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|&character| !is_dangerous(character)).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn services_in_python_leave_out_the_same() {
        let python = include_str!("../../../../python/bulkhead_service/request.py");
        let set: String = super::METACHARACTERS.iter().collect();
        assert!(python.contains(&format!("'{set}'")), "{set}");
    }
}
