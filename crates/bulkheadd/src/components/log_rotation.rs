//! Other log files in place of those that are written: at midnight, and when the administrator asks for it.
//!
//! Runs in: the launcher. Sees: the clock, orders, and a number that the logger says back. Never: leaves a line between
//! two files: the logger writes what waits to the old file before it takes the new one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use wire::{LauncherToLogger, Outcome, Role, Text};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::error::Error;
use supervisor::outbox::Passed;
use supervisor::own_log::OwnLog;
use supervisor::process::Process;
use supervisor::restart::Ended;
use supervisor::setup::log_files::Logs;
use supervisor::setup::syslog::Found;
use supervisor::spawn::context::duplicate;

/// How long the logger may take to write what waits to the old files.
///
/// LIMIT: longer than one that retires reads on.
const CONFIRM_WAIT: Duration = Duration::from_secs(10);
/// LIMIT: how often it is looked which access logs nobody needs; one that is closed was needed for nothing for as long
/// as this.
const REST_LOOK: Duration = Duration::from_secs(60);
/// The most orders that wait.
const WAITING_MAX: usize = 64;

/// The log files, and the commands that wait until every logger has new ones.
#[derive(Debug)]
pub(crate) struct LogRotation {
    /// The files that are written.
    pub(crate) logs: Logs,
    /// Those of a configuration that does not hold yet.
    staged: Option<Logs>,
    asked: Vec<Asked>,
    /// When it is looked which logs nobody needs; and the sites of which nothing was there at the last look.
    next_look: Option<Instant>,
    at_rest: BTreeSet<usize>,
}

#[derive(Debug)]
struct Asked {
    ticket: u32,
    /// Those that have yet to confirm, or to end.
    loggers: Vec<u64>,
    until: Instant,
}

impl LogRotation {
    /// For these files.
    pub(crate) fn new(mut logs: Logs) -> Self {
        logs.keep();
        let next_look = logs.access.closable().next().map(|_| Instant::now() + REST_LOOK);
        Self { logs, staged: None, asked: Vec::new(), next_look, at_rest: BTreeSet::new() }
    }
}

impl Component for LogRotation {
    fn deadline(&self) -> Option<Instant> {
        let asked = self.asked.iter().map(|asked| asked.until).chain(self.next_look);
        asked.chain(self.logs.pause(SystemTime::now()).map(|left| Instant::now() + left)).min()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let late = self.asked.extract_if(.., |asked| asked.until <= now).collect::<Vec<_>>();
        for asked in late {
            let reason = "the logger has not said that it is done with the old files";
            supervisor.answer(asked.ticket, Outcome::Failed, reason);
        }
        // At the end, the files that are open will do.
        if supervisor.is_stopping() {
            self.next_look = None;
            return;
        }
        if self.logs.are_due(SystemTime::now())
            && let Err(error) = self.reopen_logs(supervisor)
        {
            supervisor.warn(format!(
                "the access logs of this day cannot be opened: {error}; those of the day before go on, and it is \
                 tried again every minute"
            ));
        }
        self.look_for_syslog(supervisor, now);
        if self.next_look.is_some_and(|next| next <= now) {
            self.close_logs(supervisor, now);
        }
    }

    fn is_quiet(&self) -> bool {
        self.asked.is_empty()
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        self.asked.iter_mut().for_each(|asked| asked.loggers.retain(|&logger| logger != ended.serial));
        self.finish_reopens(supervisor);
    }
}

impl LogRotation {
    /// Does what the administrator has ordered, and answers when the old files are written to no more.
    pub(crate) fn begin_reopen(&mut self, supervisor: &mut Supervisor, ticket: u32) {
        if self.asked.len() >= WAITING_MAX {
            return supervisor.answer(ticket, Outcome::Busy, "");
        }
        if let Err(error) = self.reopen_logs(supervisor) {
            supervisor.warn(format!("the logs are not opened anew: {error}"));
            return supervisor.answer(
                ticket,
                Outcome::Failed,
                &format!("{error}; the logs go on as they were"),
            );
        }
        supervisor.info("the logs are opened anew");
        for logger in supervisor.active(Role::Logger, None) {
            supervisor.send(logger, &LauncherToLogger::Confirm { ticket }, None);
        }
        // One that retires has the old files, and is done with them when it ends; one that is on its way gets the new
        // ones.
        let is_logger =
            |process: &Process| process.is_configured && supervisor.spec(process.slot).role == Role::Logger;
        let loggers = supervisor.processes().iter().filter(|(_, process)| is_logger(process));
        let loggers = loggers.map(|(&serial, _)| serial).collect();
        self.asked.push(Asked { ticket, loggers, until: Instant::now() + CONFIRM_WAIT });
        self.finish_reopens(supervisor);
    }

    /// A logger has said that it writes to the new files.
    pub(crate) fn on_confirmed(&mut self, supervisor: &mut Supervisor, logger: u64, ticket: u32) {
        let asked = self.asked.iter_mut().find(|asked| asked.ticket == ticket);
        match asked.and_then(|asked| Some((asked.loggers.iter().position(|&one| one == logger)?, asked))) {
            Some((index, asked)) => {
                asked.loggers.remove(index);
                self.finish_reopens(supervisor);
            }
            // Nobody asked, or too long ago.
            None => supervisor.protocol_violation(logger),
        }
    }

    fn finish_reopens(&mut self, supervisor: &mut Supervisor) {
        let done = self.asked.extract_if(.., |asked| asked.loggers.is_empty()).collect::<Vec<_>>();
        for asked in done {
            supervisor.answer(asked.ticket, Outcome::Done, "");
        }
    }

    /// Has the loggers have the access log of a site, for which there will be something to write.
    pub(crate) fn need(&mut self, supervisor: &mut Supervisor, site: u16) {
        let number = usize::from(site);
        let logs = self.logs_of(number);
        if !logs.is_closed(number) {
            return;
        }
        if let Err(error) = logs.open_one(number) {
            let name = supervisor.context().config.sites[number].name.clone();
            supervisor.warn(format!(
                "the access log of site {name} cannot be opened: {error}; its lines go to that of no site until `bulkhead reopen`"
            ));
        }
        send_access_logs(supervisor, logs, &[number]);
        self.next_look.get_or_insert_with(|| Instant::now() + REST_LOOK);
    }

    /// A logger has a line for an access log that is not open.
    pub(crate) fn on_wanted(&mut self, supervisor: &mut Supervisor, logger: u64, site: u16) {
        let (number, is_logger) = (usize::from(site), supervisor.spec_of(logger).role == Role::Logger);
        let Some(about) = supervisor.context().config.sites.get(number).filter(|_| is_logger) else {
            return supervisor.protocol_violation(logger);
        };
        let logs = self.logs_of(number);
        if logs.is_closed(number) {
            return self.need(supervisor, site);
        }
        // It was opened meanwhile; or the site was tried and given up, and is none.
        let file = logs.access.file(number.min(logs.access.sites())).cloned();
        let message = LauncherToLogger::AccessLog { site, name: Text::new(about.name.as_str()) };
        supervisor.pass(logger, &message, file.map(Passed::Kept));
    }

    /// The logs that have this site: those that are to be, while another configuration comes.
    fn logs_of(&mut self, site: usize) -> &mut Logs {
        match &mut self.staged {
            Some(staged) if site < staged.access.sites() => staged,
            _ => &mut self.logs,
        }
    }

    /// Closes the logs of sites of which nothing was there at this look, and at the one before.
    fn close_logs(&mut self, supervisor: &mut Supervisor, now: Instant) {
        self.next_look = Some(now + REST_LOOK);
        if self.staged.is_some() {
            return;
        }
        let open: Vec<usize> = self.logs.access.closable().collect();
        let resting = open.iter().copied().filter(|&site| supervisor.is_at_rest(site as u16));
        let (closed, at_rest): (BTreeSet<usize>, BTreeSet<usize>) =
            resting.partition(|site| self.at_rest.contains(site));
        let closed: Vec<usize> = closed.into_iter().collect();
        closed.iter().for_each(|&site| self.logs.access.close_one(site));
        send_access_logs(supervisor, &self.logs, &closed);
        self.at_rest = at_rest;
        if closed.len() == open.len() {
            self.next_look = None;
        }
    }

    /// Opens the logs of today and hands them to the loggers.
    fn reopen_logs(&mut self, supervisor: &mut Supervisor) -> Result<(), Error> {
        self.logs.reopen(SystemTime::now())?;
        self.hand_over(supervisor)
    }

    /// Opens the logs of the configuration that is to be. Loggers get those of the sites that come, which nobody else
    /// has.
    pub(crate) fn stage(&mut self, supervisor: &mut Supervisor, added: &[u16]) -> Result<(), Error> {
        let logs = self.logs.open_next(&supervisor.context().config, SystemTime::now())?;
        let added: Vec<usize> = added.iter().copied().map(usize::from).collect();
        send_access_logs(supervisor, &logs, &added);
        self.staged = Some(logs);
        Ok(())
    }

    /// Has the loggers write the logs that were opened for the configuration that holds now.
    pub(crate) fn adopt_staged(&mut self, supervisor: &mut Supervisor) {
        let Some(logs) = self.staged.take() else { return };
        let changed = self.logs.changed_sites(&logs);
        self.logs = logs;
        self.logs.keep();
        let handed_over = match changed {
            // Those that are new were staged.
            Some(sites) => {
                send_access_logs(supervisor, &self.logs, &sites);
                Ok(())
            }
            None => self.hand_over(supervisor),
        };
        if let Err(error) = handed_over {
            supervisor
                .warn(format!("the loggers have not got all logs: {error}; `bulkhead reopen` tries again"));
        }
        self.log_missing_syslog(supervisor);
    }

    /// Forgets the logs of a configuration that was given up: files that were made for it go with it. Those of sites
    /// that serve on stay, which were opened meanwhile.
    pub(crate) fn unstage(&mut self) {
        if let Some(staged) = self.staged.take() {
            self.logs.take_opened(&staged);
        }
    }

    /// Has these sites be places, which were tried and are there no more: loggers close their files, and what is logged
    /// of them goes to the log of no site.
    pub(crate) fn take_places(&mut self, supervisor: &mut Supervisor, tried: &[u16]) {
        self.logs.take_places(&supervisor.context().config);
        for logger in supervisor.active(Role::Logger, None) {
            for &site in tried {
                // A logger that has a line all the same asks for the file.
                let closed = LauncherToLogger::AccessLogLater { site, name: Text::default() };
                supervisor.send(logger, &closed, None);
            }
        }
    }

    fn hand_over(&mut self, supervisor: &mut Supervisor) -> Result<(), Error> {
        for logger in supervisor.active(Role::Logger, None) {
            for (message, descriptor) in supervisor.context().log_files(&self.logs)? {
                supervisor.pass(logger, &message, descriptor);
            }
        }
        let (error_log, syslog) = self.logs.for_own_log()?;
        supervisor.set_own_log(OwnLog::new(error_log, syslog));
        Ok(())
    }

    fn look_for_syslog(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let found = self.logs.syslog.as_mut().map_or(Found::Same, |syslog| syslog.look(now));
        if found == Found::Same {
            return;
        }
        if let Ok((error_log, syslog)) = self.logs.for_own_log() {
            supervisor.set_own_log(OwnLog::new(error_log, syslog));
        }
        match found {
            Found::Gone => self.log_missing_syslog(supervisor),
            _ => supervisor.info("syslog is reached"),
        }
        for logger in supervisor.active(Role::Logger, None) {
            if let Ok(Some(socket)) = self.logs.syslog_socket()
                && let Ok(socket) = duplicate(&socket)
            {
                supervisor.send(logger, &LauncherToLogger::Syslog {}, Some(socket));
            }
        }
    }

    /// Says that syslog, which is wanted, is not there.
    pub(crate) fn log_missing_syslog(&mut self, supervisor: &mut Supervisor) {
        if self.logs.syslog.as_ref().is_some_and(|syslog| !syslog.is_there()) {
            supervisor.warn(
                "`error_syslog` has no effect for now: nothing takes lines at /dev/log; start a syslog daemon, it is \
                 looked for every minute",
            );
        }
    }
}

fn send_access_logs(supervisor: &mut Supervisor, logs: &Logs, sites: &[usize]) {
    for logger in supervisor.active(Role::Logger, None) {
        for &site in sites {
            let (message, file) = supervisor.context().access_log(logs, site);
            supervisor.pass(logger, &message, file);
        }
    }
}
