//! Calls at servers that speak SQL: in a transaction, where what has changed may have to be undone.

use std::future::Future;

use super::session::{Fault, Prepared, Progress, Session};
use crate::answer::Answer;
use crate::catalog::Call;
use crate::job::{Job, Step};

/// A connection to a server that speaks SQL.
pub(crate) trait Sql: Session {
    /// Begins a transaction.
    fn begin(&mut self) -> impl Future<Output = Result<(), Fault>>;
    /// Has it hold.
    fn commit(&mut self) -> impl Future<Output = Result<(), Fault>>;
    /// Undoes it.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), Fault>>;

    /// Carries one statement of a call out, to its end.
    fn step(
        &mut self,
        statement: &Self::Statement,
        step: Step<'_>,
        answer: &mut Answer<'_>,
    ) -> impl Future<Output = Result<(), Fault>>;
}

/// Carries a call out.
pub(crate) async fn call<'j, S: Sql>(
    session: &mut S,
    prepared: &Prepared<S::Statement>,
    job: &'j Job,
    progress: &Progress,
) -> Result<Answer<'j>, Fault> {
    match job.call {
        Call::Statement(number) if job.holds_by_itself(number) => {
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
    prepared: &Prepared<S::Statement>,
    job: &'j Job,
    progress: &Progress,
) -> Result<Answer<'j>, Fault> {
    session.begin().await?;
    match all_steps(session, prepared, job).await {
        Ok(answer) => {
            progress.may_hold();
            session.commit().await?;
            Ok(answer)
        }
        Err(broken @ Fault::Broken(_)) => Err(broken),
        Err(fault) => {
            session.roll_back().await?;
            Err(fault)
        }
    }
}

async fn all_steps<'j, S: Sql>(
    session: &mut S,
    prepared: &Prepared<S::Statement>,
    job: &'j Job,
) -> Result<Answer<'j>, Fault> {
    let mut answer = Answer::new(job);
    for step in job.steps() {
        session.step(prepared.get(step.number)?, step, &mut answer).await?;
    }
    Ok(answer)
}
