//! Replies as rows.
//!
//! A value is a row with one column, `value`, and NULL is no row. A list has a row for each of its values, a map one for each of its
//! pairs; for `:one`, either is one row.

use resp::Reply;
use statements::Kind;
use wire::data::{CallFault, VALUES_MAX, ValueRef};

use crate::answer::Answer;
use crate::job::Step;
use crate::server::Fault;

const VALUE: &str = "value";
const FIELD: &str = "field";

/// Rows that borrow of a reply.
#[derive(Debug, PartialEq)]
struct Table<'r> {
    columns: Vec<String>,
    rows: Vec<Vec<&'r Reply>>,
}

/// Passes the reply to a statement on, which may be cut.
pub(super) fn pass_on(
    step: &Step<'_>,
    (reply, is_cut): (&Reply, bool),
    answer: &mut Answer<'_>,
) -> Result<(), Fault> {
    let (about, too_large) = (step.about, |reason: String| Fault::Refused(CallFault::TooLarge, reason));
    if !about.kind.has_rows() {
        answer.changed(changed(reply));
        return Ok(());
    }
    let bytes = || too_large(format!("it has more than {} bytes", about.max_bytes));
    if is_cut {
        return Err(bytes());
    }
    let table = table(about.kind, reply).map_err(|reason| Fault::Refused(CallFault::Database, reason))?;
    let wanted = if about.kind == Kind::One { &table.rows[..table.rows.len().min(1)] } else { &table.rows };
    if wanted.len() > about.max_rows as usize {
        return Err(too_large(format!("it has more than {} rows", about.max_rows)));
    }
    if wanted.iter().map(|row| length(row)).sum::<usize>() > about.max_bytes as usize {
        return Err(bytes());
    }
    answer.begin(step.number, &table.columns.iter().map(|name| &**name).collect::<Vec<_>>());
    for row in wanted {
        answer.begin_row()?;
        row.iter().for_each(|value| of(value).put(answer.bytes()));
        answer.end_row()?;
    }
    answer.end_rows();
    Ok(())
}

/// How many values or keys a command has changed, as far as it says.
fn changed(reply: &Reply) -> u64 {
    match reply {
        Reply::Int(number) => u64::try_from(*number).unwrap_or(0),
        Reply::List(values) => values.len() as u64,
        Reply::Map(values) => values.len() as u64 / 2,
        Reply::Null | Reply::Failed(_) => 0,
        Reply::Bytes(_) | Reply::Real(_) => 1,
    }
}

fn table(kind: Kind, reply: &Reply) -> Result<Table<'_>, String> {
    let table = match reply {
        Reply::Null => Table { columns: vec![VALUE.into()], rows: Vec::new() },
        Reply::List(values) if kind == Kind::One && !values.is_empty() && values.iter().all(is_single) => {
            Table { columns: numbered(values.len()), rows: vec![values.iter().collect()] }
        }
        Reply::List(values) => {
            let rows: Vec<Vec<&Reply>> = values.iter().map(row).collect();
            let columns = rows.first().map_or(1, Vec::len);
            Table { columns: if columns == 2 { pair() } else { numbered(columns) }, rows }
        }
        Reply::Map(values) if kind == Kind::One && !values.is_empty() => {
            let pairs = values.chunks_exact(2);
            let columns = pairs.clone().map(|pair| name(&pair[0])).collect();
            Table { columns, rows: vec![pairs.map(|pair| &pair[1]).collect()] }
        }
        Reply::Map(values) => Table {
            columns: pair(),
            rows: values.chunks_exact(2).map(|pair| pair.iter().collect()).collect(),
        },
        single => Table { columns: vec![VALUE.into()], rows: vec![vec![single]] },
    };
    let columns = table.columns.len();
    if columns > VALUES_MAX {
        return Err(format!("its reply has more than {VALUES_MAX} columns"));
    }
    let fits = |row: &Vec<&Reply>| row.len() == columns && row.iter().all(|value| is_single(value));
    match table.rows.iter().all(fits) {
        true => Ok(table),
        false => Err("its reply has lists in lists, which are no rows".into()),
    }
}

/// The values of one of several rows.
fn row(value: &Reply) -> Vec<&Reply> {
    match value {
        Reply::List(values) => values.iter().collect(),
        single => vec![single],
    }
}

fn pair() -> Vec<String> {
    vec![FIELD.into(), VALUE.into()]
}

fn numbered(columns: usize) -> Vec<String> {
    match columns {
        1 => vec![VALUE.into()],
        columns => (1..=columns).map(|column| format!("{VALUE}{column}")).collect(),
    }
}

/// A field of a map as the name of a column.
fn name(field: &Reply) -> String {
    match field {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Int(number) => number.to_string(),
        Reply::Real(number) => number.to_string(),
        _ => String::new(),
    }
}

fn is_single(value: &Reply) -> bool {
    !matches!(value, Reply::List(_) | Reply::Map(_) | Reply::Failed(_))
}

fn of(value: &Reply) -> ValueRef<'_> {
    match value {
        Reply::Int(number) => ValueRef::Int(*number),
        Reply::Real(number) => ValueRef::Real(*number),
        Reply::Bytes(bytes) => std::str::from_utf8(bytes).map_or(ValueRef::Blob(bytes), ValueRef::Text),
        Reply::Null | Reply::List(_) | Reply::Map(_) | Reply::Failed(_) => ValueRef::Null,
    }
}

/// Bytes of a row in an answer.
fn length(row: &[&Reply]) -> usize {
    let value = |value: &&Reply| match value {
        Reply::Bytes(bytes) => bytes.len() + 5,
        Reply::Int(_) | Reply::Real(_) => 9,
        _ => 1,
    };
    1 + row.iter().map(value).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.into())
    }

    fn shown(kind: Kind, reply: &Reply) -> Result<(String, String), String> {
        let table = table(kind, reply)?;
        let row = |row: &Vec<&Reply>| row.iter().map(|value| name(value)).collect::<Vec<_>>().join(",");
        Ok((table.columns.join(","), table.rows.iter().map(row).collect::<Vec<_>>().join(";")))
    }

    #[test]
    fn replies_are_rows() {
        let list = |values: &[Reply]| Reply::List(values.to_vec());
        let scores = list(&[list(&[bytes("a"), Reply::Real(1.5)]), list(&[bytes("b"), Reply::Real(2.0)])]);
        let session = Reply::Map(vec![bytes("user"), bytes("ann"), bytes("hits"), bytes("3")]);
        let three = list(&[bytes("a"), Reply::Null, bytes("c")]);
        for (reply, one, many) in [
            (Reply::Null, ("value", ""), ("value", "")),
            (Reply::Int(7), ("value", "7"), ("value", "7")),
            (list(&[]), ("value", ""), ("value", "")),
            (list(&[bytes("a")]), ("value", "a"), ("value", "a")),
            (three, ("value1,value2,value3", "a,,c"), ("value", "a;;c")),
            (scores, ("field,value", "a,1.5;b,2"), ("field,value", "a,1.5;b,2")),
            (session, ("user,hits", "ann,3"), ("field,value", "user,ann;hits,3")),
            (Reply::Map(vec![]), ("field,value", ""), ("field,value", "")),
        ] {
            for (kind, (columns, rows)) in [(Kind::One, one), (Kind::Many, many)] {
                assert_eq!(shown(kind, &reply), Ok((columns.into(), rows.into())), "{kind:?} {reply:?}");
            }
        }
        for deep in
            [list(&[list(&[list(&[])])]), list(&[list(&[bytes("a")]), list(&[bytes("a"), bytes("b")])])]
        {
            assert!(shown(Kind::Many, &deep).is_err(), "{deep:?}");
        }
    }

    #[test]
    fn a_change_is_counted_as_far_as_the_server_says() {
        let cases = [
            (Reply::Int(3), 3),
            (Reply::Int(-2), 0),
            (Reply::Null, 0),
            (bytes("OK"), 1),
            (Reply::List(vec![Reply::Null; 2]), 2),
        ];
        for (reply, count) in cases {
            assert_eq!(changed(&reply), count, "{reply:?}");
        }
    }
}
