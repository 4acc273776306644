//! Patterns of paths, and the targets that are made of what they match: `pattern`, `rewrite`, `redirect`, `try_files`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command, which check them; site workers, which use them. Pure.
//! Untrusted input: paths of requests, in site workers. Must never: take longer than the length of a path times that of
//! a pattern, or take a target in a site worker that the launcher would refuse.

mod matcher;
mod pattern;
mod target;

pub use matcher::Matcher;
pub use pattern::{Captures, Pattern};
pub use target::{RewriteTarget, TargetPart, Variable};
