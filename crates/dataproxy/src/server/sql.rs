//! Calls at servers that speak SQL: in a transaction, where what has changed may have to be undone.

use std::future::Future;

use super::session::{CallProgress, PreparedStatements, ServerSession, SessionFault};
use crate::answer::AnswerWriter;
use crate::catalog::CatalogEntry;
use crate::job::{CallStep, Job};

/// A connection to a server that speaks SQL.
pub(crate) trait Sql: ServerSession {
    /// Begins a transaction.
    fn begin(&mut self) -> impl Future<Output = Result<(), SessionFault>>;
    /// Has it hold.
    fn commit(&mut self) -> impl Future<Output = Result<(), SessionFault>>;
    /// Undoes it.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), SessionFault>>;

    /// Carries one statement of a call out, to its end.
    fn step(
        &mut self,
        statement: &Self::Statement,
        step: CallStep<'_>,
        answer: &mut AnswerWriter<'_>,
    ) -> impl Future<Output = Result<(), SessionFault>>;
}

/// Carries a call out.
pub(crate) async fn call<'j, S: Sql>(
    session: &mut S,
    prepared: &PreparedStatements<S::Statement>,
    job: &'j Job,
    progress: &CallProgress,
) -> Result<AnswerWriter<'j>, SessionFault> {
    match job.call {
        CatalogEntry::Statement(number) if job.holds_by_itself(number) => {
            if !job.catalog.reads[number] {
                progress.may_hold();
            }
            all_steps(session, prepared, job).await
        }
        _ => in_transaction(session, prepared, job, progress).await,
    }
}

async fn in_transaction<'j, S: Sql>(
    session: &mut S,
    prepared: &PreparedStatements<S::Statement>,
    job: &'j Job,
    progress: &CallProgress,
) -> Result<AnswerWriter<'j>, SessionFault> {
    session.begin().await?;
    match all_steps(session, prepared, job).await {
        Ok(answer) => {
            progress.may_hold();
            session.commit().await?;
            Ok(answer)
        }
        Err(broken @ SessionFault::Broken(_)) => Err(broken),
        Err(fault) => {
            session.roll_back().await?;
            Err(fault)
        }
    }
}

async fn all_steps<'j, S: Sql>(
    session: &mut S,
    prepared: &PreparedStatements<S::Statement>,
    job: &'j Job,
) -> Result<AnswerWriter<'j>, SessionFault> {
    let mut answer = AnswerWriter::new(job);
    for step in job.steps() {
        session.step(prepared.get(step.number)?, step, &mut answer).await?;
    }
    Ok(answer)
}
