//! Decoding of `[tls]` and of what sites say of their certificates, and the rules between these and the listeners.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: open a
//! certificate, or parse one; the signer does.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::decode::{Entry, Table, exactly};
use crate::diagnostic::Problems;
use crate::parse::{KeyFault, networks, one_of};
use crate::place::At;
use crate::raw::parts::{RawCertificate, RawSiteTls};
use crate::raw::site::RawSite;
use crate::raw::{ListedSite, RawConfig, RawListener};
use crate::rules;
use crate::schema::{ClientCertificates, Resumption, Tls, TlsVersion};

/// `[tls]`.
pub(crate) fn tls(table: &Table<'_>, problems: &mut Problems) -> Tls {
    let version = table.get("min_version").and_then(|entry| entry.parsed(version, problems));
    let resumption = table.get("resumption").and_then(|entry| entry.parsed(resumption, problems));
    let hsts = table.get("hsts").and_then(|entry| entry.string(field_value, problems));
    let exempt = match table.get("tamper_exempt") {
        None => rules::EXEMPT.map(str::to_owned).to_vec(),
        Some(entry) => {
            let elements = entry.elements(problems).unwrap_or_default();
            if elements.len() > rules::EXEMPT_MAX {
                let (count, max) = (elements.len(), rules::EXEMPT_MAX);
                let message = format!("`tamper_exempt` has {count} networks; it may have {max}");
                problems.report(entry.offset, message);
            }
            let networks = elements.iter().filter_map(|one| one.parsed(networks::network, problems));
            networks.map(|network| network.value).collect()
        }
    };
    Tls {
        min_version: version.map_or(TlsVersion::V12, |version| version.value),
        tamper_ban_ms: tamper_ban(table, problems),
        tamper_exempt: exempt,
        hsts: hsts.map_or_else(|| rules::HSTS.to_owned(), |hsts| hsts.value),
        reread_ms: table.duration_ms("reread", &rules::REREAD_MS, problems),
        resumption: resumption.map_or(Resumption::Tickets, |resumption| resumption.value),
        ocsp: table.get("ocsp").and_then(|entry| entry.boolean(problems)).unwrap_or(true),
        ocsp_ports: ocsp_ports(table, problems),
    }
}

/// Where responders may be asked.
fn ocsp_ports(table: &Table<'_>, problems: &mut Problems) -> Vec<u16> {
    let Some(entry) = table.get("ocsp_ports") else { return vec![rules::OCSP_PORT] };
    let elements = entry.elements(problems).unwrap_or_default();
    if entry.is_empty_array() || elements.len() > rules::OCSP_PORTS_MAX {
        let (count, max) = (elements.len(), rules::OCSP_PORTS_MAX);
        let message = format!("`ocsp_ports` has {count} ports; it must have 1 to {max}");
        problems.report_help(entry.offset, message, "turn stapling off with `ocsp = false`".to_owned());
    }
    let ports = elements.iter().filter_map(|one| one.count(&rules::PORT, problems));
    ports.filter_map(|port| port.try_into().ok()).collect()
}

/// How long, or `"0"` for never: nought is the same in every unit.
fn tamper_ban(table: &Table<'_>, problems: &mut Problems) -> u32 {
    match table.get("tamper_ban") {
        Some(entry) if entry.plain() == Some("0") => 0,
        _ => table.duration_ms("tamper_ban", &rules::TAMPER_BAN_MS, problems),
    }
}

fn version(text: &str) -> Result<TlsVersion, KeyFault> {
    match text {
        "1.2" => Ok(TlsVersion::V12),
        "1.3" => Ok(TlsVersion::V13),
        _ => Err(one_of("the versions of TLS are", text, &["1.2", "1.3"])),
    }
}

fn resumption(text: &str) -> Result<Resumption, KeyFault> {
    match text {
        "tickets" => Ok(Resumption::Tickets),
        "stateful" => Ok(Resumption::Stateful),
        "off" => Ok(Resumption::Off),
        _ => Err(one_of("the kinds of resumption are", text, &["tickets", "stateful", "off"])),
    }
}

fn client_certificates(text: &str) -> Result<ClientCertificates, KeyFault> {
    match text {
        "require" => Ok(ClientCertificates::Require),
        "request" => Ok(ClientCertificates::Request),
        _ => Err(one_of("a client's certificate is one to", text, &["require", "request"])),
    }
}

/// The value of a header line.
fn field_value(text: &str) -> Result<(), KeyFault> {
    if text.len() > rules::HSTS_BYTES_MAX {
        let (max, has) = (rules::HSTS_BYTES_MAX, text.len());
        return Err(KeyFault::new(format!(
            "a value of this header has at most {max} bytes, and this has {has}"
        )));
    }
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(()),
        false => Err(KeyFault::new("a header's value has only printable ASCII characters")),
    }
}

/// What a site says of its certificates; nothing, if it says nothing.
pub(crate) fn site(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Option<RawSiteTls> {
    let (offset, certificates) = certificates(table, dir, problems).unzip();
    let client_ca = table.get("client_ca");
    let client_crl = table.get("client_crl");
    let demand = table.get("client_certificates");
    let other = client_ca.as_ref().or(client_crl.as_ref()).or(demand.as_ref());
    if let (None, Some(other)) = (&offset, other) {
        let message = format!("`{}` is without `certificates`, and so without effect", other.key());
        problems.report_help(other.offset, message, "add for example `certificates = [\"site.pem\"]`");
    }
    if let (None, Some(demand)) = (&client_ca, &demand) {
        let message = "`client_certificates` is without a `client_ca` to check them by";
        problems.report_help(demand.offset, message, "add for example `client_ca = \"clients.pem\"`");
    }
    if let (None, Some(lists)) = (&client_ca, &client_crl) {
        let message = "`client_crl` is without a `client_ca` whose certificates it is about";
        problems.report_help(lists.offset, message, "add for example `client_ca = \"clients.pem\"`");
    }
    let client_crl = client_crl.map_or_else(Vec::new, |entry| {
        let (max, help) = (rules::CLIENT_CRL_MAX, "leave it out if no certificate is revoked");
        files(&entry, &table.label, (max, help), dir, problems)
    });
    let demand = demand.and_then(|entry| entry.parsed(client_certificates, problems));
    let client_ca = client_ca.and_then(|entry| entry.path(dir, problems));
    Some(RawSiteTls {
        offset: offset?,
        certificates: certificates?,
        client_ca,
        client_crl,
        client_certificates: demand.map_or(ClientCertificates::Require, |demand| demand.value),
    })
}

/// The certificates of a site, and where they stand; `None` if it has none. A single one may be the site's own
/// `certificate` and `key`, as an authority's client leaves the two files.
fn certificates(
    table: &Table<'_>,
    dir: &Path,
    problems: &mut Problems,
) -> Option<(usize, Vec<RawCertificate>)> {
    let (one, key, several) = (table.get("certificate"), table.get("key"), table.get("certificates"));
    if let (None, Some(key)) = (&one, &key) {
        let help = match several.is_some() {
            true => "write `certificates = [{ certificate = \"fullchain.pem\", key = \"privkey.pem\" }]`",
            false => "add for example `certificate = \"fullchain.pem\"`",
        };
        let message = format!("`key` is without a `certificate` in {}", table.label);
        problems.report_help(key.offset, message, help);
    }
    if let (Some(one), Some(_)) = (&one, &several) {
        let message = format!("{} has both `certificate` and `certificates`", table.label);
        let help = "write all of them as elements of `certificates`; with a key in another file as `{ certificate = \"...\", \
                    key = \"...\" }`";
        problems.report_help(one.offset, message, help);
    }
    if let Some(entry) = several {
        let (max, help) = (rules::CERTIFICATES_MAX, "leave it out for a site without TLS");
        let elements = list(&entry, &table.label, (max, help), problems);
        let certificates = elements.iter().filter_map(|element| certificate(element, dir, problems));
        return Some((entry.offset, exactly(certificates)));
    }
    let one = one?;
    let key = key.and_then(|key| key.path(dir, problems));
    let certificate = one.path(dir, problems);
    let certificate =
        certificate.map(|certificate| RawCertificate { named_by: "certificate", certificate, key });
    Some((one.offset, certificate.into_iter().collect()))
}

/// One of `certificates`: a file that has the key as well, or a table of two files.
fn certificate(element: &Entry<'_>, dir: &Path, problems: &mut Problems) -> Option<RawCertificate> {
    if !element.is_table() {
        let certificate = element.path(dir, problems)?;
        return Some(RawCertificate { named_by: "certificates", certificate, key: None });
    }
    let mut table = element.table(rules::CERTIFICATE.0, problems)?;
    table.check_keys(rules::CERTIFICATE, problems);
    let certificate = table.require("certificate", "\"fullchain.pem\"", problems)?.path(dir, problems);
    let key = table.get("key").and_then(|key| key.path(dir, problems));
    Some(RawCertificate { named_by: "certificate", certificate: certificate?, key })
}

/// A list of files: not empty, for which there is the remedy `help`, and at most `max`.
fn files(
    entry: &Entry<'_>,
    label: &str,
    (max, help): (usize, &str),
    dir: &Path,
    problems: &mut Problems,
) -> Vec<At<PathBuf>> {
    let elements = list(entry, label, (max, help), problems);
    exactly(elements.iter().filter_map(|element| element.path(dir, problems)))
}

/// The elements of a list, as for `files`.
fn list<'t>(
    entry: &Entry<'t>,
    label: &str,
    (max, help): (usize, &str),
    problems: &mut Problems,
) -> Vec<Entry<'t>> {
    let Some(elements) = entry.elements(problems) else {
        return Vec::new();
    };
    if elements.is_empty() {
        problems.report_help(entry.offset, format!("`{}` is empty in {label}", entry.key()), help);
    } else if elements.len() > max {
        let count = elements.len();
        problems.report(entry.offset, format!("`{}` has {count} files; it may have {max}", entry.key()));
    }
    elements
}

/// The rules between listeners and certificates.
pub(crate) fn check(raw: &RawConfig, problems: &mut Problems) {
    for listener in &raw.listeners {
        check_listener(raw, listener, problems);
    }
    let fronts = OnceCell::new();
    for site in &raw.sites {
        match &site.tls {
            Some(tls) if site.is_new() => check_site(raw, site, tls, problems),
            Some(_) => {}
            None => check_path(raw, site, &fronts, problems),
        }
    }
}

fn check_listener(raw: &RawConfig, listener: &RawListener, problems: &mut Problems) {
    let (offset, address) = (listener.address.offset, listener.address.value);
    for (is_set, key, why) in [
        (listener.redirect_to_https, "redirect_to_https", "there is nothing to redirect to"),
        (listener.h2c, "h2c", "it is HTTP/2 without TLS; with TLS, clients choose HTTP/2 by themselves"),
    ] {
        if listener.tls && is_set {
            let message = format!("listener \"{address}\" has both `tls` and `{key}`: {why}");
            problems.report_help(offset, message, format!("remove `{key}`"));
        }
    }
    // Sites of a folder come and go.
    let is_used = |site: &ListedSite| site.tls.is_some() && answers_on(site, listener);
    if listener.tls && raw.include.is_none() && !raw.sites.iter().any(is_used) {
        let message = format!("listener \"{address}\" has `tls`, and no site on it has `certificates`");
        problems.report_help(
            offset,
            message,
            "add `certificates = [\"site.pem\"]` to a site, or remove `tls`",
        );
    }
    if listener.redirect_to_https && raw.listeners_known && !raw.listeners.iter().any(|other| other.tls) {
        let message = format!("listener \"{address}\" redirects to https, and no listener has `tls`");
        problems.report_help(offset, message, "add a `[[listen]]` with `tls = true`");
    }
}

fn check_site(raw: &RawConfig, site: &RawSite, tls: &RawSiteTls, problems: &mut Problems) {
    if raw.listeners_known && !raw.listeners.iter().any(|listener| listener.tls && answers_on(site, listener))
    {
        let message = format!("{} has `certificates`, and no listener with `tls`", site.label);
        let help = "add `tls = true` to a `[[listen]]` that it answers on, or remove `certificates`";
        problems.report_help(tls.offset, message, help);
    }
    if has_path(site) {
        let message = format!(
            "{} has `certificates` and a `path`: TLS is done by the site that has the host without a `path`, which \
             relays to this one",
            site.label
        );
        problems.report_help(
            tls.offset,
            message,
            "remove `certificates` here; the site that has the host without a `path` must have them",
        );
    }
}

/// Whether a site needs another one that does TLS for its hosts: it has a `path`, and answers by TLS alone.
pub(crate) fn needs_front(site: &RawSite, listeners: &[RawListener]) -> bool {
    let mut own = listeners.iter().filter(|listener| answers_on(site, listener)).peekable();
    has_path(site) && own.peek().is_some() && own.all(|listener| listener.tls)
}

fn has_path(site: &RawSite) -> bool {
    site.path.as_deref().is_some_and(|path| path != "/")
}

/// A site with a `path` that answers by TLS alone has a site that does TLS for each of its hosts.
fn check_path<'r>(
    raw: &'r RawConfig,
    site: &RawSite,
    fronts: &OnceCell<HashMap<&'r str, Vec<&'r RawSite>>>,
    problems: &mut Problems,
) {
    if !needs_front(site, &raw.listeners) {
        return;
    }
    let listeners: Vec<_> = raw.listeners.iter().filter(|listener| answers_on(site, listener)).collect();
    let relays = |other: &&RawSite| listeners.iter().any(|listener| answers_on(other, listener));
    let fronts = fronts.get_or_init(|| fronts_of(raw));
    for host in &site.hosts {
        if !fronts.get(host.value.as_str()).is_some_and(|others| others.iter().any(relays)) {
            let message = format!(
                "`host` \"{}\" of {}, which has a `path` and answers by TLS alone, is in no site with `certificates`: \
                 nobody could do TLS for it",
                host.value, site.label
            );
            problems.report_help(
                host.offset,
                message,
                "add a site with this `host`, `certificates` and no `path`, which relays to this one",
            );
        }
    }
}

/// The sites with certificates, by host.
fn fronts_of(raw: &RawConfig) -> HashMap<&str, Vec<&RawSite>> {
    let mut fronts: HashMap<_, Vec<_>> = HashMap::new();
    for site in raw.sites.iter().filter(|site| site.tls.is_some()) {
        for host in &site.hosts {
            fronts.entry(host.value.as_str()).or_default().push(&**site);
        }
    }
    fronts
}

/// Whether a site answers on a listener.
fn answers_on(site: &RawSite, listener: &RawListener) -> bool {
    let on = |listen: &Vec<At<_>>| listen.iter().any(|address| address.value == listener.address.value);
    site.listen.as_ref().is_none_or(on)
}
