//! The site's routes: which backend answers a path, and which clients may ask.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths of requests. Must never: let a request pass
//! the terms of a rule that covers what it asks for, however that is spelt.
//!
//! The terms of *all* rules that cover a path hold, so that a route for a suffix does not open what a route for a
//! folder has closed. One rule says how a request is answered: the longest path, unless a suffix fits.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use conditioning::IpNetwork;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use request::path::{InvalidPath, NormalPath};
use request::script::{self, ends_with, has_name, split_script};
use rewrite::{Matcher, Pattern, RewriteTarget as To};

use crate::proxy::limit::BackendId;
use crate::router::access::users::Users;

/// The target of requests under a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTarget {
    /// The site's files; the rule only sets an access policy.
    Files,
    /// The files of the folder that stands at the rule's path.
    Alias,
    /// Sends the client there.
    Redirect {
        /// A path or a URL.
        to: To,
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
    },
    /// Answers as for this path.
    Rewrite(To),
    /// Answers as for the first of these that there is.
    TryFiles(Vec<TryFile>),
    /// The service of this partition.
    Service(u16),
    /// The HTTP servers with this number.
    Upstream(u16),
    /// The FastCGI servers with this number.
    FastCgi(u16),
    /// The function of this name.
    Hook(String),
}

/// A candidate of `try_files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryFile {
    /// A path.
    Path(To),
    /// Nothing more: this is the answer.
    Status(StatusCode),
}

impl RuleTarget {
    /// The backend that answers, if one does.
    pub(crate) fn backend(&self) -> Option<BackendId> {
        match *self {
            Self::Service(partition) => Some(BackendId::Service(partition)),
            Self::Upstream(number) | Self::FastCgi(number) => Some(BackendId::Target(number)),
            Self::Files
            | Self::Alias
            | Self::Redirect { .. }
            | Self::Rewrite(_)
            | Self::TryFiles(_)
            | Self::Hook(_) => None,
        }
    }
}

/// The access policy, and the headers to be changed.
#[derive(Default)]
pub struct AccessPolicy {
    /// Headers of each answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers of requests: set, or taken away where the value is empty.
    pub request_headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers that are taken away from what backends answer.
    pub hide_headers: Vec<HeaderName>,
    /// The longest first; whether its clients may ask.
    networks: Vec<(u8, IpNetwork, bool)>,
    /// The users who may.
    pub basic_auth: Option<BasicAuth>,
    /// Whether only internal redirects lead here: an index file, an error page, a rewrite, `X-Accel-Redirect`.
    pub internal: bool,
}

/// Users who may ask.
pub struct BasicAuth {
    /// Those of the file as it is now.
    pub users: RefCell<Rc<Users>>,
    /// The challenge for other clients, with its realm.
    pub challenge: HeaderValue,
}

impl AccessPolicy {
    /// Adds a network, as `ADDRESS/BITS`; `None` if it is none.
    pub fn network(&mut self, text: &str, allow: bool) -> Option<()> {
        let bits = text.rsplit_once('/')?.1.parse().ok()?;
        self.networks.push((bits, text.parse().ok()?, allow));
        self.networks.sort_by_key(|(bits, _, _)| u8::MAX - bits);
        Some(())
    }

    /// Whether a client at this address may ask.
    pub fn allows(&self, peer: IpAddr) -> bool {
        let found = self.networks.iter().find(|(_, network, _)| network.contains(peer));
        found.map_or_else(|| !self.networks.iter().any(|(_, _, allow)| *allow), |(_, _, allow)| *allow)
    }

    /// Whether nothing is asked but the client's address, and no message is changed.
    pub(crate) fn is_plain(&self) -> bool {
        self.basic_auth.is_none()
            && !self.internal
            && self.headers.is_empty()
            && self.request_headers.is_empty()
            && self.hide_headers.is_empty()
    }

    /// Whether not everybody may ask.
    pub fn guards(&self) -> bool {
        self.internal || self.basic_auth.is_some() || !self.networks.is_empty()
    }
}

/// One rule.
pub struct Rule {
    /// 0 for the site's own, then the routes in the order of the file; none for a service.
    pub number: Option<u16>,
    /// Which paths it is for.
    pub matcher: Matcher,
    /// The target of its requests.
    pub target: RuleTarget,
    /// Where its servers listen, for the log.
    pub servers: String,
    /// How the log names its backend; made once, as every answer of one may break off.
    pub(crate) backend_name: OnceCell<Rc<str>>,
    /// Whether only where there is no such file.
    pub fallback: bool,
    /// The longest body of a request, where the rule says one.
    pub body_bytes: Option<u64>,
    /// Whether backends get the path without the rule's.
    pub strip_prefix: bool,
    /// The clients that may ask.
    pub policy: AccessPolicy,
}

/// All rules.
#[derive(Default)]
pub struct Rules {
    /// In the order in which they act: the first that is for a path and does something.
    rules: Vec<Rule>,
    /// Suffixes of scripts that are sent as files all the same.
    sent_sources: Vec<String>,
}

/// The rules that hold for one path.
pub struct RouteMatch<'r> {
    /// The rule whose action is taken, if any has one.
    pub rule: Option<&'r Rule>,
    /// All rules that cover the path, the site's own first.
    pub covering: Vec<&'r Rule>,
    /// Whether a rule covers it that not everybody passes.
    pub guarded: bool,
}

impl<'r> RouteMatch<'r> {
    /// Adds the rules of the file that the path leads to, which are asked in addition to those of the path. Returns the
    /// ones that are new.
    pub fn resolve_to(&mut self, file: RouteMatch<'r>) -> Vec<&'r Rule> {
        let is_new = |rule: &&Rule| !self.covering.iter().any(|known| std::ptr::eq(*known, *rule));
        let new: Vec<_> = file.covering.into_iter().filter(is_new).collect();
        self.covering.extend(&new);
        self.guarded |= file.guarded;
        new
    }

    /// Whether a file at the path can be answered for without asking the rules again.
    pub fn is_open(&self) -> bool {
        !self.guarded && self.rule.is_none_or(|rule| rule.fallback)
    }

    /// The headers for answers, later ones in place of earlier ones of the same name.
    pub fn headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.covering.iter().flat_map(|rule| &rule.policy.headers)
    }

    /// The changes of a request's headers, later ones in place of earlier ones of the same name.
    pub fn request_headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.covering.iter().flat_map(|rule| &rule.policy.request_headers)
    }

    /// The headers of backends' answers that are for nobody to see.
    pub fn hidden_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.covering.iter().flat_map(|rule| &rule.policy.hide_headers)
    }

    /// The longest body of a request: what the rule says that acts before the others.
    pub fn body_bytes(&self) -> Option<u64> {
        self.covering.iter().rev().find_map(|rule| rule.body_bytes)
    }

    /// Whether only users with a password may ask.
    pub fn private(&self) -> bool {
        self.covering.iter().any(|rule| rule.policy.basic_auth.is_some())
    }
}

impl Rules {
    /// No rules, for a site that sends scripts with these suffixes as files.
    pub fn new(sent_sources: Vec<String>) -> Rules {
        Rules { sent_sources, ..Rules::default() }
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: Rule) {
        let place = self.rules.iter().position(|other| rule.acts_before(other));
        self.rules.insert(place.unwrap_or(self.rules.len()), rule);
    }

    /// The rule with this number.
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Rule> {
        self.rules.iter_mut().find(|rule| rule.number == Some(number))
    }

    /// Has other users be those who may ask for what is under a rule.
    ///
    /// # Errors
    /// There is no such rule, or it has no users.
    pub fn renew(&self, number: u16, users: Users) -> Result<(), String> {
        let rule = self.iter().find(|rule| rule.number == Some(number));
        let basic_auth =
            rule.and_then(|rule| rule.policy.basic_auth.as_ref()).ok_or("no rule has users there")?;
        *basic_auth.users.borrow_mut() = Rc::new(users);
        Ok(())
    }

    /// The rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Finds the rules for a path.
    ///
    /// # Errors
    /// A backend could read dot segments in the path, which would lead it anywhere.
    pub fn find(&self, path: &NormalPath<'_>) -> Result<RouteMatch<'_>, InvalidPath> {
        // Nobody knows how a backend takes escaped slashes and parameters: the terms of all readings hold.
        let readings = path.readings()?;
        let mut covering: Vec<&Rule> = Vec::new();
        let mut rule: Option<&Rule> = None;
        for one in self.rules.iter().rev() {
            let here = one.covers(path);
            if here || one.guards(path) || readings.iter().any(|reading| one.guards(reading)) {
                covering.push(one);
            }
            // A service answers for whatever is below its path, whatever the name ends with.
            let yields = one.matcher.suffix.is_some() && rule.is_some_and(Rule::is_service);
            if here && one.target != RuleTarget::Files && !yields {
                rule = Some(one);
            }
        }
        // Files answer, as they do where no rule acts.
        let rule = rule.filter(|rule| rule.target != RuleTarget::Alias);
        let guarded = covering.iter().any(|rule| rule.policy.guards());
        Ok(RouteMatch { rule, covering, guarded })
    }

    /// Whether the file at this path below the root is the source of a script, or a copy of one.
    pub fn is_source(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let routed = self.rules.iter().filter(|rule| rule.runs());
        let routed = routed.filter_map(|rule| rule.matcher.suffix.as_deref());
        script::is_source(name, routed, &self.sent_sources)
    }

    /// Whether who may have the file at `path` may have the one at `precompressed` too.
    pub fn is_as_open(&self, precompressed: &[u8], path: &[u8]) -> bool {
        if !self.iter().any(|rule| rule.policy.guards()) {
            return true;
        }
        let (Ok(precompressed), Ok(path)) = (NormalPath::of_file(precompressed), NormalPath::of_file(path))
        else {
            return false;
        };
        self.iter().all(|rule| !rule.guards(&precompressed) || rule.guards(&path))
    }
}

impl Rule {
    /// A rule without terms.
    pub fn new(number: Option<u16>, matcher: Matcher, target: RuleTarget) -> Self {
        let (servers, policy) = (String::new(), AccessPolicy::default());
        let backend_name = OnceCell::new();
        let (fallback, body_bytes, strip_prefix) = (false, None, false);
        Self { number, matcher, target, servers, backend_name, fallback, body_bytes, strip_prefix, policy }
    }

    /// Whether a backend, or a function, answers.
    pub fn passes_on(&self) -> bool {
        self.target.backend().is_some() || matches!(self.target, RuleTarget::Hook(_))
    }

    /// Whether files that the rule is for are programs of another server.
    fn runs(&self) -> bool {
        matches!(self.target, RuleTarget::Upstream(_) | RuleTarget::FastCgi(_))
    }

    fn is_service(&self) -> bool {
        matches!(self.target, RuleTarget::Service(_))
    }

    /// Among rules of the same path the site's own is the weakest, and a service, which has no number, the strongest.
    fn rank(&self) -> u32 {
        self.number.map_or(u32::MAX, u32::from)
    }

    /// Whether this rule acts where `other` does as well.
    fn acts_before(&self, other: &Rule) -> bool {
        let (own, others) = (self.matcher.precedence(), other.matcher.precedence());
        match (own == others, self.matcher.pattern.is_some()) {
            (false, _) => own > others,
            // The first pattern of the file acts.
            (true, true) => self.rank() < other.rank(),
            // The site's own rule, which every path of it is under, is the last of its length.
            (true, false) => self.rank() > other.rank(),
        }
    }

    /// Whether the rule is for a path.
    fn covers(&self, path: &NormalPath<'_>) -> bool {
        let Matcher { path: prefix, suffix, pattern } = &self.matcher;
        let ends = |suffix: &String| match self.target {
            // A script may have more of the path behind its name.
            RuleTarget::FastCgi(_) => split_script(path.as_bytes(), suffix).is_some(),
            _ => ends_with(path.as_bytes(), suffix),
        };
        prefix.as_ref().is_none_or(|prefix| path.is_below(prefix))
            && suffix.as_ref().is_none_or(ends)
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(path.as_bytes()))
    }

    /// Whether not everybody may have what is at a path. Frameworks take a folder with and without its slash for one,
    /// and a script may have more of the path behind its name.
    ///
    /// SECURITY: a name that begins with a dot, or is nothing but the suffix, is no script, but it is a name: other
    /// servers and services answer for it.
    fn guards(&self, path: &NormalPath<'_>) -> bool {
        let Matcher { path: prefix, suffix, pattern } = &self.matcher;
        let is_below = |prefix: &String| {
            let folder = prefix.strip_suffix('/').map(str::as_bytes);
            path.is_below(prefix) || folder == Some(path.as_bytes())
        };
        self.policy.guards()
            && prefix.as_ref().is_none_or(is_below)
            && suffix.as_ref().is_none_or(|suffix| has_name(path.as_bytes(), suffix))
            && pattern.as_ref().is_none_or(|pattern| may_mean(pattern, path.as_bytes()))
    }
}

/// Whether a backend could take `path` for one that the pattern is for: a folder without its slash, or with one, or a
/// script with more of the path behind its name.
fn may_mean(pattern: &Pattern, path: &[u8]) -> bool {
    let folder = path.strip_suffix(b"/").unwrap_or(path);
    let with_slash = || [folder, b"/"].concat();
    let mut scripts = (1..path.len()).filter(|&at| path[at] == b'/').map(|at| &path[..at]);
    let is_script =
        |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.contains(&b'.'));
    pattern.may_match(folder)
        || pattern.may_match(&with_slash())
        || scripts.any(|script| is_script(script) && pattern.may_match(script))
}

#[cfg(test)]
mod guard_model;
#[cfg(test)]
mod tests;
