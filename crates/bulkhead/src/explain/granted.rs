//! The calls of databases that services may make: the statements that the operator's files grant to each, and the
//! tables that these name.
//!
//! Runs in: the `bulkhead` command. Sees: the operator's files of statements. Never: asks a database; so it does not
//! know of tables that a view, a function or a trigger reaches.

use std::collections::BTreeMap;
use std::path::Path;

use config::{Config, DataSource};
use statements::{Dialect, NamedTable, Statement, Statements};

use super::assets::data_name;

/// A call that services may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedCall {
    /// The statement or transaction.
    pub name: String,
    /// Whether it is a transaction.
    pub is_transaction: bool,
    /// The services of the site that may make it.
    pub services: Vec<String>,
    /// Whether it changes something, as far as its words say.
    pub writes: bool,
    /// The tables that it names, each once.
    pub tables: Vec<NamedTable>,
}

/// All calls of each data source, by its name with its site's; or why they are not known.
#[derive(Debug, Default)]
pub struct GrantedCalls(BTreeMap<String, Result<Vec<GrantedCall>, String>>);

impl GrantedCalls {
    /// Reads the files of statements.
    pub fn read(config: &Config) -> Self {
        Self::of(config, |path| std::fs::read_to_string(path).map_err(|error| error.to_string()))
    }

    /// The same of texts.
    pub fn of(config: &Config, text: impl Fn(&Path) -> Result<String, String>) -> Self {
        let sources = config.sites.iter().flat_map(|site| site.data.iter().map(move |data| (site, data)));
        let calls = |data: &DataSource| {
            let elsewhere = || "the machine that holds the database has the statements".to_owned();
            let path = data.statements.as_deref().ok_or_else(elsewhere)?;
            let calls = text(path).and_then(|text| calls(data, &text));
            calls.map_err(|why| format!("{}: {why}", path.display()))
        };
        Self(sources.map(|(site, data)| (data_name(site, data), calls(data))).collect())
    }

    /// Why the calls of some sources are not known.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(|calls| calls.as_ref().err().map(String::as_str))
    }

    /// Why the calls of a source are not known.
    pub fn why_not(&self, source: &str) -> Option<&str> {
        self.0.get(source)?.as_ref().err().map(String::as_str)
    }

    /// All calls of a source that are known.
    pub fn calls(&self, source: &str) -> &[GrantedCall] {
        self.0.get(source).and_then(|calls| calls.as_deref().ok()).unwrap_or_default()
    }

    /// The calls of a source that a service may make.
    pub fn of_service<'g>(
        &'g self,
        source: &str,
        service: &'g str,
    ) -> impl Iterator<Item = &'g GrantedCall> + Clone {
        self.calls(source).iter().filter(move |call| call.services.iter().any(|granted| granted == service))
    }

    /// The tables that a source's statements name, each once.
    pub fn tables(&self, source: &str) -> Vec<NamedTable> {
        tables(self.calls(source))
    }
}

/// The tables of calls, each once.
pub fn tables<'c>(calls: impl IntoIterator<Item = &'c GrantedCall>) -> Vec<NamedTable> {
    let mut all = Vec::new();
    calls.into_iter().flat_map(|call| &call.tables).for_each(|table| add(&mut all, table.clone()));
    all
}

fn add(all: &mut Vec<NamedTable>, table: NamedTable) {
    match all.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&table.name)) {
        Some(known) => known.writes |= table.writes,
        None => all.push(table),
    }
}

fn calls(data: &DataSource, text: &str) -> Result<Vec<GrantedCall>, String> {
    let dialect: Dialect = data.server().map(|server| server.engine);
    let mistake = |mistakes: Vec<statements::StatementMistake>| {
        mistakes.first().map_or_else(String::new, std::string::ToString::to_string)
    };
    let file = statements::parse(text, dialect).map_err(mistake)?;
    Ok(calls_of(&file, dialect))
}

fn calls_of(file: &Statements, dialect: Dialect) -> Vec<GrantedCall> {
    let single: Vec<GrantedCall> = file.statements.iter().map(|statement| call(statement, dialect)).collect();
    let transactions = file.transactions.iter().map(|transaction| {
        let steps = || transaction.steps.iter().map(|&step| &single[step]);
        GrantedCall {
            name: transaction.name.clone(),
            is_transaction: true,
            services: transaction.services.clone(),
            writes: steps().any(|step| step.writes),
            tables: tables(steps()),
        }
    });
    let transactions: Vec<GrantedCall> = transactions.collect();
    // A step that no service is named for is a part of its transactions, and no call of its own.
    single.into_iter().filter(|call| !call.services.is_empty()).chain(transactions).collect()
}

fn call(statement: &Statement, dialect: Dialect) -> GrantedCall {
    let tables = statement.tables(dialect);
    GrantedCall {
        name: statement.name.clone(),
        is_transaction: false,
        services: statement.services.clone(),
        writes: !statement.only_reads(),
        tables,
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::assets::tests::parse;
    use super::*;

    const STATEMENTS: &str = "-- name: article :one\n-- services: search, shop\n-- params: id int\n\
        SELECT name FROM articles JOIN makers USING (maker) WHERE id = :id;\n\
        -- name: order_it :exec\n-- services: shop\n-- params: id int\nINSERT INTO orders SELECT id FROM articles WHERE id = :id;\n\
        -- name: take :exec\n-- params: id int\nUPDATE articles SET left = left - 1 WHERE id = :id;\n\
        -- transaction: buy\n-- services: shop\n-- statements: take, order_it\n";

    /// A shop with a database at a server, and its statements.
    pub fn shop(engine: &str) -> (Config, GrantedCalls) {
        let source = format!(
            "[[site.data]]\nname = \"catalog\"\nstatements = \"catalog.sql\"\nengine = \"{engine}\"\n\
             server = \"unix:/run/s\"\ndatabase = \"shop\"\nuser = \"shop\"\npassword = \"secret\"\n"
        );
        let service = |name: &str| {
            format!(
                "[[site.service]]\nname = \"{name}\"\npath = \"/{name}\"\ncommand = [\"bin/s\"]\ndata = [\"catalog\"]\n"
            )
        };
        let site = "[[listen]]\naddress = \"127.0.0.1:1\"\n[[site]]\nname = \"a\"\nhost = [\"a.test\"]\n";
        let config = parse(&format!("{site}{source}{}{}", service("search"), service("shop")));
        let granted = GrantedCalls::of(&config, |_| Ok(STATEMENTS.into()));
        (config, granted)
    }

    fn shown(tables: &[NamedTable]) -> Vec<String> {
        tables.iter().map(|table| format!("{}{}", table.name, if table.writes { "!" } else { "" })).collect()
    }

    #[test]
    fn a_service_has_the_statements_that_name_it_and_the_steps_of_its_transactions() {
        let (_, granted) = shop("postgresql");
        let names = |service| {
            granted.of_service("a/catalog", service).map(|call| call.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names("search"), ["article"]);
        assert_eq!(names("shop"), ["article", "order_it", "buy"]);
        let of = |service| shown(&tables(granted.of_service("a/catalog", service)));
        assert_eq!(of("search"), ["articles", "makers"]);
        assert_eq!(of("shop"), ["articles!", "makers", "orders!"]);
        let writing: Vec<bool> = granted.calls("a/catalog").iter().map(|call| call.writes).collect();
        assert_eq!(writing, [false, true, true]);
    }

    #[test]
    fn a_file_with_a_mistake_is_said_to_have_one() {
        let (config, _) = shop("mysql");
        let granted = GrantedCalls::of(&config, |_| Ok("SELECT 1".into()));
        assert!(granted.why_not("a/catalog").is_some_and(|why| why.contains("catalog.sql: ")), "{granted:?}");
        assert_eq!(granted.tables("a/catalog"), []);
        let missing = GrantedCalls::of(&config, |_| Err("there is none".into()));
        assert!(missing.why_not("a/catalog").is_some_and(|why| why.ends_with("catalog.sql: there is none")));
    }
}
