//! The columns of a statement's rows, as the database describes them.
//!
//! Runs in: the program `dataproxy describe`, as the user who has code generated. Never: carries a statement out.

use statements::{Statement, Statements, Type, has_word};

/// A column of a statement's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescribedColumn {
    pub(crate) name: String,
    /// `None` where the database does not say.
    pub(crate) kind: Option<Type>,
    /// Whether NULL may be in it, as far as is known.
    pub(crate) nullable: bool,
}

/// A line for each column: the statement, the column, its type or `any`, and whether it may be NULL, with tabs between
/// them.
pub(crate) fn lines(file: &Statements, columns: &[Vec<DescribedColumn>]) -> String {
    let line = |statement: &Statement, column: &DescribedColumn| {
        let kind = column.kind.map_or("any", Type::word);
        let nullable = column.nullable || may_miss_rows(statement);
        format!("{}\t{}\t{kind}\t{nullable}\n", statement.name, column.name)
    };
    let of_statement = |(statement, columns): (&Statement, &Vec<DescribedColumn>)| {
        columns.iter().map(|column| line(statement, column)).collect::<String>()
    };
    file.statements.iter().zip(columns).map(of_statement).collect()
}

/// Whether columns that are never NULL in their table may be so in the rows: those of an outer join.
fn may_miss_rows(statement: &Statement) -> bool {
    let text = statement.sql(|_| "?".into());
    ["left", "right", "full", "outer"].iter().any(|word| has_word(&text, word))
}
