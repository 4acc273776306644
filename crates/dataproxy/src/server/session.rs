//! What a connection to a server does, whatever the server speaks.

use std::cell::Cell;
use std::future::Future;

use statements::{Mistake, Statement, Statements};
use wire::data::CallFault;
use worker::server_stream::ServerStream;

use super::Login;
use crate::answer::{Answer, Said};
use crate::catalog::Refusal;
use crate::describe::Described;
use crate::job::Job;

/// Why a call has failed, as the server says.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The service has been told already.
    Said,
    /// The server has refused it, and nothing has changed.
    Refused(CallFault, String),
    /// The server does not know the statement as it was prepared, or not any more, and has carried nothing of it out: it has to be
    /// prepared anew.
    Outdated(CallFault, String),
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

    /// Whether a statement only reads; in doubt it does not.
    fn only_reads(about: &Statement, known: &Self::Statement) -> bool;

    /// What is odd about statements that hold all the same.
    fn warnings(_file: &Statements, _prepared: &Prepared<Self>) -> Vec<Mistake> {
        Vec::new()
    }

    /// Carries a call out, to its end.
    fn carry_out<'j>(
        &mut self,
        prepared: &Prepared<Self>,
        job: &'j Job,
        progress: &Progress,
    ) -> impl Future<Output = Result<Answer<'j>, Fault>>;

    /// Carries calls out that are each one statement and only read: the server has all of them before the first answer comes.
    /// `settle` takes what has become of each, in their order; nothing follows [`Fault::Broken`].
    fn read_together<'j>(
        &mut self,
        prepared: &Prepared<Self>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<Answer<'j>, Fault>),
    ) -> impl Future<Output = ()>;

    /// Has the statements of a call prepared anew, which the server does not know as they were; what it says against that. `again` says
    /// that it did not help before.
    fn renew(
        &mut self,
        prepared: &mut Prepared<Self>,
        job: &Job,
        again: bool,
    ) -> impl Future<Output = Result<(), Fault>>;

    /// Waits until the server has ended the connection.
    fn closed(&mut self) -> impl Future<Output = ()>;

    /// What stops a call under way; `None` where the server cannot be told to.
    fn canceller(&self) -> Option<Self::Canceller>;
    /// Stops the call under way, if there is one.
    fn cancel(
        canceller: Self::Canceller,
        stream: ServerStream,
        login: Login,
    ) -> impl Future<Output = ()> + 'static;
}
