//! `bulkhead check`: every mistake of a configuration, and what is perhaps not meant, for people or as JSON.
//!
//! Runs in: the `bulkhead` command. Sees: the operator's file. Never: runs or changes anything.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use certificate::own;
use config::{Config, Diagnostic};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use wire::tls::Holding;
use zeroize::Zeroizing;

use crate::admin::printable;
use crate::fault::Fault;
use crate::table::print;

/// LIMIT: as for the signer; a key and a chain of 16 certificates at their largest fit in less.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A mistake as JSON.
#[derive(Debug, Serialize)]
struct Mistake<'d> {
    severity: &'d str,
    file: &'d str,
    line: usize,
    column: usize,
    message: &'d str,
    helps: &'d [String],
}

impl<'d> From<&'d Diagnostic> for Mistake<'d> {
    fn from(diagnostic: &'d Diagnostic) -> Self {
        Self {
            severity: diagnostic.severity.word(),
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            message: &diagnostic.message,
            helps: &diagnostic.helps,
        }
    }
}

/// Checks a configuration and says what is wrong with it.
pub fn check(path: &Path, json: bool) -> Result<ExitCode, Fault> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let checked = Config::load_with(path, |file, hosts| certificate(file, hosts, now));
    if json {
        let mistakes = match &checked {
            Ok(config) => &config.warnings,
            Err(found) => &found.0,
        };
        let mistakes: Vec<Mistake<'_>> = mistakes.iter().map(Mistake::from).collect();
        let text =
            serde_json::to_string_pretty(&mistakes).map_err(|error| Fault::Failed(error.to_string()))?;
        print(&text)?;
    }
    match checked {
        Ok(_) if json => Ok(ExitCode::SUCCESS),
        Ok(config) => {
            config.warnings.iter().for_each(|warning| eprintln!("{warning}"));
            print(&format!("{}: ok: {}", path.display(), summary(&config))).map(|()| ExitCode::SUCCESS)
        }
        Err(_) if json => Ok(ExitCode::from(2)),
        Err(diagnostics) => Err(Fault::Usage(diagnostics.to_string())),
    }
}

/// What is to be said of a file with a key and its certificates; what is wrong with the file itself, its signer says.
fn certificate(path: &Path, hosts: &[&str], now: u64) -> Vec<(String, String)> {
    let shown = printable(&path.display().to_string());
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize));
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
    if let Err(error) = read {
        let what = format!("{shown} cannot be read by this user, so its certificate is not checked: {error}");
        return vec![(what, "check as the user who starts bulkhead".to_owned())];
    }
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    let own = own::first(&chain).and_then(|own| Some((own, own::validity(own)?)));
    let Some((own, (not_before, not_after))) = own else {
        let what = format!("{shown} has no certificate that can be read");
        return vec![(what, "put the site's certificate into it, as PEM, with its chain and key".to_owned())];
    };
    let named = own::names_one_of(own, hosts.iter().copied());
    let holding = Holding { not_before, not_after, named, ..Holding::NOTHING };
    let objections = holding.objections(now);
    objections.map(|one| (format!("{shown} {}", one.words()), one.remedy().to_owned())).collect()
}

fn summary(config: &Config) -> String {
    let services = config.sites.iter().map(|site| site.services.len()).sum();
    format!(
        "{}, {}, {}",
        count(config.sites.len(), "site"),
        count(services, "service"),
        count(config.listeners.len(), "listener")
    )
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(count(0, "site"), "0 sites");
        assert_eq!(count(1, "site"), "1 site");
        assert_eq!(count(2, "site"), "2 sites");
    }
}
