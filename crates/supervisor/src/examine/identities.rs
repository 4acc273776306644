//! The uids that partitions have, or will have.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Sees: the table of uids, which root alone can
//! write. Never: gives out a uid for good: a start does.

use config::Setting;
use jail::Identity;

use crate::error::{Error, during};
use crate::spawn::uids::Uids;

/// Who partitions are, for one examination.
pub(super) struct Identities<'u> {
    /// `None` without root, where all of them are the user.
    table: Option<Table<'u>>,
}

enum Table<'u> {
    /// That of the server that runs, which has read it.
    Running(&'u Uids),
    Read(Box<Uids>),
}

impl<'u> Identities<'u> {
    /// Those of a configuration; `running` are those of the server that runs with it.
    pub(super) fn of(setting: &Setting<'_>, is_root: bool, running: Option<&'u Uids>) -> Result<Self, Error> {
        let (Some(state), Some(range), true) = (setting.state_dir, setting.user_range.clone(), is_root)
        else {
            return Ok(Self { table: None });
        };
        let running = running.filter(|uids| uids.are_of(state));
        let table = running.map_or_else(
            || Uids::load(state, range).map(|uids| Table::Read(Box::new(uids))),
            |uids| Ok(Table::Running(uids)),
        );
        Ok(Self { table: Some(table?) })
    }

    /// Who a partition is, or what account it is given; `None` without root. Whoever has no uid yet is as much a
    /// stranger to every file as anybody who has none.
    pub(super) fn identity(&self, name: &str, user: Option<&str>) -> Option<Identity> {
        let uids = self.table()?;
        match user {
            Some(user) => uids.account(user, name).ok(),
            None => uids.known(name).or_else(|| uids.stranger()),
        }
    }

    /// Who a partition is that has a uid of its own already.
    pub(super) fn known(&self, name: &str) -> Option<Identity> {
        self.table()?.known(name)
    }

    /// The table, which there is none of without root.
    pub(super) fn table(&self) -> Option<&Uids> {
        match self.table.as_ref()? {
            Table::Running(uids) => Some(uids),
            Table::Read(uids) => Some(uids),
        }
    }

    /// Who reads files with keys: the signer, which has them anyway.
    ///
    /// SECURITY: as root, nobody else: a process of a shared uid could be traced by others of it, and root parses
    /// nothing.
    pub(super) fn signer(&self, is_root: bool) -> Result<Option<Identity>, Error> {
        match self.identity("role/signer", None) {
            None if is_root => Err(during("find a uid for the process that reads files")(
                std::io::Error::other("there is none in `user_range`"),
            )),
            identity => Ok(identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        let found = Identities::of(&setting, true, None).unwrap();
        let id = |name| found.identity(name, None).unwrap().id();
        assert_eq!((id("site/old"), id("role/signer")), (51001, 51002));
        assert_eq!(id("site/new"), id("site/other"));
        assert!(id("site/new") > 51002);
        assert_eq!(found.signer(true).unwrap().unwrap().id(), 51002);
        assert!(Identities::of(&setting, false, None).unwrap().identity("site/old", None).is_none());
        let table = Uids::load(folder.path(), 51001..=51009).unwrap();
        std::fs::write(folder.path().join("uids"), "nonsense").unwrap();
        let running = Identities::of(&setting, true, Some(&table)).unwrap();
        assert_eq!(running.identity("site/old", None).unwrap().id(), 51001);
        let other = Setting { state_dir: Some(Path::new("/nonexistent")), ..setting };
        let other = Identities::of(&other, true, Some(&table)).unwrap();
        assert_ne!(other.identity("role/signer", None).unwrap().id(), 51002, "its own table is read");
        let nobody = Identities { table: None };
        assert!(nobody.signer(true).is_err() && nobody.signer(false).unwrap().is_none());
    }
}
