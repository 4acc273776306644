//! Programs that the operator names: of services, sites' own workers and filters. Found, judged, given to one gid or
//! copied for it.
//!
//! Runs in: the launcher, as root, and `bulkhead check`. Sees: inodes of program files, which tenants may have put
//! there, and their first four bytes. Never: changes the owner or mode of a file that is not its folder's owner's, or
//! that has more than one name.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1 (owned by
//! root and the service's gid, mode 0410).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Class, Found, Opener, ProgramKind};
use jail::Identity;
use rustix::fs::{Mode, Stat};
use sys::file_version::FileVersion;

use crate::error::{Error, at};
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::program::{COPY_BYTES_MAX, Unfit, fill_copy, fit, is_elf, nameless_file};

/// Execute for the group, read for root: the service can run it, and neither read nor change it.
const MODE: u32 = 0o410;

/// A problem and its remedy that are always the same.
type Fixed = (&'static str, &'static str);

impl From<Fixed> for Unfit {
    fn from((problem, remedy): Fixed) -> Self {
        Self::new(problem, remedy)
    }
}

const NO_SERVICE: Fixed = (
    "is not an ELF executable, as the program of a service is",
    "for a script in Python, name its interpreter first, and the folders of its `libraries` (docs/guide/python.md); for others, \
     run a server of its own behind the site with `upstream` or `fastcgi` (docs/guide/proxy.md), or `bulkhead guard`",
);
const NO_FILTER: Fixed = (
    "is not an ELF executable",
    "for a script, name its interpreter first, and grant it the folders of both: `{ command = [\"/usr/bin/python3\", \
     \"filter.py\"], read = [...] }`",
);
const FOREIGN: Fixed = (
    "lies outside of the configuration's folder, so only root may own it or write to it",
    "copy it into that folder",
);
const ANOTHERS: Fixed =
    ("has several hard links and is another service's", "copy the program it was made from");

fn no_program(kind: ProgramKind) -> Fixed {
    match kind {
        ProgramKind::Filter => NO_FILTER,
        ProgramKind::Own | ProgramKind::Interpreter => NO_SERVICE,
    }
}

fn outside_of_folder(gid: &str) -> Unfit {
    Unfit::new(
        format!(
            "must belong to root and gid {gid} with mode 0410, and lies outside of the configuration's folder, where bulkhead \
             changes nothing"
        ),
        "copy it into that folder, or `chown root:GID` and `chmod 0410` it",
    )
}

/// Whether a program of a service, of a site's own worker or of a filter would be started; changes nothing.
///
/// # Errors
/// It would not be.
pub fn fitness(path: &Path, directory: &Path, kind: ProgramKind, is_root: bool) -> Result<(), Unfit> {
    let found = find(path, &Opener::of(directory))?;
    // What is for its group alone, whoever is not root cannot read: the start finds out.
    if let Ok(content) = found.open_file()
        && !is_elf(&content)
    {
        return Err(no_program(kind).into());
    }
    let stat = &found.stat;
    match kind {
        _ if !is_root => Ok(()),
        _ if is_own(&found, directory) => match use_of(stat, &found, None, false) {
            Use::Refused(unfit) => Err(unfit),
            Use::Copied if stat.st_size as u64 > COPY_BYTES_MAX => Err(too_large()),
            Use::AsItIs | Use::Given | Use::Copied => Ok(()),
        },
        // The gid is one of a partition's, which no file of the machine has by chance.
        ProgramKind::Own if stat.st_uid != 0 || stat.st_mode & 0o7777 != MODE => {
            Err(outside_of_folder("that of its service"))
        }
        ProgramKind::Own => Ok(()),
        _ if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 => Err(FOREIGN.into()),
        _ => Ok(()),
    }
}

/// The file at `path`, links followed as far as programs may, if it is one that can be executed at all.
fn find(path: &Path, opener: &Opener) -> Result<Found, Unfit> {
    let found =
        opener.look(Class::Private, path).map_err(|fault| Unfit::new(fault.problem(), fault.remedy()))?;
    fit(&found.stat)?;
    Ok(found)
}

/// Whether a program lies in the folder of the configuration.
fn is_own(found: &Found, directory: &Path) -> bool {
    directory.canonicalize().is_ok_and(|directory| found.real.starts_with(directory))
}

/// How a program in the configuration's folder is made one service's own.
#[derive(Debug, PartialEq, Eq)]
enum Use {
    /// It is this service's.
    AsItIs,
    /// Its owner and mode are changed.
    Given,
    /// A copy is executed.
    Copied,
    Refused(Unfit),
}

/// What is done with a program. `gid` is that of the service, if it is known; `was_given` says whether this launcher
/// has given the file away, or found it given.
///
/// SECURITY: a tenant chooses what is in a folder of the tenant's: a hard link there is any file of the machine.
/// Changed is what the folder's owner owns, and what the launcher had given away there; copied is what that owner could
/// copy as well; and nothing of two names is changed, whoever owns it.
fn use_of(stat: &Stat, found: &Found, gid: Option<u32>, was_given: bool) -> Use {
    let is_given = stat.st_uid == 0 && stat.st_mode & 0o7777 == MODE;
    let is_its = gid.is_none_or(|gid| stat.st_gid == gid);
    let has_one_name = stat.st_nlink == 1;
    match is_given {
        true if is_its && gid.is_some() => Use::AsItIs,
        true if !has_one_name && !is_its => Use::Refused(ANOTHERS.into()),
        true if found.is_placed_by_root() || was_given => Use::Given,
        // Whose it is, is known when it is started.
        true if gid.is_none() => Use::AsItIs,
        true => Use::Refused(Unfit::new(
            format!(
                "is another service's, and lies in {} of uid {}, who could have put it there",
                found.folder.path.display(),
                found.folder.uid
            ),
            "copy the program it was made from",
        )),
        false if found.is_the_folders_owners() && has_one_name => Use::Given,
        false => match found.check_owner() {
            Ok(()) => Use::Copied,
            Err(fault) => Use::Refused(Unfit::new(fault.problem(), fault.remedy())),
        },
    }
}

fn too_large() -> Unfit {
    Unfit::new(
        format!(
            "has several names or is not its folder's owner's, so that a copy would be executed, and is larger than \
             {COPY_BYTES_MAX} bytes, the most that is copied"
        ),
        "copy it to a file of its own, which belongs to the owner of the folder",
    )
}

/// Whether a program outside of the configuration's folder may be executed as it is.
fn fit_of_the_machine(kind: ProgramKind, stat: &Stat, identity: Identity) -> Result<(), Unfit> {
    match kind {
        ProgramKind::Own
            if (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) != (0, identity.gid(), MODE) =>
        {
            Err(outside_of_folder(&identity.gid().to_string()))
        }
        ProgramKind::Interpreter | ProgramKind::Filter if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 => {
            Err(FOREIGN.into())
        }
        _ => Ok(()),
    }
}

impl SpawnContext {
    /// Opens a program of this kind: one in the configuration's folder as a service's own, any other as it is if it is
    /// the machine's and may be.
    ///
    /// An interpreter is for everybody. Nothing has to be hidden of it, and what runs in it lies elsewhere.
    pub fn operator_program(
        &self,
        kind: ProgramKind,
        path: &Path,
        identity: Option<Identity>,
    ) -> Result<OwnedFd, Error> {
        let found = find(path, &self.opener()).map_err(|unfit| unfit.at(path))?;
        // SECURITY: of one that somebody else answers for, a copy is executed, which was made beside the loop.
        if let Some(identity) = identity.filter(|_| found.is_remote) {
            return self.remote_program(kind, path, &found, identity);
        }
        let content = found.open_file().map_err(at("read", path))?;
        if !is_elf(&content) {
            return Err(Unfit::from(no_program(kind)).at(path));
        }
        let Some(identity) = identity else { return Ok(found.file) };
        if is_own(&found, &self.config.dir) {
            return self.own_program(path, found, content, identity);
        }
        fit_of_the_machine(kind, &found.stat, identity).map_err(|unfit| unfit.at(path))?;
        Ok(found.file)
    }

    /// A copy of a program that lies on a file system of another machine or of a program.
    fn remote_program(
        &self,
        kind: ProgramKind,
        path: &Path,
        found: &Found,
        identity: Identity,
    ) -> Result<OwnedFd, Error> {
        match is_own(found, &self.config.dir) {
            true => found.check_owner().map_err(|fault| Unfit::new(fault.problem(), fault.remedy())),
            false => fit_of_the_machine(kind, &found.stat, identity),
        }
        .map_err(|unfit| unfit.at(path))?;
        let source = FileVersion::from(&found.stat);
        if let Some(copy) = self.known_copy(identity, path, source) {
            return copy;
        }
        if !self.may_find_out() {
            return Err(Error::NotExamined { path: path.to_owned() });
        }
        let content = found.open_file().map_err(at("read", path))?;
        match is_elf(&content) {
            true => self.copy_for(identity, path, content),
            false => Err(Unfit::from(no_program(kind)).at(path)),
        }
    }

    /// The copy that was made before of this version of a program.
    fn known_copy(
        &self,
        identity: Identity,
        path: &Path,
        source: FileVersion,
    ) -> Option<Result<OwnedFd, Error>> {
        let copies = self.operator_programs.copies.borrow();
        let (_, copy) = copies.get(&(path.to_owned(), identity.id())).filter(|(of, _)| *of == source)?;
        Some(duplicate(copy))
    }

    /// A program in the configuration's folder, made `identity`'s alone to execute.
    fn own_program(
        &self,
        path: &Path,
        found: Found,
        content: File,
        identity: Identity,
    ) -> Result<OwnedFd, Error> {
        let id = FileVersion::from(&found.stat).file();
        let was_given = self.operator_programs.given.borrow().contains(&id);
        match use_of(&found.stat, &found, Some(identity.gid()), was_given) {
            Use::AsItIs => {}
            Use::Given => {
                give_to(&content, identity).map_err(|source| {
                    Error::program(
                        path,
                        format!(
                            "cannot be given to root and gid {} with mode 0410: {source}",
                            identity.gid()
                        ),
                    )
                })?;
                self.keep_known(path, &found.stat, &content);
            }
            Use::Copied => return self.copy_for(identity, path, content),
            Use::Refused(unfit) => return Err(unfit.at(path)),
        }
        self.operator_programs.given.borrow_mut().insert(id);
        Ok(found.file)
    }

    /// Goes on knowing what is known of a program that was given from one gid to another.
    ///
    /// SECURITY: the time of its last change of any kind is this one's then. Before that it was root's, so nobody else
    /// can have set the time of the last change of its contents, which is as it was.
    fn keep_known(&self, path: &Path, before: &Stat, content: &File) {
        let was_given = before.st_uid == 0 && before.st_mode & 0o7777 == MODE;
        let before = FileVersion::from(before);
        let Ok(after) = content.metadata().map(|found| FileVersion::of(&found)) else { return };
        if !was_given || after != (FileVersion { changed_ns: after.changed_ns, ..before }) {
            return;
        }
        let mut inspected = self.inspected.borrow_mut();
        let known = inspected.get_mut(path).filter(|(version, _)| *version == before);
        known.into_iter().for_each(|(version, _)| *version = after);
        let mut answers = self.answers.0.borrow_mut();
        let known = answers.get_mut(path).filter(|known| known.program == Some(before));
        known.into_iter().for_each(|known| known.program = Some(after));
        self.failures.renew(before, after);
        self.refusals.renew(before, after);
    }

    /// A copy of a program that is `identity`'s to execute, and that has no name; the one that was made before, if the
    /// program is as it was.
    fn copy_for(&self, identity: Identity, path: &Path, mut content: File) -> Result<OwnedFd, Error> {
        let found = content.metadata().map_err(at("examine", path))?;
        if found.len() > COPY_BYTES_MAX {
            return Err(too_large().at(path));
        }
        let source = FileVersion::of(&found);
        if let Some(copy) = self.known_copy(identity, path, source) {
            return copy;
        }
        let key = (path.to_owned(), identity.id());
        let mut copies = self.operator_programs.copies.borrow_mut();
        if !self.may_find_out() {
            return Err(Error::NotExamined { path: path.to_owned() });
        }
        // Before the next is made, so that two are never on the disk for one program; nor what nobody names any more.
        copies.retain(|other, _| *other != key && self.names_program(&other.0));
        let copy = match &self.copy_into {
            Some(copy) => duplicate(copy)?,
            None => self.empty_copy(identity)?,
        };
        fill_copy(&mut content, &copy, |written| give_to(written, identity)).map_err(at("copy", path))?;
        let kept = duplicate(&copy)?;
        copies.insert(key, (source, kept));
        Ok(copy)
    }

    /// An empty file without a name for a copy of a program of `identity`'s.
    pub fn empty_copy(&self, identity: Identity) -> Result<OwnedFd, Error> {
        nameless_file(&self.config.server.state_dir.join(format!("program-{}", identity.id())), 0o600)
    }

    /// Forgets copies of programs that nobody names any more.
    pub fn forget_programs(&self) {
        self.operator_programs.copies.borrow_mut().retain(|(path, _), _| self.names_program(path));
    }

    /// Whether a process has the program at `path`.
    fn names_program(&self, path: &Path) -> bool {
        let of_sites = self.config.sites.iter().any(|site| {
            site.services.iter().any(|service| service.program == path)
                || site.worker.program.as_ref().is_some_and(|(_, program)| program == path)
        });
        of_sites || self.chains.values().flatten().any(|filter| filter.program == path)
    }
}

fn give_to(file: &File, identity: Identity) -> std::io::Result<()> {
    std::os::unix::fs::fchown(file, Some(0), Some(identity.gid()))?;
    // After the owner: changing the owner clears bits of the mode.
    rustix::fs::fchmod(file, Mode::from_raw_mode(MODE))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Held, PathOwner, Placement};

    /// A program of this owner, group, mode and number of names, in a folder of `folder`'s.
    fn used(program: (u32, u32, u32, u64), folder: u32, placed: Placement, was_given: bool) -> Use {
        let mut stat = rustix::fs::stat("/").unwrap();
        let (uid, gid, mode, names) = program;
        (stat.st_uid, stat.st_gid, stat.st_mode, stat.st_nlink) = (uid, gid, 0o100_000 | mode, names as _);
        let folder = PathOwner { path: "/f".into(), uid: folder, mode: 0o755 };
        let file = rustix::fs::open("/", rustix::fs::OFlags::PATH, Mode::empty()).unwrap();
        let (held, is_remote, real) = (Held::Named, false, "/f/program".into());
        let found = Found { file, held, stat, real, placed, folder, is_remote };
        use_of(&stat, &found, Some(7), was_given)
    }

    #[test]
    fn changed_is_what_the_folders_owner_owns() {
        let (root, alice) = (Placement::Root, Placement::By(1001));
        for (what, program, folder, placed, expected) in [
            ("root's of root's", (0, 0, 0o755, 1), 0, root, Use::Given),
            ("of cargo's", (0, 0, 0o755, 2), 0, root, Use::Copied),
            ("somebody's that root has put there", (1001, 0, 0o755, 1), 0, root, Use::Copied),
            ("given before", (0, 7, MODE, 1), 0, root, Use::AsItIs),
            ("given to another gid", (0, 8, MODE, 1), 0, root, Use::Given),
            ("alice's own", (1001, 1001, 0o700, 1), 1001, alice, Use::Given),
            ("alice's own of two names", (1001, 1001, 0o700, 2), 1001, alice, Use::Copied),
            ("root's that everybody can read", (0, 0, 0o755, 1), 1001, alice, Use::Copied),
            ("alice's, given before", (0, 7, MODE, 1), 1001, alice, Use::AsItIs),
        ] {
            assert_eq!(used(program, folder, placed, false), expected, "{what}");
        }
        for (what, program, placed) in [
            ("another service's", (0, 8, MODE, 1), alice),
            ("another service's of two names", (0, 8, MODE, 2), alice),
            ("another service's of two names", (0, 8, MODE, 2), root),
            ("root's secret program", (0, 0, 0o750, 1), alice),
            ("bob's secret program", (1002, 1002, 0o700, 2), alice),
            ("bob's, where many can write", (1002, 1002, 0o750, 1), Placement::Anyone),
        ] {
            assert!(matches!(used(program, 1001, placed, false), Use::Refused(_)), "{what}");
        }
        assert_eq!(used((0, 8, MODE, 1), 1001, alice, true), Use::Given, "two services of alice's");
    }
}
