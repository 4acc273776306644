//! Which requests a rule is for.

use crate::Pattern;

/// Which paths a rule is for: those for which everything holds that is there. One without anything is for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// They are at or below this one.
    pub path: Option<String>,
    /// Their last name ends so.
    pub suffix: Option<String>,
    /// The expression finds something in them.
    pub pattern: Option<Pattern>,
}

impl Matcher {
    /// Paths at or below one.
    pub fn path(path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Paths whose last name ends so.
    pub fn suffix(suffix: impl Into<String>) -> Self {
        Self { suffix: Some(suffix.into()), ..Self::default() }
    }

    /// Paths in which the expression finds something.
    pub fn pattern(pattern: Pattern) -> Self {
        Self { pattern: Some(pattern), ..Self::default() }
    }

    /// How closely it describes what it is for: of two rules that are for one path, the one with the greater acts. A
    /// pattern before a suffix, the longer suffix, then the longer path; two patterns are equals, of which the first in
    /// the file acts.
    pub fn precedence(&self) -> (bool, usize, usize) {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        (self.pattern.is_some(), length(&self.suffix), length(&self.path))
    }
}
