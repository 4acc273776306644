//! What is done with a request by its path: the site's routes, and who may ask.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths of requests. Must never: let a request pass
//! the terms of a rule that covers what it asks for, however that is spelt.
//!
//! The terms of *all* rules that cover a path hold, so that a route for a suffix does not open what a route for a folder
//! has closed. What is done is said by one: the longest path, unless a suffix fits.

pub mod auth;
mod bcrypt;
pub mod guesses;
pub mod spelling;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use conditioning::Network;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use worker::routes::covers;

use auth::Users;
use spelling::{SLASH, Strange, ends_with, spelt, split_script};

/// Which paths a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// Those at or below one.
    Path(String),
    /// Those whose last name ends so.
    Suffix(String),
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing but setting terms.
    Terms,
    /// Sends the client there.
    Redirect {
        /// A path or a URL.
        to: String,
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
    },
    /// Answers as for this path.
    Rewrite(String),
    /// Passes requests on by HTTP; the rule's number says to whom.
    Upstream,
    /// Passes requests on by FastCGI; the rule's number says to whom.
    Fastcgi,
    /// Calls the function of this name.
    Hook(String),
}

/// Who may ask, and what is added to answers.
#[derive(Default)]
pub struct Terms {
    /// Headers of each answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest first; whether its clients may ask.
    networks: Vec<(u8, Network, bool)>,
    /// The users who may.
    pub members: Option<Members>,
}

/// Users who may ask.
pub struct Members {
    /// Those of the file as it is now.
    pub users: RefCell<Rc<Users>>,
    /// What others are told: the realm that they are asked for.
    pub challenge: HeaderValue,
}

impl Terms {
    /// Adds a network, as `ADDRESS/BITS`; `None` if it is none.
    pub fn network(&mut self, text: &str, allow: bool) -> Option<()> {
        let bits = text.rsplit_once('/')?.1.parse().ok()?;
        self.networks.push((bits, text.parse().ok()?, allow));
        self.networks.sort_by_key(|(bits, _, _)| u8::MAX - bits);
        Some(())
    }

    /// Whether a client at this address may ask.
    pub fn admits(&self, peer: IpAddr) -> bool {
        let found = self.networks.iter().find(|(_, network, _)| network.contains(peer));
        found.map_or_else(|| !self.networks.iter().any(|(_, _, allow)| *allow), |(_, _, allow)| *allow)
    }

    /// Whether not everybody may ask.
    pub fn guards(&self) -> bool {
        self.members.is_some() || !self.networks.is_empty()
    }
}

/// One rule.
pub struct Rule {
    /// 0 for the site's own, then the routes in the order of the file.
    pub number: u16,
    /// Which paths it is for.
    pub matcher: Matcher,
    /// What it does.
    pub action: Action,
    /// Whether only where there is no such file.
    pub fallback: bool,
    /// Who may ask.
    pub terms: Terms,
}

/// All rules.
#[derive(Default)]
pub struct Rules {
    /// The longest path first.
    paths: Vec<Rule>,
    /// The longest suffix first.
    suffixes: Vec<Rule>,
    /// The names of index files: who may not ask for one gets it by its folder's path neither.
    index: Vec<String>,
}

/// What the rules say of one path.
pub struct Plan<'r> {
    /// The rule whose action is taken, if any has one.
    pub rule: Option<&'r Rule>,
    /// All rules that cover the path, the site's own first.
    pub covering: Vec<&'r Rule>,
    /// Whether a rule covers it that not everybody passes.
    pub guarded: bool,
}

impl Plan<'_> {
    /// Bytes of the rule's path, to be compared with that of a service.
    pub fn reach(&self) -> usize {
        match self.rule.map(|rule| &rule.matcher) {
            Some(Matcher::Path(path)) => path.len(),
            Some(Matcher::Suffix(_)) | None => 0,
        }
    }

    /// The headers for answers, later ones in place of earlier ones of the same name.
    pub fn headers(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.covering.iter().flat_map(|rule| &rule.terms.headers)
    }

    /// Whether only users with a password may ask.
    pub fn private(&self) -> bool {
        self.covering.iter().any(|rule| rule.terms.members.is_some())
    }
}

impl Rules {
    /// No rules, for a site with these names of index files.
    pub fn new(index: &[String]) -> Rules {
        Rules { index: index.to_vec(), ..Rules::default() }
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: Rule) {
        let (rules, length) = match &rule.matcher {
            Matcher::Path(path) => (&mut self.paths, path.len()),
            Matcher::Suffix(suffix) => (&mut self.suffixes, suffix.len()),
        };
        let longer = |other: &Rule| match &other.matcher {
            // The site's own rule, which every path of it is under, is the last of its length.
            Matcher::Path(path) => {
                path.len() > length || (path.len() == length && other.number > rule.number)
            }
            Matcher::Suffix(suffix) => suffix.len() > length,
        };
        let place = rules.iter().position(|other| !longer(other)).unwrap_or(rules.len());
        rules.insert(place, rule);
    }

    /// The rule with this number.
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Rule> {
        self.paths.iter_mut().chain(&mut self.suffixes).find(|rule| rule.number == number)
    }

    /// Has other users be those who may ask for what is under a rule.
    ///
    /// # Errors
    /// There is no such rule, or it has no users.
    pub fn renew(&self, number: u16, users: Users) -> Result<(), String> {
        let rule = self.iter().find(|rule| rule.number == number);
        let members = rule.and_then(|rule| rule.terms.members.as_ref()).ok_or("no rule has users there")?;
        *members.users.borrow_mut() = Rc::new(users);
        Ok(())
    }

    /// The rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.paths.iter().chain(&self.suffixes)
    }

    /// What holds for a path as sent.
    ///
    /// # Errors
    /// The path has dot segments, or escapes that are none, and there are rules that it could be meant to pass by.
    pub fn plan(&self, raw: &str) -> Result<Plan<'_>, Strange> {
        let path = match spelt(raw) {
            Ok(path) => path,
            Err(Strange) if self.iter().any(Rule::matters) => return Err(Strange),
            Err(Strange) => raw.into(),
        };
        // Who passes requests on does not know how its peer takes an escaped slash: the terms of both readings hold.
        let opened = path.contains(SLASH).then(|| path.replace(SLASH, "/"));
        let mut covering: Vec<&Rule> = Vec::new();
        let mut rule: Option<&Rule> = None;
        for one in self.paths.iter().rev().chain(self.suffixes.iter().rev()) {
            let here = one.fits(&path);
            let indirectly =
                || opened.as_deref().is_some_and(|opened| one.fits(opened)) || self.of_index(one, &path);
            if here || (one.terms.guards() && indirectly()) {
                covering.push(one);
            }
            if here && one.action != Action::Terms {
                rule = Some(one);
            }
        }
        let guarded = covering.iter().any(|rule| rule.terms.guards());
        Ok(Plan { rule, covering, guarded })
    }

    /// Whether a rule covers an index file of the folder `path`.
    fn of_index(&self, rule: &Rule, path: &str) -> bool {
        path.ends_with('/') && self.index.iter().any(|name| rule.fits(&format!("{path}{name}")))
    }
}

impl Rule {
    /// Whether it covers a path in its one spelling.
    fn fits(&self, path: &str) -> bool {
        match (&self.matcher, &self.action) {
            (Matcher::Path(prefix), _) => covers(prefix, path),
            // A script may have more of the path behind its name, and is then still to be guarded.
            (Matcher::Suffix(suffix), Action::Fastcgi) => split_script(path, suffix).is_some(),
            (Matcher::Suffix(suffix), _) => ends_with(path, suffix),
        }
    }

    /// Whether it makes any difference.
    fn matters(&self) -> bool {
        self.action != Action::Terms || self.terms.guards()
    }
}

#[cfg(test)]
mod tests;
