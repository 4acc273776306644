//! PostgreSQL.
//!
//! Sees: the operator's statements, values from services; what the server says. Never: makes a statement's text of a value.

mod login;
mod tls;
mod value;

use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use statements::{Parameter, Statement, Statements};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Connection, Error};
use wire::data::CallFault;
use worker::server_stream::ServerStream;

use crate::answer::Answer;
use crate::catalog::Refusal;
use crate::describe::Described;
use crate::job::{Job, Step};
use crate::server::{self, Fault, Login, Prepared, Progress, Session, Sql, Stream, all_or_mistakes};
use crate::sql::mistake;
use login::Guarded;
use tls::Connector;
pub(crate) use value::fuzz as fuzz_value;
use value::{Bound, Column};

/// A connection to a server.
pub(crate) struct Postgres {
    client: Client,
    /// What speaks with the server; ends with the connection.
    driver: JoinHandle<()>,
}

async fn drive(connection: Connection<Guarded, Stream>) {
    if let Err(error) = connection.await {
        eprintln!("error: the server has ended the connection: {}", words(&error));
    }
}

impl Session for Postgres {
    type Statement = tokio_postgres::Statement;
    type Canceller = CancelToken;

    async fn log_in(stream: ServerStream, login: &Login) -> Result<Self, String> {
        let mut config = tokio_postgres::Config::new();
        config.user(&login.user).dbname(&login.database).application_name("bulkhead");
        if let Some(password) = &login.password {
            config.password(password);
        }
        let tls = Connector(login.tls.clone());
        let guarded = Guarded::new(stream, login.tls.is_some());
        let connected = config.ssl_mode(tls.mode()).connect_raw(guarded, tls).await;
        let (client, connection) =
            connected.map_err(|error| format!("the server refuses the login: {}", words(&error)))?;
        Ok(Self { client, driver: tokio::task::spawn_local(drive(connection)) })
    }

    async fn prepare(&mut self, file: &Statements) -> Result<Prepared<Self>, Refusal> {
        let mut said = Vec::new();
        for about in &file.statements {
            let sql = about.sql(|number| format!("${}", number + 1));
            let prepared = self.prepare_one(about, &sql).await;
            said.push(prepared.map_err(|(line, rule)| mistake(about, line, &rule)));
        }
        all_or_mistakes::<Self>(said)
    }

    async fn describe(&mut self, prepared: &Prepared<Self>) -> Result<Vec<Vec<Described>>, Refusal> {
        let mut found = Vec::new();
        for statement in prepared {
            let mut columns = Vec::new();
            for column in statement.columns() {
                let (name, kind) = (column.name().to_owned(), value::described(column.type_()));
                let nullable =
                    !self.is_never_null(column).await.map_err(|error| Refusal::Database(words(&error)))?;
                columns.push(Described { name, kind, nullable });
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
        prepared: &Prepared<Self>,
        job: &'j Job,
        progress: &Progress,
    ) -> Result<Answer<'j>, Fault> {
        server::call(self, prepared, job, progress).await
    }

    async fn read_together<'j>(
        &mut self,
        prepared: &Prepared<Self>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<Answer<'j>, Fault>),
    ) {
        let client = &self.client;
        let steps = jobs.iter().flat_map(|job| job.steps().map(move |step| (*job, step)));
        let answers = steps.map(|(job, step)| async move {
            let mut answer = Answer::new(job);
            rows(client, &prepared[step.number], step, &mut answer).await.map(|()| answer)
        });
        let mut answers: FuturesOrdered<_> = answers.collect();
        while let Some(outcome) = answers.next().await {
            let is_broken = matches!(outcome, Err(Fault::Broken(_)));
            settle(outcome);
            if is_broken {
                return;
            }
        }
    }

    async fn closed(&mut self) {
        let _ = (&mut self.driver).await;
    }

    fn canceller(&self) -> Option<CancelToken> {
        Some(self.client.cancel_token())
    }

    async fn cancel(canceller: CancelToken, stream: ServerStream, login: Login) {
        // Who is not heard is seen to be by the call, which is given up.
        let _ =
            canceller.cancel_query_raw(Guarded::new(stream, login.tls.is_some()), Connector(login.tls)).await;
    }
}

impl Sql for Postgres {
    async fn begin(&mut self) -> Result<(), Fault> {
        self.client.batch_execute("BEGIN").await.map_err(fault)
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        self.client.batch_execute("COMMIT").await.map_err(fault)
    }

    async fn roll_back(&mut self) -> Result<(), Fault> {
        self.client.batch_execute("ROLLBACK").await.map_err(fault)
    }

    async fn step(
        &mut self,
        statement: &tokio_postgres::Statement,
        step: Step<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Fault> {
        if !step.about.kind.has_rows() {
            let values = step.values.iter().map(Bound);
            let changed = self.client.execute_raw(statement, values).await.map_err(fault)?;
            answer.changed(changed);
            return Ok(());
        }
        rows(&self.client, statement, step, answer).await
    }
}

/// Carries out a statement that gives rows.
async fn rows(
    client: &Client,
    statement: &tokio_postgres::Statement,
    step: Step<'_>,
    answer: &mut Answer<'_>,
) -> Result<(), Fault> {
    let values = step.values.iter().map(Bound);
    let names: Vec<&str> = statement.columns().iter().map(|column| column.name()).collect();
    let mut rows = pin!(client.query_raw(statement, values).await.map_err(fault)?);
    answer.begin(step.number, &names);
    while let Some(row) = rows.next().await {
        let row = row.map_err(fault)?;
        if !answer.begin_row()? {
            continue;
        }
        for at in 0..row.len() {
            let column: Column<'_> = row.try_get(at).map_err(fault)?;
            column.put(answer.bytes()).map_err(|reason| Fault::Refused(CallFault::Database, reason))?;
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

    async fn prepare_one(
        &self,
        about: &Statement,
        sql: &str,
    ) -> Result<tokio_postgres::Statement, (usize, String)> {
        crate::sql::check(about, sql)?;
        let prepared = self.client.prepare(sql).await.map_err(|error| at_line(about, sql, &error))?;
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
        Ok(prepared)
    }
}

/// What is wrong with a statement, and the line of the file where that is.
fn at_line(about: &Statement, sql: &str, error: &Error) -> (usize, String) {
    use tokio_postgres::error::ErrorPosition::Original;
    let position = match error.as_db_error().and_then(|error| error.position()) {
        Some(Original(position)) => *position as usize,
        _ => return (about.line, words(error)),
    };
    let before = sql.chars().take(position.saturating_sub(1));
    (about.sql_line + before.filter(|&c| c == '\n').count(), words(error))
}

/// What a failure means for the service that called.
fn fault(error: Error) -> Fault {
    let Some(code) = error.code().cloned() else {
        let is_of_value = error.to_string().starts_with("error serializing parameter");
        return match is_of_value {
            true => Fault::Refused(CallFault::Parameters, words(&error)),
            false => Fault::Broken(format!("the server is lost: {}", words(&error))),
        };
    };
    if code == SqlState::QUERY_CANCELED {
        return Fault::Refused(CallFault::Late, "it took too long".into());
    }
    match &code.code()[..2] {
        "23" => Fault::Refused(CallFault::Constraint, words(&error)),
        // What a value says is no such number, date or the like.
        "22" => Fault::Refused(CallFault::Parameters, words(&error)),
        // The server shuts down, or ends this connection.
        "57" => Fault::Broken(words(&error)),
        _ => Fault::Refused(CallFault::Database, words(&error)),
    }
}

/// What the server has said, or else what has happened.
fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        }
    }
}
