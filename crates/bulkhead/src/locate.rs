//! Where things are: the configuration, the launcher's program, the guard's.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's files. Never: searches `PATH`, in
//! which somebody else's `bulkheadd` could be.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use config::{
    Before, Cache, Config, Diagnostics, Examine, Finding, Judged, Judgement, Setting, Subject, Tolerance,
};
use supervisor::good_copies::GoodCopies;

use crate::fault::Fault;

/// The configuration in the current folder.
pub const HERE: &str = "./bulkhead.toml";
/// The configuration of the machine.
pub const SYSTEM: &str = "/etc/bulkhead/bulkhead.toml";

/// The configuration that was named, or else the first of the usual ones that exists.
pub fn config(named: Option<&Path>) -> Result<PathBuf, Fault> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    [HERE, SYSTEM].into_iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
        Fault::Usage(format!("there is no configuration: neither {HERE} nor {SYSTEM} exists; name one"))
    })
}

/// Reads a configuration; its mistakes are the fault.
pub fn load(path: &Path) -> Result<Config, Fault> {
    Config::load(path).map_err(|diagnostics| Fault::Usage(diagnostics.to_string()))
}

/// Finds nothing.
struct NoExaminer;

impl Examine for NoExaminer {
    fn examine(&self, _: &Setting<'_>, _: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        Vec::new()
    }
}

/// The same without those files of sites that have a mistake. What is examined in a jail is not looked at.
pub fn load_good(path: &Path) -> Result<Judged, Fault> {
    judge(path, &NoExaminer)
}

/// What a start would take in of a configuration, as far as this user can see what was good last.
pub fn judge(path: &Path, examine: &dyn Examine) -> Result<Judged, Fault> {
    judged(path, examine).map_err(|diagnostics| Fault::Usage(diagnostics.to_string()))
}

/// The same, with all mistakes if nothing would be taken in.
pub fn judged(path: &Path, examine: &dyn Examine) -> Result<Judged, Diagnostics> {
    let copies = config::state_dir(path).ok().map(|state| GoodCopies::of(&state));
    let kept = |name: &OsStr| copies.as_ref()?.read(name).ok().flatten();
    let (before, refused) = (Before::Kept(&kept), BTreeMap::new());
    let judgement = Judgement { before, tolerance: Tolerance::EachFile, only: None, refused: &refused };
    Config::judge(path, examine, (&mut Cache::default(), None), &judgement)
}

/// The launcher's program: beside this one, or in `../libexec/bulkhead`.
pub fn launcher() -> Result<PathBuf, Fault> {
    installed("bulkheadd", "the launcher")
}

/// The guard's program, where the launcher's is.
pub fn guard() -> Result<PathBuf, Fault> {
    installed("bulkhead-guard", "the guard")
}

/// The data proxies' program, where the launcher's is.
pub fn data_proxy() -> Result<PathBuf, Fault> {
    installed("dataproxy", "the data proxy")
}

fn installed(program: &str, title: &str) -> Result<PathBuf, Fault> {
    let own = std::env::current_exe().map_err(Fault::io("cannot find out where this program is"))?;
    near(own.parent().unwrap_or(Path::new("/")), program, title)
}

fn near(folder: &Path, program: &str, title: &str) -> Result<PathBuf, Fault> {
    let beside = folder.join(program);
    let installed = folder.parent().unwrap_or(folder).join("libexec/bulkhead").join(program);
    for path in [&beside, &installed] {
        if path.is_file() {
            return Ok(path.clone());
        }
    }
    Err(Fault::Failed(format!(
        "{title} is not installed: it is neither {} nor {}",
        beside.display(),
        installed.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_launcher_is_looked_for_in_two_places() {
        let error = near(Path::new("/nonexistent/bin"), "bulkheadd", "the launcher").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/bin/bulkheadd"), "{error}");
        assert!(error.contains("/nonexistent/libexec/bulkhead/bulkheadd"), "{error}");
    }

    #[test]
    fn what_is_named_is_taken() {
        assert_eq!(config(Some(Path::new("x.toml"))).unwrap(), Path::new("x.toml"));
    }
}
