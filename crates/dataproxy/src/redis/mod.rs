//! Redis and Valkey.
//!
//! Sees: the operator's commands, values from services; what the server says. Never: makes a command, an option or the
//! beginning of a key of a value, or carries out a command that the server does not say is for everybody.

mod check;
mod line;
mod rows;

use resp::RespReply;
use statements::{KeyPlaces, Statement, StatementMistake, Statements, WordPart};
use wire::data::{CallFault, Value};
use worker::server_stream::ServerStream;

use crate::answer::AnswerWriter;
use crate::catalog::{CatalogEntry, CatalogError};
use crate::describe::DescribedColumn;
use crate::job::{CallStep, Job};
use crate::server::{CallProgress, Login, MaybeTlsStream, PreparedStatements, ServerSession, SessionFault};
use crate::sql::mistake;
use check::Commands;
use line::{RespStream, lost};

/// LIMIT: bytes of a reply that nobody has asked for rows of.
const SHORT: usize = 64 << 10;

/// A connection to a server.
pub(crate) struct Redis {
    line: RespStream,
}

/// A command that the server knows, and has nothing against.
pub(crate) struct CheckedCommand {
    reads: bool,
    keys: KeyPlaces,
}

impl ServerSession for Redis {
    type Statement = CheckedCommand;
    /// There is none: a command is carried out when it comes.
    type Canceller = std::convert::Infallible;

    async fn log_in(stream: ServerStream, login: &Login) -> Result<Self, String> {
        let stream = match login.tls.clone() {
            Some(tls) => {
                tls.connect(stream).await.map_err(|error| format!("no TLS with the server: {error}"))?
            }
            None => MaybeTlsStream::Plain(stream),
        };
        let mut line = RespStream::new(stream);
        let mut hello = vec!["HELLO", "3"];
        if let Some(password) = &login.password {
            let user = if login.user.is_empty() { "default" } else { &login.user };
            hello.extend(["AUTH", user, password]);
        }
        let reply = line.ask(&hello, SHORT).await.map_err(|error| format!("the server is lost: {error}"))?;
        if let RespReply::Failed(reason) = reply {
            return Err(format!("the server refuses the login: {}", without_words(&reason)));
        }
        if login.database != "0" && !login.database.is_empty() {
            let reply = line.ask(&["SELECT", &login.database], SHORT).await;
            if let RespReply::Failed(reason) =
                reply.map_err(|error| format!("the server is lost: {error}"))?
            {
                return Err(format!("the server refuses database {}: {reason}", login.database));
            }
        }
        Ok(Self { line })
    }

    async fn prepare(
        &mut self,
        file: &Statements,
    ) -> Result<PreparedStatements<CheckedCommand>, CatalogError> {
        let mut commands = Commands::default();
        let mut said = Vec::new();
        for about in &file.statements {
            commands.learn(&mut self.line, about).await.map_err(CatalogError::Database)?;
            let checked = commands.check(about);
            said.push(checked.map_err(|rule| mistake(about, about.sql_line, &rule)));
        }
        Ok(PreparedStatements::new(said))
    }

    async fn describe(
        &mut self,
        prepared: &PreparedStatements<CheckedCommand>,
    ) -> Result<Vec<Vec<DescribedColumn>>, CatalogError> {
        // The server does not say before what a command gives.
        Ok(prepared.known().map(|_| Vec::new()).collect())
    }

    fn only_reads(_: &Statement, known: &CheckedCommand) -> bool {
        known.reads
    }

    fn warnings(file: &Statements, prepared: &PreparedStatements<CheckedCommand>) -> Vec<StatementMistake> {
        file.overlaps(|number, _| prepared.get(number).map_or((0, 0, 0), |known| known.keys))
    }

    async fn carry_out<'j>(
        &mut self,
        prepared: &PreparedStatements<CheckedCommand>,
        job: &'j Job,
        progress: &CallProgress,
    ) -> Result<AnswerWriter<'j>, SessionFault> {
        let steps: Vec<CallStep<'_>> = job.steps().collect();
        steps.iter().try_for_each(|step| prepared.get(step.number).map(|_| ()))?;
        let writes = steps.iter().any(|step| !step.only_reads);
        let (replies, is_cut) = match job.call {
            CatalogEntry::Statement(_) => self.one(&steps[0], writes, progress).await?,
            CatalogEntry::Transaction(_) => self.all(&steps, writes, progress).await?,
        };
        let mut answer = AnswerWriter::new(job);
        for (step, reply) in steps.iter().zip(&replies) {
            rows::pass_on(step, (reply, is_cut), &mut answer).map_err(|fault| after(writes, fault))?;
        }
        Ok(answer)
    }

    async fn read_together<'j>(
        &mut self,
        prepared: &PreparedStatements<CheckedCommand>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<AnswerWriter<'j>, SessionFault>),
    ) {
        let steps = || jobs.iter().flat_map(|job| job.steps().map(move |step| (*job, step)));
        let is_known = |step: &CallStep<'_>| prepared.get(step.number).is_ok();
        steps().filter(|(_, step)| is_known(step)).for_each(|(_, step)| self.line.put(&words(&step)));
        if let Err(error) = self.line.send().await {
            return settle(Err(lost(error)));
        }
        for (job, step) in steps() {
            if let Err(fault) = prepared.get(step.number) {
                settle(Err(fault));
                continue;
            }
            let outcome = match self.line.reply(step.about.max_bytes as usize).await {
                Err(error) => return settle(Err(lost(error))),
                Ok((RespReply::Failed(reason), _)) => Err(fault(reason)),
                Ok((reply, is_cut)) => {
                    let mut answer = AnswerWriter::new(job);
                    rows::pass_on(&step, (&reply, is_cut), &mut answer).map(|()| answer)
                }
            };
            settle(outcome);
        }
    }

    /// Redis prepares nothing, but may say something else of a command by now.
    async fn renew(
        &mut self,
        prepared: &mut PreparedStatements<CheckedCommand>,
        job: &Job,
        _: bool,
    ) -> Result<(), SessionFault> {
        let mut commands = Commands::default();
        for CallStep { number, about, .. } in job.steps() {
            commands.learn(&mut self.line, about).await.map_err(SessionFault::Broken)?;
            let known = commands.check(about).map_err(|rule| {
                SessionFault::Refused(CallFault::Database, mistake(about, about.sql_line, &rule))
            })?;
            prepared.replace(number, known);
        }
        Ok(())
    }

    async fn closed(&mut self) {
        self.line.end().await;
    }

    fn canceller(&self) -> Option<Self::Canceller> {
        None
    }

    async fn cancel(never: Self::Canceller, _: ServerStream, _: Login) {
        match never {}
    }
}

impl Redis {
    /// Carries out a command; its reply, and whether that is not all there.
    async fn one(
        &mut self,
        step: &CallStep<'_>,
        writes: bool,
        progress: &CallProgress,
    ) -> Result<(Vec<RespReply>, bool), SessionFault> {
        self.line.put(&words(step));
        if writes {
            progress.may_hold();
        }
        self.line.send().await.map_err(lost)?;
        match self.line.reply(step.about.max_bytes as usize).await.map_err(lost)? {
            (RespReply::Failed(reason), _) => Err(fault(reason)),
            (reply, is_cut) => Ok((vec![reply], is_cut)),
        }
    }

    /// Carries out all commands of a transaction, after the server has taken each.
    async fn all(
        &mut self,
        steps: &[CallStep<'_>],
        writes: bool,
        progress: &CallProgress,
    ) -> Result<(Vec<RespReply>, bool), SessionFault> {
        self.line.put(&["MULTI"]);
        steps.iter().for_each(|step| self.line.put(&words(step)));
        self.line.send().await.map_err(lost)?;
        let mut refused = None;
        for _ in 0..=steps.len() {
            if let (RespReply::Failed(reason), _) = self.line.reply(SHORT).await.map_err(lost)? {
                refused = refused.or(Some(reason));
            }
        }
        if let Some(reason) = refused {
            self.line.ask(&["DISCARD"], SHORT).await.map_err(lost)?;
            return Err(fault(reason));
        }
        self.line.put(&["EXEC"]);
        if writes {
            progress.may_hold();
        }
        self.line.send().await.map_err(lost)?;
        let room = steps.iter().map(|step| step.about.max_bytes as usize).sum();
        match self.line.reply(room).await.map_err(lost)? {
            (RespReply::Failed(reason), _) => Err(fault(reason)),
            (RespReply::List(replies), is_cut) => match failed(steps, &replies, is_cut) {
                Some(fault) => Err(fault),
                None => Ok((replies, is_cut)),
            },
            _ => Err(SessionFault::Broken("the server answers with nonsense".into())),
        }
    }
}

/// Why a transaction has failed, if one of its commands has: the server undoes nothing.
fn failed(steps: &[CallStep<'_>], replies: &[RespReply], is_cut: bool) -> Option<SessionFault> {
    let (at, reason) = replies.iter().enumerate().find_map(|(at, reply)| match reply {
        RespReply::Failed(reason) => Some((at, reason)),
        _ => None,
    })?;
    let holds = |(step, reply): (&CallStep<'_>, &RespReply)| {
        !step.only_reads && !matches!(reply, RespReply::Failed(_))
    };
    if is_cut || steps.iter().zip(replies).any(holds) {
        let name = steps.get(at).filter(|_| !is_cut).map_or("a statement", |step| &step.about.name);
        let reason = format!("`{name}` has failed, and Redis does not undo the others: {reason}");
        return Some(SessionFault::Refused(CallFault::Lost, reason));
    }
    Some(fault(reason.clone()))
}

/// The meaning of an answer that cannot be passed on: a command's changes stay.
fn after(writes: bool, fault: SessionFault) -> SessionFault {
    match fault {
        SessionFault::Refused(_, reason) if writes => {
            SessionFault::Refused(CallFault::Lost, format!("it has been carried out, but {reason}"))
        }
        fault => fault,
    }
}

/// The words of a command, with the values of its parameters.
fn words(step: &CallStep<'_>) -> Vec<Vec<u8>> {
    let part = |word: &mut Vec<u8>, part: &WordPart| match part {
        WordPart::Bytes(bytes) => word.extend_from_slice(bytes),
        WordPart::Parameter(number) => put(&step.values[*number], word),
    };
    let word = |parts: &Vec<WordPart>| {
        let mut word = Vec::new();
        parts.iter().for_each(|one| part(&mut word, one));
        word
    };
    step.about.words.iter().map(word).collect()
}

/// A value as Redis has it, which knows bytes alone.
fn put(value: &Value, out: &mut Vec<u8>) {
    match value {
        // Parameters that may be NULL are refused at the start.
        Value::Null => {}
        Value::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Value::Real(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Value::Text(value) => out.extend_from_slice(value.as_bytes()),
        Value::Blob(value) => out.extend_from_slice(value),
    }
}

/// The meaning of a failure for the service that called. Nothing has changed.
fn fault(reason: String) -> SessionFault {
    let code = reason.split(' ').next().unwrap_or_default();
    let fault = match code {
        // The key holds another type, or what was to be made is there.
        "WRONGTYPE" | "BUSYKEY" | "BUSYGROUP" => CallFault::Constraint,
        // Number of words and flags were looked at before: a value is no number, or out of range.
        "ERR" => CallFault::Parameters,
        _ => CallFault::Database,
    };
    SessionFault::Refused(fault, reason)
}

/// SECURITY: a server that does not know the command of the login repeats its words, one of which is the password.
fn without_words(reason: &str) -> &str {
    match reason.contains("unknown command") {
        true => "it knows no `HELLO`: Redis is to be 6 or newer",
        false => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_repeated() {
        let said = "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `shop`, `secret`, ";
        assert!(!without_words(said).contains("secret"));
        assert_eq!(without_words("WRONGPASS invalid"), "WRONGPASS invalid");
    }

    #[test]
    fn values_are_bytes() {
        let text = |value: Value| {
            let mut out = Vec::new();
            put(&value, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            [Value::Int(-7), Value::Real(0.1), Value::Real(1.0), Value::Text("\r\n$1".into())].map(text),
            ["-7", "0.1", "1", "\r\n$1"]
        );
    }
}
