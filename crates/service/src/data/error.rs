//! Why a call of a statement has no answer.

use wire::DecodeError;
use wire::data::CallFault;

/// Why a call has no answer, and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The data proxy says why: nothing has changed.
    #[error("{reason}")]
    Failed {
        /// The kind of failure.
        fault: CallFault,
        /// In words.
        reason: String,
    },
    /// There is no data proxy: the call was not made.
    #[error("the data source is not there")]
    Unavailable,
    /// The data proxy or its database server was lost while the call was under way: what it changes may have happened,
    /// or not.
    #[error("the data source was lost while the call was under way: {reason}")]
    Lost {
        /// In words: what the proxy says, or that it has gone.
        reason: String,
    },
    /// The row does not fit the type that was asked for.
    #[error("the row does not fit: {0}")]
    Shape(String),
}

impl DataError {
    /// Whether a rule of the tables has refused it, such as a name that is there already.
    pub fn is_constraint(&self) -> bool {
        matches!(self, Self::Failed { fault: CallFault::Constraint, .. })
    }
}

impl serde::de::Error for DataError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Shape(message.to_string())
    }
}

impl From<DecodeError> for DataError {
    fn from(error: DecodeError) -> Self {
        Self::Shape(error.to_string())
    }
}
