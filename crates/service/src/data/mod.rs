//! Databases, by named statements: what a service may ask, and what comes back.
//!
//! Sees: answers of a data proxy. Never: sends SQL, knows a password of a database, or repeats a call that may have
//! been done.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3.

mod any;
mod connection;
mod error;
mod link;
mod parameters;
mod reply;
mod row;
mod timeouts;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use wire::data::{Token, ValueReader};

pub use any::AnyValue;
pub use error::DataError;
pub use parameters::{Parameter, Parameters};
pub use reply::{Passed, Wants};
pub use row::Rows;
pub use timeouts::SaidTimeouts;
pub use wire::data::{CallFault as DataFault, Value as DataValue};

use link::{CallerOrder, DataCall, DataClient};
use reply::ReplyReceiver;
use timeouts::Timeouts;

/// A data source of the site; a clone is the same source, and may go to other threads.
///
/// Calls are made at once and answered in any order. One whose future is dropped is cancelled: it has changed nothing,
/// or all of what it was to change.
#[derive(Clone, Debug)]
pub struct DataSource {
    orders: UnboundedSender<CallerOrder>,
    keys: Arc<AtomicU64>,
    timeouts: watch::Receiver<Timeouts>,
}

/// A data source, and what gives it the channels that the launcher makes.
pub(crate) struct AttachedSource {
    pub(crate) source: DataSource,
    pub(crate) channels: UnboundedSender<(OwnedFd, Token)>,
}

/// The data sources of a service, by name.
pub(crate) type Sources = HashMap<String, AttachedSource>;

impl DataSource {
    /// A source without a channel yet; must be called inside the runtime.
    pub(crate) fn unattached() -> AttachedSource {
        let ((orders, received), (channels, attached)) = (unbounded_channel(), unbounded_channel());
        let (said, timeouts) = watch::channel(Timeouts::default());
        tokio::task::spawn_local(DataClient::new((&orders, received), attached, said).run());
        AttachedSource { source: Self { orders, keys: Arc::default(), timeouts }, channels }
    }

    /// Calls a `:one` statement: its row, if there is one. A row becomes a struct by the names of its columns, a tuple
    /// by their order, and a plain value if there is one column.
    ///
    /// # Errors
    /// As [`DataError`] says.
    pub async fn one<T: DeserializeOwned>(
        &self,
        statement: &str,
        parameters: impl Parameters,
    ) -> Result<Option<T>, DataError> {
        let answer = self.call(statement, values_of(parameters)).await?;
        Ok(Rows::read(&mut ValueReader::new(&answer))?.into_rows()?.into_iter().next())
    }

    /// Calls a `:many` statement.
    ///
    /// # Errors
    /// As [`DataError`] says.
    pub async fn many<T: DeserializeOwned>(
        &self,
        statement: &str,
        parameters: impl Parameters,
    ) -> Result<Vec<T>, DataError> {
        let answer = self.call(statement, values_of(parameters)).await?;
        Rows::read(&mut ValueReader::new(&answer))?.into_rows()
    }

    /// Calls an `:exec` or `:execrows` statement; returns how many rows it has changed, which are on disk then.
    ///
    /// # Errors
    /// As [`DataError`] says.
    pub async fn exec(&self, statement: &str, parameters: impl Parameters) -> Result<u64, DataError> {
        let answer = self.call(statement, values_of(parameters)).await?;
        Ok(Rows::read(&mut ValueReader::new(&answer))?.changed())
    }

    /// Begins a call of a transaction, whose statements get their parameters in order.
    ///
    /// ```no_run
    /// # async fn example(bank: bulkhead_service::DataSource) -> Result<(), bulkhead_service::DataError> {
    /// bank.transaction("transfer").with((1, 500)).with((2, 500)).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self, name: &str) -> Transaction {
        Transaction { source: self.clone(), name: name.to_owned(), values: Vec::new() }
    }

    /// Makes a call, and waits for the whole answer.
    async fn call(&self, name: &str, values: Vec<u8>) -> Result<Vec<u8>, DataError> {
        let (reply, answer) = oneshot::channel();
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let reply = ReplyReceiver::Whole(reply, Vec::new());
        let call = DataCall { key, name: name.to_owned(), values, made: Instant::now(), until: None, reply };
        self.orders.send(CallerOrder::Call(call)).map_err(|_| DataError::Unavailable)?;
        let mut wanted = WaitingCall { source: self, key, is_answered: false };
        let answer = answer.await;
        wanted.is_answered = true;
        answer.unwrap_or(Err(DataError::Unavailable))
    }
}

/// Calls that doors to data sources pass on for services of other machines.
#[doc(hidden)]
impl DataSource {
    /// The timeouts that its data proxy says.
    pub fn timeouts(&self) -> SaidTimeouts {
        SaidTimeouts(self.timeouts.clone())
    }

    /// Makes a call, its values as they came, and has `take` get the answer part by part; it says what more it wants.
    /// The call is cancelled if what is returned is dropped before the answer has ended.
    pub fn pass_on(
        &self,
        name: &str,
        values: Vec<u8>,
        take: impl FnMut(Passed) -> Wants + Send + 'static,
    ) -> PassedOn {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let is_cancelled = Arc::<AtomicBool>::default();
        let reply = ReplyReceiver::Parts(Box::new(take), is_cancelled.clone());
        let call = DataCall { key, name: name.to_owned(), values, made: Instant::now(), until: None, reply };
        if let Err(back) = self.orders.send(CallerOrder::Call(call))
            && let CallerOrder::Call(call) = back.0
        {
            call.reply.fail(DataError::Unavailable);
        }
        PassedOn { source: self.clone(), key, is_cancelled }
    }
}

/// A call that was passed on. Dropping it cancels the call, if it has no answer yet.
#[doc(hidden)]
#[derive(Debug)]
pub struct PassedOn {
    source: DataSource,
    key: u64,
    is_cancelled: Arc<AtomicBool>,
}

impl PassedOn {
    /// Cancels the call; its end is still said.
    pub fn cancel(&self) {
        if !self.is_cancelled.swap(true, Ordering::Relaxed) {
            let _ = self.source.orders.send(CallerOrder::Cancel(self.key));
        }
    }

    /// Has more of its answer come, after [`Wants::MoreLater`].
    pub fn resume(&self) {
        let _ = self.source.orders.send(CallerOrder::Resume(self.key));
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// A call that somebody waits for: it is cancelled when that ends first.
struct WaitingCall<'s> {
    source: &'s DataSource,
    key: u64,
    is_answered: bool,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.source.orders.send(CallerOrder::Cancel(self.key));
        }
    }
}

/// Statements that hold all or not at all, on their way to the database.
#[derive(Debug)]
#[must_use = "nothing is done before `run`"]
pub struct Transaction {
    source: DataSource,
    name: String,
    values: Vec<u8>,
}

impl Transaction {
    /// The parameters of the next statement; one without parameters needs none.
    pub fn with(mut self, parameters: impl Parameters) -> Self {
        parameters.put(&mut self.values);
        self
    }

    /// Has all statements carried out; the results are in their order, and on disk.
    ///
    /// # Errors
    /// As [`DataError`] says. Then none of the statements has changed anything, but for [`DataError::Lost`].
    pub async fn run(self) -> Result<Vec<Rows>, DataError> {
        let answer = self.source.call(&self.name, self.values).await?;
        let (mut reader, mut results) = (ValueReader::new(&answer), Vec::new());
        while !reader.is_at_end() {
            results.push(Rows::read(&mut reader)?);
        }
        Ok(results)
    }
}

fn values_of(parameters: impl Parameters) -> Vec<u8> {
    let mut values = Vec::new();
    parameters.put(&mut values);
    values
}
