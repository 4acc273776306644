//! How many requests may be with others at once: with the servers of one route, or with one service.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: let those who are
//! slow, however many they are, have every place of the worker.
//!
//! A request has a turn from when it is passed on to the end of its answer, or of the tunnel that this opens. Without a
//! number of its own, a party may have as many turns as places are left by all of them: the first that hangs gets half of
//! the places, the next half of what is left, and whoever needs none of them is served all the while.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use crate::body::{BoxError, ResponseBody, Stream};
use crate::upgrade;

/// Whom requests are passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// The servers of the rule with this number.
    Target(u16),
    /// The service of this partition.
    Service(u16),
}

/// How many there are of something: as many as hold a clone.
#[derive(Debug, Default)]
struct Count(Arc<()>);

impl Count {
    fn get(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// All turns of a worker.
pub(crate) struct Turns {
    /// Connections that the worker may hold.
    places: usize,
    all: Count,
    parties: RefCell<HashMap<Party, Count>>,
    /// Where the operator has said how many.
    at_most: HashMap<Party, usize>,
    refused: Cell<u64>,
}

/// One request's turn; it is over when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not read")] Arc<[Arc<()>; 2]>);

impl Turns {
    /// For a worker that may hold `connections`.
    pub fn new(connections: u32) -> Self {
        Self {
            places: connections as usize,
            all: Count::default(),
            parties: RefCell::default(),
            at_most: HashMap::new(),
            refused: Cell::new(0),
        }
    }

    /// Lets `party` have `requests` at once, whatever is left.
    pub fn limit(&mut self, party: Party, requests: u32) {
        self.at_most.insert(party, requests as usize);
    }

    /// A turn with `party`; or how many it has, which is as many as it may.
    pub fn take(&self, party: Party) -> Result<Turn, usize> {
        let mut parties = self.parties.borrow_mut();
        let own = parties.entry(party).or_default();
        let left = || self.places.saturating_sub(self.all.get());
        let at_most = self.at_most.get(&party).copied().unwrap_or_else(left);
        if own.get() < at_most {
            return Ok(Turn(Arc::new([own.0.clone(), self.all.0.clone()])));
        }
        self.refused.set(self.refused.get() + 1);
        Err(own.get())
    }

    /// How many requests got no turn.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

impl Turn {
    /// Keeps it until the answer is over.
    pub fn keep(self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        upgrade::keep(&mut response, &self);
        response.map(|body| match body {
            ResponseBody::Stream(inner) => ResponseBody::Stream(Box::pin(Kept { inner, _turn: self })),
            // Nobody else is at work on it any more.
            ours => ours,
        })
    }
}

/// A body that somebody else is at work on.
struct Kept {
    inner: Stream,
    _turn: Turn,
}

impl Body for Kept {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.inner.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(turns: &Turns, party: Party) -> Vec<Turn> {
        std::iter::from_fn(|| turns.take(party).ok()).collect()
    }

    #[test]
    fn each_that_hangs_gets_half_of_what_is_left() {
        let turns = Turns::new(64);
        let first = all_of(&turns, Party::Target(1));
        let second = all_of(&turns, Party::Service(1));
        let third = all_of(&turns, Party::Target(2));
        assert_eq!((first.len(), second.len(), third.len()), (32, 16, 8));
        assert_eq!((turns.take(Party::Target(1)).unwrap_err(), turns.refused()), (32, 4));
        drop(first);
        assert_eq!(all_of(&turns, Party::Target(1)).len(), 20);
    }

    #[test]
    fn what_the_operator_says_counts() {
        let mut turns = Turns::new(64);
        turns.limit(Party::Target(1), 3);
        turns.limit(Party::Target(2), 64);
        assert_eq!(all_of(&turns, Party::Target(1)).len(), 3);
        let second = all_of(&turns, Party::Target(2));
        assert_eq!(second.len(), 64);
        assert!(turns.take(Party::Target(3)).is_err());
        drop(second);
        assert!(turns.take(Party::Target(3)).is_ok());
    }

    #[test]
    fn a_turn_lasts_as_long_as_the_answer() {
        let turns = Turns::new(2);
        let answer = |body| turns.take(Party::Target(1)).unwrap().keep(Response::new(body));
        let held = answer(ResponseBody::stream(http_body_util::Full::new(Bytes::from("x"))));
        assert!(turns.take(Party::Target(1)).is_err());
        drop(held);
        let _ours = answer(ResponseBody::Full(Bytes::from("x")));
        assert!(turns.take(Party::Target(1)).is_ok());
    }
}
