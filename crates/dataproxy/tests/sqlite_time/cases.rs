//! The cases that are tried: each function and operator that SQLite has, by its own lists, each kind of table, and
//! statements without an end.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::bench::PARAMETERS;

/// Rows to sort and to group.
pub const MANY: &str = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000000)";
/// Some rows, for windows and groups.
const FEW: &str = "(SELECT 1 AS k UNION ALL SELECT 2 UNION ALL SELECT 2 UNION ALL SELECT 3)";
/// Operators of SQLite's grammar, which has no list of them that can be asked for.
const OPERATORS: [&str; 51] = [
    "~:a",
    "+:a",
    "-:a",
    "NOT :a",
    ":a || :b",
    ":a -> :b",
    ":a ->> :b",
    ":a * :b",
    ":a / :b",
    ":a % :b",
    ":a + :b",
    ":a - :b",
    ":a & :b",
    ":a | :b",
    ":a << :b",
    ":a >> :b",
    ":a < :b",
    ":a <= :b",
    ":a > :b",
    ":a >= :b",
    ":a = :b",
    ":a == :b",
    ":a <> :b",
    ":a != :b",
    ":a IS :b",
    ":a IS NOT :b",
    ":a IS DISTINCT FROM :b",
    ":a IS NOT DISTINCT FROM :b",
    ":a ISNULL",
    ":a NOTNULL",
    ":a BETWEEN :b AND :c",
    ":a NOT BETWEEN :b AND :c",
    ":a IN (:b, :c)",
    ":a NOT IN (SELECT :b UNION SELECT :c)",
    ":a IN (SELECT value FROM json_each(:b))",
    ":a LIKE :b",
    ":a NOT LIKE :b",
    ":a LIKE :b ESCAPE :c",
    ":a GLOB :b",
    ":a NOT GLOB :b",
    ":a MATCH :b",
    ":a AND :b",
    ":a OR :b",
    ":a < :b COLLATE NOCASE",
    ":a < :b COLLATE RTRIM",
    ":a = :b COLLATE BINARY",
    "CASE :a WHEN :b THEN :c ELSE :a END",
    "CASE WHEN :a > :b THEN :c END",
    "EXISTS (SELECT :a INTERSECT SELECT :b)",
    "(:a, :b) < (:b, :c)",
    "(:a, :b) IN (SELECT :b, :c UNION ALL SELECT :c, :a)",
];
const TYPES: [&str; 5] = ["TEXT", "BLOB", "INTEGER", "NUMERIC", "REAL"];
/// Operators whose function nobody has made: SQLite does not prepare them.
pub const WITHOUT_FUNCTION: [&str; 1] = [":a REGEXP :b"];
/// The function whose second argument has to be a number of the statement's own; it gives the first one.
const WITH_NUMBER: [(&str, &str); 1] = [("likelihood", "likelihood(:a, 0.5)")];

/// How long the values of a statement are at most. A search takes the product of its words and its texts, and the calls
/// after it wait for its end, in a program that is not optimised: the longest one has a test of its own.
pub fn longest(statement: &str) -> usize {
    if statement.contains("MATCH :") { 1 << 14 } else { 1 << 20 }
}

/// The worst arguments of functions, of so many bytes.
pub fn worst(bytes: usize) -> Vec<String> {
    let members: Vec<String> = (0..bytes / 12).map(|number| format!("\"{number}\":1")).collect();
    vec![
        "a".repeat(bytes),
        format!("{}b", "a".repeat(bytes / 2)),
        format!("%{}b%", "a%".repeat(bytes.min(40_000) / 2)),
        format!("{}b", "*a".repeat(bytes.min(40_000) / 2)),
        "[a-b]".repeat(bytes.min(45_000) / 5),
        format!("{{{}}}", members.join(",")),
        format!("[{}1]", "1,".repeat(bytes / 2)),
        "[".repeat(bytes),
        "a ".repeat(bytes / 2),
        format!("\"{}b\"", "a ".repeat(bytes / 4)),
        "%16000000d%.16000000f%,d%q".to_owned(),
        "%Y%j".repeat(bytes / 4),
        ('\u{100}'..).take(bytes / 3).collect(),
        "0f".repeat(bytes / 2),
        "16000000".to_owned(),
        "$.a".to_owned(),
        "9e999".to_owned(),
    ]
}

/// Every function of SQLite's by its own list, with up to three arguments, in each way that it can be called.
///
/// # Panics
/// One that is on no list here cannot be called in any of them.
pub fn functions() -> Vec<String> {
    let connection = Connection::open_in_memory().unwrap();
    let sql = "SELECT DISTINCT name, type = 's', narg FROM pragma_function_list ORDER BY 1, 3";
    let mut list = connection.prepare(sql).unwrap();
    let found = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let found: Vec<(String, bool, i64)> = found.map(Result::unwrap).collect();
    assert!(found.len() > 140, "{}", found.len());
    let can = |expression: &String| connection.prepare(&format!("SELECT {expression}")).is_ok();
    let (mut all, mut without) = (Vec::new(), BTreeSet::new());
    for (name, is_scalar, count) in found {
        let counts = if count < 0 { 0..=3 } else { count.min(3)..=count.min(3) };
        let ways = |count| calls(&name, count as usize).into_iter().take(if is_scalar { 1 } else { 9 });
        let of: Vec<String> = counts.flat_map(ways).filter(&can).collect();
        let own = WITH_NUMBER.iter().find(|(own, _)| *own == name).map(|(_, call)| (*call).to_owned());
        let before = all.len();
        all.extend(of.into_iter().chain(own));
        if all.len() == before {
            without.insert(name);
        }
    }
    assert!(without.is_empty(), "no case calls {without:?}");
    all
}

/// A call as it is, of distinct and of sorted values, with a filter, and in windows.
fn calls(name: &str, count: usize) -> Vec<String> {
    let arguments = PARAMETERS[..count].join(", ");
    let rows = format!("FROM {FEW}");
    let call = format!("\"{name}\"({arguments})");
    let mut all = vec![
        call.clone(),
        format!("(SELECT max({call} OVER (ORDER BY k)) {rows})"),
        format!(
            "(SELECT x FROM (SELECT {call} OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES) AS \
             x {rows}))"
        ),
        format!("(SELECT {call} FILTER (WHERE k > 1) {rows})"),
    ];
    if count > 0 {
        all.push(format!("(SELECT \"{name}\"(DISTINCT {arguments}) {rows})"));
        all.push(format!("(SELECT \"{name}\"({arguments} ORDER BY k DESC) {rows})"));
    }
    all
}

/// Every operator that can be prepared.
pub fn operators() -> Vec<String> {
    let casts = TYPES.map(|to| format!("CAST(:a AS {to})"));
    OPERATORS.into_iter().map(str::to_owned).chain(casts).collect()
}

/// Tables of each kind that SQLite's list of modules has, and statements that ask and fill them.
struct Tables {
    modules: &'static [&'static str],
    schema: &'static str,
    statements: &'static [&'static str],
}

const TABLES: [Tables; 7] = [
    Tables {
        modules: &["json_each", "json_tree"],
        schema: "",
        statements: &[
            "SELECT count(*) AS n FROM json_each(:a)",
            "SELECT sum(length(path) + length(fullkey)) AS n FROM json_tree(:a)",
            "SELECT count(*) AS n FROM json_each(:a, :b)",
            "SELECT count(*) AS n FROM json_tree(:a) AS a, json_tree(:a) AS b WHERE a.atom = b.key",
            "INSERT INTO sink (x) SELECT length(value) FROM json_each(:a)",
        ],
    },
    Tables {
        modules: &["fts3", "fts4", "fts4aux", "fts3tokenize"],
        schema: "CREATE VIRTUAL TABLE old USING fts3(t); CREATE VIRTUAL TABLE words USING fts4(t);
            CREATE VIRTUAL TABLE terms USING fts4aux(words); CREATE VIRTUAL TABLE tokens USING fts3tokenize(porter);
            WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100)
                INSERT INTO words SELECT replace(hex(zeroblob(200)), '00', 'a a b ') FROM n;
            INSERT INTO old SELECT t FROM words;",
        statements: &[
            "INSERT INTO words VALUES (:a)",
            "INSERT INTO old VALUES (:a)",
            "SELECT count(*) AS n FROM words WHERE words MATCH :a",
            "SELECT count(*) AS n FROM old WHERE t MATCH :a",
            "SELECT max(length(snippet(words, :a, :b, :c))) AS n FROM words WHERE words MATCH 'a b'",
            "SELECT max(length(offsets(words)) + length(matchinfo(words, :a))) AS n FROM words WHERE words MATCH 'a \
             NEAR/5 b'",
            "SELECT count(*) AS n FROM terms WHERE term >= :a",
            "SELECT count(*) AS n FROM tokens WHERE input = :a",
            "INSERT INTO words (words) VALUES ('optimize')",
            "INSERT INTO words (words) VALUES ('rebuild')",
            "INSERT INTO words (words) VALUES ('integrity-check')",
            "DELETE FROM words WHERE rowid IN (SELECT value FROM json_each(:a))",
            "UPDATE words SET t = :a WHERE rowid < 4",
        ],
    },
    Tables {
        modules: &["fts5", "fts5vocab"],
        schema: "CREATE VIRTUAL TABLE words USING fts5(t); CREATE VIRTUAL TABLE parts USING fts5(t, tokenize = \
            'trigram');
            CREATE VIRTUAL TABLE terms USING fts5vocab(words, instance);
            WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100)
                INSERT INTO words SELECT replace(hex(zeroblob(200)), '00', 'a a b ') FROM n;",
        statements: &[
            "INSERT INTO words VALUES (:a)",
            "INSERT INTO parts VALUES (:a)",
            "SELECT count(*) AS n FROM words WHERE words MATCH :a",
            "SELECT count(*) AS n FROM parts WHERE t LIKE :a",
            "SELECT max(length(snippet(words, 0, :a, :b, :c, 60))) AS n FROM words WHERE words MATCH 'a + a + b'",
            "SELECT max(length(highlight(words, 0, :a, :b))) AS n FROM words WHERE words MATCH 'NEAR(a b, 5)'",
            "SELECT max(bm25(words, :a)) AS n FROM words WHERE words MATCH 'a*'",
            "SELECT max(rank) AS n FROM words WHERE words MATCH 'a OR b NOT c' ORDER BY rank",
            "SELECT count(*) AS n FROM terms WHERE term >= :a",
            "INSERT INTO words (words) VALUES ('optimize')",
            "INSERT INTO words (words) VALUES ('rebuild')",
            "INSERT INTO words (words) VALUES ('integrity-check')",
            "DELETE FROM words WHERE rowid IN (SELECT value FROM json_each(:a))",
            "UPDATE words SET t = :a WHERE rowid < 4",
        ],
    },
    Tables {
        modules: &["rtree", "rtree_i32"],
        schema: "CREATE VIRTUAL TABLE boxes USING rtree(id, low, high, +t); CREATE VIRTUAL TABLE whole USING \
            rtree_i32(id, low, high);
            WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000) INSERT INTO boxes SELECT x, \
            x, x + 1, '' FROM n;
            INSERT INTO whole SELECT id, low, high FROM boxes;",
        statements: &[
            "INSERT INTO boxes VALUES (NULL, :a, :b, :c)",
            "INSERT INTO whole VALUES (NULL, :a, :b)",
            "SELECT count(*) AS n FROM boxes WHERE low < :a AND high > :b",
            "SELECT count(*) AS n FROM boxes AS a, boxes AS b, whole AS c WHERE a.low < b.high AND b.low < c.high",
            "SELECT rtreecheck('boxes') AS n",
            "DELETE FROM boxes WHERE low > :a",
        ],
    },
    Tables {
        modules: &["dbstat"],
        schema: "",
        statements: &[
            "SELECT sum(pgsize) AS n FROM dbstat WHERE name <> :a",
            "SELECT sum(pgsize) AS n FROM dbstat WHERE aggregate = 1",
        ],
    },
    Tables {
        modules: &["sqlite_stmt"],
        schema: "",
        statements: &["SELECT count(*) AS n FROM sqlite_stmt WHERE sql < :a"],
    },
    Tables {
        modules: &["generate_series"],
        schema: "",
        statements: &["SELECT sum(value) AS n FROM generate_series(1, 100000000000)"],
    },
];

/// Schemas, each with what is tried with it, of all modules that SQLite has.
///
/// # Panics
/// One has no case here.
pub fn tables() -> Vec<(String, Vec<String>)> {
    let connection = Connection::open_in_memory().unwrap();
    let mut list = connection.prepare("SELECT name FROM pragma_module_list").unwrap();
    let found = list.query_map([], |row| row.get(0)).unwrap();
    // Each pragma is a module once it was asked.
    let found: BTreeSet<String> =
        found.map(Result::unwrap).filter(|name: &String| !name.starts_with("pragma_")).collect();
    let is_known = |name: &&String| TABLES.iter().any(|tables| tables.modules.contains(&name.as_str()));
    let unknown: Vec<_> = found.iter().filter(|name| !is_known(name)).collect();
    assert!(found.len() > 4 && unknown.is_empty(), "no case has tables of {unknown:?}");
    let there = TABLES.iter().filter(|tables| tables.modules.iter().any(|name| found.contains(*name)));
    let all = there.map(|tables| {
        assert!(tables.modules.iter().all(|name| found.contains(*name)), "{:?}", tables.modules);
        (tables.schema.to_owned(), tables.statements.iter().map(|text| (*text).to_owned()).collect())
    });
    all.chain([(String::new(), pragmas(&connection))]).collect()
}

/// Pragmas that can be asked as tables.
fn pragmas(connection: &Connection) -> Vec<String> {
    let mut list = connection.prepare("SELECT name FROM pragma_pragma_list ORDER BY 1").unwrap();
    let names: Vec<String> = list.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let ways =
        |name: &String| ["", "(:a)"].map(|with| format!("SELECT count(*) AS n FROM pragma_{name}{with}"));
    let can = |statement: &String| connection.prepare(statement).is_ok();
    let found: Vec<String> = names.iter().flat_map(ways).filter(can).collect();
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Statements that would not end, or would take all memory.
pub fn endless() -> Vec<String> {
    let many = [
        "SELECT x FROM n ORDER BY -x",
        "SELECT DISTINCT x FROM n ORDER BY 1 DESC",
        "SELECT count(*) FROM n GROUP BY x % 1000000",
        "SELECT sum(x) OVER (ORDER BY -x) FROM n",
        "SELECT sum(x) OVER (ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM n",
        "SELECT group_concat(x) OVER (GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) FROM n",
        "SELECT max(x) OVER (PARTITION BY x % 3 ORDER BY x RANGE BETWEEN 1000 PRECEDING AND 1000 FOLLOWING) FROM n",
        "SELECT nth_value(x, 5) OVER w, ntile(7) OVER w, cume_dist() OVER w, lag(x, 1000) OVER w FROM n WINDOW w AS \
         (ORDER BY x)",
        "SELECT count(DISTINCT x) FROM n",
        "SELECT group_concat(x) FROM n",
        "SELECT group_concat(DISTINCT x) FROM n",
        "SELECT group_concat(x, '' ORDER BY -x) FROM n",
        "SELECT string_agg(x, ',') FILTER (WHERE x % 2) FROM n",
        "SELECT json_group_array(x) FROM n",
        "SELECT json_group_object(x, x) FROM n",
        "SELECT jsonb_group_array(x ORDER BY -x) FROM n",
        "SELECT max(hex(randomblob(4000000))) FROM n",
        "SELECT sum(length(zeroblob(16000000) || x)) FROM n",
        "SELECT max(upper(quote(printf('%4000000d', x)))) FROM n",
        "SELECT max(hex(zeroblob(7000000)) < x) FROM n",
        "SELECT count(*) FROM n WHERE x IN (SELECT -x FROM n)",
        "SELECT x FROM n EXCEPT SELECT x FROM n",
        "SELECT x FROM n INTERSECT SELECT -x FROM n",
        "SELECT count(*) FROM n AS a JOIN n AS b ON a.x = -b.x",
        "SELECT count(*) FROM n WHERE EXISTS (SELECT 1 FROM json_each('[1, 2, 3]') WHERE value > x)",
    ];
    let own = [
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION SELECT x + 1 FROM n ORDER BY 1 DESC) SELECT count(*) FROM n",
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n, (SELECT 1 UNION ALL SELECT 2)) SELECT \
         count(*) FROM n",
        "WITH RECURSIVE n (x) AS (SELECT 'ab' UNION ALL SELECT x || x FROM n) SELECT sum(length(x)) FROM n",
        "WITH RECURSIVE n (x) AS (SELECT '{}' UNION ALL SELECT json_object('a', json(x), 'b', json(x)) FROM n) SELECT \
         max(x) FROM n",
    ];
    many.iter().map(|text| format!("{MANY} {text}")).chain(own.map(str::to_owned)).collect()
}

/// The same where it writes.
pub fn endless_changes() -> Vec<String> {
    let all = [
        "INSERT INTO sink (x) SELECT x FROM (MANY SELECT x FROM n)",
        "INSERT INTO sink (x) SELECT zeroblob(1000000) FROM (MANY SELECT x FROM n)",
        "INSERT INTO sink (x) SELECT x FROM (MANY SELECT x FROM n) WHERE true RETURNING x",
        "INSERT INTO sink (id, x) SELECT 1, x FROM (MANY SELECT x FROM n) WHERE true ON CONFLICT DO UPDATE SET x = \
         excluded.x",
        "REPLACE INTO sink SELECT x, x FROM (MANY SELECT x FROM n)",
        "UPDATE sink SET x = n.x FROM (MANY SELECT max(x) AS x FROM n) AS n",
        "UPDATE sink SET x = (MANY SELECT sum(x) OVER (ORDER BY -x) FROM n)",
        "DELETE FROM sink WHERE id IN (MANY SELECT -x FROM n)",
    ];
    all.iter().map(|text| text.replace("MANY", MANY)).collect()
}
