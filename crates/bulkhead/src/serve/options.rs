//! The words after `bulkhead serve`: one configuration of a server, or several with `--new` between them.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.
//!
//! Source: the command line of the web server rwasa (2ton.com.au).

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::parser::ArgMatches;
use clap::{Args, CommandFactory as _, FromArgMatches as _};

use crate::address;
use crate::cli::{Cli, Command};

/// What separates two configurations.
const NEW: &str = "--new";

/// What is listened at if nothing else is said.
pub const LISTEN: &str = "127.0.0.1:8080";

/// One configuration, and the others after it.
#[derive(Debug, Args)]
pub struct Serve {
    /// The folder to serve, whatever the host is called: the same as --sandbox DIR.
    #[arg(conflicts_with = "sandbox")]
    pub dir: Option<PathBuf>,
    /// Listen at PORT, :PORT or IP:PORT; a port alone is on 127.0.0.1 [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address::parse, conflicts_with = "bind")]
    pub listen: Option<SocketAddr>,
    /// Listen at PORT of every address of this machine (IPv4), or at ADDR:PORT; may be repeated.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address::parse_public)]
    pub bind: Vec<SocketAddr>,
    /// Speak TLS at the next --bind (or at --listen): a file with key, certificate and chain. One --bind takes several.
    #[arg(long, value_name = "PEM")]
    pub tls: Vec<PathBuf>,
    /// Serve DIR, whatever the host is called.
    #[arg(long, value_name = "DIR", conflicts_with = "vhost")]
    pub sandbox: Option<PathBuf>,
    /// Serve DIR/HOST for each HOST that has a folder there; a new folder is a new host.
    #[arg(long, value_name = "DIR")]
    pub vhost: Option<PathBuf>,
    /// Serve DIR for HOST, under a uid of its own; may be repeated.
    #[arg(long, num_args = 2, value_names = ["HOST", "DIR"])]
    pub host_sandbox: Vec<String>,
    /// Files that are tried for a folder, with commas between them [default: index.html]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub index: Vec<String>,
    /// Pass requests whose path ends in SUFFIX on by FastCGI, to IP:PORT or the socket /PATH; may be repeated.
    #[arg(long, num_args = 2, value_names = ["SUFFIX", "ADDR"])]
    pub fastcgi: Vec<String>,
    /// Pass requests on by HTTP, to IP:PORT or the socket /PATH; with folders, only if no file is there.
    #[arg(long, value_name = "ADDR")]
    pub backpath: Vec<String>,
    /// Answer every request with 302 to URL, whatever else is said.
    #[arg(long, value_name = "URL", value_parser = url)]
    pub redirect: Option<String>,
    /// How long files may be cached, in seconds (three times as long in shared caches); 0 for no-cache.
    #[arg(long, value_name = "SECS")]
    pub cache_control: Option<u32>,
    /// How often a file is looked at for changes, in seconds, up to 900.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=900))]
    pub stat_interval: Option<u32>,
    /// Keep logs in DIR: access.log.YYYYMMDD for each day of UTC (SITE.access.log.YYYYMMDD with several sites).
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Write errors to FILE, in a folder that only root can write [default: error.log in --log-dir]
    #[arg(long, value_name = "FILE")]
    pub error_log: Option<PathBuf>,
    /// Send errors to syslog as well.
    #[arg(long)]
    pub error_syslog: bool,
    /// How many processes accept connections [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpu: Option<u32>,
    /// Run sites under USER's uid, who may read the files [default: a uid of its own for each site]
    #[arg(long, value_name = "USER")]
    pub run_as: Option<String>,
    /// Begin another configuration: what follows is about other listeners and other folders.
    #[arg(long)]
    pub new: bool,
    /// Print the configuration that would be used, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Which listeners speak TLS, in the order of `bind`.
    #[arg(skip)]
    pub tls_at: Vec<bool>,
    /// The configurations after this one.
    #[arg(skip)]
    pub more: Vec<Serve>,
}

impl Serve {
    /// This configuration and those after it.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.more)
    }

    /// Where it listens, and whether it speaks TLS there.
    pub fn listeners(&self) -> Vec<(SocketAddr, bool)> {
        if !self.bind.is_empty() {
            return self.bind.iter().copied().zip(self.tls_at.iter().copied()).collect();
        }
        let listen = self.listen.or_else(|| LISTEN.parse().ok());
        listen.into_iter().map(|listen| (listen, !self.tls.is_empty())).collect()
    }

    /// The folders of all configurations.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.all().flat_map(|one| {
            let hosts = one.host_sandbox.iter().skip(1).step_by(2).map(Path::new);
            one.folder().into_iter().chain(&one.vhost).map(PathBuf::as_path).chain(hosts)
        })
    }

    /// The folder that is served whatever the host is called.
    pub fn folder(&self) -> Option<&PathBuf> {
        self.dir.as_ref().or(self.sandbox.as_ref())
    }
}

/// Reads a command line: as clap does, and for `serve` each part between `--new` by itself.
///
/// # Errors
/// clap's, which says what is wrong and how it is right; also for `--help`.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let serves = words.get(1).is_some_and(|word| word == "serve");
    let mut parts = if serves { split(&words) } else { vec![words] }.into_iter();
    let mut first = one(parts.next().unwrap_or_default())?;
    for part in parts {
        if let (Command::Serve(first), Command::Serve(next)) = (&mut first.command, one(part)?.command) {
            first.more.push(*next);
        }
    }
    Ok(first)
}

fn split(words: &[OsString]) -> Vec<Vec<OsString>> {
    let (head, rest) = words.split_at(2);
    rest.split(|word| word == NEW).map(|part| [head, part].concat()).collect()
}

fn one(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let (Command::Serve(serve), Some(("serve", about))) = (&mut cli.command, matches.subcommand()) {
        serve.tls_at = tls_at(about)
            .map_err(|problem| Cli::command().error(clap::error::ErrorKind::ArgumentConflict, problem))?;
    }
    Ok(cli)
}

/// For each `--bind`, whether a `--tls` comes between it and the one before.
fn tls_at(about: &ArgMatches) -> Result<Vec<bool>, &'static str> {
    let places = |name| about.indices_of(name).into_iter().flatten().collect::<Vec<usize>>();
    let (files, binds) = (places("tls"), places("bind"));
    let last = binds.last().copied();
    if last.is_some_and(|last| files.iter().any(|&file| file > last)) {
        return Err("--tls is about the next --bind, and there is none after it; write --tls first");
    }
    let before = std::iter::once(0).chain(binds.iter().copied());
    let spans = before.zip(&binds);
    Ok(spans.map(|(from, &to)| files.iter().any(|&file| (from..to).contains(&file))).collect())
}

fn url(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() => Ok(text.to_owned()),
        _ => Err("a redirect leads to a whole URL, as https://example.org/".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn serve(line: &str) -> Result<Serve, String> {
        let words = format!("bulkhead serve {line}");
        match read(words.split_whitespace().map(OsString::from)).map(|cli| cli.command) {
            Ok(Command::Serve(serve)) => Ok(*serve),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn tls_is_about_the_next_bind() {
        let listeners = |line| serve(line).unwrap().listeners();
        let all = |port| SocketAddr::from(([0, 0, 0, 0], port));
        assert_eq!(
            listeners("--bind 80 --tls a.pem --tls b.pem --bind 443 --bind 81"),
            [(all(80), false), (all(443), true), (all(81), false)]
        );
        assert_eq!(listeners("d"), [(LISTEN.parse().unwrap(), false)]);
        assert_eq!(listeners("d --tls a.pem --listen 8443"), [("127.0.0.1:8443".parse().unwrap(), true)]);
        assert!(serve("--bind 443 --tls a.pem").unwrap_err().contains("write --tls first"));
    }

    #[test]
    fn new_begins_another_configuration() {
        let first = serve("--bind 80 --sandbox a --new --tls c.pem --bind 443 --sandbox b --new c").unwrap();
        let folders: Vec<_> = first.all().map(|one| one.folder().unwrap().to_str().unwrap()).collect();
        assert_eq!(folders, ["a", "b", "c"]);
        let tls: Vec<_> = first.all().map(|one| one.listeners()[0].1).collect();
        assert_eq!(tls, [false, true, false]);
    }

    #[test]
    fn pairs_stay_together() {
        let one =
            serve("--host-sandbox a.test /a --host-sandbox b.test /b --fastcgi .php /run/php.sock").unwrap();
        assert_eq!(one.host_sandbox, ["a.test", "/a", "b.test", "/b"]);
        assert_eq!(one.fastcgi, [".php", "/run/php.sock"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "a --sandbox b",
            "--sandbox a --vhost b",
            "--listen 80 --bind 81",
            "--host-sandbox a.test",
            "--stat-interval 901",
            "--stat-interval 0",
            "--redirect /elsewhere",
            "--cpu 0",
            "--bind 0",
            "--bind 80 --new --frobnicate",
        ] {
            assert!(serve(line).is_err(), "{line}");
        }
    }
}
