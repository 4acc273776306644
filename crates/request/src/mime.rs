//! Media types by file name extension.
//!
//! Untrusted input: the extension. Must never: guess a type
//! from contents.

/// Sorted by extension, for binary search.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("asc", "text/plain; charset=utf-8"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/plain; charset=utf-8"),
    ("rar", "application/vnd.rar"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sh", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "text/plain; charset=utf-8"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "text/xml; charset=utf-8"),
    ("xz", "application/x-xz"),
    ("yaml", "text/yaml; charset=utf-8"),
    ("yml", "text/yaml; charset=utf-8"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The type of a file about which nothing is known: something to save, not to show.
const UNKNOWN: &str = "application/octet-stream";

/// LIMIT: bytes of the longest extension in the table.
const EXTENSION_BYTES_MAX: usize = 11;

/// The media type of a file by its name.
pub fn by_name(name: &[u8]) -> &'static str {
    let name = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
    let Some(dot) = name.iter().rposition(|&b| b == b'.') else {
        return UNKNOWN;
    };
    let extension = &name[dot + 1..];
    if extension.len() > EXTENSION_BYTES_MAX {
        return UNKNOWN;
    }
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let lower = &mut lower[..extension.len()];
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    match TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(&*lower)) {
        Ok(at) => TYPES[at].1,
        Err(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(TYPES.iter().all(|(extension, _)| extension.len() <= EXTENSION_BYTES_MAX));
    }

    #[test]
    fn by_extension_only() {
        assert_eq!(by_name(b"a/b.d/index.HTML"), "text/html; charset=utf-8");
        assert_eq!(by_name(b"a.html/README"), UNKNOWN);
        assert_eq!(by_name(b"x."), UNKNOWN);
        assert_eq!(by_name(b"x.averylongextension"), UNKNOWN);
    }
}
