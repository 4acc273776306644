//! The words after `bulkhead site add` as the file of a site.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: writes a path that means
//! another file elsewhere: all are absolute.

use std::path::Path;

use crate::cli::NewSite;
use crate::fault::Fault;
use crate::serve::text::{Toml, path, quoted};

/// The file of a site.
pub fn text(name: &str, site: &NewSite) -> Result<String, Fault> {
    let mut out = Toml::default();
    out.table("[[site]]");
    out.line("name", &quoted(name));
    out.line("host", &list(site.host.iter().map(|host| quoted(host))));
    for (key, folder) in [("root", &site.root), ("vhosts", &site.vhosts)] {
        if let Some(folder) = folder {
            out.line(key, &quoted(&path(folder)?));
        }
    }
    if let Some(server) = &site.php {
        out.line("php", &quoted(&target(server)?));
    }
    if !site.certificate.is_empty() {
        let files = site.certificate.iter().map(|file| path(file).map(|file| quoted(&file)));
        out.line("certificates", &list(files.collect::<Result<Vec<_>, _>>()?.into_iter()));
    }
    if let Some(server) = &site.upstream {
        out.table("[[site.route]]");
        out.line("path", &quoted("/"));
        out.line("upstream", &quoted(&target(server)?));
    }
    Ok(out.text())
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// A server: a socket by its absolute path, or an address as it is.
fn target(server: &str) -> Result<String, Fault> {
    match server.strip_prefix("unix:") {
        Some(socket) => Ok(format!("unix:{}", path(Path::new(socket))?)),
        None => Ok(server.to_owned()),
    }
}
