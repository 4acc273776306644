//! Templates, as `bulkhead check` looks at them.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the operator's templates. Never: runs in the launcher,
//! which leaves it to publishers to read them.
//!
//! These are warnings: whatever they say, the server runs, and everything else is served.

use std::fs::File;
use std::path::Path;

use config::{Config, Diagnostic, Severity};
use templates::{TemplateMistake, TemplateSet};

/// What is wrong with the templates of all sites.
pub fn mistakes(config: &Config) -> Vec<Diagnostic> {
    let folders = config.sites.iter().filter_map(|site| Some((&site.name, site.templates.as_ref()?)));
    folders.flat_map(|(site, templates)| of_folder(site, &templates.folder)).collect()
}

fn of_folder(site: &str, folder: &Path) -> Vec<Diagnostic> {
    let read = match File::open(folder) {
        Ok(opened) => templates::read(&opened.into()),
        // What is not there, or may not be read, has been said.
        Err(_) => return Vec::new(),
    };
    let mistakes = read.and_then(|sources| TemplateSet::compile(sources).map(drop)).err();
    mistakes.into_iter().flatten().map(|mistake| diagnostic(site, folder, mistake)).collect()
}

fn diagnostic(site: &str, folder: &Path, mistake: TemplateMistake) -> Diagnostic {
    let TemplateMistake { file, line, rule, excerpt } = mistake;
    let shown = if excerpt.is_empty() { String::new() } else { format!(": `{excerpt}`") };
    Diagnostic {
        severity: Severity::Warning,
        file: folder.join(file).display().to_string(),
        line,
        column: usize::from(line > 0),
        message: format!("{rule}{shown}"),
        helps: vec![format!(
            "until it is put right, the publisher of site \"{site}\" does not start, or keeps what it has"
        )],
    }
}
