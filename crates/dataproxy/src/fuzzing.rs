//! The entries for fuzzing: what a database server says, which may have been taken over.
//!
//! Runs in: the fuzz targets `mysql_row`, `mysql_session` and `postgresql_value`.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use statements::Engine;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use wire::data::ValueReader;

use crate::answer::AnswerWriter;
use crate::catalog::{Catalog, CatalogEntry};
use crate::job::{AnswerPart, Job, Replies};
use crate::mysql::Mysql;
use crate::server::{CallProgress, Login, ServerSession as _, SessionFault};

/// The statements that the proxy has the server prepare, and then calls.
const STATEMENTS: &str = "-- name: one :many\n-- services: s\nSELECT 1;\n";

thread_local! {
    static RUNTIME: Option<LocalRuntime> =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).ok();
}

/// A row of MySQL's protocol: what the service gets of one that holds, it can read.
pub fn mysql_row(data: &[u8]) {
    if let Some(result) = crate::mysql::fuzz_row(data) {
        assert!(is_result(&result), "a service cannot read {result:?}");
    }
}

/// A value of PostgreSQL's: the same.
pub fn postgresql_value(data: &[u8]) {
    if let Some(value) = crate::postgres::fuzz_value(data) {
        let mut reader = ValueReader::new(&value);
        assert!(reader.value().is_ok() && reader.is_at_end(), "a service cannot read {value:?}");
    }
}

/// All that a server says on a connection, from the login to the rows of a statement: the session comes to an end, and
/// an answer that a service is given to its end is one that it can read.
pub fn mysql_session(data: &[u8]) {
    RUNTIME.with(|runtime| {
        let Some(runtime) = runtime else { return };
        if let Some((Ok(()) | Err(SessionFault::Said), replies)) = runtime.block_on(session(data)) {
            check_replies(replies);
        }
    });
}

/// How the call has ended, and what the service was told; `None` if it did not come to that.
async fn session(data: &[u8]) -> Option<(Result<(), SessionFault>, UnboundedReceiver<AnswerPart>)> {
    let (ours, mut theirs) = UnixStream::pair().ok()?;
    theirs.set_nonblocking(true).ok()?;
    theirs.write_all(data).ok()?;
    theirs.shutdown(Shutdown::Write).ok()?;
    let stream = OwnedFd::from(ours).try_into().ok()?;
    let login = Login {
        database: "shop".into(),
        user: "shop".into(),
        password: Some("not a secret".into()),
        tls: None,
    };
    let mut session = Mysql::log_in(stream, &login).await.ok()?;
    let file = statements::parse(STATEMENTS, Some(Engine::Mysql)).ok()?;
    let prepared = session.prepare(&file).await.ok()?.without_mistakes().ok()?;
    let (replies, answer) = unbounded_channel();
    let job = Job {
        id: 1,
        call: CatalogEntry::Statement(0),
        catalog: Arc::new(Catalog::new(file, vec![true], false)),
        values: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(5),
        cancelled: CancellationToken::new(),
        replies: Replies::new(replies, Arc::default(), Arc::default()),
    };
    let outcome = session.carry_out(&prepared, &job, &CallProgress::default()).await.map(AnswerWriter::end);
    Some((outcome, answer))
}

fn check_replies(mut replies: UnboundedReceiver<AnswerPart>) {
    let mut result = Vec::new();
    while let Ok(reply) = replies.try_recv() {
        match reply {
            AnswerPart::Part(_, bytes) => result.extend(bytes),
            AnswerPart::Done(_, bytes) => {
                result.extend(bytes);
                assert!(is_result(&result), "a service cannot read {result:?}");
                return;
            }
            AnswerPart::Failed(..) => return,
        }
    }
    panic!("the service was told no end");
}

/// Whether bytes are the result of one statement.
fn is_result(bytes: &[u8]) -> bool {
    let mut reader = ValueReader::new(bytes);
    let Ok(columns) = reader.columns() else { return false };
    loop {
        match reader.end_of_rows() {
            Ok(Some(_)) => return reader.is_at_end(),
            Ok(None) if columns.iter().all(|_| reader.value().is_ok()) => {}
            Ok(None) | Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds reach the rows; else the target would try the login alone.
    #[test]
    fn fuzzing_comes_as_far_as_the_rows() {
        for seed in [
            &include_bytes!("../../../fuzz/seeds/mysql_session/rows")[..],
            include_bytes!("../../../fuzz/seeds/mysql_session/old"),
            include_bytes!("../../../fuzz/seeds/mysql_session/sha2"),
            include_bytes!("../../../fuzz/seeds/mysql_session/sha2_password"),
            include_bytes!("../../../fuzz/seeds/mysql_session/switch"),
        ] {
            let (outcome, mut replies) = said(seed);
            let Ok(AnswerPart::Done(1, result)) = replies.try_recv() else { panic!("{outcome:?}") };
            assert!(is_result(&result));
            assert_eq!(ValueReader::new(&result).columns().unwrap(), ["n", "s", "b", "d", "u", "m"]);
            mysql_session(seed);
        }
        for row in [
            &include_bytes!("../../../fuzz/seeds/mysql_row/row")[..],
            include_bytes!("../../../fuzz/seeds/mysql_row/numbers"),
        ] {
            assert!(crate::mysql::fuzz_row(row).is_some_and(|result| is_result(&result)));
        }
        assert!(!is_result(b"\0\x01"));
        postgresql_value(include_bytes!("../../../fuzz/seeds/postgresql_value/uuid"));
    }

    /// More columns than a row may have values are not waited for.
    #[test]
    fn a_row_has_no_more_values_than_a_service_can_read() {
        let seed = include_bytes!("../../../fuzz/seeds/mysql_session/rows");
        let count = seed.windows(5).rposition(|window| window == b"\x01\0\0\x01\x06").unwrap();
        // The next packet says 4097, and nothing follows.
        let many = [&seed[..count], b"\x03\0\0\x01\xFC\x01\x10"].concat();
        let Err(SessionFault::Broken(reason)) = said(&many).0 else { panic!("it holds") };
        assert!(reason.contains("4097"), "{reason}");
    }

    fn said(data: &[u8]) -> (Result<(), SessionFault>, UnboundedReceiver<AnswerPart>) {
        RUNTIME.with(|runtime| runtime.as_ref().unwrap().block_on(session(data))).unwrap()
    }
}
