//! The options of `bulkhead guard`: a configuration, as text, and settings of the guard alone.
//!
//! Runs in: the guard. Sees: words that `bulkhead guard` has checked, or that somebody made up. Never: guesses.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use config::Config;

use crate::listeners::Terms;

/// How the server is brought to take connections from the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// As the program asks for.
    Auto,
    /// By a preloaded library.
    Preload,
    /// By answers to its system calls.
    Notify,
}

/// The guarded server.
#[derive(Debug)]
pub enum GuardTarget {
    /// A command that the guard starts.
    Command(Vec<OsString>),
    /// The program that has started the guard, by the end of its control channel.
    Parent(RawFd),
}

/// A process in whose jail the probe is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// The guard's gate.
    Gate,
    /// The process that copies core files.
    Keeper,
    /// The process that ends the programs that a launcher leaves.
    Reaper,
    /// The process that closes what others have sent.
    Closer,
    /// The process that looks into a program.
    Inspector,
    /// A program's dynamic loader, which lists libraries.
    Loader,
    /// The process that reads certificates and keys before a configuration runs.
    Check,
}

/// Everything that the guard is sent.
#[derive(Debug)]
pub struct Options {
    /// Limits, policies and filters.
    pub config: Config,
    /// Where the gate accepts; the server's own addresses if there are none.
    pub listen: Vec<SocketAddr>,
    /// How the server is brought to it.
    pub by: By,
    /// How often what was shed is sent.
    pub report: Option<Duration>,
    /// Whether kept-alive connections return to the gate.
    pub persists: bool,
    /// The settings of all sockets of the server.
    pub terms: Terms,
    /// The guarded server.
    pub guarded: GuardTarget,
    /// For tests: the jail to probe instead of guarding, and the words for the probe.
    pub probe: Option<(ProbeTarget, Vec<OsString>)>,
}

/// The options so far, before they are checked.
#[derive(Default)]
struct Words {
    text: Option<String>,
    folder: Option<PathBuf>,
    listen: Vec<SocketAddr>,
    by: Option<By>,
    report: Option<Duration>,
    keeps: bool,
    capacity: Option<NonZeroU32>,
    unfiltered: bool,
    control: Option<RawFd>,
    probed: Option<ProbeTarget>,
}

impl Options {
    /// Reads the words; every option has a value.
    pub fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut words = Words::default();
        let mut command = None;
        while let Some(option) = arguments.next() {
            if option == "--" {
                command = Some(arguments.by_ref().collect::<Vec<_>>());
                break;
            }
            let option = text(option)?;
            let value = arguments.next().ok_or_else(|| format!("{option} has no value"))?;
            words.take(&option, text(value)?)?;
        }
        words.finish(command)
    }
}

impl Words {
    fn take(&mut self, option: &str, value: String) -> Result<(), String> {
        let wrong = || format!("{option} cannot be `{}`", value.escape_debug());
        match option {
            "--config-text" => self.text = Some(value),
            "--config-folder" => self.folder = Some(value.into()),
            "--listen" => self.listen.push(value.parse().map_err(|_| wrong())?),
            "--report" => self.report = Some(Duration::from_secs(value.parse().map_err(|_| wrong())?)),
            "--control" => self.control = Some(value.parse().map_err(|_| wrong())?),
            "--capacity" => self.capacity = Some(value.parse().map_err(|_| wrong())?),
            "--persist" => self.keeps = value == "no",
            "--unfiltered" => self.unfiltered = value == "yes",
            "--probe" => {
                let jails = [
                    ("gate", ProbeTarget::Gate),
                    ("keeper", ProbeTarget::Keeper),
                    ("reaper", ProbeTarget::Reaper),
                    ("closer", ProbeTarget::Closer),
                    ("inspector", ProbeTarget::Inspector),
                    ("loader", ProbeTarget::Loader),
                    ("signer check", ProbeTarget::Check),
                ];
                self.probed = Some(one_of(&jails, &value).ok_or_else(wrong)?);
            }
            "--by" => {
                let ways = [("auto", By::Auto), ("preload", By::Preload), ("notify", By::Notify)];
                self.by = Some(one_of(&ways, &value).ok_or_else(wrong)?);
            }
            _ => return Err(format!("there is no {}; use `bulkhead guard`", option.escape_debug())),
        }
        Ok(())
    }

    fn finish(self, command: Option<Vec<OsString>>) -> Result<Options, String> {
        let probe = self.probed.map(|probed| (probed, command.clone().unwrap_or_default()));
        let guarded = match (command, self.control) {
            (Some(command), None) if !command.is_empty() => GuardTarget::Command(command),
            (None, Some(control)) => GuardTarget::Parent(control),
            _ => return Err("expected a command or --control; use `bulkhead guard`".into()),
        };
        let text = self.text.ok_or("there is no configuration; use `bulkhead guard`")?;
        let folder = self.folder.unwrap_or_else(|| "/".into());
        let config = Config::parse(&text, "options", &folder).map_err(|problems| problems.to_string())?;
        if self.keeps && !self.unfiltered && !config.conditioning.filters.is_empty() {
            // Said with the words of `bulkhead guard`, where it comes from.
            return Err(
                "--filter sees only the first request of each connection without --policy flt_persist; \
                        add that, or --unfiltered if the others may pass filters by"
                    .into(),
            );
        }
        Ok(Options {
            config,
            listen: self.listen,
            by: self.by.unwrap_or(By::Auto),
            report: self.report,
            persists: !self.keeps,
            terms: Terms { capacity: self.capacity.map(NonZeroU32::get), unfiltered: self.unfiltered },
            guarded,
            probe,
        })
    }
}

fn one_of<T: Copy>(known: &[(&str, T)], word: &str) -> Option<T> {
    known.iter().find(|(name, _)| *name == word).map(|&(_, value)| value)
}

fn text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| format!("{} is not UTF-8", word.to_string_lossy().escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[listen]]\naddress = \"127.0.0.1:1\"\n[[site]]\nname = \"guard\"\nhost = [\"*\"]\nroot = \
        \"/dev/null\"\n";

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn a_command_or_a_channel() {
        let options = parse(&["--config-text", TEXT, "--by", "notify", "--", "server", "--by"]).unwrap();
        assert!(matches!(&options.guarded, GuardTarget::Command(words) if words[1] == "--by"));
        assert_eq!((options.by, options.persists), (By::Notify, true));
        let options = parse(&["--config-text", TEXT, "--control", "5", "--persist", "no"]).unwrap();
        assert!(matches!(options.guarded, GuardTarget::Parent(5)) && !options.persists);
        let options = parse(&["--config-text", TEXT, "--capacity", "20", "--", "server"]).unwrap();
        assert_eq!((options.terms.capacity, options.terms.unfiltered), (Some(20), false));
        assert!(parse(&["--config-text", TEXT]).is_err());
        assert!(parse(&["--config-text", TEXT, "--"]).is_err());
        assert!(parse(&["--config-text", TEXT, "--control", "5", "--", "server"]).is_err());
    }

    #[test]
    fn filters_see_all_requests_or_it_is_said_that_they_do_not() {
        let filters = format!("[conditioning]\nfilters = [[\"/bin/true\"]]\n{TEXT}");
        let keeps = ["--config-text", &filters, "--persist", "no"];
        let parse = |more: &[&str]| parse(&[&keeps[..], more, &["--", "server"]].concat());
        assert!(parse(&[]).unwrap_err().contains("flt_persist"));
        assert!(parse(&["--unfiltered", "yes"]).unwrap().terms.unfiltered);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert!(parse(&["--by", "magic"]).unwrap_err().contains("magic"));
        assert!(parse(&["--capacity", "0"]).unwrap_err().contains("--capacity"));
        assert!(parse(&["--what", "x"]).unwrap_err().contains("--what"));
        assert!(parse(&["--listen"]).unwrap_err().contains("no value"));
        assert!(parse(&["--config-text", "x", "--", "y"]).unwrap_err().contains("options:1"));
    }
}
