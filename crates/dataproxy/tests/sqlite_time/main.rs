//! Every function, operator and kind of table of SQLite's, with what it may take worst: calls end in their time with
//! the right word, others go on, and memory is bounded. `BULKHEAD_SQLITE_CASES` says how many arguments are tried for
//! each; `make sweep` tries more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod bench;
mod cases;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wire::data::{CallFault, READERS};

use bench::{HEAP, MORE, PARAMETERS, TIMEOUT, bench, end};
use cases::MANY;

/// SQLite's memory is the whole process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How long a search that was given up may go on, as this program is not optimised, and the machine has other tests to
/// run.
const SEARCH_ENDS: Duration = Duration::from_secs(60);

/// Memory that the process has had at most, in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Tries statements, each with arguments that are drawn, as often as it is said.
fn try_all(schema: &str, statements: &[String]) {
    let bench = bench(schema, statements);
    let tries = std::env::var("BULKHEAD_SQLITE_CASES").map_or(1, |count| count.parse().unwrap());
    let mut random = 39_u64;
    let mut draw = |count: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % count
    };
    for (number, statement) in statements.iter().enumerate() {
        let worst = cases::worst(cases::longest(statement));
        let count = PARAMETERS.iter().filter(|name| statement.contains(**name)).count();
        for _ in 0..tries {
            let values: Vec<&str> = (0..count).map(|_| &*worst[draw(worst.len())]).collect();
            bench.try_one(&format!("f{number}"), &values, statement);
        }
    }
    assert!(most_memory() < 4 * HEAP, "{}", most_memory());
    bench.source.close();
}

/// A statement that reads, and one that writes.
fn in_statements(expression: &String) -> [String; 2] {
    [
        format!("SELECT length({expression}) AS x"),
        format!("UPDATE sink SET x = (SELECT length({expression}) FROM (SELECT 1)) WHERE id = 1"),
    ]
}

#[test]
fn every_function_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let statements: Vec<String> = cases::functions().iter().flat_map(in_statements).collect();
    try_all("", &statements);
}

#[test]
fn every_operator_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    for operator in cases::WITHOUT_FUNCTION {
        assert!(connection.prepare(&format!("SELECT {operator}")).is_err(), "{operator} needs a case");
    }
    let statements: Vec<String> = cases::operators().iter().flat_map(in_statements).collect();
    try_all("", &statements);
}

#[test]
fn every_kind_of_table_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for (schema, statements) in cases::tables() {
        // Each with tables of its own: what one has filled would have the next one take longer, the more cases there
        // are.
        statements.iter().for_each(|statement| try_all(&schema, std::slice::from_ref(statement)));
    }
}

#[test]
fn a_search_that_nothing_interrupts_is_at_its_own_service_s_cost() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = "CREATE VIRTUAL TABLE words USING fts5(t);
        INSERT INTO words VALUES (replace(hex(zeroblob(100000)), '00', 'a '));";
    let bench = bench(schema, &["SELECT count(*) AS n FROM words WHERE words MATCH :a".to_owned()]);
    let near = format!("NEAR({}, 1000)", "a ".repeat(40));
    let as_many = READERS - 1;
    let begun: Vec<_> = (0..as_many).map(|_| bench.begin(0, "f0", &[&near])).collect();
    for mut answers in begun {
        let (fault, reason) = end(&mut answers).unwrap();
        assert_eq!(fault, CallFault::Late, "{reason}");
    }
    // They go on, and count as the service's until they end.
    assert_eq!(bench.call(0, "f0", &["a"]).0, Some(CallFault::Busy));
    for other in ["quick", "write"] {
        let (fault, took) = bench.call(1, other, &[]);
        assert!(fault.is_none() && took < MORE, "{other}: {fault:?}, {took:?}");
    }
    let began = Instant::now();
    while bench.call(0, "f0", &["nothing"]).0.is_some() {
        assert!(began.elapsed() < SEARCH_ENDS, "the searches go on");
    }
    bench.source.close();
}

#[test]
fn whatever_a_statement_does_ends_in_time_and_leaves_others_alone() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let statements: Vec<String> = cases::endless().into_iter().chain(cases::endless_changes()).collect();
    let bench = bench("", &statements);
    for (number, statement) in statements.iter().enumerate() {
        // By itself it has its whole time, and is stopped by that or by a bound of SQLite's, and by nothing else.
        let name = format!("f{number}");
        let fault = bench.try_one(&name, &[], statement);
        assert!(matches!(fault, Some(CallFault::Late | CallFault::TooLarge)), "{statement}: {fault:?}");
        // As many at once as one service may have, and more that wait behind them.
        let began = Instant::now();
        let mut all: Vec<_> = (0..5).map(|_| bench.begin(0, &name, &[])).collect();
        for other in ["quick", "write"] {
            let (fault, took) = bench.call(1, other, &[]);
            let waits = statement.contains("sink") && other == "write" && fault == Some(CallFault::Busy);
            assert!((fault.is_none() || waits) && took < MORE, "{statement}: {other}: {fault:?}, {took:?}");
        }
        for answers in &mut all {
            let fault = end(answers).unwrap();
            let is_right = matches!(fault.0, CallFault::Late | CallFault::Busy | CallFault::TooLarge);
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
    let mut bench = bench("", &[long, "UPDATE sink SET x = x + 1000 WHERE id = 1".to_owned()]);
    let mut catalog = Arc::into_inner(bench.catalog).unwrap();
    let long = catalog.file.statements.iter_mut().find(|one| one.name == "f0").unwrap();
    long.timeout = Duration::from_secs(3);
    bench.catalog = Arc::new(catalog);
    let began = Instant::now();
    let mut first = bench.begin(0, "f0", &[]);
    let (fault, took) = bench.call(1, "f1", &[]);
    assert_eq!(fault, Some(CallFault::Busy));
    assert!(took >= TIMEOUT && began.elapsed() < Duration::from_secs(3), "{took:?}");
    assert_eq!(end(&mut first).unwrap().0, CallFault::Late);
    // A call that was given up has not happened.
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
        let bench = bench("", std::slice::from_ref(&statement));
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
