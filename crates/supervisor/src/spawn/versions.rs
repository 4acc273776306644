//! Whether the programs of the roles are of the launcher's own version: a part of another installation is refused
//! before anything runs with it.
//!
//! Runs in: the launcher, as root, at its start and in the rehearsal of an upgrade. Sees: a short line about each
//! program, of the program `inspector`, which reads them in a jail. Never: reads a program itself, or executes one to
//! hear its version.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use config::DOOR;
use sys::process::{Exit, Program};
use sys::version::noted;
use wire::Role;

use crate::error::{Error, during};
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::inspect::INSPECTOR;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::{helper, program};

/// LIMIT: how long the inspector may take; it takes milliseconds, and nothing runs yet that would wait.
const TIME: Duration = Duration::from_secs(10);
/// LIMIT: bytes of its line about one program.
const LINE_BYTES_MAX: usize = 300;
/// What to do about all that is found here.
const REMEDY: &str = "install all programs of one version (docs/guide/operating.md, \"Installing\"), and start, or upgrade, again";

/// What a program says of its version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Version(String),
    Nothing,
    /// It is no program; why.
    Refused(String),
}

/// The programs that have to be of one version: of all roles that are ours, doors, and the inspector.
fn names() -> impl Iterator<Item = &'static str> {
    let own = |role: &&Role| **role != Role::Launcher && !role.is_operators();
    Role::ALL.iter().filter(own).map(|role| role.name()).chain([DOOR, INSPECTOR])
}

impl SpawnContext {
    /// Has all programs of the roles read, and compares their versions with the launcher's own.
    ///
    /// # Errors
    /// One is not there, or is of another version.
    pub fn check_versions(&self, specs: &[ProcessSpec]) -> Result<(), Error> {
        // Under the uid of a process that sees nothing of a client.
        let Some(spec) = specs.iter().find(|spec| spec.role == Role::Admin) else { return Ok(()) };
        let names: Vec<&str> = names().collect();
        let opened = names.iter().map(|name| {
            let path = self.roles_folder.join(name);
            let opened = program::open(&path).and_then(|file| program::readable(&file, &path));
            opened.map(OwnedFd::from).map_err(|error| Error::program(path, format!("{error}; {REMEDY}")))
        });
        let said = self.ask_versions(spec, opened.collect::<Result<_, _>>()?)?;
        let others = others(names.iter().copied().zip(&said));
        match others.split_first() {
            None => Ok(()),
            Some(((name, problem), more)) => {
                Err(Error::program(self.roles_folder.join(name), sentence(problem, more)))
            }
        }
    }

    /// What each of these programs says.
    fn ask_versions(&self, spec: &ProcessSpec, files: Vec<OwnedFd>) -> Result<Vec<Said>, Error> {
        let file = program::role_program(&self.roles_folder, INSPECTOR)?;
        let (first, count) = (helper::free_number()?, files.len());
        let words =
            [format!("bulkhead: {INSPECTOR}"), "versions".into(), first.to_string(), count.to_string()];
        let arguments = words.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let program = Program { file, arguments, environment: Vec::new() };
        let (child, printed) = loop {
            let (printed, printing) = io::pipe().map_err(during("make a pipe"))?;
            let mut descriptors = vec![(duplicate(&self.null)?, 0), (printing.into(), 1)];
            for (file, number) in files.iter().zip(first..) {
                descriptors.push((duplicate(file)?, number));
            }
            match self.start_sealed(spec, &program, descriptors, Vec::new(), None) {
                Ok(child) => break (child, OwnedFd::from(printed)),
                // It is the first process of all, so that nobody knows yet what this machine cannot do.
                Err(Error::Start(failure)) => self.do_without(failure)?,
                Err(error) => return Err(error),
            }
        };
        let answer = helper::listen_for(&child, printed.into(), LINE_BYTES_MAX * count, TIME);
        let answer = answer.map_err(during("ask the inspector"))?;
        parse(&answer.printed, count).filter(|_| answer.exit == Some(Exit::Clean)).ok_or_else(|| {
            let problem = match answer.exit {
                None => "does not say in time of which versions the programs are".to_owned(),
                Some(exit) => {
                    format!(
                        "is of another version than the launcher, or broken: it ended with {exit}; {REMEDY}"
                    )
                }
            };
            Error::program(self.roles_folder.join(INSPECTOR), problem)
        })
    }
}

/// What was printed about so many programs; `None` if that makes no sense.
fn parse(printed: &[u8], count: usize) -> Option<Vec<Said>> {
    let text = std::str::from_utf8(printed).ok().filter(|text| text.is_ascii())?;
    let said = |line: &str| {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let is_short = line.len() < LINE_BYTES_MAX && !line.bytes().any(|byte| byte.is_ascii_control());
        match (word, rest) {
            _ if !is_short => None,
            ("version", version) if !version.is_empty() => Some(Said::Version(version.to_owned())),
            ("silent", "") => Some(Said::Nothing),
            ("refused", why) if !why.is_empty() => Some(Said::Refused(why.to_owned())),
            _ => None,
        }
    };
    let said: Option<Vec<Said>> = text.strip_suffix('\n')?.split('\n').map(said).collect();
    said.filter(|said| said.len() == count)
}

/// The programs that are not of this version, and what each is instead.
fn others<'s>(said: impl Iterator<Item = (&'s str, &'s Said)>) -> Vec<(&'s str, String)> {
    let other = |(name, said): (&'s str, &Said)| match said {
        Said::Version(version) if version == noted() => None,
        Said::Version(version) => Some((name, format!("is of version {version}"))),
        Said::Nothing => Some((name, "does not say its version".to_owned())),
        Said::Refused(why) => Some((name, why.clone())),
    };
    said.filter_map(other).collect()
}

fn sentence(problem: &str, more: &[(&str, String)]) -> String {
    let more: Vec<String> = more.iter().map(|(name, problem)| format!("`{name}` {problem}")).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    format!("{problem}, and the launcher is of version {}{more}; {REMEDY}", noted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_for_each_program_or_no_answer() {
        let version = |text: &str| Said::Version(text.into());
        assert_eq!(parse(b"version 1.0.2\n", 1), Some(vec![version("1.0.2")]));
        let three = Some(vec![Said::Nothing, Said::Refused("is nothing".into()), version("2.0")]);
        assert_eq!(parse(b"silent\nrefused is nothing\nversion 2.0\n", 3), three);
        let wrong: [&[u8]; 9] = [
            b"",
            b"\n",
            b"version 1.0.2",
            b"version\n",
            b"silent x\n",
            b"static\n",
            b"silent\nsilent\n",
            b"version \x1b[0m\n",
            b"version \xff\n",
        ];
        for printed in wrong {
            assert_eq!(parse(printed, 1), None, "{printed:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let said = [
            Said::Version(noted().into()),
            Said::Version("9.9.9".into()),
            Said::Nothing,
            Said::Refused("is a door".into()),
        ];
        let others = others(["gate", "site", "logger", "admin"].into_iter().zip(&said));
        let ((name, problem), more) = others.split_first().unwrap();
        assert_eq!(*name, "site");
        let expected = format!(
            "is of version 9.9.9, and the launcher is of version {} (`logger` does not say its version, `admin` is a \
             door); {REMEDY}",
            noted()
        );
        assert_eq!(sentence(problem, more), expected);
    }

    #[test]
    fn every_program_of_ours_is_compared() {
        let names: Vec<&str> = names().collect();
        assert!(names.contains(&"gate") && names.contains(&"inspector"));
        assert!(!names.contains(&"bulkheadd") && !names.contains(&"service"));
    }
}
