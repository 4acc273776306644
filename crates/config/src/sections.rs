//! Decoding of `[server]`, `[[listen]]`, `[log]`, `[restart]` and `[limits]`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must
//! never: look at another table than its own; what spans tables is in `check`.

use std::path::{Path, PathBuf};

use crate::decode::{Table, narrow};
use crate::diagnostic::Problems;
use crate::keys::{limits_keys, plain_reading, restart_keys};
use crate::parse::{KeyFault, hosts, networks, one_of, units};
use crate::place::At;
use crate::raw::{RawListener, RawServer};
use crate::readers::{Bytes, Bytes32, Count, Duration, KeyReader, ReadElsewhere, TableSource};
use crate::rules::{
    self, BACKOFF_MAX_MS, BODY_BYTES, BROKEN_AFTER, CONNECTIONS, DRAIN_TIMEOUT_MS, HANG_AFTER_MS, HEAD_BYTES,
    HEAD_TIMEOUT_MS, IDLE_TIMEOUT_MS, START_TIMEOUT_MS, WITHIN_MS,
};
use crate::schema::{AccessFormat, Isolation, Limits, Log, Restart, Start};

/// The folder of what must outlive a restart, unless the file names another.
pub(crate) const STATE_DIR: &str = "state";

limits_keys!(plain_reading);
restart_keys!(plain_reading);

pub(crate) fn server(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> RawServer {
    let user_range = match table.get("user_range") {
        Some(entry) => entry.parsed(units::user_range, problems),
        None => Some(At::default(rules::USER_RANGE, table.offset)),
    };
    RawServer {
        user_range,
        user_range_given: !table.lacks("user_range"),
        state_dir: folder(table, "state_dir", &dir.join(STATE_DIR), dir, problems),
        run_dir: folder(table, "run_dir", &dir.join("run"), dir, problems),
        log_dir: folder(table, "log_dir", &dir.join("log"), dir, problems),
        gates: table
            .get("gates")
            .and_then(|entry| entry.count(&rules::GATES, problems))
            .map(|n| narrow(Some(n))),
        isolation: table
            .get("isolation")
            .and_then(|entry| entry.parsed(isolation, problems))
            .map_or(Isolation::Strict, |isolation| isolation.value),
        danger_without: danger_without(table, problems),
        start: start(table, problems).unwrap_or(Start::Always),
        idle_stop_ms: table.duration_ms("idle_stop", &rules::IDLE_STOP_MS, problems),
    }
}

/// When processes of sites start, if the table says so.
pub(crate) fn start(table: &Table<'_>, problems: &mut Problems) -> Option<Start> {
    let word = |text: &str| match text {
        "always" => Ok(Start::Always),
        "on-demand" => Ok(Start::OnDemand),
        // Planned once: decision 77.
        "standby" => Err(KeyFault::with_help(
            "processes of sites start always, on-demand; one that waits in its jail without its program would save some \
             milliseconds of a first request, and cost half the memory of one that runs",
            "write `start = \"on-demand\"`, or `start = \"always\"` where milliseconds count",
        )),
        _ => Err(one_of("processes of sites start", text, &["always", "on-demand"])),
    };
    table.get("start").and_then(|entry| entry.parsed(word, problems)).map(|start| start.value)
}

fn isolation(text: &str) -> Result<Isolation, KeyFault> {
    match text {
        "strict" => Ok(Isolation::Strict),
        "degraded" => Ok(Isolation::Degraded),
        _ => Err(one_of("the kinds of isolation are", text, &["strict", "degraded"])),
    }
}

/// Layers can be left out only by somebody who says twice that it is meant.
fn danger_without(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let Some(entry) = table.get("danger_without") else {
        return Vec::new();
    };
    let layer = |text: &str| match rules::LAYERS.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(one_of("the layers of the jail are", text, &rules::LAYERS)),
    };
    let elements = entry.elements(problems).unwrap_or_default();
    let degraded = table.get("isolation").and_then(|entry| entry.plain()) == Some("degraded");
    if !degraded && !elements.is_empty() {
        let message = "`danger_without` leaves layers of the jail out, which strict isolation does not allow";
        problems.report_help(entry.offset, message, "remove it, or write `isolation = \"degraded\"`");
    }
    elements.iter().filter_map(|element| element.parsed(layer, problems)).map(|layer| layer.value).collect()
}

fn folder(
    table: &Table<'_>,
    key: &'static str,
    default: &Path,
    dir: &Path,
    problems: &mut Problems,
) -> Option<At<PathBuf>> {
    match table.get(key) {
        Some(entry) => entry.path(dir, problems),
        None => Some(At::default(default.to_owned(), table.offset)),
    }
}

/// The listeners, and whether there are any and all could be read.
pub(crate) fn listeners(root: &Table<'_>, problems: &mut Problems) -> (Vec<RawListener>, bool) {
    let mut listeners = Vec::new();
    let tables = root.require_tables("listen", rules::LISTEN.0, problems);
    let count = tables.len();
    for mut table in tables {
        table.check_keys(rules::LISTEN, problems);
        let entry = table.require("address", "\"127.0.0.1:8080\"", problems);
        let address = entry.and_then(|entry| entry.parsed(hosts::address, problems));
        let mut flag = |key| table.get(key).and_then(|entry| entry.boolean(problems)).unwrap_or(false);
        let (shared_connections, tls) = (flag("shared_connections"), flag("tls"));
        let (redirect_to_https, h2c) = (flag("redirect_to_https"), flag("h2c"));
        let (unfiltered, proxies) = (flag("unfiltered"), proxies(&table, problems));
        listeners.extend(address.map(|address| RawListener {
            address,
            shared_connections,
            tls,
            redirect_to_https,
            h2c,
            proxies,
            unfiltered,
        }));
    }
    let known = count > 0 && listeners.len() == count;
    (listeners, known)
}

/// Who may say, by the PROXY protocol, that a connection is somebody else's; nobody without `proxy_protocol`.
fn proxies(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let speaks = table.get("proxy_protocol").and_then(|entry| entry.boolean(problems)).unwrap_or(false);
    let trusted = table.get("trusted");
    if let Some(entry) = trusted.as_ref().filter(|_| !speaks) {
        let message = "`trusted` names who speaks the PROXY protocol, which this listener does not expect";
        problems.report_help(entry.offset, message, "add `proxy_protocol = true`, or remove it");
    }
    let elements = trusted.as_ref().and_then(|entry| entry.elements(problems)).unwrap_or_default();
    if speaks && elements.is_empty() {
        let message = "`proxy_protocol` without `trusted`: anybody could claim any address";
        problems.report_help(
            table.offset,
            message,
            "add the proxy's, for example `trusted = [\"10.0.0.7/32\"]`",
        );
    }
    elements.iter().filter_map(|one| one.parsed(networks::network, problems)).map(|one| one.value).collect()
}

/// `[log]`, and the place of its `error_file`.
pub(crate) fn log(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> (Log, Option<At<PathBuf>>) {
    let format = table.get("access_format").and_then(|entry| entry.parsed(access_format, problems));
    let error_file = table.get("error_file").and_then(|entry| entry.path(dir, problems));
    let mut flag = |key| table.get(key).and_then(|entry| entry.boolean(problems)).unwrap_or_default();
    let (daily, error_syslog) = (flag("daily"), flag("error_syslog"));
    let log = Log {
        access_format: format.map_or(AccessFormat::Combined, |format| format.value),
        flush_ms: table.duration_ms("flush", &rules::FLUSH_MS, problems),
        daily,
        error_file: error_file.as_ref().map(|at| at.value.clone()),
        error_syslog,
        access_bytes: table.bytes("access_bytes", &rules::ACCESS_BYTES, problems),
    };
    (log, error_file)
}

fn access_format(text: &str) -> Result<AccessFormat, KeyFault> {
    match text {
        "common" => Ok(AccessFormat::Common),
        "combined" => Ok(AccessFormat::Combined),
        "json" => Ok(AccessFormat::Json),
        _ => Err(one_of("the formats are", text, &["common", "combined", "json"])),
    }
}
