//! PostgreSQL.
//!
//! Sees: the operator's statements, values from services; what the server says. Never: makes a statement's text of a
//! value.

mod login;
mod search_path;
mod tls;
mod value;

use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use statements::{Parameter, Statement, Statements};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, Client, Connection, Error, SimpleQueryMessage};
use wire::data::CallFault;
use worker::server_stream::ServerStream;

use crate::answer::AnswerWriter;
use crate::catalog::CatalogError;
use crate::describe::DescribedColumn;
use crate::job::{CallStep, Job};
use crate::server::{
    self, CallProgress, Login, MaybeTlsStream, PreparedStatements, ServerSession, SessionFault, Sql,
};
use crate::sql::mistake;
use login::GuardedStream;
use tls::TlsDialer;
pub(crate) use value::fuzz as fuzz_value;
use value::{BoundValue, Column};

/// LIMIT: names of prepared statements that another client of a pooler may have taken, before the statement is given
/// up.
const NAMES_TAKEN_MAX: usize = 16;
/// LIMIT: search paths that one statement is looked for in: the role may get the next one meanwhile.
const SEARCH_PATHS_MAX: usize = 4;

/// A connection to a server.
pub(crate) struct Postgres {
    client: Client,
    /// The task that speaks with the server; ends with the connection.
    driver: JoinHandle<()>,
    /// Whether statements are sent as text each time, since what was prepared may be another connection's of the
    /// server: a pooler is in between. A name that another client of the pooler has given would be another statement.
    by_text: bool,
    /// Whether the process of the server is the one that the login has named: no pooler is in between.
    is_alone: bool,
    /// How often statements were prepared anew.
    renewals: u32,
}

/// A statement that the server has prepared.
pub(crate) struct PostgresStatement {
    sql: String,
    parameters: Vec<Type>,
    columns: Vec<(String, Type)>,
    /// As it is on this connection of the server; `None` if there may be another one behind the same pooler.
    statement: Option<tokio_postgres::Statement>,
}

impl PostgresStatement {
    fn new(sql: &str, statement: tokio_postgres::Statement, by_text: bool) -> Self {
        let column = |column: &tokio_postgres::Column| (column.name().to_owned(), column.type_().clone());
        Self {
            sql: sql.to_owned(),
            parameters: statement.params().to_vec(),
            columns: statement.columns().iter().map(column).collect(),
            // Dropped here, it is closed before the transaction ends in which it was prepared.
            statement: (!by_text).then_some(statement),
        }
    }
}

async fn drive(connection: Connection<GuardedStream, MaybeTlsStream>) {
    if let Err(error) = connection.await {
        eprintln!("error: the server has ended the connection: {}", words(&error));
    }
}

impl ServerSession for Postgres {
    type Statement = PostgresStatement;
    type Canceller = CancelToken;

    async fn log_in(stream: ServerStream, login: &Login) -> Result<Self, String> {
        let mut config = tokio_postgres::Config::new();
        config.user(&login.user).dbname(&login.database).application_name("bulkhead");
        if let Some(password) = &login.password {
            config.password(password);
        }
        let tls = TlsDialer(login.tls.clone());
        let guarded = GuardedStream::new(stream, login.tls.is_some());
        let backend = guarded.backend();
        let connected = config.ssl_mode(tls.mode()).connect_raw(guarded, tls).await;
        let (client, connection) =
            connected.map_err(|error| format!("the server refuses the login: {}", words(&error)))?;
        let driver = tokio::task::spawn_local(drive(connection));
        let mut session = Self { client, driver, by_text: false, is_alone: false, renewals: 0 };
        if let Some(backend) = backend.get() {
            session.by_text = session.is_pooled(backend).await.map_err(|error| words(&error))?;
            session.is_alone = !session.by_text;
        }
        Ok(session)
    }

    async fn prepare(
        &mut self,
        file: &Statements,
    ) -> Result<PreparedStatements<PostgresStatement>, CatalogError> {
        let mut said = Vec::new();
        for about in &file.statements {
            let sql = about.sql(|number| format!("${}", number + 1));
            let prepared = self.prepare_alone(about, &sql).await;
            said.push(prepared.map_err(|(line, rule)| mistake(about, line, &rule)));
        }
        Ok(PreparedStatements::new(said))
    }

    async fn describe(
        &mut self,
        prepared: &PreparedStatements<PostgresStatement>,
    ) -> Result<Vec<Vec<DescribedColumn>>, CatalogError> {
        let mut found = Vec::new();
        for statement in prepared.known() {
            let mut columns = Vec::new();
            let known = statement.statement.as_ref().map(|statement| statement.columns());
            for (at, (name, kind)) in statement.columns.iter().enumerate() {
                let nullable = match known.and_then(|known| known.get(at)) {
                    Some(column) => !self
                        .is_never_null(column)
                        .await
                        .map_err(|error| CatalogError::Database(words(&error)))?,
                    None => true,
                };
                columns.push(DescribedColumn { name: name.clone(), kind: value::described(kind), nullable });
            }
            found.push(columns);
        }
        Ok(found)
    }

    fn only_reads(about: &Statement, _: &Self::Statement) -> bool {
        about.only_reads()
    }

    async fn carry_out<'j>(
        &mut self,
        prepared: &PreparedStatements<PostgresStatement>,
        job: &'j Job,
        progress: &CallProgress,
    ) -> Result<AnswerWriter<'j>, SessionFault> {
        server::call(self, prepared, job, progress).await
    }

    async fn read_together<'j>(
        &mut self,
        prepared: &PreparedStatements<PostgresStatement>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<AnswerWriter<'j>, SessionFault>),
    ) {
        let client = &self.client;
        let steps = jobs.iter().flat_map(|job| job.steps().map(move |step| (*job, step)));
        let answers = steps.map(|(job, step)| async move {
            let mut answer = AnswerWriter::new(job);
            rows(client, prepared.get(step.number)?, step, &mut answer).await.map(|()| answer)
        });
        let mut answers: FuturesOrdered<_> = answers.collect();
        while let Some(outcome) = answers.next().await {
            let is_broken = matches!(outcome, Err(SessionFault::Broken(_)));
            settle(outcome);
            if is_broken {
                return;
            }
        }
    }

    async fn renew(
        &mut self,
        prepared: &mut PreparedStatements<PostgresStatement>,
        job: &Job,
        again: bool,
    ) -> Result<(), SessionFault> {
        self.by_text |= again;
        self.renewals = self.renewals.wrapping_add(1);
        for CallStep { number, about, .. } in job.steps() {
            // Some poolers prepare the same text once for all clients.
            let text = about.sql(|number| format!("${}", number + 1));
            let sql = format!("{text}\n/* {} */", self.renewals);
            let mut known = self.prepare_alone(about, &sql).await;
            // Behind a pooler the session may be the next client's.
            let is_ours = self.is_alone || !self.by_text;
            for _ in 0..SEARCH_PATHS_MAX {
                if known.is_ok() || !is_ours || !search_path::take(&self.client).await {
                    break;
                }
                known = self.prepare_alone(about, &sql).await;
            }
            let known = known.map_err(|(line, rule)| self.why_not_renewed(mistake(about, line, &rule)))?;
            prepared.replace(number, known);
        }
        Ok(())
    }

    async fn closed(&mut self) {
        let _ = (&mut self.driver).await;
    }

    fn canceller(&self) -> Option<CancelToken> {
        Some(self.client.cancel_token())
    }

    async fn cancel(canceller: CancelToken, stream: ServerStream, login: Login) {
        // A cancellation that does not arrive shows by the call, which is given up.
        let _ = canceller
            .cancel_query_raw(GuardedStream::new(stream, login.tls.is_some()), TlsDialer(login.tls))
            .await;
    }
}

impl Sql for Postgres {
    async fn begin(&mut self) -> Result<(), SessionFault> {
        self.client.batch_execute("BEGIN").await.map_err(fault)
    }

    async fn commit(&mut self) -> Result<(), SessionFault> {
        self.client.batch_execute("COMMIT").await.map_err(fault)
    }

    async fn roll_back(&mut self) -> Result<(), SessionFault> {
        self.client.batch_execute("ROLLBACK").await.map_err(fault)
    }

    async fn step(
        &mut self,
        known: &PostgresStatement,
        step: CallStep<'_>,
        answer: &mut AnswerWriter<'_>,
    ) -> Result<(), SessionFault> {
        if !step.about.kind.has_rows() {
            let values: Vec<BoundValue<'_>> = step.values.iter().map(BoundValue).collect();
            let changed = match &known.statement {
                Some(statement) => self.client.execute_raw(statement, values).await,
                None => {
                    let typed = values.iter().map(|value| value as &(dyn ToSql + Sync));
                    let typed: Vec<_> = typed.zip(known.parameters.iter().cloned()).collect();
                    self.client.execute_typed(&known.sql, &typed).await
                }
            };
            answer.changed(changed.map_err(fault)?);
            return Ok(());
        }
        rows(&self.client, known, step, answer).await
    }
}

/// Carries out a statement that gives rows.
async fn rows(
    client: &Client,
    known: &PostgresStatement,
    step: CallStep<'_>,
    answer: &mut AnswerWriter<'_>,
) -> Result<(), SessionFault> {
    let values = step.values.iter().map(BoundValue);
    let names: Vec<&str> = known.columns.iter().map(|(name, _)| name.as_str()).collect();
    let rows = match &known.statement {
        Some(statement) => client.query_raw(statement, values).await,
        None => client.query_typed_raw(&known.sql, values.zip(known.parameters.iter().cloned())).await,
    };
    let mut rows = pin!(rows.map_err(fault)?);
    answer.begin(step.number, &names);
    while let Some(row) = rows.next().await {
        let row = row.map_err(fault)?;
        // Text that is sent each time means what it means by now.
        if row.len() != names.len() {
            let reason = "the columns of its tables have changed".to_owned();
            return Err(SessionFault::Outdated(CallFault::Database, reason));
        }
        if !answer.begin_row()? {
            continue;
        }
        for at in 0..row.len() {
            let column: Column<'_> = row.try_get(at).map_err(fault)?;
            column
                .put(answer.bytes())
                .map_err(|reason| SessionFault::Refused(CallFault::Database, reason))?;
        }
        answer.end_row()?;
        answer.has_room().await?;
    }
    answer.end_rows();
    Ok(())
}

impl Postgres {
    /// Whether the table says that a column is never NULL.
    async fn is_never_null(&self, column: &tokio_postgres::Column) -> Result<bool, Error> {
        let Some((table, number)) = column.table_oid().zip(column.column_id()) else { return Ok(false) };
        let sql = "SELECT attnotnull FROM pg_attribute WHERE attrelid = $1 AND attnum = $2";
        let row = self.client.query_opt(sql, &[&table, &number]).await?;
        row.map_or(Ok(false), |row| row.try_get(0))
    }

    /// Whether a pooler is between this connection and the process of the server that has it: that is another than was
    /// said at the login.
    async fn is_pooled(&self, backend: u32) -> Result<bool, Error> {
        let said = self.client.simple_query("SELECT pg_backend_pid()").await?;
        let pid = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(pid.is_some_and(|pid| pid != backend.to_string()))
    }

    /// The meaning of a statement that could not be prepared anew. Behind a pooler this connection's own question for a
    /// new type may be unknown: it is put by a name, of another connection of the server's, and only a new connection
    /// puts it again.
    fn why_not_renewed(&self, reason: String) -> SessionFault {
        match self.by_text && reason.contains("prepared statement \"s") {
            true => SessionFault::Broken(reason),
            false => SessionFault::Refused(CallFault::Database, reason),
        }
    }

    /// Has a statement prepared; behind a pooler in a transaction, which keeps the server's connection for as long as
    /// that takes.
    async fn prepare_alone(
        &self,
        about: &Statement,
        sql: &str,
    ) -> Result<PostgresStatement, (usize, String)> {
        let said = |error: Error| (about.line, words(&error));
        let mut taken = 0;
        loop {
            if self.by_text {
                self.client.batch_execute("BEGIN").await.map_err(said)?;
            }
            let prepared = self.client.prepare(sql).await;
            let is_taken = prepared.as_ref().is_err_and(|error| {
                error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) && taken < NAMES_TAKEN_MAX
            });
            let known = prepared.map_err(|error| at_line(about, sql, &error));
            let known = known.and_then(|prepared| self.checked(about, sql, prepared));
            if self.by_text {
                self.client.batch_execute("ROLLBACK").await.map_err(said)?;
            }
            if !is_taken {
                return known;
            }
            taken += 1;
        }
    }

    /// The prepared statement, if values and columns fit.
    fn checked(
        &self,
        about: &Statement,
        sql: &str,
        prepared: tokio_postgres::Statement,
    ) -> Result<PostgresStatement, (usize, String)> {
        crate::sql::check(about, sql)?;
        crate::sql::check_kind(about, prepared.columns().len())?;
        let parameters = about.parameters.iter().zip(prepared.params());
        if let Some((Parameter { name, kind, .. }, wanted)) =
            parameters.clone().find(|(parameter, wanted)| !value::takes(wanted, parameter.kind))
        {
            let word = kind.word();
            let rule = format!(
                "`:{name}` is {word}, and the database wants {wanted} there: declare it so, or write `:{name}::{word}`"
            );
            return Err((about.line, rule));
        }
        if let Some(column) = prepared.columns().iter().find(|column| !value::gives(column.type_())) {
            let (name, kind) = (column.name(), column.type_());
            return Err((
                about.line,
                format!("the column `{name}` is {kind}: write `{name}::text`, or another cast"),
            ));
        }
        Ok(PostgresStatement::new(sql, prepared, self.by_text))
    }
}

/// A statement's fault, and its line in the file.
fn at_line(about: &Statement, sql: &str, error: &Error) -> (usize, String) {
    use tokio_postgres::error::ErrorPosition::Original;
    let position = match error.as_db_error().and_then(|error| error.position()) {
        Some(Original(position)) => *position as usize,
        _ => return (about.line, words(error)),
    };
    let before = sql.chars().take(position.saturating_sub(1));
    (about.sql_line + before.filter(|&c| c == '\n').count(), words(error))
}

/// The meaning of a failure for the service that called.
fn fault(error: Error) -> SessionFault {
    let Some(code) = error.code().cloned() else {
        let is_of_value = error.to_string().starts_with("error serializing parameter");
        return match is_of_value {
            true => SessionFault::Refused(CallFault::Parameters, words(&error)),
            false => SessionFault::Broken(format!("the server is lost: {}", words(&error))),
        };
    };
    if code == SqlState::QUERY_CANCELED {
        return SessionFault::Refused(CallFault::Late, "it took too long".into());
    }
    if is_outdated(code.code(), &error) {
        return SessionFault::Outdated(CallFault::Database, words(&error));
    }
    match &code.code()[..2] {
        "23" => SessionFault::Refused(CallFault::Constraint, words(&error)),
        // The value's text is no such number, date or the like.
        "22" => SessionFault::Refused(CallFault::Parameters, words(&error)),
        // The server shuts down, or ends this connection.
        "57" => SessionFault::Broken(words(&error)),
        _ => SessionFault::Refused(CallFault::Database, words(&error)),
    }
}

/// Whether an error says that a statement is not what it was when it was prepared, and that nothing of it was carried
/// out: it is not known or another one's; the result has other types; a table, column, type, function or schema that it
/// names is not there, or another by now.
///
/// Source: appendix A of PostgreSQL's documentation, "PostgreSQL Error Codes".
fn is_outdated(code: &str, error: &Error) -> bool {
    match code {
        "0A000" => words(error).contains("cached plan"),
        "XX000" => words(error).starts_with("cache lookup failed"),
        "08P01" => words(error).contains("prepared statement"),
        "26000" | "42P05" | "3F000" | "42P01" | "42703" | "42704" | "42883" | "42804" | "42846" | "42P18"
        | "42809" | "42P02" => true,
        _ => false,
    }
}

/// The server's message, or else the event.
fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        }
    }
}
