//! Regular expressions over paths.

use regex_lite::{Regex, RegexBuilder};

/// LIMIT: bytes of an expression; nobody can read a longer one.
const PATTERN_BYTES_MAX: usize = 512;
/// LIMIT: bytes of a compiled expression, so that `(a{99}){99}` is refused.
const COMPILED_BYTES_MAX: usize = 256 << 10;
/// LIMIT: parentheses within parentheses.
const NESTING_MAX: u32 = 32;

/// A regular expression that paths are compared with.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Pattern {}

impl std::hash::Hash for Pattern {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl Pattern {
    /// Compiles an expression, of the syntax of the crate `regex-lite`: Perl's without look-around and references back.
    ///
    /// # Errors
    /// The fault of the pattern, as the end of a sentence.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".into());
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("has {} bytes, and at most {PATTERN_BYTES_MAX} are read", text.len()));
        }
        let mut builder = RegexBuilder::new(text);
        // SECURITY: `.` is any character, since a path may have a line end (`%0A`) and shall not pass a rule by it.
        builder.dot_matches_new_line(true).size_limit(COMPILED_BYTES_MAX).nest_limit(NESTING_MAX);
        builder.build().map(Self).map_err(|error| format!("is no regular expression: {error}"))
    }

    /// The expression as written.
    pub fn text(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it has a group of this name or number.
    pub fn has_group(&self, name: &str) -> bool {
        match name.parse::<usize>() {
            Ok(number) => number < self.0.captures_len(),
            Err(_) => self.0.capture_names().any(|known| known == Some(name)),
        }
    }

    /// The match in a decoded path. Nothing in a path that is not UTF-8.
    pub fn find<'p>(&self, path: &'p [u8]) -> Option<Captures<'p>> {
        let path = std::str::from_utf8(path).ok()?;
        let groups = self.0.captures(path)?;
        let names = self.0.capture_names().map(|name| name.map(str::to_owned));
        let values =
            (0..groups.len()).map(|number| groups.get(number).map(|found| found.as_str().as_bytes()));
        Some(Captures { names: names.collect(), values: values.collect() })
    }

    /// Whether it matches a decoded path, or nobody can say because the path is not UTF-8.
    ///
    /// SECURITY: for what a rule forbids: a path that cannot be compared is forbidden too.
    pub fn may_match(&self, path: &[u8]) -> bool {
        std::str::from_utf8(path).map_or(true, |path| self.0.is_match(path))
    }

    /// Whether it matches a decoded path that is UTF-8.
    pub fn matches(&self, path: &[u8]) -> bool {
        std::str::from_utf8(path).is_ok_and(|path| self.0.is_match(path))
    }
}

/// The parts of a path that the groups of a pattern have matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures<'p> {
    names: Vec<Option<String>>,
    values: Vec<Option<&'p [u8]>>,
}

impl<'p> Captures<'p> {
    /// The text that the group of this name or number has matched; nothing if it took no part.
    pub fn get(&self, name: &str) -> &'p [u8] {
        let number =
            name.parse().ok().or_else(|| self.names.iter().position(|known| known.as_deref() == Some(name)));
        number.and_then(|number: usize| self.values.get(number).copied().flatten()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_number_and_name() {
        let pattern = Pattern::new(r"^/u/(\d+)(?:/(?<rest>.*))?$").unwrap();
        assert!(pattern.has_group("0") && pattern.has_group("2") && pattern.has_group("rest"));
        assert!(!pattern.has_group("3") && !pattern.has_group("other"));
        let found = pattern.find(b"/u/17/a b").unwrap();
        assert_eq!(
            (found.get("1"), found.get("rest"), found.get("2")),
            (&b"17"[..], &b"a b"[..], &b"a b"[..])
        );
        assert_eq!(pattern.find(b"/u/17").unwrap().get("rest"), b"");
        assert_eq!(pattern.find(b"/x"), None);
    }

    #[test]
    fn what_is_no_utf_8_is_found_by_none_and_forbidden_by_all() {
        let pattern = Pattern::new("^/a").unwrap();
        assert_eq!(pattern.find(b"/a\xff"), None);
        assert!(pattern.may_match(b"/x\xff") && !pattern.matches(b"/a\xff"));
        assert!(pattern.may_match(b"/ab") && pattern.matches(b"/ab") && !pattern.may_match(b"/b"));
    }

    #[test]
    fn a_line_end_is_a_character_like_others() {
        let pattern = Pattern::new("^/admin.*$").unwrap();
        assert!(pattern.matches(b"/admin\nx") && pattern.may_match(b"/admin\n"));
    }

    #[test]
    fn expressions_that_are_refused() {
        for bad in ["", "(", "a{99999999}", r"(?=x)", "(a{99}){99}{99}"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
        assert!(Pattern::new(&"x".repeat(513)).is_err());
    }
}
