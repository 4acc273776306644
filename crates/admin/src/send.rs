//! Orders to services: each process gets the order on a channel of its own, and has a time to answer.
//!
//! Runs in: the admin role. Sees: answers of services, which may be compromised. Never: waits longer for one than the
//! time, or lets one keep another from answering.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::Text;
use wire::orders::{AdminToService, ORDER_ARGUMENT_MAX, ORDER_NAME_MAX, ServiceToAdmin};
use worker::channel::Channel;

use crate::admin::Admin;
use crate::command::Command;
use crate::reply::{OrderReply, ProcessAnswer};

/// LIMIT: how long a process may take to answer an order.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

impl Admin {
    /// Gives all processes of a service an order, and gathers their answers.
    pub(crate) async fn send(&self, name: String, order: Option<String>, argument: String) -> OrderReply {
        let message = match order {
            None => AdminToService::Diagnostics {},
            Some(order) => match checked(&order, &argument) {
                Ok(message) => message,
                Err(rule) => return OrderReply::wrong(rule),
            },
        };
        let channels = match self.give(Command::Send { name: name.clone(), order: None, argument }).await {
            (OrderReply::Done { .. }, channels) => channels,
            (other, _) => return other,
        };
        let mut asked = JoinSet::new();
        for (worker, channel) in channels {
            let message = message.clone();
            asked.spawn_local(async move { (worker, ask(channel, &message).await) });
        }
        let mut found: Vec<_> = asked.join_all().await;
        found.sort_by_key(|(worker, _)| *worker);
        let several = found.len() > 1;
        let answers = found.into_iter().map(|(worker, outcome)| {
            let process = if several { format!("{name}#{}", worker + 1) } else { name.clone() };
            let error = outcome.as_ref().err().cloned();
            ProcessAnswer { process, answer: outcome.ok(), error }
        });
        OrderReply::Sent { ok: true, answers: answers.collect() }
    }
}

/// An order of a service's own.
fn checked(order: &str, argument: &str) -> Result<AdminToService, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if order.is_empty() || order.len() > ORDER_NAME_MAX || !order.chars().all(fits) {
        return Err(format!("an order is a word of a-z, 0-9 and `-`, at most {ORDER_NAME_MAX} bytes long"));
    }
    if argument.len() > ORDER_ARGUMENT_MAX {
        return Err(format!("an argument has at most {ORDER_ARGUMENT_MAX} bytes"));
    }
    Ok(AdminToService::Order { name: Text::new(order), argument: Text::new(argument) })
}

/// Asks one process.
async fn ask(channel: OwnedFd, message: &AdminToService) -> Result<String, String> {
    let in_words = |error: std::io::Error| format!("it cannot be asked: {error}");
    let channel = Channel::<ServiceToAdmin, AdminToService>::new(channel).map_err(in_words)?;
    channel.send(message, None).await.map_err(in_words)?;
    match timeout(ANSWER_WAIT, channel.receive()).await {
        Err(_) => Err(format!("no answer within {} s", ANSWER_WAIT.as_secs())),
        Ok(Ok(Some((ServiceToAdmin::Done { text }, _)))) => Ok(text.as_str().to_owned()),
        Ok(Ok(Some((ServiceToAdmin::Failed { reason }, _)))) => Err(reason.as_str().to_owned()),
        Ok(Ok(None)) => Err("it has ended, or takes no orders".into()),
        Ok(Err(error)) => Err(format!("it has not answered in our language: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_words_and_arguments_are_short() {
        assert!(checked("flush-2", "all").is_ok());
        for (order, argument) in [
            ("", ""),
            ("Flush", ""),
            ("a b", ""),
            ("a\u{1b}", ""),
            (&*"a".repeat(64), ""),
            ("a", &*"a".repeat(2049)),
        ] {
            assert!(checked(order, argument).is_err(), "{order:?}");
        }
    }
}
