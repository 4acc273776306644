//! Decoding of what `[[site]]` says of its files: `cache_control`, `stat_interval`, `compress`, `error_page`,
//! `listing`, `send_hidden`, `send_sources`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: round a
//! duration, or take an encoding that the worker does not have.

use crate::decode::{Entry, Table, exactly, narrow};
use crate::diagnostic::{Problems, quote};
use crate::parse::{KeyFault, one_of, web};
use crate::rules;
use crate::statics_schema::{Compress, Encoding, Statics};

pub(crate) fn statics(table: &Table<'_>, problems: &mut Problems) -> Statics {
    let listing = table.get("listing").and_then(|entry| entry.boolean(problems));
    Statics {
        cache_control: table.get("cache_control").and_then(|entry| cache_control(&entry, problems)),
        stat_interval_ms: table
            .get("stat_interval")
            .and_then(|entry| entry.duration_ms(&rules::STAT_INTERVAL_MS, problems))
            .map(|ms| narrow(Some(ms))),
        compress: table.get("compress").map_or_else(rules::compress, |entry| compress(&entry, problems)),
        error_page: table.get("error_page").map(|entry| pages(&entry, problems)).unwrap_or_default(),
        listing: listing.unwrap_or(false),
        send_hidden: strings(table, "send_hidden", web::hidden_name, problems),
        send_sources: strings(table, "send_sources", web::suffix, problems),
        media_types: table.get("media_types").map(|entry| media_types(&entry, problems)).unwrap_or_default(),
    }
}

fn strings(
    table: &Table<'_>,
    key: &str,
    rule: fn(&str) -> Result<(), KeyFault>,
    problems: &mut Problems,
) -> Vec<String> {
    let strings = table.get(key).and_then(|entry| entry.strings(rule, problems));
    exactly(strings.into_iter().flatten().map(|string| string.value))
}

fn media_types(entry: &Entry<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    entry.pairs(
        ("a table of media types", "{ \".wasm\" = \"application/wasm\" }"),
        web::suffix,
        web::media_type,
        problems,
    )
}

/// Caches count in whole seconds.
fn cache_control(entry: &Entry<'_>, problems: &mut Problems) -> Option<u32> {
    let ms = entry.duration_ms(&rules::CACHE_CONTROL_MS, problems)?;
    if !ms.is_multiple_of(1000) {
        let message = format!("`cache_control` is {ms}ms; caches count in whole seconds");
        problems.report_help(entry.offset, message, format!("write `\"{}s\"`", ms.div_ceil(1000)));
    }
    Some(narrow(Some(ms / 1000)))
}

/// `false`, or a table.
fn compress(entry: &Entry<'_>, problems: &mut Problems) -> Compress {
    let mut compress = rules::compress();
    if !entry.is_table() {
        if entry.boolean(problems) == Some(false) {
            compress.encodings.clear();
        }
        return compress;
    }
    let Some(mut table) = entry.table(rules::COMPRESS.0, problems) else {
        return compress;
    };
    table.check_keys(rules::COMPRESS, problems);
    if let Some(entry) = table.get("encodings") {
        compress.encodings = encodings(&entry, problems);
    }
    compress.static_level = table.count("static_level", &rules::STATIC_LEVEL, problems) as u8;
    compress.dynamic_level = table.count("dynamic_level", &rules::DYNAMIC_LEVEL, problems) as u8;
    compress.max_bytes = table.bytes("max_bytes", &rules::COMPRESS_BYTES, problems);
    compress
}

fn encodings(entry: &Entry<'_>, problems: &mut Problems) -> Vec<Encoding> {
    let mut encodings: Vec<Encoding> = Vec::new();
    for element in entry.elements(problems).unwrap_or_default() {
        let Some(encoding) = element.parsed(encoding, problems) else { continue };
        if encodings.contains(&encoding.value) {
            let name = quote(element.plain().unwrap_or_default());
            problems.report_help(
                encoding.offset,
                format!("{name} is twice in `encodings`"),
                "remove one of the two",
            );
        } else {
            encodings.push(encoding.value);
        }
    }
    encodings
}

fn encoding(text: &str) -> Result<Encoding, KeyFault> {
    match text {
        "br" => Ok(Encoding::Br),
        "zstd" => Ok(Encoding::Zstd),
        "gzip" => Ok(Encoding::Gzip),
        _ => Err(one_of("the encodings are", text, &["br", "zstd", "gzip"])),
    }
}

fn pages(entry: &Entry<'_>, problems: &mut Problems) -> Vec<(u16, String)> {
    let status = |text: &str| match text.parse::<u16>() {
        Ok(400..=599) if text.len() == 3 => Ok(()),
        _ => Err(KeyFault::with_help(
            "an error's status is 400 to 599",
            "write for example `404 = \"404.html\"`",
        )),
    };
    let form = ("a table of files", "{ 404 = \"404.html\" }");
    let pages = entry.pairs(form, status, web::below_root, problems);
    pages.into_iter().filter_map(|(status, page)| Some((status.parse().ok()?, page))).collect()
}
