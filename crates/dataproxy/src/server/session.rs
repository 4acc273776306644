//! What a connection to a server does, whatever the server speaks.

use std::cell::Cell;
use std::future::Future;

use statements::Statements;
use wire::data::CallFault;
use worker::server_stream::ServerStream;

use super::Login;
use crate::answer::{Answer, Said};
use crate::catalog::{Call, Refusal};
use crate::describe::Described;
use crate::queue::{Job, Step};

/// Why a call has failed, as the server says.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The service has been told already.
    Said,
    /// The server has refused it, and nothing has changed.
    Refused(CallFault, String),
    /// The connection is of no use any more.
    Broken(String),
}

impl From<Said> for Fault {
    fn from(_: Said) -> Self {
        Self::Said
    }
}

/// The statements of a file, as a server knows them, by number.
pub(crate) type Prepared<S> = Vec<<S as Session>::Statement>;

/// What a server has said of all statements of a file: each as it knows it, or what is wrong with it, in a line.
pub(crate) fn all_or_mistakes<S: Session>(
    said: Vec<Result<S::Statement, String>>,
) -> Result<Prepared<S>, Refusal> {
    let (mut statements, mut mistakes) = (Vec::new(), Vec::new());
    for one in said {
        match one {
            Ok(statement) => statements.push(statement),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() { Ok(statements) } else { Err(Refusal::Mistakes(mistakes)) }
}

/// How far a call has come: whether it may hold, if the server says nothing more.
#[derive(Debug, Default)]
pub(crate) struct Progress(Cell<bool>);

impl Progress {
    /// The server is told what makes the call's changes hold.
    pub(crate) fn may_hold(&self) {
        self.0.set(true);
    }

    /// Whether nobody knows what has become of the call.
    pub(crate) fn is_unknown(&self) -> bool {
        self.0.get()
    }
}

/// One connection to a server.
pub(crate) trait Session: Sized + 'static {
    /// A statement that the server has prepared.
    type Statement;
    /// What stops the call under way, from another connection.
    type Canceller: 'static;

    /// Logs in.
    fn log_in(stream: ServerStream, login: &Login) -> impl Future<Output = Result<Self, String>>;

    /// Has all statements prepared; every mistake, each with its line.
    fn prepare(&mut self, file: &Statements) -> impl Future<Output = Result<Prepared<Self>, Refusal>>;

    /// What the rows of each statement have in them.
    fn describe(
        &mut self,
        prepared: &Prepared<Self>,
    ) -> impl Future<Output = Result<Vec<Vec<Described>>, Refusal>>;

    /// Begins a transaction.
    fn begin(&mut self) -> impl Future<Output = Result<(), Fault>>;
    /// Has it hold.
    fn commit(&mut self) -> impl Future<Output = Result<(), Fault>>;
    /// Undoes it.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), Fault>>;

    /// Carries one statement of a call out, to its end.
    fn carry_out(
        &mut self,
        statement: &Self::Statement,
        step: Step<'_>,
        answer: &mut Answer<'_>,
    ) -> impl Future<Output = Result<(), Fault>>;

    /// Waits until the server has ended the connection.
    fn closed(&mut self) -> impl Future<Output = ()>;

    /// What stops a call under way.
    fn canceller(&self) -> Self::Canceller;
    /// Stops the call under way, if there is one.
    fn cancel(
        canceller: Self::Canceller,
        stream: ServerStream,
        login: Login,
    ) -> impl Future<Output = ()> + 'static;
}

/// Carries a call out and answers it.
pub(crate) async fn run<S: Session>(
    session: &mut S,
    prepared: &Prepared<S>,
    job: &Job,
    progress: &Progress,
) -> Result<(), Fault> {
    let answer = match job.call {
        Call::Statement(number) if holds_by_itself(job, number) => {
            if !job.catalog.reads[number] {
                progress.may_hold();
            }
            all_steps(session, prepared, job).await?
        }
        _ => in_transaction(session, prepared, job, progress).await?,
    };
    answer.end();
    Ok(())
}

/// Whether a statement needs no transaction: it holds, or not, as a whole. One that changes rows and gives rows has to be undone
/// if these are too many.
fn holds_by_itself(job: &Job, number: usize) -> bool {
    job.catalog.reads[number] || !job.catalog.file.statements[number].kind.has_rows()
}

async fn in_transaction<'j, S: Session>(
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

async fn all_steps<'j, S: Session>(
    session: &mut S,
    prepared: &Prepared<S>,
    job: &'j Job,
) -> Result<Answer<'j>, Fault> {
    let mut answer = Answer::new(job);
    for step in job.steps() {
        session.carry_out(&prepared[step.number], step, &mut answer).await?;
    }
    Ok(answer)
}
