//! Where a symbolic link leads, as far as it leads into folders that the operator has named.
//!
//! Runs in: the site worker, under the site's uid; pure. Untrusted input: the targets of links, which anybody may have
//! made who writes into a folder of the site. Must never: name a place outside of the folders that it was given, or go
//! on for ever.
//!
//! The kernel follows links by itself as long as they stay within one folder (`RESOLVE_BENEATH`). This walk is for
//! those that leave it. It goes from name to name as path_resolution(7) does, and only between folders by text: what
//! lies outside of all of them is never looked at, so a link out there leads nowhere.

use std::collections::VecDeque;

/// LIMIT: links on one way; as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// LIMIT: names on one way, links and their targets together; each costs some system calls. A request's path alone has
/// at most some hundreds.
const NAMES_MAX: usize = 1024;

/// One of the folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The one that the walk began in.
    Start,
    /// The one with this number among those that links may lead into.
    Named(usize),
}

/// Why a link leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError<E> {
    /// Out of all folders.
    Outside,
    /// On and on.
    TooLong,
    /// It cannot be told what is on the way.
    Failed(E),
}

/// The folders, each by its absolute path.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'f> {
    /// Where the walk begins.
    pub start: &'f [u8],
    /// Where links may lead.
    pub named: &'f [&'f [u8]],
}

/// Where the walk is.
struct Position<'f> {
    /// The names from the root of the file system.
    names: Vec<Vec<u8>>,
    /// The folder that it is in, and the number of names in that folder's own path.
    within: Option<(Within, usize)>,
    folders: Folders<'f>,
}

impl<'f> Position<'f> {
    fn start(folders: Folders<'f>) -> Self {
        let names: Vec<Vec<u8>> = names(folders.start).map(<[u8]>::to_vec).collect();
        let own = names.len();
        Self { names, within: Some((Within::Start, own)), folders }
    }

    /// To the root of the file system.
    fn leave(&mut self) {
        self.names.clear();
        self.within = None;
        self.find();
    }

    fn down(&mut self, name: &[u8]) {
        self.names.push(name.to_vec());
        self.find();
    }

    fn up(&mut self) {
        self.names.pop();
        if self.within.is_some_and(|(_, own)| self.names.len() < own) {
            self.within = None;
            self.find();
        }
    }

    /// Enters the innermost of the named folders that the position is in, if it is in none.
    fn find(&mut self) {
        if self.within.is_some() {
            return;
        }
        let own = |folder: &[u8]| {
            let mut count = 0;
            let is_in = names(folder).all(|name| {
                count += 1;
                self.names.get(count - 1).is_some_and(|own| own == name)
            });
            is_in.then_some(count)
        };
        let named = self.folders.named.iter().enumerate();
        let found = named.filter_map(|(number, folder)| Some((Within::Named(number), own(folder)?)));
        self.within = found.max_by_key(|(_, own)| *own);
    }

    /// The folder, and the path below it.
    fn below(&self) -> Option<(Within, Vec<u8>)> {
        let (within, own) = self.within?;
        Some((within, self.names[own..].join(&b'/')))
    }
}

/// Follows `path`, which is below the start. `link` tells where the link leads that is at a path below one of the
/// folders, and nothing if no link is there. Returns the folder that the way ends in and the path below it, in which no
/// name was a link when it was looked at.
///
/// # Errors
/// The way leads out of all folders, or does not end.
pub fn follow<E>(
    folders: Folders<'_>,
    path: &[u8],
    mut link: impl FnMut(Within, &[u8]) -> Result<Option<Vec<u8>>, E>,
) -> Result<(Within, Vec<u8>), LinkError<E>> {
    let mut at = Position::start(folders);
    let mut ahead: VecDeque<Vec<u8>> = names(path).map(<[u8]>::to_vec).collect();
    let (mut links, mut steps) = (0, 0);
    while let Some(name) = ahead.pop_front() {
        steps += 1;
        if steps > NAMES_MAX {
            return Err(LinkError::TooLong);
        }
        if name == b".." {
            at.up();
            continue;
        }
        at.down(&name);
        let Some((within, below)) = at.below().filter(|(_, below)| !below.is_empty()) else { continue };
        let Some(target) = link(within, &below).map_err(LinkError::Failed)? else { continue };
        links += 1;
        if links > LINKS_MAX {
            return Err(LinkError::TooLong);
        }
        at.up();
        if target.starts_with(b"/") {
            at.leave();
        }
        names(&target).rev().for_each(|name| ahead.push_front(name.to_vec()));
    }
    at.below().ok_or(LinkError::Outside)
}

/// The names of a path, which mean something to a file system.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// The entry for fuzzing: links as `NAME=TARGET`, one a line, in a folder from which they may lead into two others.
pub fn fuzz_links(input: &[u8]) {
    let mut lines = input.split(|&byte| byte == b'\n');
    let path = lines.next().unwrap_or_default();
    let links: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let at = line.iter().position(|&byte| byte == b'=')?;
            Some((&line[..at], &line[at + 1..]))
        })
        .collect();
    let named: [&[u8]; 2] = [b"/srv/shared", b"/srv/shared/deep/er"];
    let mut asked = 0;
    let found = follow(Folders { start: b"/srv/www", named: &named }, path, |_, below| {
        asked += 1;
        assert_sound(below);
        let target = links.iter().find(|(name, _)| *name == below).map(|(_, target)| target.to_vec());
        Ok::<_, ()>(target)
    });
    assert!(asked <= NAMES_MAX, "{asked} names were looked at");
    if let Ok((within, below)) = found {
        assert!(matches!(within, Within::Start | Within::Named(0 | 1)));
        if !below.is_empty() {
            assert_sound(&below);
        }
    }
}

/// A path that a folder can be asked for: of names that lead down and nowhere else.
fn assert_sound(below: &[u8]) {
    let is_sound = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    assert!(below.split(|&byte| byte == b'/').all(is_sound), "{:?}", String::from_utf8_lossy(below));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: [&[u8]; 3] = [b"/srv/shared", b"/srv/shared/deep", b"/opt/files/"];

    /// Follows `path` where there are these links, each by its absolute path.
    fn lead(path: &str, links: &[(&str, &str)]) -> Result<String, LinkError<()>> {
        let folders = Folders { start: b"/srv/www", named: &NAMED };
        let absolute = |within, below: &[u8]| {
            let folder = match within {
                Within::Start => "/srv/www",
                Within::Named(number) => std::str::from_utf8(NAMED[number]).unwrap().trim_end_matches('/'),
            };
            format!("{folder}/{}", std::str::from_utf8(below).unwrap())
        };
        let (within, below) = follow(folders, path.as_bytes(), |within, below| {
            let path = absolute(within, below);
            Ok(links.iter().find(|(name, _)| *name == path).map(|(_, target)| target.as_bytes().to_vec()))
        })?;
        Ok(absolute(within, &below))
    }

    #[test]
    fn links_lead_into_named_folders_alone() {
        for (path, links, end) in [
            ("a/b", &[][..], Ok("/srv/www/a/b")),
            ("a", &[("/srv/www/a", "/srv/shared/x")], Ok("/srv/shared/x")),
            ("a/y/z", &[("/srv/www/a", "/srv/shared")], Ok("/srv/shared/y/z")),
            ("a/y", &[("/srv/www/a", "../shared/./x//")], Ok("/srv/shared/x/y")),
            ("d/a", &[("/srv/www/d/a", "../../shared/x")], Ok("/srv/shared/x")),
            ("a", &[("/srv/www/a", "/opt/files/x")], Ok("/opt/files/x")),
            ("a", &[("/srv/www/a", "/srv/shared/deep/x")], Ok("/srv/shared/deep/x")),
            ("a", &[("/srv/www/a", "/srv/shared/deep/../x")], Ok("/srv/shared/x")),
            // From one to the other, and within one.
            (
                "a",
                &[("/srv/www/a", "/srv/shared/b"), ("/srv/shared/b", "/opt/files/c"), ("/opt/files/c", "d")],
                Ok("/opt/files/d"),
            ),
            (
                "a",
                &[("/srv/www/a", "/srv/shared/b"), ("/srv/shared/b", "../../opt/files")],
                Ok("/opt/files/"),
            ),
            // A `..` behind a link counts from where the link leads.
            ("a", &[("/srv/www/a", "/srv/shared/l/../x"), ("/srv/shared/l", "p/q")], Ok("/srv/shared/p/x")),
            // Out of all of them, and back to where the walk began: that is none of those that are named.
            ("a", &[("/srv/www/a", "/etc/passwd")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "..")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "../www/b")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "/")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "/srv/sharedx/b")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "/srv/shared/../b")], Err(LinkError::Outside)),
            ("a", &[("/srv/www/a", "/proc/self/root/srv/shared/b")], Err(LinkError::Outside)),
            (
                "a",
                &[("/srv/www/a", "/srv/shared/b"), ("/srv/shared/b", "../../../../etc/passwd")],
                Err(LinkError::Outside),
            ),
            // Links out there are not looked at.
            ("a", &[("/srv/www/a", "/etc/l/x"), ("/etc/l", "/srv/shared")], Err(LinkError::Outside)),
            // Round and round.
            ("a", &[("/srv/www/a", "/srv/shared/a"), ("/srv/shared/a", "a")], Err(LinkError::TooLong)),
            ("a", &[("/srv/www/a", "a/a")], Err(LinkError::TooLong)),
        ] {
            assert_eq!(lead(path, links).as_deref(), end.as_ref().copied(), "{path} {links:?}");
        }
    }

    #[test]
    fn a_way_has_an_end() {
        let long = "x/../".repeat(NAMES_MAX);
        assert_eq!(lead("a", &[("/srv/www/a", &long)]), Err(LinkError::TooLong));
        for input in
            ["a/b\na=/srv/shared\nb=a", "a\na=a/a/a/a", "../..\n", "a\na=////../../srv/shared/deep/er/.."]
        {
            fuzz_links(input.as_bytes());
        }
    }
}
