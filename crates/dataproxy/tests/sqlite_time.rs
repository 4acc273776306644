//! Every function and operator of SQLite's, with what it may take worst: calls end in their time, others go on, and memory is bounded.
//! `BULKHEAD_SQLITE_CASES` says how many arguments are tried for each; `make sweep` tries more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dataproxy::{Catalog, Job, Replies, Reply, SqliteSource as Source};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use wire::data::{CallFault, Value};

const HEAP: u64 = 128 << 20;
/// Of the statements that are tried.
const TIMEOUT: Duration = Duration::from_millis(100);
/// How much later an answer may come. The machine has other tests to run.
const MORE: Duration = Duration::from_millis(1500);
/// Rows to sort and to group.
const MANY: &str = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000000)";
const SCHEMA: &str = "CREATE TABLE sink (id INTEGER PRIMARY KEY, x); INSERT INTO sink VALUES (1, 0);";

/// SQLite's memory is the whole process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Bench {
    _folder: tempfile::TempDir,
    source: Source,
    catalog: Arc<Catalog>,
}

/// Statements of three texts, `f0`, `f1`, and so on.
fn bench(statements: &[String]) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::open(&folder.path().join("test.db"), Some(SCHEMA), HEAP).unwrap();
    let mut file = "-- name: quick :one\n-- services: s, t\nSELECT x FROM sink WHERE id = 1;
-- name: write :exec\n-- services: s, t\nUPDATE sink SET x = x + 1 WHERE id = 1;\n"
        .to_owned();
    for (number, statement) in statements.iter().enumerate() {
        let kind = if statement.starts_with("UPDATE") { "exec" } else { "many" };
        let timeout = TIMEOUT.as_millis();
        file += &format!("-- name: f{number} :{kind}\n-- services: s\n-- timeout: {timeout}ms\n");
        let used = ["a", "b", "c"].iter().filter(|name| statement.contains(&format!(":{name}")));
        let used: Vec<String> = used.map(|name| format!("{name} text")).collect();
        file += &if used.is_empty() { String::new() } else { format!("-- params: {}\n", used.join(", ")) };
        file += &format!("{statement};\n");
    }
    let parsed = statements::parse(&file, Default::default()).unwrap();
    let catalog = Arc::new(source.prepare(parsed).unwrap());
    Bench { _folder: folder, source, catalog }
}

impl Bench {
    fn begin(&self, service: usize, name: &str, values: &[&str]) -> UnboundedReceiver<Reply> {
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

    /// What is wrong, if anything is, and how long it took.
    fn call(&self, service: usize, name: &str, values: &[&str]) -> (Option<CallFault>, Duration) {
        let began = Instant::now();
        let mut answers = self.begin(service, name, values);
        (end(&mut answers), began.elapsed())
    }
}

fn end(answers: &mut UnboundedReceiver<Reply>) -> Option<CallFault> {
    loop {
        match answers.blocking_recv().unwrap() {
            Reply::Part(..) => {}
            Reply::Done(..) => return None,
            Reply::Failed(_, fault, _) => return Some(fault),
        }
    }
}

/// What functions may take worst, of so many bytes.
fn worst(bytes: usize) -> Vec<String> {
    let members: Vec<String> = (0..bytes / 12).map(|number| format!("\"{number}\":1")).collect();
    vec![
        "a".repeat(bytes),
        format!("{}b", "a".repeat(bytes / 2)),
        format!("%{}b%", "a%".repeat(20_000)),
        format!("{}b", "*a".repeat(20_000)),
        "[a-b]".repeat(9_000),
        format!("{{{}}}", members.join(",")),
        format!("[{}1]", "1,".repeat(bytes / 2)),
        "[".repeat(bytes),
        "%16000000d%.16000000f%,d%q".to_owned(),
        "%Y%j".repeat(bytes / 4),
        ('\u{100}'..).take(bytes / 3).collect(),
        "0f".repeat(bytes / 2),
        "16000000".to_owned(),
        "$.a".to_owned(),
        "9e999".to_owned(),
    ]
}

/// Every scalar function with one to three arguments, and every operator.
fn expressions() -> Vec<String> {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let sql =
        "SELECT DISTINCT name, narg FROM pragma_function_list WHERE type IN ('s', 'w', 'a') ORDER BY 1, 2";
    let mut list = connection.prepare(sql).unwrap();
    let found = list.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).unwrap();
    let found: Vec<(String, i64)> = found.map(Result::unwrap).collect();
    assert!(found.len() > 140, "{}", found.len());
    let operators = ["||", "<", "=", "IS", "LIKE", "GLOB", "->", "->>", "+", "*", "%", "&", "<<", "AND"];
    let operators = operators.iter().map(|operator| format!(":a {operator} :b"));
    let casts = ["TEXT", "BLOB", "INTEGER", "NUMERIC", "REAL"].map(|to| format!("CAST(:a AS {to})"));
    let collated = ["NOCASE", "RTRIM"].map(|order| format!(":a < :b COLLATE {order}"));
    let calls = found.into_iter().flat_map(|(name, count)| {
        let counts = if count < 0 { 1..=3 } else { count.min(3)..=count.min(3) };
        counts.filter(move |_| count <= 3).map(move |count| {
            let arguments = [":a", ":b", ":c"][..count as usize].join(", ");
            format!("\"{name}\"({arguments})")
        })
    });
    let all = calls.chain(operators).chain(casts).chain(collated);
    // Some are for the inside of FTS or for windows, and are not prepared so.
    let can = |expression: &String| connection.prepare(&format!("SELECT {expression}")).is_ok();
    all.filter(can).collect()
}

/// Memory that the process has had at most, in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn every_function_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let expressions = expressions();
    // Both where it reads and where it writes.
    let of = |expression: &String| {
        [
            format!("SELECT length({expression}) AS x"),
            format!("UPDATE sink SET x = (SELECT length({expression}) FROM (SELECT 1)) WHERE id = 1"),
        ]
    };
    let statements: Vec<String> = expressions.iter().flat_map(of).collect();
    let bench = bench(&statements);
    let worst = worst(1 << 20);
    let tries = std::env::var("BULKHEAD_SQLITE_CASES").map_or(1, |count| count.parse().unwrap());
    let mut random = 39_u64;
    let mut one = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        &*worst[(random >> 33) as usize % worst.len()]
    };
    for (number, statement) in statements.iter().enumerate() {
        let count = ["a", "b", "c"].iter().filter(|name| statement.contains(&format!(":{name}"))).count();
        for _ in 0..tries {
            let values: Vec<&str> = (0..count).map(|_| one()).collect();
            let (_, took) = bench.call(0, &format!("f{number}"), &values);
            let shown: Vec<&str> = values.iter().map(|value| value.get(..8).unwrap_or_default()).collect();
            assert!(took < TIMEOUT + MORE, "{statement}: {took:?} with {shown:?}");
            for other in ["quick", "write"] {
                let (fault, took) = bench.call(1, other, &[]);
                assert!(fault.is_none() && took < MORE, "{statement}: {fault:?}, {took:?} with {shown:?}");
            }
        }
    }
    assert!(most_memory() < 4 * HEAP, "{}", most_memory());
    bench.source.close();
}

#[test]
fn whatever_a_statement_does_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let statements = [
        format!("{MANY} SELECT x FROM n ORDER BY -x"),
        format!("{MANY} SELECT DISTINCT x FROM n ORDER BY 1 DESC"),
        format!("{MANY} SELECT count(*) FROM n GROUP BY x % 1000000"),
        format!("{MANY} SELECT sum(x) OVER (ORDER BY -x) FROM n"),
        format!("{MANY} SELECT group_concat(x) FROM n"),
        format!("{MANY} SELECT json_group_array(x) FROM n"),
        format!("{MANY} SELECT max(hex(randomblob(4000000))) FROM n"),
        format!("{MANY} SELECT sum(length(zeroblob(16000000) || x)) FROM n"),
        format!("{MANY} SELECT max(upper(quote(printf('%4000000d', x)))) FROM n"),
        format!("{MANY} SELECT max(hex(zeroblob(7000000)) < x) FROM n"),
    ];
    let bench = bench(&statements);
    for (number, statement) in statements.iter().enumerate() {
        // As many at once as one service may have, and more that wait behind them.
        let began = Instant::now();
        let name = format!("f{number}");
        let mut all: Vec<_> = (0..5).map(|_| bench.begin(0, &name, &[])).collect();
        for other in ["quick", "write"] {
            let (fault, took) = bench.call(1, other, &[]);
            assert!(fault.is_none() && took < MORE, "{statement}: {other}: {fault:?}, {took:?}");
        }
        for answers in &mut all {
            let fault = end(answers).unwrap();
            let is_right = matches!(fault, CallFault::Late | CallFault::Busy | CallFault::TooLarge);
            assert!(
                is_right && began.elapsed() < TIMEOUT + MORE,
                "{statement}: {fault:?}, {:?}",
                began.elapsed()
            );
        }
    }
    assert!(most_memory() < 4 * HEAP, "{}", most_memory());
    bench.source.close();
}

#[test]
fn a_write_that_waits_behind_a_long_one_is_busy_in_its_own_time() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let long = format!("UPDATE sink SET x = ({MANY} SELECT count(*) FROM n) WHERE id = 1");
    let mut bench = bench(&[long, "UPDATE sink SET x = x + 1000 WHERE id = 1".to_owned()]);
    let mut catalog = Arc::into_inner(bench.catalog).unwrap();
    let long = catalog.file.statements.iter_mut().find(|one| one.name == "f0").unwrap();
    long.timeout = Duration::from_secs(3);
    bench.catalog = Arc::new(catalog);
    let began = Instant::now();
    let mut first = bench.begin(0, "f0", &[]);
    let (fault, took) = bench.call(1, "f1", &[]);
    assert_eq!(fault, Some(CallFault::Busy));
    assert!(took >= TIMEOUT && began.elapsed() < Duration::from_secs(3), "{took:?}");
    assert_eq!(end(&mut first), Some(CallFault::Late));
    // What was given up has not happened.
    assert!(bench.call(1, "write", &[]).0.is_none());
    bench.source.close();
}

/// Threads of this process: processor time that each has used, and how often it has slept.
fn threads() -> HashMap<OsString, (Duration, u64)> {
    let of = |entry: DirEntry| {
        let used = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let used = Duration::from_nanos(used.split(' ').next()?.parse().ok()?);
        Some((entry.file_name(), (used, slept.trim().parse().ok()?)))
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok).filter_map(of).collect()
}

#[test]
fn others_have_the_processor_also_within_a_function() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // For each row an instruction that takes as long as thousands of others.
    let long = format!("{MANY} SELECT max(length(hex(zeroblob(7000000 + x % 2)))) FROM n");
    for statement in [long.clone(), format!("UPDATE sink SET x = ({long}) WHERE id = 1")] {
        let before = threads();
        let bench = bench(std::slice::from_ref(&statement));
        let has_worked = |(used, _): &(Duration, u64)| *used >= Duration::from_millis(300);
        let (used, slept) = loop {
            assert_eq!(bench.call(0, "f0", &[]).0, Some(CallFault::Late));
            let found = threads().into_iter().filter(|(name, _)| !before.contains_key(name));
            if let Some(found) = found.map(|(_, found)| found).find(has_worked) {
                break found;
            }
        };
        let most = used / u32::try_from(slept).unwrap().max(1);
        assert!(most < Duration::from_millis(5), "{statement}: {most:?} between two pauses");
        bench.source.close();
    }
}
