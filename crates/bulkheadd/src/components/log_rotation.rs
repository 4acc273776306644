//! Other log files in place of those that are written: at midnight, and when the administrator asks for it.
//!
//! Runs in: the launcher. Sees: the clock, orders, and a number that the logger says back. Never: leaves a line between
//! two files: the logger writes what waits to the old file before it takes the new one.

use std::time::{Duration, Instant, SystemTime};

use wire::{LauncherToLogger, Outcome, Role};

use crate::error::Error;
use crate::own_log::OwnLog;
use crate::setup::log_files::Found;
use crate::spawn::context::duplicate;
use crate::supervisor::Launcher;
use crate::supervisor::process::Process;

/// How long the logger may take to write what waits to the old files.
///
/// LIMIT: longer than one that retires reads on.
const CONFIRM_WAIT: Duration = Duration::from_secs(10);
/// The most orders that wait.
const WAITING_MAX: usize = 64;

/// AdminCommands that wait until every logger has the new files.
#[derive(Debug, Default)]
pub struct LogRotation(Vec<Asked>);

#[derive(Debug)]
struct Asked {
    ticket: u32,
    /// Those that have yet to confirm, or to end.
    loggers: Vec<u64>,
    until: Instant,
}

impl LogRotation {
    /// By when something is to be done here.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|asked| asked.until).min()
    }
}

impl Launcher {
    /// Does what the administrator has ordered, and answers when the old files are written to no more.
    pub(crate) fn begin_reopen(&mut self, ticket: u32) {
        if self.log_rotation.0.len() >= WAITING_MAX {
            return self.answer(ticket, Outcome::Busy, "");
        }
        if let Err(error) = self.reopen_logs() {
            self.log.warning(format!("the logs are not opened anew: {error}"));
            return self.answer(ticket, Outcome::Failed, &format!("{error}; the logs go on as they were"));
        }
        self.log.info("the logs are opened anew");
        for logger in self.active(Role::Logger, None) {
            self.send(logger, &LauncherToLogger::Confirm { ticket }, None);
        }
        // One that retires has the old files, and is done with them when it ends.
        let is_logger = |process: &Process| self.specs[process.slot].role == Role::Logger;
        let loggers = self.processes.iter().filter(|(_, process)| is_logger(process));
        let loggers = loggers.map(|(&serial, _)| serial).collect();
        self.log_rotation.0.push(Asked { ticket, loggers, until: Instant::now() + CONFIRM_WAIT });
        self.finish_reopens();
    }

    /// A logger has said that it writes to the new files.
    pub(crate) fn on_confirmed(&mut self, logger: u64, ticket: u32) {
        let asked = self.log_rotation.0.iter_mut().find(|asked| asked.ticket == ticket);
        match asked.and_then(|asked| Some((asked.loggers.iter().position(|&one| one == logger)?, asked))) {
            Some((index, asked)) => {
                asked.loggers.remove(index);
                self.finish_reopens();
            }
            // Nobody asked, or too long ago.
            None => self.protocol_violation(logger),
        }
    }

    /// A process is gone, and with it what it had open.
    pub(crate) fn rotation_without(&mut self, serial: u64) {
        self.log_rotation.0.iter_mut().for_each(|asked| asked.loggers.retain(|&logger| logger != serial));
        self.finish_reopens();
    }

    fn finish_reopens(&mut self) {
        let done = self.log_rotation.0.extract_if(.., |asked| asked.loggers.is_empty()).collect::<Vec<_>>();
        for asked in done {
            self.answer(asked.ticket, Outcome::Done, "");
        }
    }

    /// Does what is due.
    pub(crate) fn logs_on_time(&mut self, now: Instant) {
        let late = self.log_rotation.0.extract_if(.., |asked| asked.until <= now).collect::<Vec<_>>();
        for asked in late {
            let reason = "the logger has not said that it is done with the old files";
            self.answer(asked.ticket, Outcome::Failed, reason);
        }
        // At the end, the files that are open will do.
        if self.stopping.is_some() {
            return;
        }
        if self.logs.are_due(SystemTime::now())
            && let Err(error) = self.reopen_logs()
        {
            self.log.warning(format!(
                "the access logs of this day cannot be opened: {error}; those of the day before go on, and it is \
                 tried again every minute"
            ));
        }
        self.look_for_syslog(now);
    }

    /// Opens the logs of today and hands them to the loggers.
    fn reopen_logs(&mut self) -> Result<(), Error> {
        self.logs.reopen(&self.directories, SystemTime::now())?;
        for logger in self.active(Role::Logger, None) {
            for (message, descriptor) in self.context.log_files(&self.logs)? {
                self.send(logger, &message, descriptor);
            }
        }
        let (error_log, syslog) = self.logs.for_own_log()?;
        self.log = OwnLog::new(error_log, syslog);
        Ok(())
    }

    fn look_for_syslog(&mut self, now: Instant) {
        let found = self.logs.syslog.as_mut().map_or(Found::Same, |syslog| syslog.look(now));
        if found == Found::Same {
            return;
        }
        if let Ok((error_log, syslog)) = self.logs.for_own_log() {
            self.log = OwnLog::new(error_log, syslog);
        }
        match found {
            Found::Gone => self.log_missing_syslog(),
            _ => self.log.info("syslog is reached"),
        }
        for logger in self.active(Role::Logger, None) {
            if let Ok(Some(socket)) = self.logs.syslog_socket()
                && let Ok(socket) = duplicate(&socket)
            {
                self.send(logger, &LauncherToLogger::Syslog {}, Some(socket));
            }
        }
    }

    /// Says that syslog, which is wanted, is not there.
    pub(crate) fn log_missing_syslog(&mut self) {
        if self.logs.syslog.as_ref().is_some_and(|syslog| !syslog.is_there()) {
            self.log.warning(
                "`error_syslog` has no effect for now: nothing takes lines at /dev/log; start a syslog daemon, it is \
                 looked for every minute",
            );
        }
    }
}
