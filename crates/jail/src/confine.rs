//! The filter of system calls: compiled from a policy in the launcher, applied as the last layer.
//!
//! Runs in: `Filter::of` in the launcher; `apply` in its child between fork and exec. Sees no untrusted bytes.
//! Never: allows what a policy does not list. What is not listed gets EPERM; a call through another architecture's
//! entry (`int 0x80`) ends the process, since numbers mean other calls there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Compare, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::Jail;
use crate::policy::{Allow, Policy, When};
use crate::privileges;

mod search;

/// A compiled policy.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Arc<BpfProgram>,
    /// Whether a broker answers some of its calls.
    notifies: bool,
}

impl Filter {
    /// Compiles `policy`.
    ///
    /// # Errors
    /// The policy is not one that can be compiled: a mistake in its table.
    pub fn of(policy: Policy) -> io::Result<Self> {
        let mut rules = BTreeMap::<i64, Vec<SeccompRule>>::new();
        for allow in policy.rules() {
            let conditions = conditions(allow)?;
            for call in allow.calls {
                rules.entry(*call).or_default().extend(conditions.clone());
            }
        }
        let search = search::program(&rules);
        // A call without a condition has its answer already.
        rules.retain(|_, conditions| !conditions.is_empty());
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let filter =
            SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).map_err(io::Error::other)?;
        let conditional: BpfProgram = filter.try_into().map_err(io::Error::other)?;
        let program = Arc::new([search, conditional].concat());
        Ok(Self { program, notifies: policy.notifies() })
    }
}

/// The conditions of a rule, one list for each choice of values; none stands for "whatever the arguments".
fn conditions(allow: &Allow) -> io::Result<Vec<SeccompRule>> {
    if allow.when.is_empty() {
        return Ok(Vec::new());
    }
    let mut choices: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
    for when in allow.when {
        let values = alternatives(when).map_err(io::Error::other)?;
        let with = |choice: &Vec<_>| -> Vec<Vec<_>> {
            values.iter().map(|value| [&choice[..], std::slice::from_ref(value)].concat()).collect()
        };
        choices = choices.iter().flat_map(with).collect();
    }
    choices.into_iter().map(|choice| SeccompRule::new(choice).map_err(io::Error::other)).collect()
}

/// The conditions any of which will do.
fn alternatives(when: &When) -> Result<Vec<SeccompCondition>, seccompiler::BackendError> {
    let one = |argument, width, compare, value| {
        SeccompCondition::new(argument, width, compare, value).map(|condition| vec![condition])
    };
    match *when {
        When::Is(argument, value) => one(argument, Width::Dword, Compare::Eq, value),
        When::Exactly(argument, value) => one(argument, Width::Qword, Compare::Eq, value),
        When::Bits(argument, mask, bits) => one(argument, Width::Dword, Compare::MaskedEq(mask), bits),
        When::In(argument, values) => values
            .iter()
            .map(|&value| SeccompCondition::new(argument, Width::Dword, Compare::Eq, value))
            .collect(),
    }
}

/// The program comes last: it would not allow another to be applied.
///
/// SECURITY: a process whose calls nobody answers is not started: the kernel would make them.
pub(crate) fn apply(jail: &Jail) -> io::Result<()> {
    if jail.filter.notifies {
        let channel = jail.calls.as_ref().ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        privileges::let_broker_look()?;
        sys::notify::install_network_calls(|listener| sys::notify::hand_over(channel, listener))?;
    }
    seccompiler::apply_filter(&jail.filter.program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other),
    })
}

#[cfg(test)]
mod tests;
