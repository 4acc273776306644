//! MariaDB and MySQL.
//!
//! Sees: the operator's statements, values from services; what the server says. Never: makes a statement's text of a
//! value, or sends the server a file.

mod line;
mod login;
mod value;

use std::io;

use mysql_common::constants::{CapabilityFlags, ColumnFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    Column, ComStmtClose, ComStmtExecuteRequestBuilder, CommonOkPacket, ErrPacket, OkPacketDeserializer,
    StmtPacket,
};
use statements::{Statement, Statements, has_word};
use wire::data::{CallFault, ResultWriter, VALUES_MAX};
use worker::server_stream::ServerStream;

use crate::answer::AnswerWriter;
use crate::catalog::CatalogError;
use crate::describe::DescribedColumn;
use crate::job::{CallStep, Job};
use crate::server::{self, CallProgress, Login, PreparedStatements, ServerSession, SessionFault, Sql};
use crate::sql::{self, mistake};
use line::{PacketStream, read};
use login::LoggedIn;

/// The settings of each session: a text ends at its quote, a value that does not fit is refused, changes hold by
/// themselves.
const SETTINGS: &str = "SET SESSION sql_mode = CONCAT_WS(',', @@sql_mode, 'STRICT_ALL_TABLES', \
    'NO_BACKSLASH_ESCAPES'), autocommit = 1";
/// A query, without parameters.
const COM_QUERY: u8 = 3;
/// A statement to be prepared.
const COM_STMT_PREPARE: u8 = 22;
/// The first byte of the packet that ends a result.
const END: u8 = 0xFE;
/// The first byte of the packet that says that a statement has failed.
const FAILED: u8 = 0xFF;
/// LIMIT: what ends a result is shorter than a row that begins like that can be.
const END_MAX: usize = 0xFF_FFFF;

/// A connection to a server.
pub(crate) struct Mysql {
    line: PacketStream,
    logged_in: LoggedIn,
    /// Statements that the server knows, and that are of no use any more.
    known: Vec<u32>,
}

/// A statement that the server has prepared.
pub(crate) struct MysqlStatement {
    id: u32,
    /// The parameter, by its number in the file, for each place.
    places: Vec<usize>,
    /// As far as the server has said yet.
    columns: Vec<Column>,
}

impl ServerSession for Mysql {
    type Statement = MysqlStatement;
    type Canceller = u32;

    async fn log_in(stream: ServerStream, login: &Login) -> Result<Self, String> {
        let logged_in = login::log_in(PacketStream::new(stream), login).await;
        let (line, logged_in) =
            logged_in.map_err(|error| format!("the server refuses the login: {error}"))?;
        let mut session = Self { line, logged_in, known: Vec::new() };
        match session.query(SETTINGS).await {
            Ok(()) => Ok(session),
            Err(
                SessionFault::Refused(_, reason)
                | SessionFault::Outdated(_, reason)
                | SessionFault::Broken(reason),
            ) => Err(reason),
            Err(SessionFault::Said) => Err("the server is lost".into()),
        }
    }

    async fn prepare(
        &mut self,
        file: &Statements,
    ) -> Result<PreparedStatements<MysqlStatement>, CatalogError> {
        for id in std::mem::take(&mut self.known) {
            self.line
                .command(&ComStmtClose::new(id))
                .await
                .map_err(|error| CatalogError::Database(error.to_string()))?;
        }
        let mut said = Vec::new();
        for about in &file.statements {
            let (text, places) = text(about);
            let prepared = self.prepare_one(about, &text, places).await;
            said.push(prepared.map_err(|(line, rule)| mistake(about, line, &rule)));
        }
        Ok(PreparedStatements::new(said))
    }

    async fn describe(
        &mut self,
        prepared: &PreparedStatements<MysqlStatement>,
    ) -> Result<Vec<Vec<DescribedColumn>>, CatalogError> {
        let column = |column: &Column| DescribedColumn {
            name: column.name_str().into_owned(),
            kind: value::described(column),
            nullable: !column.flags().contains(ColumnFlags::NOT_NULL_FLAG),
        };
        Ok(prepared.known().map(|known| known.columns.iter().map(column).collect()).collect())
    }

    fn only_reads(about: &Statement, _: &Self::Statement) -> bool {
        about.only_reads()
    }

    async fn carry_out<'j>(
        &mut self,
        prepared: &PreparedStatements<MysqlStatement>,
        job: &'j Job,
        progress: &CallProgress,
    ) -> Result<AnswerWriter<'j>, SessionFault> {
        server::call(self, prepared, job, progress).await
    }

    async fn read_together<'j>(
        &mut self,
        prepared: &PreparedStatements<MysqlStatement>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<AnswerWriter<'j>, SessionFault>),
    ) {
        let steps = || jobs.iter().flat_map(|job| job.steps().map(move |step| (*job, step)));
        for (_, step) in steps() {
            if let Ok(known) = prepared.get(step.number) {
                self.put(known, &step);
            }
        }
        if let Err(error) = self.line.flush().await {
            return settle(Err(lost(error)));
        }
        for (job, step) in steps() {
            let mut answer = AnswerWriter::new(job);
            let outcome = match prepared.get(step.number) {
                Ok(_) => self.rows(&step, &mut answer).await,
                Err(fault) => Err(fault),
            };
            let is_broken = matches!(outcome, Err(SessionFault::Broken(_)));
            settle(outcome.map(|()| answer));
            if is_broken {
                return;
            }
        }
    }

    async fn renew(
        &mut self,
        prepared: &mut PreparedStatements<MysqlStatement>,
        job: &Job,
        _: bool,
    ) -> Result<(), SessionFault> {
        for step in job.steps() {
            let (text, places) = text(step.about);
            let known = self.prepare_one(step.about, &text, places).await;
            let known = known.map_err(|(line, rule)| {
                SessionFault::Refused(CallFault::Database, mistake(step.about, line, &rule))
            })?;
            if let Some(before) = prepared.replace(step.number, known) {
                self.known.retain(|id| *id != before.id);
                let closed = self.line.command(&ComStmtClose::new(before.id)).await;
                closed.map_err(|error| SessionFault::Broken(error.to_string()))?;
            }
        }
        Ok(())
    }

    async fn closed(&mut self) {
        self.line.end().await;
    }

    fn canceller(&self) -> Option<u32> {
        Some(self.logged_in.id)
    }

    async fn cancel(id: u32, stream: ServerStream, login: Login) {
        if let Ok(mut other) = Self::log_in(stream, &login).await {
            // A kill that does not arrive shows by the call, which is given up.
            let _ = other.query(&format!("KILL QUERY {id}")).await;
        }
    }
}

impl Sql for Mysql {
    async fn begin(&mut self) -> Result<(), SessionFault> {
        self.query("START TRANSACTION").await
    }

    async fn commit(&mut self) -> Result<(), SessionFault> {
        self.query("COMMIT").await
    }

    async fn roll_back(&mut self) -> Result<(), SessionFault> {
        self.query("ROLLBACK").await
    }

    async fn step(
        &mut self,
        statement: &MysqlStatement,
        step: CallStep<'_>,
        answer: &mut AnswerWriter<'_>,
    ) -> Result<(), SessionFault> {
        self.put(statement, &step);
        self.line.flush().await.map_err(lost)?;
        self.rows(&step, answer).await
    }
}

impl Mysql {
    /// Adds a statement to what is sent next.
    fn put(&mut self, statement: &MysqlStatement, step: &CallStep<'_>) {
        let values = statement.places.iter().map(|&place| value::bound(&step.values[place]));
        let values: Vec<_> = values.collect();
        let (request, _) = ComStmtExecuteRequestBuilder::new(statement.id).build(&values);
        self.line.put(&request);
    }

    /// Reads what the server answers to a statement.
    async fn rows(&mut self, step: &CallStep<'_>, answer: &mut AnswerWriter<'_>) -> Result<(), SessionFault> {
        self.line.begin_answer();
        let capabilities = self.logged_in.capabilities;
        let first = self.line.packet().await.map_err(lost)?;
        let count = match first[0] {
            FAILED => return Err(fault(first, capabilities)),
            0 => {
                answer.changed(affected(first, capabilities)?);
                return Ok(());
            }
            _ => ParseBuf(first).checked_eat_lenenc_int().ok_or_else(nonsense)?,
        };
        let columns = self.columns(usize::try_from(count).unwrap_or(usize::MAX)).await.map_err(lost)?;
        let names: Vec<_> = columns.iter().map(Column::name_str).collect();
        answer.begin(step.number, &names.iter().map(|name| &**name).collect::<Vec<_>>());
        // A statement whose columns are known only now may have such as well.
        let mut outcome =
            strange(&columns).map_or(Ok(()), |rule| Err(SessionFault::Refused(CallFault::Database, rule)));
        loop {
            let packet = self.line.packet().await.map_err(lost)?;
            match packet[0] {
                FAILED => return Err(fault(packet, capabilities)),
                END if packet.len() < END_MAX => break,
                // The rest is read, and left.
                _ if outcome.is_err() => {}
                _ => {
                    outcome = value::row(packet, &columns, answer);
                    if outcome.is_ok() {
                        outcome = answer.has_room().await.map_err(SessionFault::from);
                    }
                }
            }
        }
        outcome?;
        answer.end_rows();
        Ok(())
    }

    /// Carries out a query that gives no rows.
    async fn query(&mut self, sql: &str) -> Result<(), SessionFault> {
        self.line.command(&TextCommand(COM_QUERY, sql)).await.map_err(lost)?;
        let capabilities = self.logged_in.capabilities;
        let packet = self.line.packet().await.map_err(lost)?;
        match packet[0] {
            0 => Ok(()),
            FAILED => Err(fault(packet, capabilities)),
            _ => Err(nonsense()),
        }
    }

    async fn prepare_one(
        &mut self,
        about: &Statement,
        text: &str,
        places: Vec<usize>,
    ) -> Result<MysqlStatement, (usize, String)> {
        sql::check(about, text)?;
        let (id, columns) = self.ask_to_prepare(text).await.map_err(|rule| at_line(about, text, rule))?;
        self.known.push(id);
        // MariaDB does not say yet which columns `RETURNING` gives.
        let gives = columns.len().max(usize::from(has_word(text, "returning")));
        sql::check_kind(about, gives)?;
        match strange(&columns) {
            None => Ok(MysqlStatement { id, places, columns }),
            Some(rule) => Err((about.line, rule)),
        }
    }

    async fn ask_to_prepare(&mut self, sql: &str) -> Result<(u32, Vec<Column>), String> {
        let said = |error: io::Error| error.to_string();
        self.line.command(&TextCommand(COM_STMT_PREPARE, sql)).await.map_err(said)?;
        let capabilities = self.logged_in.capabilities;
        let packet = self.line.packet().await.map_err(said)?;
        if packet[0] == FAILED {
            return Err(match fault(packet, capabilities) {
                SessionFault::Refused(_, reason)
                | SessionFault::Outdated(_, reason)
                | SessionFault::Broken(reason) => reason,
                SessionFault::Said => String::new(),
            });
        }
        let prepared: StmtPacket = read(packet, ()).map_err(said)?;
        if prepared.num_params() > 0 {
            self.columns(prepared.num_params().into()).await.map_err(said)?;
        }
        let columns = match prepared.num_columns() {
            0 => Vec::new(),
            count => self.columns(count.into()).await.map_err(said)?,
        };
        Ok((prepared.statement_id(), columns))
    }

    /// Reads what the server says of so many columns.
    async fn columns(&mut self, count: usize) -> io::Result<Vec<Column>> {
        if count > VALUES_MAX {
            let rule = format!("the server says that a row has {count} values; it may have {VALUES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, rule));
        }
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(read(self.line.packet().await?, ())?);
        }
        if !self.logged_in.capabilities.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF) {
            self.line.packet().await?;
        }
        Ok(columns)
    }
}

/// The entry for fuzzing: what the server says of columns, and then a row of these, each behind its length; the row for
/// a service.
pub(crate) fn fuzz_row(data: &[u8]) -> Option<Vec<u8>> {
    let mut input = ParseBuf(data);
    let columns: Vec<Column> = (0..input.checked_eat_u8()?)
        .map(|_| read(input.checked_eat_u8_str()?, ()).ok())
        .collect::<Option<_>>()?;
    let mut row = Vec::new();
    let holds = strange(&columns).is_none() && value::values(input.0, &columns, &mut row).is_ok();
    holds.then(|| {
        let mut answer = Vec::new();
        let names: Vec<_> = columns.iter().map(Column::name_str).collect();
        ResultWriter::columns(&names.iter().map(|name| &**name).collect::<Vec<_>>(), &mut answer);
        ResultWriter::row(&mut answer);
        answer.extend(row);
        ResultWriter::end(0, &mut answer);
        answer
    })
}

/// A statement as the server takes it, and its parameter, by the number in the file, for each place.
fn text(about: &Statement) -> (String, Vec<usize>) {
    let mut places = Vec::new();
    let text = about.sql(|number| {
        places.push(number);
        "?".to_owned()
    });
    (text, places)
}

/// Whether an error says that a statement is not what it was when it was prepared: it is not known, or has to be
/// prepared anew; a table, column, view, function or database that it names is not there.
fn is_outdated(code: u16) -> bool {
    matches!(code, 1243 | 1615 | 1210 | 1046 | 1049 | 1051 | 1054 | 1146 | 1305 | 1347 | 1356 | 1412 | 3138)
}

/// A command with a text.
struct TextCommand<'a>(u8, &'a str);

impl mysql_common::proto::MySerialize for TextCommand<'_> {
    fn serialize(&self, out: &mut Vec<u8>) {
        out.push(self.0);
        out.extend_from_slice(self.1.as_bytes());
    }
}

/// The remedy for a column whose values cannot be passed on, if there is one.
fn strange(columns: &[Column]) -> Option<String> {
    let column = columns.iter().find(|column| !value::gives(column.column_type()))?;
    let (name, kind) = (column.name_str(), column.column_type());
    Some(format!("the column `{name}` is {kind:?}: write `CAST({name} AS CHAR) AS {name}`"))
}

fn nonsense() -> SessionFault {
    SessionFault::Broken("the server answers with nonsense".into())
}

fn affected(packet: &[u8], capabilities: CapabilityFlags) -> Result<u64, SessionFault> {
    let ok = read::<OkPacketDeserializer<'_, CommonOkPacket>>(packet, capabilities).map_err(lost)?;
    Ok(ok.into_inner().affected_rows())
}

fn lost(error: io::Error) -> SessionFault {
    SessionFault::Broken(format!("the server is lost: {error}"))
}

/// The meaning of a failure for the service that called.
fn fault(packet: &[u8], capabilities: CapabilityFlags) -> SessionFault {
    let error = match read::<ErrPacket<'_>>(packet, capabilities) {
        Ok(ErrPacket::Error(error)) => error,
        Ok(ErrPacket::Progress(_)) => return nonsense(),
        Err(error) => return lost(error),
    };
    let reason = error.message_str().into_owned();
    let state = error.sql_state_ref().map(|state| state.as_str().into_owned()).unwrap_or_default();
    let fault = match (error.error_code(), state.get(..2).unwrap_or_default()) {
        // The query was killed, or has run for too long.
        (1317 | 1969 | 3024, _) => CallFault::Late,
        // The server shuts down, or ends this connection.
        (1053 | 1927, _) => return SessionFault::Broken(reason),
        // A CHECK, in MariaDB and in MySQL; no value for a column that needs one.
        (4025 | 3819 | 1364, _) | (_, "23") => CallFault::Constraint,
        (_, "22") | (1366, _) => CallFault::Parameters,
        _ => CallFault::Database,
    };
    match fault {
        fault if is_outdated(error.error_code()) => SessionFault::Outdated(fault, reason),
        CallFault::Late => SessionFault::Refused(fault, "it took too long".into()),
        fault => SessionFault::Refused(fault, reason),
    }
}

/// A statement's fault, with its line in the file: the server counts the statement's own lines.
fn at_line(about: &Statement, sql: &str, rule: String) -> (usize, String) {
    let line = rule.rsplit_once(" at line ").and_then(|(_, line)| line.parse::<usize>().ok());
    match line.filter(|line| (1..=sql.lines().count()).contains(line)) {
        Some(line) => (about.sql_line + line - 1, rule),
        None => (about.line, rule),
    }
}
