//! How a program is to be started: what the program `inspector` says, which reads it in a jail.
//!
//! Runs in: the launcher, as root, and the guard, which wait here. Sees: one line of the inspector's, which a made-up
//! program may have taken over. Never: reads the program itself.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use config::ProgramKind;
use sys::process::{Exit, Program};

use crate::error::{Error, at, during};
use crate::spawn::context::{SpawnContext, text};
use crate::spawn::failures::Failure;
use crate::spawn::helper;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::{self, Inspected, Start};
use sys::file_version::FileVersion;

/// The inspector's program.
pub const INSPECTOR: &str = "inspector";
/// LIMIT: bytes of its answer: a word, and the path of an interpreter.
const ANSWER_BYTES_MAX: usize = 300;

impl SpawnContext {
    /// How `content`, the program that was opened at `path` for `spec`, is to be started in a jail.
    ///
    /// SECURITY: the one place that decides whether a program may have memory that is writable and executable from its
    /// start. The kernel maps that at `execve`, which no policy of system calls sees; libraries are mapped by calls
    /// that policies judge.
    ///
    /// # Errors
    /// It cannot be started, or it could make code while it runs, which needs `jit`.
    pub fn inspect_jailed(
        &self,
        path: &Path,
        content: &File,
        (spec, jit): (&ProcessSpec, bool),
    ) -> Result<Start, Error> {
        match self.inspect(path, content, spec)? {
            Inspected { start, loose: None } => Ok(start),
            Inspected { start, .. } if jit => Ok(start),
            Inspected { loose: Some(loose), .. } => Err(Error::program(path, loose)),
        }
    }

    /// What `content` is, the program that was opened at `path` for `spec`. Known as long as the program is the same.
    pub fn inspect(&self, path: &Path, content: &File, spec: &ProcessSpec) -> Result<Inspected, Error> {
        let version = FileVersion::of(&content.metadata().map_err(at("examine", path))?);
        let known = self.inspected.borrow().get(path).filter(|(known, _)| *known == version).cloned();
        if let Some((_, inspected)) = known {
            return Ok(inspected);
        }
        if let Some(failure) = self.failures.known(path, version, Instant::now()) {
            return Err(failure.of(path));
        }
        if !self.may_find_out() {
            return Err(Error::NotExamined { path: path.into() });
        }
        let wrong = |problem: String| {
            let failure = Failure::Program(problem);
            self.failures.remember(path, version, failure.clone(), Instant::now());
            failure.of(path)
        };
        let inspected = match self.ask_inspector(path, content, spec)? {
            helper::Answer { printed, exit: Some(Exit::Clean) } => match parse(&printed) {
                Some(answer) => answer.map_err(wrong)?,
                None => {
                    return Err(wrong("cannot be inspected: the inspector's answer makes no sense".into()));
                }
            },
            helper::Answer { exit: Some(exit), .. } => {
                return Err(wrong(format!("cannot be inspected: the inspector ends with {exit}")));
            }
            _ => return Err(wrong("cannot be inspected: the inspector does not answer in time".into())),
        };
        self.inspected.borrow_mut().insert(path.into(), (version, inspected.clone()));
        Ok(inspected)
    }

    /// Opens a program of the operator's that is to be the worker of a site: as a service's, and without a dynamic
    /// loader.
    ///
    /// It gets the jail of a site's worker, in which there is no library to load, and whose system calls are those of
    /// the library `bulkhead-server`.
    pub fn worker_program(&self, path: &Path, spec: &ProcessSpec) -> Result<OwnedFd, Error> {
        let file = self.operator_program(ProgramKind::Own, path, spec.identity)?;
        if self.inspect_jailed(path, &program::readable(&file, path)?, (spec, false))? == Start::Static {
            return Ok(file);
        }
        Err(Error::program(
            path,
            "is linked dynamically, and a site's worker starts where there are no libraries; link it statically: \
             `RUSTFLAGS=\"-C target-feature=+crt-static\" cargo build --target x86_64-unknown-linux-gnu`, or for a musl \
             target",
        ))
    }

    fn ask_inspector(
        &self,
        path: &Path,
        content: &File,
        spec: &ProcessSpec,
    ) -> Result<helper::Answer, Error> {
        let file = program::role_program(&self.roles_folder, INSPECTOR)?;
        let title = text(&format!("bulkhead: {INSPECTOR}"))?;
        let program = Program { file, arguments: vec![title], environment: Vec::new() };
        // Opened once more: the inspector moves in it, and must not move the descriptor of anybody else.
        let content =
            File::open(format!("/proc/self/fd/{}", content.as_raw_fd())).map_err(at("read", path))?;
        let (printed, printing) = io::pipe().map_err(during("make a pipe"))?;
        let descriptors = vec![(content.into(), 0), (printing.into(), 1)];
        let child = self.start_sealed(spec, &program, descriptors, Vec::new(), Some(helper::CPU_SECONDS))?;
        helper::listen(&child, OwnedFd::from(printed).into(), ANSWER_BYTES_MAX)
            .map_err(during("ask the inspector"))
    }
}

/// Why a program could make code, by the inspector's word for it.
pub(super) const LOOSE: [(&[u8], &str); 3] = [
    (
        b"stack ",
        "asks for a stack that can be executed, so that it could make code while it runs; link it with `-z noexecstack` \
         (assembler sources need `.section .note.GNU-stack,\"\",@progbits`), or say `jit = true` where that is a key",
    ),
    (
        b"unsaid ",
        "does not say that its stack is data (it has no PT_GNU_STACK), so that it could make code while it runs on some \
         kernels; link it with `-z noexecstack`, or say `jit = true` where that is a key",
    ),
    (
        b"segment ",
        "has a segment that is writable and executable, so that it could make code while it runs; link it without `-N` or \
         `--omagic`, with `-z separate-code`, or say `jit = true` where that is a key",
    ),
];

/// The same words, where another process has said them.
pub(super) fn loose_of(said: &[u8]) -> Option<&'static str> {
    LOOSE.iter().map(|(_, why)| *why).find(|why| why.as_bytes() == said)
}

/// What the inspector has printed, or why the program cannot be started; `None` if it is no answer.
fn parse(printed: &[u8]) -> Option<Result<Inspected, String>> {
    let line = printed.strip_suffix(b"\n")?;
    if line.iter().any(u8::is_ascii_control) {
        return None;
    }
    let found = LOOSE.iter().find_map(|(word, why)| Some((line.strip_prefix(*word)?, *why)));
    let Some((line, why)) = found else {
        return Some(parse_start(line)?.map(|start| Inspected { start, loose: None }));
    };
    match parse_start(line)? {
        Ok(start @ (Start::Static | Start::Dynamic { .. })) => {
            Some(Ok(Inspected { start, loose: Some(why) }))
        }
        _ => None,
    }
}

fn parse_start(line: &[u8]) -> Option<Result<Start, String>> {
    let space = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let (word, rest) = (&line[..space], line.get(space + 1..).unwrap_or_default());
    let words = || std::str::from_utf8(rest).ok().filter(|text| text.is_ascii()).map(str::to_owned);
    match (word, rest) {
        (b"static", b"") => Some(Ok(Start::Static)),
        (b"dynamic" | b"go", _) => Some(Ok(Start::Dynamic { loader: words()?, is_go: word == b"go" })),
        (b"script", [_, ..]) => Some(Ok(Start::Script(OsStr::from_bytes(rest).into()))),
        (b"refused", [_, ..]) => Some(Err(words()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_and_nothing_else() {
        let fine = |start| Some(Ok(Inspected { start, loose: None }));
        let dynamic = |loader: &str, is_go| fine(Start::Dynamic { loader: loader.into(), is_go });
        assert_eq!(parse(b"static\n"), fine(Start::Static));
        for (word, why) in LOOSE {
            let loose = Some(Ok(Inspected { start: Start::Static, loose: Some(why) }));
            assert_eq!(parse(&[word, b"static\n"].concat()), loose);
            assert_eq!(parse(&[word, word, b"static\n"].concat()), None);
            assert_eq!(parse(&[word, b"refused x\n"].concat()), None);
        }
        assert_eq!(parse(b"dynamic /lib/ld.so\n"), dynamic("/lib/ld.so", false));
        assert_eq!(parse(b"go /lib/ld.so\n"), dynamic("/lib/ld.so", true));
        assert_eq!(parse(b"script /bin/\xff\n"), fine(Start::Script(OsStr::from_bytes(b"/bin/\xff").into())));
        assert_eq!(parse(b"refused is nothing\n"), Some(Err("is nothing".into())));
        let wrong: [&[u8]; 9] = [
            b"",
            b"\n",
            b"static",
            b"static x\n",
            b"static\nstatic\n",
            b"script\n",
            b"dynamic /\xff\n",
            b"refused \x1b[0m\n",
            b"other /x\n",
        ];
        for line in wrong {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }
}
