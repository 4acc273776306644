//! The words of `bulkhead site`, and what `--help` says of them.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: acts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with sites.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// List all sites, and where each is written down. The exit code is 3 if files of sites are wrong, and left out.
    List {
        /// Print an object with the arrays `sites` and `left_out`.
        #[arg(long)]
        json: bool,
    },
    /// Add a site.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site add blog --host blog.example --root /srv/blog
  bulkhead site add forum --from forum.toml
  bulkhead site add forum --from forum.toml --adopt       (with the files and data of a forum that was removed)

If a site of this name has left files or data, the command fails, and says how to delete or to adopt them.")]
    Add {
        /// The name of the site, and of its file.
        name: String,
        /// Take this file, which has one [[site]]; `-` is standard input. Paths in it count from the folder of sites.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "root", "vhosts", "php", "upstream", "certificate"])]
        from: Option<PathBuf>,
        /// Or what is to be in it.
        #[command(flatten)]
        site: NewSite,
        /// Take over what a site of this name has left: its uids, files and data.
        #[arg(long)]
        adopt: bool,
        /// Print an object {ok, site, done}, or {ok, site, error, left, remedies} if something is left.
        #[arg(long)]
        json: bool,
    },
    /// Have the site that the configuration has take over what one of its name has left.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site adopt blog         (its `root` belongs to another user now, and it is the same site)
  bulkhead site adopt blog --json")]
    Adopt {
        /// The name of the site.
        name: String,
        /// Print an object {ok, site, done}.
        #[arg(long)]
        json: bool,
    },
    /// Remove a site: what it has begun it finishes. What it leaves is nobody's.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site remove blog
  bulkhead site remove --purge blog         (with its files and data; also those of one that was removed before)
  bulkhead site remove --purge blog --json

The uids, files/SITE and data/SITE of the site go to nobody: as long as files or data are there, no site of this name is added or
started, unless it takes them over: `bulkhead site add --adopt`. With --purge, they are deleted when the last process of the site
has ended, for which the command waits for up to 60 s. Logs and core files are kept.")]
    Remove {
        /// The name of the site.
        name: String,
        /// Delete its files and data as well.
        #[arg(long)]
        purge: bool,
        /// Print an object {ok, site, done, left, deleted}.
        #[arg(long)]
        json: bool,
    },
    /// List the uids of `user_range` that were given out, or give back those that sites have left.
    #[command(after_help = "\
EXAMPLES:
  bulkhead site uids
  bulkhead site uids blog
  bulkhead site uids --give-back blog         (after `bulkhead site remove --purge blog`)
  bulkhead site uids --give-back --all --json

STATES: in use, by the configuration; kept, for a site that is disabled or was taken out by hand; left, by a site that was removed,
or by something that the configuration has no more. A uid goes to nobody else before it is given back. What is left is given back if
no process runs under the uid, and if no file is its own, or its group's, in `state_dir`, `log_dir`, the folder of the
configuration, the folders of all sites, and those of `--search`: a process of its own searches these, for up to 300 s. What
could not be searched is not given back.

EXIT CODES: 0 all is given back, 1 something is not, 2 wrong words; of the list: 3 if files of sites are wrong, and left out")]
    Uids(UidsOf),
    /// Serve a site that was disabled.
    Enable {
        /// The name of the site.
        name: String,
    },
    /// Serve a site no more, and keep its file.
    Disable {
        /// The name of the site.
        name: String,
    },
}

/// Which uids, and what is done with them.
#[derive(Debug, Args)]
pub struct UidsOf {
    /// Those of these sites, or names as the list has them, such as service/blog/app [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Give back those that are left.
    #[arg(long)]
    pub give_back: bool,
    /// Give back all that are left.
    #[arg(long, requires = "give_back", conflicts_with = "names")]
    pub all: bool,
    /// Search this folder as well; can be given several times.
    #[arg(long, value_name = "FOLDER", requires = "give_back")]
    pub search: Vec<PathBuf>,
    /// Print an object {range, taken, free, uids, left_out}, or {ok, searched, uids} of what was given back.
    #[arg(long)]
    pub json: bool,
}

/// A site in a few words; for all others there is `--from`.
#[derive(Debug, Args)]
pub struct NewSite {
    /// A host of the site; can be given several times.
    #[arg(long, value_name = "HOST", required_unless_present = "from")]
    pub host: Vec<String>,
    /// The folder of its files.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// A folder with a folder of files for each host.
    #[arg(long, value_name = "DIR")]
    pub vhosts: Option<PathBuf>,
    /// A FastCGI server for `.php`: unix:/run/php.sock, or HOST:PORT.
    #[arg(long, value_name = "SERVER")]
    pub php: Option<String>,
    /// The server behind all paths: HOST:PORT, or unix:/run/app.sock.
    #[arg(long, value_name = "SERVER")]
    pub upstream: Option<String>,
    /// A certificate with its key; can be given several times.
    #[arg(long, value_name = "FILE")]
    pub certificate: Vec<PathBuf>,
}
