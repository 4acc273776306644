//! The launcher's messages about files and routes before a worker serves.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none; the launcher has checked it. Must never:
//! leave out a rule that it cannot make sense of: what it would have guarded would be open.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use request::accept_encoding::Encoding;
use rewrite::{Matcher, Pattern, RewriteTarget as To};
use wire::{HeaderOf, LauncherToSite, RuleAction};
use worker::ProcessFault;

use crate::config::settings::Settings;
use crate::files::FileNames;
use crate::files::folders::{Folders, OpenFolder};
use crate::router::access::users::Users;
use crate::router::rules::{AccessPolicy, BasicAuth, Rule, RuleTarget, Rules, TryFile};

/// All that is said, until it is put together.
#[derive(Default)]
pub struct SiteSetup {
    /// The directory of files.
    pub root: Option<OwnedFd>,
    /// Names of index files.
    pub index: Vec<String>,
    /// Names with a dot that are served.
    hidden: Vec<String>,
    /// Suffixes of scripts that are sent as files.
    sources: Vec<String>,
    /// Media types by suffix.
    media: Vec<(String, String)>,
    /// The directory with one for each host.
    pub vhosts: Option<OwnedFd>,
    /// How files are answered with.
    pub settings: Settings,
    rules: Vec<Rule>,
    /// The folders beside the root.
    folders: Folders,
    /// Faults to be logged.
    pub faults: Vec<String>,
}

impl SiteSetup {
    /// Takes a message; the message itself if it is about something else.
    ///
    /// # Errors
    /// The launcher says what cannot be.
    pub fn take(
        &mut self,
        message: LauncherToSite,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<LauncherToSite>, ProcessFault> {
        match message {
            LauncherToSite::Root {} => self.root = descriptor,
            LauncherToSite::Index { name } => self.index.push(name.as_str().to_owned()),
            LauncherToSite::SendHidden { name } => self.hidden.push(name.as_str().to_owned()),
            LauncherToSite::SendSource { suffix } => self.sources.push(suffix.as_str().to_owned()),
            LauncherToSite::Rule {
                rule,
                path,
                suffix,
                pattern,
                action,
                status,
                to,
                fallback,
                internal,
                strip_prefix,
                body_bytes,
            } => {
                let matcher = matcher(path.as_str(), suffix.as_str(), pattern.as_str())?;
                let target = target_of(rule, action, status, (to.as_str(), &matcher))?;
                let mut rule = Rule::new(Some(rule), matcher, target);
                if rule.target.backend().is_some() {
                    rule.servers = to.as_str().to_owned();
                }
                (rule.fallback, rule.strip_prefix) = (fallback, strip_prefix);
                rule.body_bytes = Some(body_bytes).filter(|bytes| *bytes != u64::MAX);
                rule.policy.internal = internal;
                self.rules.push(rule);
            }
            LauncherToSite::RuleHeader { rule, of, name, value } => {
                self.header(rule, of, (name.as_str(), value.as_str()))?;
            }
            LauncherToSite::RuleTry { rule, to } => self.tried(rule, to.as_str())?,
            LauncherToSite::MediaType { suffix, media } => {
                self.media.push((suffix.as_str().to_owned(), media.as_str().to_owned()));
            }
            LauncherToSite::RuleNetwork { rule, network, allow } => {
                let network = network.as_str();
                self.policy(rule)?.network(network, allow).ok_or_else(|| strange(network))?;
            }
            LauncherToSite::RuleUsers { rule, realm, path } => {
                self.users(rule, (realm.as_str(), path.as_str()), descriptor)?;
            }
            LauncherToSite::Vhosts {} => self.vhosts = descriptor,
            LauncherToSite::RuleFolder { rule, folder } => self.alias(rule, folder.as_str(), descriptor)?,
            LauncherToSite::LinkFolder { folder } => {
                self.folders.add_link_folder(opened(folder.as_str(), descriptor)?);
            }
            LauncherToSite::RootPath { path } => {
                self.folders.set_root(path.as_str());
                return Ok(Some(LauncherToSite::RootPath { path }));
            }
            LauncherToSite::ErrorPage { status, page } => {
                self.settings.error_pages.push((status, page.as_str().to_owned()));
            }
            settings @ LauncherToSite::Statics { .. } => self.statics(&settings),
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Takes a header that a rule adds or hides.
    fn header(&mut self, rule: u16, of: HeaderOf, (name, value): (&str, &str)) -> Result<(), ProcessFault> {
        let name = HeaderName::try_from(name).map_err(strange)?;
        let value = HeaderValue::try_from(value).map_err(strange)?;
        let policy = self.policy(rule)?;
        match of {
            HeaderOf::Answer => policy.headers.push((name, value)),
            HeaderOf::Request => policy.request_headers.push((name, value)),
            HeaderOf::Backend => policy.hide_headers.push(name),
        }
        Ok(())
    }

    /// Takes the file of a rule's users. A file that cannot be understood lets nobody in.
    fn users(
        &mut self,
        rule: u16,
        (realm, path): (&str, &str),
        descriptor: Option<OwnedFd>,
    ) -> Result<(), ProcessFault> {
        let file = descriptor.ok_or_else(|| strange("users without a file"))?;
        let (users, faults) = Users::read(&file);
        let told = |fault| format!("`users` {path}: {fault}; it is left out");
        self.faults.extend(faults.into_iter().map(told));
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        let challenge = HeaderValue::try_from(challenge).map_err(strange)?;
        let users = RefCell::new(Rc::new(users));
        self.policy(rule)?.basic_auth = Some(BasicAuth { users, challenge });
        Ok(())
    }

    /// Has the service of `partition` answer for what is at or below `path`, unless another service does already.
    pub fn service(&mut self, path: &str, partition: u16) {
        let matcher = Matcher::path(path);
        let is_known = |rule: &Rule| matches!(rule.target, RuleTarget::Service(_)) && rule.matcher == matcher;
        if !self.rules.iter().any(is_known) {
            self.rules.push(Rule::new(None, matcher, RuleTarget::Service(partition)));
        }
    }

    fn statics(&mut self, message: &LauncherToSite) {
        let LauncherToSite::Statics {
            cache_control,
            stat_interval_ms,
            listing,
            br,
            zstd,
            gzip,
            static_level,
            dynamic_level,
            max_bytes,
        } = message
        else {
            return;
        };
        let mut encodings = [(*br, Encoding::Br), (*zstd, Encoding::Zstd), (*gzip, Encoding::Gzip)];
        encodings.sort_by_key(|(place, _)| *place);
        let interval = u64::from(*stat_interval_ms);
        self.settings = Settings {
            cache_control: Some(*cache_control).filter(|seconds| *seconds != u32::MAX),
            stat_interval: (interval > 0).then(|| Duration::from_millis(interval)),
            listing: *listing,
            encodings: encodings
                .iter()
                .filter(|(place, _)| *place > 0)
                .map(|(_, encoding)| *encoding)
                .collect(),
            static_level: *static_level,
            dynamic_level: *dynamic_level,
            max_bytes: *max_bytes,
            error_pages: std::mem::take(&mut self.settings.error_pages),
        };
    }

    /// Has a folder stand at the path of a rule, whose files answer whatever a rule for a shorter path says.
    fn alias(&mut self, number: u16, folder: &str, descriptor: Option<OwnedFd>) -> Result<(), ProcessFault> {
        let folder = opened(folder, descriptor)?;
        let rule = self.rule(number)?;
        if rule.target == RuleTarget::Files {
            rule.target = RuleTarget::Alias;
        }
        let path = rule.matcher.path.clone().ok_or_else(|| strange("a folder without a path"))?;
        self.folders.add_alias(&path, folder);
        Ok(())
    }

    fn rule(&mut self, number: u16) -> Result<&mut Rule, ProcessFault> {
        let rule = self.rules.iter_mut().find(|rule| rule.number == Some(number));
        rule.ok_or_else(|| strange("terms of no rule"))
    }

    fn policy(&mut self, number: u16) -> Result<&mut AccessPolicy, ProcessFault> {
        Ok(&mut self.rule(number)?.policy)
    }

    /// Adds a path to those that a rule tries.
    fn tried(&mut self, number: u16, to: &str) -> Result<(), ProcessFault> {
        let rule = self.rule(number)?;
        let tried = match to.strip_prefix('=') {
            Some(status) => TryFile::Status(StatusCode::from_bytes(status.as_bytes()).map_err(strange)?),
            None => TryFile::Path(To::parse(to, rule.matcher.pattern.as_ref()).map_err(strange)?),
        };
        match &mut rule.target {
            RuleTarget::TryFiles(all) => all.push(tried),
            _ => return Err(strange("paths of a rule that tries none")),
        }
        Ok(())
    }

    /// The rules, and what is said of the names of files.
    pub fn names(&mut self) -> Rc<FileNames> {
        let mut rules = Rules::new(std::mem::take(&mut self.sources));
        self.rules.drain(..).for_each(|rule| rules.add(rule));
        let (index, hidden) = (std::mem::take(&mut self.index), std::mem::take(&mut self.hidden));
        let media = std::mem::take(&mut self.media).into_iter();
        // For as long as the process lives, as those that are part of the program: a site worker is set up once.
        let media = media.map(|(suffix, media)| (suffix, &*media.leak()));
        let folders = std::mem::take(&mut self.folders);
        Rc::new(FileNames { index, hidden, media: media.collect(), rules: Rc::new(rules), folders })
    }
}

fn opened(path: &str, descriptor: Option<OwnedFd>) -> Result<OpenFolder, ProcessFault> {
    let fd = descriptor.ok_or_else(|| strange("a folder without its descriptor"))?;
    Ok(OpenFolder::new(fd, path))
}

/// An empty text sets no condition.
fn matcher(path: &str, suffix: &str, pattern: &str) -> Result<Matcher, ProcessFault> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let pattern = match pattern {
        "" => None,
        text => Some(Pattern::new(text).map_err(strange)?),
    };
    Ok(Matcher { path: given(path), suffix: given(suffix), pattern })
}

fn target_of(
    rule: u16,
    action: RuleAction,
    status: u16,
    (to, matcher): (&str, &Matcher),
) -> Result<RuleTarget, ProcessFault> {
    let parsed = || To::parse(to, matcher.pattern.as_ref()).map_err(strange);
    Ok(match action {
        RuleAction::Terms => RuleTarget::Files,
        RuleAction::Redirect => {
            RuleTarget::Redirect { to: parsed()?, status: StatusCode::from_u16(status).map_err(strange)? }
        }
        RuleAction::Rewrite => RuleTarget::Rewrite(parsed()?),
        RuleAction::TryFiles => RuleTarget::TryFiles(Vec::new()),
        RuleAction::Upstream => RuleTarget::Upstream(rule),
        RuleAction::Fastcgi => RuleTarget::FastCgi(rule),
        RuleAction::Hook => RuleTarget::Hook(to.to_owned()),
    })
}

fn strange(what: impl std::fmt::Display) -> ProcessFault {
    ProcessFault::Launcher(format!("a strange rule: {what}"))
}
