//! What an attacker inside `search` of examples/matching gets from the database.
//!
//! Runs in: the service `breakout`, in the place of `search`. Sees: what the data proxy answers. Never: changes a row.

use std::fmt::Write as _;
use std::fs::File;

use bulkhead_service::{Context, DataError, DataFault, DataSource, DataValue, Error, escape};
use serde_json::{Map, Value, json};

/// The rows of any statement.
type Row = Map<String, Value>;

/// A statement of another service, and values of the types that it wants.
type Foreign = (&'static str, fn() -> Vec<DataValue>);

const FOREIGN: [Foreign; 6] = [
    ("inbox", || vec![login()]),
    ("conversation", || vec![login(), text("Ada")]),
    ("password_of", || vec![text("Ada")]),
    ("matches", || vec![login()]),
    ("totals", Vec::new),
    // Of a transaction that writes: nothing comes of it, as the login is nobody's.
    ("send_message", || vec![login(), text("Ada"), text("hello")]),
];

/// The database of the site, and where its files are.
pub struct Database {
    source: DataSource,
    /// The file of the database, and one with a password for a server.
    files: [(&'static str, Option<String>); 2],
}

/// What came of an attempt.
#[derive(Debug)]
pub struct Asked {
    id: &'static str,
    /// What an attacker would get, or gets.
    name: &'static str,
    got: bool,
    /// Whether it is meant to be got.
    may: bool,
    detail: String,
    refused_by: &'static str,
}

impl Database {
    /// What `--data NAME`, `--database FILE` and `--credential FILE` say; none without the first.
    ///
    /// # Errors
    /// The service does not have the source.
    pub fn new(cx: &Context) -> Result<Option<Self>, Error> {
        let Ok(name) = cx.option("--data") else { return Ok(None) };
        let path = |option| cx.option(option).ok().map(str::to_owned);
        let files = [("database-file", path("--database")), ("credential", path("--credential"))];
        Ok(Some(Self { source: cx.data(name)?, files }))
    }

    /// Makes all attempts.
    pub async fn ask(&self) -> Vec<Asked> {
        let mut asked = vec![
            self.own_statements().await,
            self.foreign_statements().await,
            self.foreign_names().await,
            self.sql_as_a_statement().await,
            self.sql_as_a_value().await,
            self.more_rows().await,
            self.other_types().await,
            self.logins().await,
        ];
        asked.extend(self.files.iter().filter_map(|(id, path)| file(id, path.as_deref()?)));
        asked
    }

    async fn call(&self, statement: &str, values: &[DataValue]) -> Result<Vec<Row>, DataError> {
        self.source.many(statement, values).await
    }

    async fn own_statements(&self) -> Asked {
        let answer = self.call("people_by_interest", &[text(""), DataValue::Int(20)]).await;
        let name = "what `search` itself asks, with any values";
        Asked { may: true, ..attempt("own-statements", name, got(&answer), told(&answer), "nobody") }
    }

    async fn foreign_statements(&self) -> Asked {
        let (mut reached, mut last) = (Vec::new(), String::new());
        for (statement, values) in FOREIGN {
            let answer = self.call(statement, &values()).await;
            // Any other answer says that it got as far as the statement.
            if fault(&answer) != Some(DataFault::Refused) {
                reached.push(statement);
            }
            last = told(&answer);
        }
        let detail = if reached.is_empty() { last } else { reached.join(", ") };
        let name = "messages, passwords, matches and totals, by the statements of other services";
        attempt("foreign-statements", name, !reached.is_empty(), detail, "data proxy: not granted")
    }

    /// Whether what is refused sounds different when there is no such statement.
    async fn foreign_names(&self) -> Asked {
        let told_of = async |name: &str| told(&self.call(name, &[]).await).replace(name, "...");
        let (known, unknown) = (told_of("password_of").await, told_of("pass_word_of").await);
        let name = "the names of statements of other services";
        attempt("foreign-names", name, known != unknown, known, "data proxy: one answer for both")
    }

    async fn sql_as_a_statement(&self) -> Asked {
        let answer = self.call("SELECT name, password FROM people", &[]).await;
        let name = "rows by SQL of one's own";
        attempt(
            "sql",
            name,
            fault(&answer) != Some(DataFault::Refused),
            told(&answer),
            "messages: none carries SQL",
        )
    }

    async fn sql_as_a_value(&self) -> Asked {
        let value = "x' UNION SELECT name, password, '' FROM people --";
        let answer = self.call("people_by_interest", &[text(value), DataValue::Int(20)]).await;
        attempt(
            "sql-in-a-value",
            "rows by SQL in a value",
            got(&answer),
            told(&answer),
            "data proxy: values are bound",
        )
    }

    async fn more_rows(&self) -> Asked {
        let (mut most, mut last) = (false, String::new());
        for count in [1000, i64::MAX, -1] {
            let answer = self.call("people_by_interest", &[text(""), DataValue::Int(count)]).await;
            most |= fault(&answer) != Some(DataFault::TooLarge);
            last = told(&answer);
        }
        attempt("more-rows", "all people at once", most, last, "data proxy: `max_rows`")
    }

    async fn other_types(&self) -> Asked {
        let (mut reached, mut last) = (false, String::new());
        for values in [vec![], vec![text(""), text("20")], vec![DataValue::Null, DataValue::Int(1)]] {
            let answer = self.call("people_by_interest", &values).await;
            reached |= fault(&answer) != Some(DataFault::Parameters);
            last = told(&answer);
        }
        let name = "a statement with other values than it declares";
        attempt("other-types", name, reached, last, "data proxy: `params`")
    }

    async fn logins(&self) -> Asked {
        let answer = self.call("viewer", &[login()]).await;
        let name = "who is logged in, without having seen the cookie";
        attempt("logins", name, got(&answer), told(&answer), "statement: it asks by login")
    }
}

fn attempt(
    id: &'static str,
    name: &'static str,
    got: bool,
    detail: String,
    refused_by: &'static str,
) -> Asked {
    Asked { id, name, got, may: false, detail, refused_by }
}

/// Tries to open a file.
fn file(id: &&'static str, path: &str) -> Option<Asked> {
    let name = match *id {
        "database-file" => "the file of the database",
        _ => "the file with the password of a database server",
    };
    let opened = File::open(path);
    let detail = opened.as_ref().err().map(ToString::to_string).unwrap_or_default();
    Some(attempt(id, name, opened.is_ok(), detail, "root, landlock, uid"))
}

fn text(value: &str) -> DataValue {
    DataValue::Text(value.to_owned())
}

/// The SHA-256 of a token would be as long.
fn login() -> DataValue {
    DataValue::Blob(vec![0; 32])
}

fn got(answer: &Result<Vec<Row>, DataError>) -> bool {
    answer.as_ref().is_ok_and(|rows| !rows.is_empty())
}

fn fault(answer: &Result<Vec<Row>, DataError>) -> Option<DataFault> {
    match answer {
        Err(DataError::Failed { fault, .. }) => Some(*fault),
        _ => None,
    }
}

fn told(answer: &Result<Vec<Row>, DataError>) -> String {
    match answer {
        Ok(rows) => format!("{} rows", rows.len()),
        Err(error) => error.to_string(),
    }
}

impl Asked {
    fn words(&self) -> &'static str {
        match (self.got, self.may) {
            (false, _) => "refused",
            (true, true) => "allowed",
            (true, false) => "got out",
        }
    }
}

/// The part of the document.
pub fn json(asked: &[Asked]) -> Value {
    let one = |one: &Asked| {
        json!({
            "id": one.id, "name": one.name, "result": one.words(), "detail": one.detail, "refused_by": one.refused_by,
        })
    };
    asked.iter().map(one).collect()
}

/// The lines of the text.
pub fn lines(asked: &[Asked]) -> String {
    let mut text = String::from("\nThe database\n");
    for one in asked {
        let detail: String = one.detail.chars().filter(|c| !c.is_control()).take(60).collect();
        // Formatting into a String does not fail.
        let _ = writeln!(text, "  {:<22} {:<10} {detail}", one.id, one.words().replace("got out", "GOT OUT"));
    }
    text
}

/// The section of the page.
pub fn section(asked: &[Asked]) -> String {
    let mut rows = String::new();
    for one in asked {
        let class = one.words().trim_start_matches("got ");
        // Formatting into a String does not fail.
        let _ = writeln!(
            rows,
            "<tr class=\"{class}\"><td title=\"{}\">{}</td><td><span>{}</span></td><td>{}</td><td>{}</td></tr>",
            one.id,
            escape(one.name),
            one.words(),
            escape(&one.detail),
            escape(one.refused_by),
        );
    }
    format!(
        "<section>\n<h2>The database</h2>\n<table>\n<thead><tr><th>Attempt</th><th>Result</th><th>What came of it</th>\
         <th>Refused by</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n"
    )
}
