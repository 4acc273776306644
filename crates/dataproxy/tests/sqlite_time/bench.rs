//! A source with statements of three parameters, and what a call of one may say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dataproxy::{AnswerPart, Catalog, Job, Replies, SqliteSource as Source};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use wire::data::{CallFault, Value};

pub const HEAP: u64 = 128 << 20;
/// Of the statements that are tried.
pub const TIMEOUT: Duration = Duration::from_millis(100);
/// How much later an answer may come. The machine has other tests to run.
pub const MORE: Duration = Duration::from_millis(1500);
/// How long a call may go on that was given up within one instruction of SQLite's, which is not optimised here.
const GIVEN_UP_FOR: Duration = Duration::from_secs(20);
/// The statements of calls that go on beside others.
const SINK: &str = "CREATE TABLE sink (id INTEGER PRIMARY KEY, x); INSERT INTO sink VALUES (1, 0);";
pub const PARAMETERS: [&str; 3] = [":a", ":b", ":c"];

pub struct Bench {
    _folder: tempfile::TempDir,
    pub source: Source,
    pub catalog: Arc<Catalog>,
}

/// Statements of three texts, `f0`, `f1`, and so on, in a database with these tables.
pub fn bench(schema: &str, statements: &[String]) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let schema = format!("{SINK}{schema}");
    let source = Source::open(&folder.path().join("test.db"), Some(&schema), HEAP).unwrap();
    let mut file = "-- name: quick :one\n-- services: s, t\nSELECT x FROM sink WHERE id = 1;
-- name: write :exec\n-- services: s, t\nUPDATE sink SET x = x + 1 WHERE id = 1;\n"
        .to_owned();
    for (number, statement) in statements.iter().enumerate() {
        let reads = ["SELECT", "WITH", "VALUES"].iter().any(|word| statement.starts_with(word));
        let kind = if reads || statement.contains(" RETURNING ") { "many" } else { "exec" };
        let timeout = TIMEOUT.as_millis();
        file += &format!("-- name: f{number} :{kind}\n-- services: s\n-- timeout: {timeout}ms\n");
        let used = PARAMETERS.iter().filter(|name| statement.contains(**name));
        let used: Vec<String> = used.map(|name| format!("{} text", &name[1..])).collect();
        file += &if used.is_empty() { String::new() } else { format!("-- params: {}\n", used.join(", ")) };
        file += &format!("{statement};\n");
    }
    let parsed = statements::parse(&file, Default::default()).unwrap();
    let catalog = Arc::new(source.prepare(parsed).unwrap());
    Bench { _folder: folder, source, catalog }
}

impl Bench {
    pub fn begin(&self, service: usize, name: &str, values: &[&str]) -> UnboundedReceiver<AnswerPart> {
        let call = self.catalog.granted("s", name).unwrap();
        let values: Vec<Value> = values.iter().map(|text| Value::Text((*text).to_owned())).collect();
        self.catalog.check(call, &values).unwrap();
        let (to, answers) = unbounded_channel();
        let job = Job {
            id: 1,
            call,
            catalog: self.catalog.clone(),
            values,
            deadline: Instant::now() + self.catalog.timeout(call),
            cancelled: CancellationToken::new(),
            replies: Replies::new(to, Arc::default(), Arc::default()),
        };
        self.source.queue.add(self.catalog.lane(call), service, job);
        answers
    }

    /// The fault, if there is one, and the time it took.
    pub fn call(&self, service: usize, name: &str, values: &[&str]) -> (Option<CallFault>, Duration) {
        let (said, took) = self.ask(service, name, values);
        (said.map(|(fault, _)| fault), took)
    }

    fn ask(&self, service: usize, name: &str, values: &[&str]) -> (Option<(CallFault, String)>, Duration) {
        let began = Instant::now();
        let mut answers = self.begin(service, name, values);
        (end(&mut answers), began.elapsed())
    }

    /// Calls a statement that is tried, when calls of before that were given up have ended: they still count as the
    /// service's.
    fn ask_when_free(&self, name: &str, values: &[&str]) -> (Option<(CallFault, String)>, Duration) {
        let began = Instant::now();
        loop {
            let found = self.ask(0, name, values);
            if !matches!(found.0, Some((CallFault::Busy, _))) {
                return found;
            }
            assert!(began.elapsed() < GIVEN_UP_FOR, "{name}: calls of before still go on: {found:?}");
        }
    }

    /// Calls a statement that is tried: it ends in its time, with the right word, and others go on.
    pub fn try_one(&self, name: &str, values: &[&str], statement: &str) -> Option<CallFault> {
        let (said, took) = self.ask_when_free(name, values);
        let shown: Vec<&str> = values.iter().map(|value| value.get(..8).unwrap_or_default()).collect();
        assert!(took < TIMEOUT + MORE, "{statement}: {took:?} with {shown:?}");
        if let Some((fault, reason)) = &said {
            let is_right = is_right(*fault, reason, took);
            assert!(is_right, "{statement}: {fault:?}, `{reason}`, after {took:?} with {shown:?}");
        }
        for other in ["quick", "write"] {
            let (fault, took) = self.call(1, other, &[]);
            assert!(fault.is_none() && took < MORE, "{statement}: {fault:?}, {took:?} with {shown:?}");
        }
        said.map(|(fault, _)| fault)
    }
}

/// The outcome of a call: the fault and its reason, if there is one.
pub fn end(answers: &mut UnboundedReceiver<AnswerPart>) -> Option<(CallFault, String)> {
    loop {
        match answers.blocking_recv().unwrap() {
            AnswerPart::Part(..) => {}
            AnswerPart::Done(..) => return None,
            AnswerPart::Failed(_, fault, reason) => return Some((fault, reason)),
        }
    }
}

/// Whether a call that was alone may have ended with this word: late only what had its time, too large what a bound of
/// its own has stopped, and as a fault of the database only what is none of these.
fn is_right(fault: CallFault, reason: &str, took: Duration) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    let (is_late, is_too_large) = (says(&["interrupt", "too long"]), says(&["too big", "memory"]));
    match fault {
        CallFault::Late => took >= TIMEOUT && is_late,
        CallFault::TooLarge => (is_too_large || says(&["rows", "bytes"])) && !is_late,
        CallFault::Constraint => reason.contains("constraint"),
        // Its time was over while it was written to a disk that others use.
        CallFault::Lost => took >= TIMEOUT && says(&["not on disk in time"]),
        CallFault::Database => !is_too_large && !is_late,
        _ => false,
    }
}
