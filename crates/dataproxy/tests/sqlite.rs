//! Calls on a real database, with the threads of a data proxy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dataproxy::{AnswerPart, Budget, Catalog, CatalogError, Job, Replies, SqliteSource as Source};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use wire::data::{CallFault, Value, ValueReader};

const SCHEMA: &str = "\
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, raw BLOB, score REAL);
CREATE TABLE notes (user INTEGER NOT NULL REFERENCES users (id), text TEXT);
INSERT INTO users (id, name) VALUES (1, 'ann'), (2, 'bob'), (3, 'cid');
";
const FILE: &str = "\
-- name: by_id :one
-- services: s
-- params: id int
SELECT id, name FROM users WHERE id = :id;
-- name: all_users :many
-- services: s
-- max_rows: 3
SELECT * FROM users ORDER BY id;
-- name: add :execrows
-- services: s
-- params: id int, name text, raw blob?, score real?
INSERT INTO users VALUES (:id, :name, :raw, :score);
-- name: add_returning :one
-- services: s
-- params: name text
INSERT INTO users (name) VALUES (:name) RETURNING id;
-- name: note :exec
-- services: s
-- params: user int, text text
INSERT INTO notes VALUES (:user, :text);
-- name: notes :many
-- services: s
SELECT text FROM notes ORDER BY rowid;
-- name: forever :one
-- services: s
-- timeout: 200ms
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n;
-- name: many_numbers :many
-- services: s
-- params: count int
-- max_rows: 1000000
-- max_bytes: 1MiB
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < :count) SELECT x, 'a text' AS text FROM n;
-- name: short_of_time :many
-- services: s
-- timeout: 200ms
SELECT 1 AS x;
-- transaction: user_with_note
-- services: s
-- statements: add, note, all_users
";

/// The memory that SQLite may have, of all tests of this program together.
const HEAP: u64 = 256 << 20;

struct Bench {
    folder: tempfile::TempDir,
    source: Source,
    catalog: Arc<Catalog>,
    budget: Arc<Budget>,
    paused: Arc<AtomicBool>,
}

/// The results of a call: for each statement its columns, rows, and how many rows have changed.
type Results = Vec<(Vec<String>, Vec<Vec<Value>>, u64)>;
type Answer = Result<Results, (CallFault, String)>;

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::open(&path(&folder), Some(SCHEMA), HEAP).unwrap();
        let catalog = Arc::new(source.prepare(statements::parse(FILE, Default::default()).unwrap()).unwrap());
        Self { folder, source, catalog, budget: Arc::default(), paused: Arc::default() }
    }

    fn begin(&self, name: &str, values: &[Value]) -> (CancellationToken, UnboundedReceiver<AnswerPart>) {
        let cancelled = CancellationToken::new();
        (cancelled.clone(), self.begin_unless(cancelled, name, values))
    }

    /// Begins a call that may have been cancelled.
    fn begin_unless(
        &self,
        cancelled: CancellationToken,
        name: &str,
        values: &[Value],
    ) -> UnboundedReceiver<AnswerPart> {
        let call = self.catalog.granted("s", name).unwrap();
        self.catalog.check(call, values).unwrap();
        let (replies, answers) = unbounded_channel();
        let lane = self.catalog.lane(call);
        let job = Job {
            id: 7,
            call,
            catalog: self.catalog.clone(),
            values: values.to_vec(),
            deadline: Instant::now() + self.catalog.timeout(call),
            cancelled,
            replies: Replies::new(replies, self.budget.clone(), self.paused.clone()),
        };
        self.source.queue.add(lane, 0, job);
        answers
    }

    fn call(&self, name: &str, values: &[Value]) -> Answer {
        answer(self.begin(name, values).1)
    }

    fn one(&self, name: &str, values: &[Value]) -> Vec<Vec<Value>> {
        self.call(name, values).unwrap().remove(0).1
    }
}

fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("test.db")
}

fn answer(mut answers: UnboundedReceiver<AnswerPart>) -> Answer {
    let mut bytes = Vec::new();
    loop {
        match answers.blocking_recv().expect("an answer") {
            AnswerPart::Part(_, part) => bytes.extend(part),
            AnswerPart::Done(_, part) => {
                bytes.extend(part);
                return Ok(results(&bytes));
            }
            AnswerPart::Failed(_, fault, reason) => return Err((fault, reason)),
        }
    }
}

fn results(bytes: &[u8]) -> Results {
    let (mut reader, mut results) = (ValueReader::new(bytes), Vec::new());
    while !reader.is_at_end() {
        let columns: Vec<String> = reader.columns().unwrap().into_iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        let changed = loop {
            match reader.end_of_rows().unwrap() {
                Some(changed) => break changed,
                None => rows.push(columns.iter().map(|_| reader.value().unwrap().to_value()).collect()),
            }
        };
        results.push((columns, rows, changed));
    }
    results
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn statements_give_what_they_say() {
    let bench = Bench::new();
    let (columns, rows, changed) = bench.call("by_id", &[Value::Int(2)]).unwrap().remove(0);
    assert_eq!((columns, changed), (vec!["id".to_owned(), "name".to_owned()], 0));
    assert_eq!(rows, [[Value::Int(2), text("bob")]]);
    assert_eq!(bench.one("by_id", &[Value::Int(9)]), [[]; 0]);
    let added = bench.call("add", &[Value::Int(7), text("eve"), Value::Blob(vec![0, 255]), Value::Real(0.5)]);
    assert_eq!(added.unwrap()[0].2, 1);
    assert_eq!(bench.one("add_returning", &[text("fay")]), [[Value::Int(8)]]);
    assert_eq!(bench.one("by_id", &[Value::Int(8)]), [[Value::Int(8), text("fay")]]);
    assert_eq!(bench.call("all_users", &[]), Err((CallFault::TooLarge, "it has more than 3 rows".into())));
    bench.source.close();
}

#[test]
fn values_are_bound_whatever_they_say() {
    let bench = Bench::new();
    let texts = [
        "'; DROP TABLE users; --",
        "\" OR 1=1",
        "1; ATTACH 'x' AS y",
        "\0",
        ":id",
        "?1",
        "%s",
        "ü\u{202e}",
        "",
    ];
    for (number, said) in (10..).zip(texts) {
        bench.call("add", &[Value::Int(number), text(said), Value::Null, Value::Null]).unwrap();
        assert_eq!(bench.one("by_id", &[Value::Int(number)]), [[Value::Int(number), text(said)]]);
        bench.call("note", &[Value::Int(number), text(said)]).unwrap();
    }
    let notes: Vec<Vec<Value>> = texts.iter().map(|said| vec![text(said)]).collect();
    assert_eq!(bench.one("notes", &[]), notes);
}

#[test]
fn a_call_that_fails_has_changed_nothing() {
    let bench = Bench::new();
    let fault = |name, values: &[Value]| bench.call(name, values).unwrap_err();
    assert_eq!(
        fault("add", &[Value::Int(4), text("ann"), Value::Null, Value::Null]),
        (CallFault::Constraint, "UNIQUE constraint failed: users.name".into())
    );
    assert_eq!(fault("note", &[Value::Int(99), text("nobody's")]).0, CallFault::Constraint);
    // The second statement fails, and so the first has not happened.
    let values =
        |note: i64| [Value::Int(4), text("dan"), Value::Null, Value::Null, Value::Int(note), text("a note")];
    assert_eq!(fault("user_with_note", &values(5)).0, CallFault::Constraint);
    assert_eq!(bench.one("by_id", &[Value::Int(4)]), [[]; 0]);
    // The third has one row too many, which is known only after the others.
    assert_eq!(fault("user_with_note", &values(4)).0, CallFault::TooLarge);
    assert_eq!(bench.one("by_id", &[Value::Int(4)]), [[]; 0]);
    assert_eq!(bench.one("notes", &[]), [[]; 0]);
}

#[test]
fn a_transaction_gives_the_results_of_all_its_statements() {
    let mut bench = Bench::new();
    let file = FILE.replace("max_rows: 3", "max_rows: 4");
    bench.catalog =
        Arc::new(bench.source.prepare(statements::parse(&file, Default::default()).unwrap()).unwrap());
    let values = [Value::Int(4), text("dan"), Value::Null, Value::Null, Value::Int(4), text("a note")];
    let found = bench.call("user_with_note", &values).unwrap();
    assert_eq!((found[0].2, found[1].2, found[2].1.len()), (1, 1, 4));
    assert_eq!(bench.one("notes", &[]), [[text("a note")]]);
}

#[test]
fn what_takes_too_long_or_is_not_wanted_is_interrupted() {
    let bench = Bench::new();
    let began = Instant::now();
    assert_eq!(bench.call("forever", &[]).unwrap_err().0, CallFault::Late);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let (cancelled, answers) = bench.begin("forever", &[]);
    cancelled.cancel();
    // It ends with or without a word, and long before its time.
    drop(answers);
    bench.source.close();
}

#[test]
fn a_call_that_is_cancelled_before_its_turn_has_an_end_and_changes_nothing() {
    let bench = Bench::new();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let note = [Value::Int(1), text("unwanted")];
    for (name, values) in [("by_id", &[Value::Int(1)][..]), ("note", &note)] {
        assert_eq!(
            answer(bench.begin_unless(cancelled.clone(), name, values)).unwrap_err().0,
            CallFault::Late
        );
    }
    assert_eq!(bench.one("notes", &[]), [[]; 0]);
}

#[test]
fn a_large_answer_comes_in_parts() {
    let bench = Bench::new();
    let mut answers = bench.begin("many_numbers", &[Value::Int(20_000)]).1;
    let mut parts = 0;
    loop {
        match answers.blocking_recv().unwrap() {
            AnswerPart::Part(_, part) => {
                assert!(part.len() <= wire::data::PART_MAX);
                parts += 1;
            }
            AnswerPart::Done(_, part) => {
                assert!(part.len() <= wire::data::PART_MAX);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(parts > 5, "{parts}");
    let rows = bench.one("many_numbers", &[Value::Int(20_000)]);
    assert_eq!((rows.len(), &rows[19_999][0]), (20_000, &Value::Int(20_000)));
    assert_eq!(bench.call("many_numbers", &[Value::Int(100_000)]).unwrap_err().0, CallFault::TooLarge);
}

#[test]
fn an_answer_waits_until_more_of_it_is_wanted() {
    let bench = Bench::new();
    bench.paused.store(true, Ordering::Relaxed);
    let (cancelled, mut unwanted) = bench.begin("many_numbers", &[Value::Int(20_000)]);
    let mut answers = bench.begin("many_numbers", &[Value::Int(20_000)]).1;
    // Others go on: a change is not paused, as its rows come when it holds.
    assert!(bench.call("note", &[Value::Int(1), text("meanwhile")]).is_ok());
    assert!(answers.try_recv().is_err());
    cancelled.cancel();
    assert!(matches!(unwanted.blocking_recv(), Some(AnswerPart::Failed(7, CallFault::Busy, _))));
    bench.paused.store(false, Ordering::Relaxed);
    while !matches!(answers.blocking_recv().unwrap(), AnswerPart::Done(..)) {}
    // The time of a call goes on.
    bench.paused.store(true, Ordering::Relaxed);
    let late = bench.call("short_of_time", &[]).unwrap_err();
    assert_eq!(late, (CallFault::Busy, "the service does not read its answers".to_owned()));
}

#[test]
fn an_answer_waits_until_there_is_room_for_it() {
    let bench = Bench::new();
    // Each has less than the limit of its statement, and all have more than a service may have to read.
    let begin = |_| bench.begin("many_numbers", &[Value::Int(40_000)]).1;
    let mut answers: Vec<_> = (0..10).map(begin).collect();
    let mut left = answers.len();
    while left > 0 {
        for answer in &mut answers {
            let Ok(reply) = answer.try_recv() else { continue };
            assert!(!matches!(reply, AnswerPart::Failed(..)), "{reply:?}");
            left -= usize::from(matches!(reply, AnswerPart::Done(..)));
            if bench.budget.give_back(reply.length()) {
                bench.source.queue.look_again();
            }
        }
    }
}

#[test]
fn a_service_that_reads_nothing_is_not_waited_for() {
    let bench = Bench::new();
    let begin = |_| bench.begin("many_numbers", &[Value::Int(45_000)]).1;
    let mut answers: Vec<_> = (0..6).map(begin).collect();
    let mut is_busy = || {
        answers
            .iter_mut()
            .any(|answer| matches!(answer.try_recv(), Ok(AnswerPart::Failed(_, CallFault::Busy, _))))
    };
    while !is_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A call that has not begun waits for its turn until the service reads.
    assert!(bench.budget.is_spent());
    let (_, mut note) = bench.begin("note", &[Value::Int(1), text("waits")]);
    assert!(note.try_recv().is_err());
    assert!(bench.budget.give_back(wire::data::UNREAD_MAX));
    bench.source.queue.look_again();
    assert!(answer(note).is_ok());
}

#[test]
fn every_statement_is_prepared_at_the_start_or_none() {
    let bench = Bench::new();
    let text = "\
-- name: a :one
-- services: s
SELECT id,
  missing FROM users
-- name: b :exec
-- services: s
SELECT 1
-- name: c :many
-- services: s
DELETE FROM users
-- name: d :exec
-- services: s
/* a word */ -- another
Attach 'x' AS y
-- name: e :exec
-- services: s
DELETE FROM users
";
    let refusal = bench.source.prepare(statements::parse(text, Default::default()).unwrap()).unwrap_err();
    let CatalogError::Mistakes(mistakes) = refusal else { panic!("{refusal:?}") };
    for (number, part) in [
        "line 4: `a`: no such column: missing",
        "line 5: `b`: it gives rows",
        "line 8: `c`: it gives no rows",
        "line 11: `d`: `ATTACH` is not for a statement",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(mistakes[number].starts_with(part), "{mistakes:?}");
    }
    assert_eq!(mistakes.len(), 4);
}

#[test]
fn the_one_that_writes_searches_no_full_text() {
    let folder = tempfile::tempdir().unwrap();
    let schema = "CREATE VIRTUAL TABLE words USING fts5(t);";
    let source = Source::open(&path(&folder), Some(schema), HEAP).unwrap();
    let file = "-- name: found :many\n-- services: s\n-- params: a text\nSELECT rowid FROM words WHERE words MATCH :a;
-- name: alone :many\n-- params: a text\nSELECT rowid FROM words WHERE words MATCH :a;
-- name: gone :exec\n-- services: s\n-- params: a text\nDELETE FROM words WHERE words MATCH :a;
-- name: kept :exec\n-- services: s\n-- params: id int\nDELETE FROM words WHERE rowid = :id;
-- transaction: both\n-- services: s\n-- statements: alone, kept\n";
    let Err(CatalogError::Mistakes(mistakes)) =
        source.prepare(statements::parse(file, Default::default()).unwrap())
    else {
        panic!("it is refused");
    };
    let [first, second] = &*mistakes else { panic!("{mistakes:?}") };
    assert!(first.starts_with("line 5: `alone`: it searches the words of `words`"), "{first}");
    assert!(second.starts_with("line 8: `gone`: it searches the words of `words`"), "{second}");
    assert!(second.contains("by their `rowid`"), "{second}");
    source.close();
}

#[test]
fn what_was_acknowledged_is_there_when_the_database_is_opened_again() {
    let bench = Bench::new();
    bench.call("note", &[Value::Int(1), text("kept")]).unwrap();
    let Bench { folder, source, .. } = bench;
    source.close();
    // A schema is for a database without tables alone.
    let source = Source::open(&path(&folder), Some("CREATE TABLE users (id)"), HEAP).unwrap();
    let catalog = Arc::new(source.prepare(statements::parse(FILE, Default::default()).unwrap()).unwrap());
    let bench = Bench { folder, source, catalog, budget: Arc::default(), paused: Arc::default() };
    assert_eq!(bench.one("notes", &[]), [[text("kept")]]);
}

#[test]
fn a_database_that_is_none_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(path(&folder), "this is no database, but a text of more than 100 bytes ".repeat(9))
        .unwrap();
    let said = Source::open(&path(&folder), None, HEAP).unwrap_err();
    assert!(said.ends_with("file is not a database"), "{said}");
    let said = Source::open(&folder.path().join("none/test.db"), None, HEAP).unwrap_err();
    assert!(said.contains("unable to open database file"), "{said}");
    let broken = Source::open(&folder.path().join("new.db"), Some("CREATE TABLE a (b); CREATE TABEL"), HEAP)
        .unwrap_err();
    assert!(broken.starts_with("the schema: "), "{broken}");
}
