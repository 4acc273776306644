//! A value together with where in the file it stands.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none of its own. Must never: lose a place
//! before the last check has run.

/// A value and the byte offset of its text; for a default, the offset of the table it is missing from.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) offset: usize,
    /// Whether the file says so, or leaves it to the default.
    pub(crate) origin: Origin,
}

/// Who chose a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Written,
    Default,
}

impl<T> At<T> {
    pub(crate) fn new(value: T, offset: usize) -> At<T> {
        At { value, offset, origin: Origin::Written }
    }

    /// A value the file leaves out, at the table it is left out of.
    pub(crate) fn default(value: T, table_offset: usize) -> At<T> {
        At { value, offset: table_offset, origin: Origin::Default }
    }
}
