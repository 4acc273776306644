//! `bulkhead site list`: the sites of a configuration, those that are disabled, and names of which something is left.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the configuration, and names in the state folder. Never:
//! changes anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use supervisor::site_names::generations::Standing;

use super::folder::{SiteFolder, State};
use super::record::SiteRecord;
use crate::admin::printable;
use crate::fault::Fault;
use crate::left_out;
use crate::table::{align, print};

/// Lists the sites of a configuration, also those that are disabled.
pub fn list(config: &Path, as_json: bool) -> Result<ExitCode, Fault> {
    let (loaded, left_out) = left_out::read::<&str>(config, &[])?;
    let file_of = |name: &str| -> PathBuf {
        let files = loaded.include.iter().flat_map(|include| &include.files);
        let own = files.clone().find(|file| file.sites.iter().any(|site| site == name));
        own.map_or_else(|| config.to_owned(), |file| file.path.clone())
    };
    let mut sites: Vec<Value> = Vec::new();
    for site in &loaded.sites {
        let file = file_of(&site.name).display().to_string();
        sites.push(json!({ "name": site.name, "enabled": true, "host": site.hosts, "path": site.path, "file": file }));
    }
    if let Some(include) = &loaded.include {
        let folder = SiteFolder::open(include.folder.clone())?;
        let disabled = folder.names()?.into_iter().filter(|(_, state)| *state == State::Disabled);
        sites.extend(disabled.map(|(name, _)| {
            let file = folder.file(&name).display().to_string() + ".disabled";
            json!({ "name": name, "enabled": false, "host": [], "path": null, "file": file })
        }));
    }
    let mut remains = remains(config)?;
    remains.retain(|one| sites.iter().all(|site| site["name"] != one["name"]));
    sites.extend(remains);
    if as_json {
        print(&format!("{:#}", json!({ "sites": sites, "left_out": left_out.0 })))?;
        return Ok(left_out.say());
    }
    let mut rows = vec![["SITE", "STATE", "HOSTS", "FILE"].map(str::to_owned).to_vec()];
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    rows.extend(sites.iter().map(|site| {
        let hosts = site["host"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        let left = site["left"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        let (state, file) = match (site["enabled"] == true, site["left"].is_array()) {
            (true, _) => ("enabled", text(&site["file"])),
            (false, false) => ("disabled", text(&site["file"])),
            (false, true) if site["removed"] == true => ("removed", left),
            (false, true) => ("absent", left),
        };
        vec![text(&site["name"]), state.to_owned(), hosts, file]
    }));
    print(&align(&rows, &[])).map(|()| left_out.say())
}

/// Names of which something is left in the state folder.
fn remains(config: &Path) -> Result<Vec<Value>, Fault> {
    let Some(record) = SiteRecord::open(config)? else { return Ok(Vec::new()) };
    let remains = record.remains()?.into_iter().map(|(name, standing, left)| {
        let left: Vec<String> = left.iter().map(|path| path.display().to_string()).collect();
        let removed = standing == Standing::Removed;
        json!({ "name": name, "enabled": false, "host": [], "path": null, "file": null, "removed": removed, "left": left })
    });
    Ok(remains.collect())
}
