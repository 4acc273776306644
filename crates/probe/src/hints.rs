//! Hints for the probe about the world outside of its jail, so that it knows what to go for.
//!
//! Runs in: the probe. Sees: one argument, from who starts it. Never: needs any of it.

use serde_json::Value;

/// The hints; every part may be missing.
#[derive(Clone, Debug)]
pub struct Hints {
    /// `role` or `service`: what is expected of some attempts depends on it.
    pub kind: ProbedKind,
    /// Processes outside of the jail, by the machine's numbers: the launcher, siblings.
    pub pids: Vec<i32>,
    /// Files that it must not be able to read.
    pub paths: Vec<String>,
    /// Files that it must not be able to write.
    pub write_paths: Vec<String>,
    /// Unix sockets, by path.
    pub unix: Vec<String>,
    /// Unix sockets, by abstract name (without the leading zero).
    pub abstract_names: Vec<String>,
    /// Ports of 127.0.0.1 on which somebody listens.
    pub tcp: Vec<u16>,
    /// Secrets to look for in its own memory, each in hexadecimal, as the argument itself is in that memory.
    pub canaries: Vec<String>,
    /// The descriptors that it is meant to have.
    pub fds: Vec<i32>,
    /// The numbers of the system calls that it is meant to be able to make; none: those of a built-in list count.
    pub approved: Option<Vec<i64>>,
    /// Only these attempts, by their ids; none: all.
    pub only: Vec<String>,
    /// Tells on standard error what is about to be tried.
    pub trace: bool,
    /// Makes every attempt in this process, none in a child.
    pub inline: bool,
    /// Makes also those attempts in this process that may end it: to be ended is to be refused.
    pub alone: bool,
    /// Attempts that were found to be refused elsewhere, by `alone`; they are not made again.
    pub known_refused: Vec<String>,
}

/// The kind of process that is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedKind {
    /// A program of the server itself: gate, site, logger, admin.
    Role,
    /// A service's program.
    Service,
}

impl ProbedKind {
    /// Its word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ProbedKind::Role => "role",
            ProbedKind::Service => "service",
        }
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            kind: ProbedKind::Role,
            pids: Vec::new(),
            paths: Vec::new(),
            write_paths: Vec::new(),
            unix: Vec::new(),
            abstract_names: Vec::new(),
            tcp: Vec::new(),
            canaries: Vec::new(),
            fds: vec![0, 1, 2, 3, 4],
            approved: None,
            only: Vec::new(),
            trace: false,
            inline: false,
            alone: false,
            known_refused: Vec::new(),
        }
    }
}

impl Hints {
    /// Reads the argument, a JSON object.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("HINTS are no JSON: {error}"))?;
        let Value::Object(members) = json else { return Err("HINTS are no JSON object".into()) };
        let mut hints = Self::default();
        for (key, value) in &members {
            let ok = match key.as_str() {
                "kind" => kind(value).map(|kind| hints.kind = kind),
                "pids" => numbers(value).map(|pids| hints.pids = pids),
                "paths" => texts(value).map(|paths| hints.paths = paths),
                "write_paths" => texts(value).map(|paths| hints.write_paths = paths),
                "unix" => texts(value).map(|unix| hints.unix = unix),
                "abstract" => texts(value).map(|names| hints.abstract_names = names),
                "tcp" => numbers(value).map(|tcp| hints.tcp = tcp),
                "canaries" => texts(value).map(|canaries| hints.canaries = canaries),
                "fds" => numbers(value).map(|fds| hints.fds = fds),
                "approved" => numbers(value).map(|approved| hints.approved = Some(approved)),
                "only" => texts(value).map(|only| hints.only = only),
                "trace" => value.as_bool().map(|trace| hints.trace = trace),
                "inline" => value.as_bool().map(|inline| hints.inline = inline),
                "alone" => value.as_bool().map(|alone| hints.alone = alone),
                "known_refused" => texts(value).map(|known| hints.known_refused = known),
                _ => return Err(format!("HINTS have an unknown key `{key}`")),
            };
            ok.ok_or_else(|| format!("HINTS: `{key}` is not of the type it should be"))?;
        }
        Ok(hints)
    }
}

fn kind(value: &Value) -> Option<ProbedKind> {
    match value.as_str()? {
        "role" => Some(ProbedKind::Role),
        "service" => Some(ProbedKind::Service),
        _ => None,
    }
}

fn numbers<N: TryFrom<i64>>(value: &Value) -> Option<Vec<N>> {
    value.as_array()?.iter().map(|number| number.as_i64()?.try_into().ok()).collect()
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_may_be_missing() {
        let hints = Hints::parse("{}").unwrap();
        assert_eq!((hints.kind, hints.fds.len(), hints.approved), (ProbedKind::Role, 5, None));
        let hints = Hints::parse(r#"{"kind":"service","pids":[1,2],"abstract":["x"],"fds":[0]}"#).unwrap();
        assert_eq!((hints.kind, hints.pids, hints.fds), (ProbedKind::Service, vec![1, 2], vec![0]));
        assert_eq!(hints.abstract_names, ["x"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("[", "no JSON"),
            ("[]", "no JSON object"),
            (r#"{"pid":[1]}"#, "unknown key `pid`"),
            (r#"{"tcp":[70000]}"#, "`tcp`"),
            (r#"{"kind":"root"}"#, "`kind`"),
        ] {
            assert!(Hints::parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
