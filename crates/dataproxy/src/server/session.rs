//! The operations of a connection to a server, in any protocol.

use std::cell::Cell;
use std::future::Future;

use statements::{Statement, StatementMistake, Statements};
use wire::data::CallFault;
use worker::server_stream::ServerStream;

use super::Login;
use crate::answer::{AnswerWriter, ErrorSent};
use crate::catalog::CatalogError;
use crate::describe::DescribedColumn;
use crate::job::Job;

/// Why a call has failed, as the server says.
#[derive(Debug)]
pub(crate) enum SessionFault {
    /// The service has been told already.
    Said,
    /// The server has refused it, and nothing has changed.
    Refused(CallFault, String),
    /// The server does not know the statement as it was prepared, or not any more, and has carried nothing of it out:
    /// it has to be prepared anew.
    Outdated(CallFault, String),
    /// The connection is of no use any more.
    Broken(String),
}

impl From<ErrorSent> for SessionFault {
    fn from(_: ErrorSent) -> Self {
        Self::Said
    }
}

/// A server's result for each statement of a file, by number: the prepared statement, or its fault in a line.
#[derive(Debug)]
pub(crate) struct PreparedStatements<T>(Vec<Result<T, String>>);

impl<T> PreparedStatements<T> {
    /// Takes the result for each statement.
    pub(crate) fn new(said: Vec<Result<T, String>>) -> Self {
        Self(said)
    }

    /// The same, if the server has nothing against any of them.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub(crate) fn without_mistakes(self) -> Result<Self, CatalogError> {
        let mistakes: Vec<String> = self.0.iter().filter_map(|said| said.as_ref().err().cloned()).collect();
        if mistakes.is_empty() { Ok(self) } else { Err(CatalogError::Mistakes(mistakes)) }
    }

    /// The statement of a number.
    ///
    /// # Errors
    /// The statement's fault when the connection was made: it has to be prepared anew.
    pub(crate) fn get(&self, number: usize) -> Result<&T, SessionFault> {
        self.0[number]
            .as_ref()
            .map_err(|mistake| SessionFault::Outdated(CallFault::Database, mistake.clone()))
    }

    /// Has a statement that was prepared anew hold, and gives the one of before.
    pub(crate) fn replace(&mut self, number: usize, statement: T) -> Option<T> {
        std::mem::replace(&mut self.0[number], Ok(statement)).ok()
    }

    /// Those that the server knows; all, where nothing was wrong with any.
    pub(crate) fn known(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|said| said.as_ref().ok())
    }
}

/// How far a call has come: whether it may hold, if the server says nothing more.
#[derive(Debug, Default)]
pub(crate) struct CallProgress(Cell<bool>);

impl CallProgress {
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
pub(crate) trait ServerSession: Sized + 'static {
    /// A statement that the server has prepared.
    type Statement;
    /// Stops the call under way, from another connection.
    type Canceller: 'static;

    /// Logs in.
    fn log_in(stream: ServerStream, login: &Login) -> impl Future<Output = Result<Self, String>>;

    /// Has all statements prepared; why the server cannot be asked.
    fn prepare(
        &mut self,
        file: &Statements,
    ) -> impl Future<Output = Result<PreparedStatements<Self::Statement>, CatalogError>>;

    /// The columns of each statement's rows.
    fn describe(
        &mut self,
        prepared: &PreparedStatements<Self::Statement>,
    ) -> impl Future<Output = Result<Vec<Vec<DescribedColumn>>, CatalogError>>;

    /// Whether a statement only reads; in doubt it does not.
    fn only_reads(about: &Statement, known: &Self::Statement) -> bool;

    /// The oddities of statements that hold all the same.
    fn warnings(
        _file: &Statements,
        _prepared: &PreparedStatements<Self::Statement>,
    ) -> Vec<StatementMistake> {
        Vec::new()
    }

    /// Carries a call out, to its end.
    fn carry_out<'j>(
        &mut self,
        prepared: &PreparedStatements<Self::Statement>,
        job: &'j Job,
        progress: &CallProgress,
    ) -> impl Future<Output = Result<AnswerWriter<'j>, SessionFault>>;

    /// Carries calls out that are each one statement and only read: the server has all of them before the first answer
    /// comes. `settle` takes what has become of each, in their order; nothing follows [`SessionFault::Broken`].
    fn read_together<'j>(
        &mut self,
        prepared: &PreparedStatements<Self::Statement>,
        jobs: &[&'j Job],
        settle: &mut dyn FnMut(Result<AnswerWriter<'j>, SessionFault>),
    ) -> impl Future<Output = ()>;

    /// Has the statements of a call prepared anew, which the server does not know as they were; what it says against
    /// that. `again` says that it did not help before.
    fn renew(
        &mut self,
        prepared: &mut PreparedStatements<Self::Statement>,
        job: &Job,
        again: bool,
    ) -> impl Future<Output = Result<(), SessionFault>>;

    /// Waits until the server has ended the connection.
    fn closed(&mut self) -> impl Future<Output = ()>;

    /// Makes the canceller of a call under way; `None` where the server cannot be told to stop.
    fn canceller(&self) -> Option<Self::Canceller>;
    /// Stops the call under way, if there is one.
    fn cancel(
        canceller: Self::Canceller,
        stream: ServerStream,
        login: Login,
    ) -> impl Future<Output = ()> + 'static;
}
