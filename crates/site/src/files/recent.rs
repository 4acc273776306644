//! Scripts that were found a moment ago, so that a busy script is not looked up for each of its requests.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths of requests. Must never: grow beyond its
//! limit, or take a file to be there for longer than [`TIME`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// LIMIT: how long a file that was there is taken to be there, as one in the cache of answers is whose folder is not
/// watched. The server that runs the script opens the file itself in any case.
const TIME: Duration = Duration::from_secs(1);
/// LIMIT: paths that are remembered below one root; a site has a few scripts that are asked for all the time.
const PATHS_MAX: usize = 256;

/// Paths of files, with when each is looked up again.
#[derive(Debug, Default)]
pub(super) struct Recent(RefCell<HashMap<Box<[u8]>, Instant>>);

impl Recent {
    /// Whether the file at `path` was there a moment ago.
    pub fn has(&self, path: &[u8]) -> bool {
        self.0.borrow().get(path).is_some_and(|until| Instant::now() < *until)
    }

    /// Remembers a file, if there is room.
    pub fn note(&self, path: &[u8]) {
        let (mut paths, now) = (self.0.borrow_mut(), Instant::now());
        if paths.len() >= PATHS_MAX {
            paths.retain(|_, until| now < *until);
        }
        if paths.len() < PATHS_MAX {
            paths.insert(path.into(), now + TIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_paths_are_remembered_and_no_more() {
        let recent = Recent::default();
        (0..PATHS_MAX + 9).for_each(|number| recent.note(number.to_string().as_bytes()));
        assert!(recent.has(b"0") && !recent.has(PATHS_MAX.to_string().as_bytes()));
        recent.0.borrow_mut().values_mut().for_each(|until| *until -= TIME);
        assert!(!recent.has(b"0"));
        recent.note(b"new");
        assert!(recent.has(b"new") && recent.0.borrow().len() == 1);
    }
}
