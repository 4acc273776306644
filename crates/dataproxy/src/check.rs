//! What is wrong with a file of statements, beside a database.
//!
//! Runs in: the program `dataproxy check`, as the user who checks a configuration. Sees: files of the operator's. Never: changes a
//! database, or asks it for a row.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::sqlite;

/// What is to be checked, by the words of the command line.
#[derive(Debug, Default)]
struct Options {
    statements: PathBuf,
    schema: Option<PathBuf>,
    database: Option<PathBuf>,
    services: Vec<String>,
}

impl Options {
    /// `--statements FILE [--schema FILE] [--database FILE] [--service NAME]...`, as `bulkhead data check` writes them.
    fn read(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.to_str()? {
                "--statements" => options.statements = value.into(),
                "--schema" => options.schema = Some(value.into()),
                "--database" => options.database = Some(value.into()),
                "--service" => options.services.push(value.into_string().ok()?),
                _ => return None,
            }
        }
        Some(options)
    }

    /// Every mistake, if there is any.
    fn check(&self) -> Result<(), Vec<String>> {
        let in_words = |path: &PathBuf| {
            let path = path.clone();
            move |error: std::io::Error| vec![format!("{}: {error}", path.display())]
        };
        let text = std::fs::read_to_string(&self.statements).map_err(in_words(&self.statements))?;
        let file = crate::serve::parse_statements(&text, &self.services)?;
        let schema = self.schema.as_ref().map(|path| std::fs::read_to_string(path).map_err(in_words(path)));
        let connection = sqlite::open_to_look(self.database.as_deref(), schema.transpose()?.as_deref());
        let connection = connection.map_err(|error| vec![error])?;
        sqlite::prepare(&connection, file).map(drop)
    }
}

/// The whole program: fails if there are mistakes, and prints each on a line.
pub fn main() -> ExitCode {
    let Some(options) = Options::read(std::env::args_os().skip(2)) else {
        eprintln!("error: this program is started by `bulkhead data check`");
        return ExitCode::from(2);
    };
    match options.check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| println!("{mistake}"));
            ExitCode::FAILURE
        }
    }
}
