//! What a service manager gives to the launcher: where to report to, how often, and listening sockets.
//!
//! Runs in: the launcher, before it opens anything. Sees: its environment, which its starter has made. Never: passes
//! any of the variables on: every program that the launcher starts gets an environment of its own.
//!
//! Protocols: sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3) of systemd.

use std::env;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use supervisor::error::{Error, during};
use supervisor::spawn::inheritance;
use sys::inherit::{CONTROL, SAY, files};

use crate::components::notifier::Notifier;

/// All of it; nothing of it without a service manager.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// To whom the launcher reports.
    pub notifier: Option<Notifier>,
    /// After how long without a sign of life the launcher is ended.
    pub watchdog: Option<Duration>,
    /// Sockets, and what each is called.
    pub sockets: Vec<(String, OwnedFd)>,
}

impl Given {
    /// Takes what there is; works once. Descriptors that were passed move away from the numbers at which children find
    /// theirs, and these numbers are occupied before anything else is opened.
    ///
    /// # Errors
    /// A variable has a value that it cannot have, or a descriptor that one counts is not open.
    pub(crate) fn take() -> Result<Self, Error> {
        let variables = Variables { get: &env::var_os, pid: std::process::id() };
        let names = variables.socket_names()?;
        let numbers = if names.is_empty() { Vec::new() } else { passed(names.len())? };
        inheritance::prepare()?;
        Ok(Self {
            notifier: variables.notifier()?,
            watchdog: variables.watchdog()?,
            sockets: names.into_iter().zip(numbers).collect(),
        })
    }
}

/// The descriptors that are passed, from number 3 on, as the channels of a child are.
fn passed(count: usize) -> Result<Vec<OwnedFd>, Error> {
    let action = "take the sockets that LISTEN_FDS counts";
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    let passed = files(CONTROL, count).map_err(during(action))?;
    passed.iter().map(|file| fcntl_dupfd_cloexec(file, SAY + 1).map_err(during(action))).collect()
}

/// The environment, for the process of this number.
struct Variables<'a> {
    get: &'a dyn Fn(&'static str) -> Option<OsString>,
    pid: u32,
}

impl Variables<'_> {
    /// The names of the sockets, `LISTEN_FDNAMES`, or their numbers.
    fn socket_names(&self) -> Result<Vec<String>, Error> {
        let count = self.number("LISTEN_FDS", "a number of sockets, at most 65535")?.unwrap_or(0_u16);
        if !self.is_for_us("LISTEN_PID")? {
            return Ok(Vec::new());
        }
        let names = (self.get)("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.to_string_lossy();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        Ok((CONTROL..)
            .take(count.into())
            .map(|n| names.next().map_or_else(|| n.to_string(), String::from))
            .collect())
    }

    fn notifier(&self) -> Result<Option<Notifier>, Error> {
        let Some(name) = (self.get)("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return Ok(None) };
        let rule = "the path of a socket, or an abstract name after `@`";
        let wrong =
            |_| Error::Environment { name: "NOTIFY_SOCKET", value: name.to_string_lossy().into(), rule };
        Notifier::to(&name).map(Some).map_err(wrong)
    }

    fn watchdog(&self) -> Result<Option<Duration>, Error> {
        let time = self.number("WATCHDOG_USEC", "a number of microseconds")?;
        // Without a number of a process, it is for whoever has the variable.
        let is_ours = (self.get)("WATCHDOG_PID").is_none() || self.is_for_us("WATCHDOG_PID")?;
        Ok(time.filter(|&time| time > 0 && is_ours).map(Duration::from_micros))
    }

    /// Whether a variable is the number of this process: others have inherited what was meant for their starter.
    fn is_for_us(&self, name: &'static str) -> Result<bool, Error> {
        Ok(self.number(name, "the number of a process")? == Some(self.pid))
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        rule: &'static str,
    ) -> Result<Option<T>, Error> {
        let Some(value) = (self.get)(name) else { return Ok(None) };
        let parsed = value.to_str().and_then(|value| value.parse().ok());
        parsed.map(Some).ok_or_else(|| Error::Environment {
            name,
            value: value.to_string_lossy().into(),
            rule,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ask` answers about an environment of process 7.
    fn with<T>(words: &[(&str, &str)], ask: impl FnOnce(&Variables<'_>) -> T) -> T {
        let get = |name: &'static str| words.iter().find(|word| word.0 == name).map(|word| word.1.into());
        ask(&Variables { get: &get, pid: 7 })
    }

    fn names(words: &[(&str, &str)]) -> Vec<String> {
        with(words, |variables| variables.socket_names().unwrap())
    }

    #[test]
    fn sockets_are_named_and_are_those_of_this_process() {
        assert!(names(&[]).is_empty());
        assert_eq!(names(&[("LISTEN_FDS", "2"), ("LISTEN_PID", "7")]), ["3", "4"]);
        let named = [("LISTEN_FDS", "2"), ("LISTEN_PID", "7"), ("LISTEN_FDNAMES", "web:tls")];
        assert_eq!(names(&named), ["web", "tls"]);
        assert!(names(&[("LISTEN_FDS", "2"), ("LISTEN_PID", "8")]).is_empty());
        assert!(names(&[("LISTEN_FDS", "2")]).is_empty());
    }

    #[test]
    fn the_watchdog_is_for_this_process() {
        let time = |words: &[(&str, &str)]| with(words, |variables| variables.watchdog().unwrap());
        let second = Some(Duration::from_secs(1));
        assert_eq!(time(&[("WATCHDOG_USEC", "1000000")]), second);
        assert_eq!(time(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "7")]), second);
        assert_eq!(time(&[("WATCHDOG_USEC", "1000000"), ("WATCHDOG_PID", "8")]), None);
        assert_eq!(time(&[("WATCHDOG_USEC", "0")]), None);
        assert_eq!(time(&[]), None);
    }

    #[test]
    fn nonsense_is_named() {
        let text = |result: Result<(), Error>| result.unwrap_err().to_string();
        let sockets =
            |words: &[(&str, &str)]| with(words, |variables| text(variables.socket_names().map(drop)));
        assert!(sockets(&[("LISTEN_FDS", "-1")]).starts_with("the environment has LISTEN_FDS=`-1`"));
        assert!(sockets(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "x")]).contains("LISTEN_PID"));
        let time = with(&[("WATCHDOG_USEC", "1s")], |variables| text(variables.watchdog().map(drop)));
        assert!(time.contains("microseconds"), "{time}");
        let socket =
            with(&[("NOTIFY_SOCKET", "vsock:2:1")], |variables| text(variables.notifier().map(drop)));
        assert!(socket.contains("NOTIFY_SOCKET=`vsock:2:1`"), "{socket}");
    }
}
