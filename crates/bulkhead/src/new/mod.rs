//! `bulkhead new`: the folder of a new service, which builds, passes its tests and runs as it is.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: writes over what is there.
//!
//! A language is a folder of templates beside this file, and a [`Language`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::fault::Fault;

/// LIMIT: it is the name of a program, a site and a service.
const NAME_MAX: usize = 32;

/// Names that Rust's compiler has for itself.
const RESERVED: [&str; 5] = ["alloc", "core", "proc-macro", "std", "test"];

/// What there is to say of a new service.
#[derive(Debug, Args)]
pub struct New {
    /// The name of the service, and of its folder.
    pub name: String,
    /// What it is written in.
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub lang: Language,
    /// The folder of the SDK: crates/service or python of Bulkhead's source [default: that of the source that this
    /// program was built in]
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

/// What a service can be written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Language {
    /// Rust, with the crate bulkhead-service.
    Rust,
    /// Python, with the package bulkhead_service.
    Python,
}

/// A file of a project: its path, and its text with `@NAME@` and `@SDK@`.
type Template = (&'static str, &'static str);

impl Language {
    fn templates(self) -> &'static [Template] {
        match self {
            Self::Rust => &[
                ("Cargo.toml", include_str!("rust/Cargo.toml.in")),
                ("src/main.rs", include_str!("rust/main.rs.in")),
                ("bulkhead.toml", include_str!("rust/bulkhead.toml.in")),
                (".gitignore", include_str!("rust/gitignore.in")),
            ],
            Self::Python => &[
                ("app/main.py", include_str!("python/main.py.in")),
                ("app/test_main.py", include_str!("python/test_main.py.in")),
                ("bulkhead.toml", include_str!("python/bulkhead.toml.in")),
                (".gitignore", include_str!("python/gitignore.in")),
            ],
        }
    }

    /// Where the SDK is in Bulkhead's source, and the file by which it is known.
    fn sdk(self) -> (&'static str, &'static str) {
        match self {
            Self::Rust => ("crates/service", "Cargo.toml"),
            Self::Python => ("python", "bulkhead_service/__init__.py"),
        }
    }

    /// What makes the program, or, where nothing has to, what tests it.
    fn build(self, name: &str, sdk: &str) -> String {
        match self {
            Self::Rust => format!("cargo build --release && install -D target/release/{name} bin/{name}"),
            Self::Python => format!("PYTHONPATH={sdk} python3 -m unittest discover app"),
        }
    }
}

/// Makes the folder of a new service.
pub fn new(what: &New) -> Result<ExitCode, Fault> {
    let New { name, lang, sdk } = what;
    check_name(name)?;
    let sdk = find_sdk(*lang, sdk.as_deref())?;
    let folder = Path::new(name);
    // It fails if anything has that name.
    fs::create_dir(folder).map_err(Fault::io(format_args!("cannot make the folder {name}")))?;
    for (path, text) in lang.templates() {
        let text = text.replace("@NAME@", name).replace("@SDK@", &sdk);
        write(&folder.join(path), &text)?;
    }
    println!("{name}/ is a service with a configuration and tests. Next:\n");
    println!("  cd {name}\n  {}\n  bulkhead run", lang.build(name, &sdk));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(Fault::io(format_args!("cannot write {}", path.display())))
}

fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_good = name.bytes().all(plain)
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.len() <= NAME_MAX;
    if !is_good {
        let rule = "a letter, then letters, digits and `-`, all lower case, at most 32";
        return Err(Fault::Usage(format!("the service is called {name:?}; a name is {rule}")));
    }
    if RESERVED.contains(&name) {
        return Err(Fault::Usage(format!(
            "the service is called {name:?}, as a crate of Rust's own is; take another name"
        )));
    }
    Ok(())
}

/// The folder of the SDK as an absolute path.
fn find_sdk(lang: Language, named: Option<&Path>) -> Result<String, Fault> {
    let (place, file) = lang.sdk();
    let found = match named {
        Some(named) => Some(named.to_owned()).filter(|folder| folder.join(file).is_file()),
        None => {
            let own = std::env::current_exe().map_err(Fault::io("cannot find out where this program is"))?;
            let folders = own.ancestors().map(|folder| folder.join(place));
            folders.into_iter().find(|folder| folder.join(file).is_file())
        }
    };
    let Some(found) = found else {
        let missing = match named {
            Some(named) => format!("there is no SDK in {}", named.display()),
            None => "this program is not in Bulkhead's source, where the SDK is".to_owned(),
        };
        return Err(Fault::Usage(format!("{missing}; name its folder: --sdk /path/to/bulkhead/{place}")));
    };
    let found = fs::canonicalize(&found).map_err(Fault::io(found.display()))?;
    match found.to_str() {
        // In TOML, between quotes, and in a command.
        Some(text) if !text.contains(['"', '\\', ' ', '\'']) && !text.contains(char::is_control) => {
            Ok(text.to_owned())
        }
        _ => Err(Fault::Usage(format!("{} cannot be written into a file; move it", found.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_programs_sites_and_services() {
        for good in ["a", "hello", "hello-2", &"a".repeat(32)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for wrong in
            ["", "Hello", "2hello", "-a", "a-", "a_b", "a/b", "..", "ä", "test", "std", &"a".repeat(33)]
        {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn templates_leave_nothing_to_be_filled_in() {
        for (path, text) in [Language::Rust, Language::Python].iter().flat_map(|lang| lang.templates()) {
            let text = text.replace("@NAME@", "hello").replace("@SDK@", "/sdk");
            assert!(!text.contains('@'), "{path}");
        }
    }
}
