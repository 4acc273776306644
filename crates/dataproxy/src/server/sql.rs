//! Calls at servers that speak SQL: in a transaction, where what has changed may have to be undone.

use std::future::Future;

use super::session::{Fault, Prepared, Progress, Session};
use crate::answer::Answer;
use crate::catalog::Call;
use crate::queue::{Job, Step};
use crate::sql::{first_word, has_word};

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
    prepared: &Prepared<S>,
    job: &'j Job,
    progress: &Progress,
) -> Result<Answer<'j>, Fault> {
    match job.call {
        Call::Statement(number) if holds_by_itself(job, number) => {
            if !job.catalog.reads[number] {
                progress.may_hold();
            }
            all_steps(session, prepared, job).await
        }
        _ => in_transaction(session, prepared, job, progress).await,
    }
}

/// Whether a statement needs no transaction: it holds, or not, as a whole. One that changes rows and gives rows has to be undone
/// if these are too many.
fn holds_by_itself(job: &Job, number: usize) -> bool {
    job.catalog.reads[number] || !job.catalog.file.statements[number].kind.has_rows()
}

async fn in_transaction<'j, S: Sql>(
    session: &mut S,
    prepared: &Prepared<S>,
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
    prepared: &Prepared<S>,
    job: &'j Job,
) -> Result<Answer<'j>, Fault> {
    let mut answer = Answer::new(job);
    for step in job.steps() {
        session.step(&prepared[step.number], step, &mut answer).await?;
    }
    Ok(answer)
}

/// Whether a statement only reads, as far as its words say. One that is not known to is undone if its answer is too large.
pub(crate) fn only_reads(sql: &str) -> bool {
    let writes = ["insert", "update", "delete", "merge", "replace", "into", "call"];
    let reads = ["select", "with", "values", "table", "show"];
    reads.contains(&&*first_word(sql)) && !writes.iter().any(|word| has_word(sql, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_write_does_not_only_read() {
        for sql in ["SELECT a FROM t", "-- delete\nselect 1", "WITH x AS (SELECT 1) SELECT * FROM x"] {
            assert_eq!(only_reads(sql), !sql.contains("delete"), "{sql}");
        }
        for sql in [
            "INSERT INTO t VALUES (1) RETURNING id",
            "WITH x AS (DELETE FROM t RETURNING id) SELECT * FROM x",
            "SELECT a FROM t FOR UPDATE",
            "SELECT 1 INTO OUTFILE 'x'",
            "CALL p()",
        ] {
            assert!(!only_reads(sql), "{sql}");
        }
    }
}
