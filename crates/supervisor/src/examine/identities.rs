//! The uids that partitions have, or will have.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Sees: the table of uids, which root alone can write.
//! Never: gives out a uid for good: a start does.

use std::cell::RefCell;

use config::Setting;
use jail::Identity;

use crate::error::{Error, during};
use crate::spawn::uids::Uids;

/// Who partitions are, for one examination.
pub(super) struct Identities {
    /// `None` without root, where all of them are the user.
    table: Option<RefCell<Table>>,
}

struct Table {
    uids: Uids,
    /// A uid that nobody has: whoever gets one at the start is as much a stranger to every file.
    fresh: Option<Identity>,
}

impl Identities {
    /// Those of a configuration.
    pub(super) fn of(setting: &Setting<'_>, is_root: bool) -> Result<Self, Error> {
        let (Some(state), Some(range), true) = (setting.state_dir, setting.user_range.clone(), is_root)
        else {
            return Ok(Self { table: None });
        };
        let uids = Uids::load(state, range)?;
        Ok(Self { table: Some(RefCell::new(Table { uids, fresh: None })) })
    }

    /// Who a partition is, or what account it is given; `None` without root.
    pub(super) fn identity(&self, name: &str, user: Option<&str>) -> Option<Identity> {
        let table = &mut *self.table.as_ref()?.borrow_mut();
        match user {
            Some(user) => table.uids.account(user, name).ok(),
            None => table.uids.known(name).or_else(|| table.fresh()),
        }
    }

    /// Who reads files with keys: the signer, which has them anyway.
    ///
    /// SECURITY: as root, nobody else: a process of a shared uid could be traced by others of it, and root parses nothing.
    pub(super) fn signer(&self, is_root: bool) -> Result<Option<Identity>, Error> {
        match self.identity("role/signer", None) {
            None if is_root => Err(during("find a uid for the process that reads files")(
                std::io::Error::other("there is none in `user_range`"),
            )),
            identity => Ok(identity),
        }
    }
}

impl Table {
    fn fresh(&mut self) -> Option<Identity> {
        if self.fresh.is_none() {
            self.fresh = self.uids.identity("examined").ok();
        }
        self.fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_in_the_table_is_a_stranger() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("uids"), "51001 site/old\n51002 role/signer\n").unwrap();
        let setting = Setting {
            dir: folder.path(),
            state_dir: Some(folder.path()),
            user_range: Some(51001..=51009),
            isolation: config::Isolation::Strict,
            danger_without: &[],
        };
        let found = Identities::of(&setting, true).unwrap();
        let id = |name| found.identity(name, None).unwrap().id();
        assert_eq!((id("site/old"), id("role/signer")), (51001, 51002));
        assert_eq!(id("site/new"), id("site/other"));
        assert!(id("site/new") > 51002);
        assert_eq!(found.signer(true).unwrap().unwrap().id(), 51002);
        assert!(Identities::of(&setting, false).unwrap().identity("site/old", None).is_none());
        let nobody = Identities { table: None };
        assert!(nobody.signer(true).is_err() && nobody.signer(false).unwrap().is_none());
    }
}
