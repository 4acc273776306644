use super::*;

const GOOD: &str = "\
-- Everything about users.

-- name: user_by_id :one
-- The search shows their names: nothing else.
-- services: search, profile
-- params: id int
-- timeout: 500ms
SELECT id, name FROM users WHERE id = :id;

-- name: rename :execrows
-- services: profile
-- params: name text?, id int
UPDATE users SET name = :name WHERE id = :id AND note <> ':id; -- no' /* :id */

-- name: all_users :many
-- services: search
-- max_rows: 5
-- max_bytes: 64KiB
SELECT id::text, name FROM users; -- done

-- transaction: swap
-- services: profile
-- statements: rename, rename
";

fn lines(text: &str) -> Vec<(usize, String)> {
    parse(text, None).unwrap_err().into_iter().map(|mistake| (mistake.line, mistake.to_string())).collect()
}

#[test]
fn a_file_says_who_may_ask_what() {
    let found = parse(GOOD, None).unwrap();
    let [by_id, rename, all] = &found.statements[..] else { panic!("{found:?}") };
    assert_eq!((by_id.kind, by_id.timeout, by_id.line), (StatementKind::One, Duration::from_millis(500), 3));
    assert_eq!(by_id.services, ["search", "profile"]);
    assert_eq!(by_id.sql(|number| format!("${}", number + 1)), "SELECT id, name FROM users WHERE id = $1");
    assert_eq!(rename.parameters[0], Parameter { name: "name".into(), kind: Type::Text, nullable: true });
    let text = rename.sql(|number| format!("?{}", number + 1));
    assert_eq!(text, "UPDATE users SET name = ?1 WHERE id = ?2 AND note <> ':id; -- no' /* :id */");
    assert_eq!((all.max_rows, all.max_bytes, all.timeout), (5, 64 << 10, TIMEOUT));
    assert_eq!(all.sql(|_| String::new()), "SELECT id::text, name FROM users");
    assert_eq!(found.transactions[0].steps, [1, 1]);
    assert_eq!(found.services(), [("search", 3), ("profile", 3)]);
}

#[test]
fn a_parameter_may_stand_twice_and_anywhere() {
    let text = "-- name: a :one\n-- services: s\n-- params: x int, y text\nSELECT :y,:x+:x,$$:y$$, $t$ :y; \
        $t$,a[1:2]\n";
    let found = parse(text, None).unwrap();
    let sql = found.statements[0].sql(|number| format!("<{number}>"));
    assert_eq!(sql, "SELECT <1>,<0>+<0>,$$:y$$, $t$ :y; $t$,a[1:2]");
}

#[test]
fn strings_comments_and_question_marks_are_those_of_the_dialect() {
    let sql = |dialect, body: &str| {
        let text = format!("-- name: a :one\n-- services: s\n-- params: x int\n{body}\n");
        parse(&text, dialect).map(|found| found.statements[0].sql(|number| format!("<{number}>")))
    };
    let escapes = r"SELECT e'it\'s :x', E'\\', name'\', d ? 'key' WHERE :x";
    assert_eq!(sql(Some(Engine::Postgresql), escapes).unwrap(), escapes.replace("WHERE :x", "WHERE <0>"));
    assert!(sql(Some(Engine::Mysql), escapes).is_err() && sql(None, escapes).is_err());
    let comment = "SELECT :x # :x; '\n, 'it''s \\'";
    assert_eq!(sql(Some(Engine::Mysql), comment).unwrap(), comment.replacen(":x", "<0>", 1));
    assert!(sql(Some(Engine::Postgresql), comment).is_err());
}

#[test]
fn names_of_the_database_may_have_any_letters() {
    let text = "-- name: a :one\n-- services: s\n-- params: x int\nSELECT größe, 数 FROM straße WHERE ü=:x AND é<ӕ\n";
    let sql = parse(text, None).unwrap().statements[0].sql(|_| "?1".into());
    assert_eq!(sql, "SELECT größe, 数 FROM straße WHERE ü=?1 AND é<ӕ");
}

#[test]
fn every_mistake_is_said_with_its_line() {
    let text = "\
SELECT 1;
-- name: a :three
SELECT 1;
-- name: B :one
-- services: s
SELECT 1;
-- name: c :exec
-- servises: s
-- max_rows: 3
DELETE FROM t WHERE a = :a AND b = ?; DROP TABLE t;
-- name: c :one
-- services: s, s
-- params: a int, b strong
-- timeout: 5
SELECT 'x
-- transaction: d
-- services: s
-- statements: B, e
SELECT 1;
-- transaction: f
-- services: s
";
    let found = lines(text);
    for (line, part) in [
        (1, "above the first `-- name:`"),
        (2, ":one, :many, :exec, :execrows"),
        (4, "this is `B`"),
        (7, "which services may call it"),
        (8, "did you mean `-- services:`?"),
        (10, "`:a` has no type"),
        (10, "`?` for a parameter"),
        (10, "behind the `;`"),
        (11, "the name of what is in line 7"),
        (12, "`s` stands twice"),
        (13, "there is no type `strong`"),
        (14, "a duration needs a unit"),
        (15, "a string begins here that does not end"),
        (18, "there is no statement `e`"),
        (19, "a transaction has no SQL of its own"),
        (20, "a transaction needs `-- statements:`"),
    ] {
        assert!(
            found.iter().any(|(at, said)| *at == line && said.contains(part)),
            "{line}: {part}\n{found:#?}"
        );
    }
}

#[test]
fn a_statement_says_something_and_uses_what_it_declares() {
    let found = lines(
        "-- name: a :one\n-- services: s\n-- params: x int\n-- nothing\n\n-- name: b :exec\n-- services: s\n",
    );
    let said: Vec<&str> = found.iter().map(|(_, said)| &**said).collect();
    assert!(said[0].contains("no statement below"), "{said:?}");
    assert!(said.iter().any(|said| said.contains("`:x` is not in the statement")), "{said:?}");
    assert_eq!(found.iter().filter(|(_, said)| said.contains("no statement below")).count(), 2);
}

#[test]
fn a_statement_of_a_transaction_may_name_no_services() {
    let text = "-- name: take :exec\nSELECT 1\n-- transaction: t\n-- services: s\n-- statements: take, put\n-- name: \
        put :exec\nSELECT 2\n";
    let found = parse(text, None).unwrap();
    assert!(found.statements.iter().all(Statement::is_for_transactions), "{found:?}");
    assert_eq!(found.services(), [("s", 3)]);
    let alone = lines(&text.replace("take, put", "take"));
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(alone[0].0 == 6 && alone[0].1.contains("or name it in the `-- statements:`"), "{alone:?}");
    assert_eq!(lines(&text.replace("-- services: s\n", ""))[0].0, 3);
    assert!(
        lines(&text.replace("take :exec", "take :exec\n-- services:"))[0].1.contains("item of it is empty")
    );
}

#[test]
fn limits_hold() {
    assert!(lines(&" ".repeat(FILE_MAX + 1))[0].1.contains("at most"));
    let many: String =
        (0..=STATEMENTS_MAX).map(|n| format!("-- name: a{n} :one\n-- services: s\nSELECT 1\n")).collect();
    assert!(lines(&many)[0].1.contains("statements and transactions"));
    let steps = vec!["a"; STEPS_MAX + 1].join(",");
    let text = format!(
        "-- name: a :exec\n-- services: s\nSELECT 1\n-- transaction: t\n-- services: s\n-- statements: {steps}\n"
    );
    assert!(lines(&text)[0].1.contains("at most 32"));
    assert_eq!(parse("", None).unwrap(), Statements::default());
}
