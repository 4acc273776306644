//! The functions beside SQLite's own: they give the same, and end in time.

use std::time::Duration;

use super::*;

/// Calls with as many arguments as each takes.
const CALLS: [(&str, usize); 13] = [
    ("?1 LIKE ?2", 2),
    ("?1 LIKE ?2 ESCAPE ?3", 3),
    ("?1 GLOB ?2", 2),
    ("like(?1, ?2)", 2),
    ("instr(?1, ?2)", 2),
    ("replace(?1, ?2, ?3)", 3),
    ("ltrim(?1, ?2)", 2),
    ("rtrim(?1, ?2)", 2),
    ("trim(?1, ?2)", 2),
    ("hex(unhex(?1, ?2))", 2),
    ("json_patch(?1, ?2)", 2),
    ("json_array(json_patch(?1, ?2))", 2),
    ("hex(jsonb_patch(?1, ?2))", 2),
];
const PIECES: [&str; 26] = [
    "a",
    "A",
    "b",
    "ab",
    "%",
    "_",
    "*",
    "?",
    "[",
    "]",
    "^",
    "-",
    "[a-c]",
    "[^",
    "é",
    "É",
    "€",
    "\0",
    "\\",
    " ",
    "0f",
    "F",
    "{\"a\":1}",
    "{\"a\":{\"b\":null}}",
    "null",
    "1",
];

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn value(&mut self) -> Value {
        let text = |random: &mut Self| {
            let count = random.below(6);
            (0..count).map(|_| PIECES[random.below(PIECES.len())]).collect::<String>()
        };
        match self.below(12) {
            0 => Value::Null,
            1 => Value::Integer(self.below(300) as i64 - 50),
            2 => Value::Real(self.below(3000) as f64 / 16.0 * 10_f64.powi(self.below(40) as i32 - 20)),
            3 => Value::Blob(text(self).into_bytes()),
            // No UTF-8.
            4 => Value::Blob(
                (0..self.below(5)).map(|_| [0x80, 0xc3, 0xe2, b'a', 0xff][self.below(5)]).collect(),
            ),
            5 => Value::Text(PIECES[self.below(PIECES.len())].to_owned()),
            _ => Value::Text(text(self)),
        }
    }
}

/// The result of an expression, or that it fails.
fn said(connection: &Connection, expression: &str, values: &[Value]) -> Option<(String, String)> {
    let sql = format!("SELECT typeof(x), quote(x) FROM (SELECT {expression} AS x)");
    let found = connection.query_row(&sql, rusqlite::params_from_iter(values), |row| {
        Ok((row.get(0)?, String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned()))
    });
    found.ok()
}

#[test]
fn functions_give_what_sqlites_own_give() {
    let (own, other) = (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
    replace(&own, &Watch::default()).unwrap();
    let mut random = Random(39);
    let cases = std::env::var("BULKHEAD_SQLITE_CASES").map_or(6_000, |count| count.parse().unwrap());
    for _ in 0..cases {
        let (expression, count) = CALLS[random.below(CALLS.len())];
        let values: Vec<Value> = (0..count).map(|_| random.value()).collect();
        let (ours, theirs) = (said(&own, expression, &values), said(&other, expression, &values));
        assert_eq!(ours, theirs, "{expression}: {values:?}");
    }
}

/// Processor time of this thread: another test may have the processor meanwhile.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_patch_is_bounded_by_what_its_target_becomes() {
    let own = Connection::open_in_memory().unwrap();
    replace(&own, &Watch::default()).unwrap();
    let of_length = |length: usize| format!("\"{}\"", "a".repeat(length - 2));
    let is_taken = |target: usize, patch: usize| {
        let values = [of_length(target), of_length(patch)];
        own.query_row("SELECT json_patch(?1, ?2)", values, |row| row.get::<_, String>(0)).is_ok()
    };
    for (target, most) in [(1 << 20, 511), (16 << 10, 16 << 10), (2, 23_169)] {
        assert_eq!(
            [most - 1, most, most + 1].map(|patch| is_taken(target, patch)),
            [true, true, false],
            "{target}"
        );
    }
}

/// SQLite's own functions take minutes for these.
#[test]
fn the_worst_that_there_is_takes_no_time() {
    let own = Connection::open_in_memory().unwrap();
    limits::set(&own).unwrap();
    replace(&own, &Watch::default()).unwrap();
    let half = format!("{}b", "a".repeat(2 << 20));
    let many: String = ('\u{100}'..).take(100_000).collect();
    let members = |from: usize| {
        let all: Vec<String> = (from..from + 100_000).map(|number| format!("\"{number}\":1")).collect();
        Value::Text(format!("{{{}}}", all.join(",")))
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let long = Value::Text("a".repeat(4 << 20));
    let cases = [
        ("instr(?1, ?2)", vec![long.clone(), text(&half)]),
        ("replace(?1, ?2, 'x')", vec![long.clone(), text(&half)]),
        ("trim(?1, ?2)", vec![long.clone(), text(&format!("{many}a"))]),
        ("unhex(?1, ?2)", vec![text(&many.repeat(8)), text(&many)]),
        ("json_patch(?1, ?2)", vec![members(0), members(200_000)]),
        // The patched text grows with the patch.
        ("json_patch(?1, ?2)", vec![text("{}"), members(0)]),
        ("json_patch(?1, ?2)", vec![text("16000000"), members(0)]),
    ];
    for (expression, values) in cases {
        let began = used();
        said(&own, expression, &values);
        let took = used() - began;
        assert!(took < Duration::from_secs(2), "{expression}: {took:?}");
    }
}
