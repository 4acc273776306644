//! Filters of system calls, each compiled once.
//!
//! Runs in: the launcher, as root, and the guard. Sees no untrusted bytes.

use std::cell::RefCell;

use jail::Filter;
use jail::policy::Policy;

use crate::error::{Error, during};

/// Compiled filters by their policies; a policy is compiled when its first process is started.
#[derive(Debug, Default)]
pub struct CompiledFilters(RefCell<Vec<(Policy, Filter)>>);

impl CompiledFilters {
    /// The filter of a policy.
    pub fn get(&self, policy: Policy) -> Result<Filter, Error> {
        let mut known = self.0.borrow_mut();
        if let Some((_, filter)) = known.iter().find(|(known, _)| *known == policy) {
            return Ok(filter.clone());
        }
        let filter = Filter::of(policy).map_err(during("compile a filter of system calls"))?;
        known.push((policy, filter.clone()));
        Ok(filter)
    }
}
