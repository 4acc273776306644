//! Replies as rows.
//!
//! A value is a row with one column, `value`, and NULL is no row. A list has a row for each of its values, a map one
//! for each of its pairs; for `:one`, either is one row.

use resp::RespReply;
use statements::StatementKind;
use wire::data::{CallFault, VALUES_MAX, ValueRef};

use crate::answer::AnswerWriter;
use crate::job::CallStep;
use crate::server::SessionFault;

const VALUE: &str = "value";
const FIELD: &str = "field";

/// Rows that borrow of a reply.
#[derive(Debug, PartialEq)]
struct RowTable<'r> {
    columns: Vec<String>,
    rows: Vec<Vec<&'r RespReply>>,
}

/// Passes the reply to a statement on, which may be cut.
pub(super) fn pass_on(
    step: &CallStep<'_>,
    (reply, is_cut): (&RespReply, bool),
    answer: &mut AnswerWriter<'_>,
) -> Result<(), SessionFault> {
    let (about, too_large) =
        (step.about, |reason: String| SessionFault::Refused(CallFault::TooLarge, reason));
    if !about.kind.has_rows() {
        answer.changed(changed(reply));
        return Ok(());
    }
    let bytes = || too_large(format!("it has more than {} bytes", about.max_bytes));
    if is_cut {
        return Err(bytes());
    }
    let table =
        table(about.kind, reply).map_err(|reason| SessionFault::Refused(CallFault::Database, reason))?;
    let wanted =
        if about.kind == StatementKind::One { &table.rows[..table.rows.len().min(1)] } else { &table.rows };
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
fn changed(reply: &RespReply) -> u64 {
    match reply {
        RespReply::Int(number) => u64::try_from(*number).unwrap_or(0),
        RespReply::List(values) => values.len() as u64,
        RespReply::Map(values) => values.len() as u64 / 2,
        RespReply::Null | RespReply::Failed(_) => 0,
        RespReply::Bytes(_) | RespReply::Real(_) => 1,
    }
}

fn table(kind: StatementKind, reply: &RespReply) -> Result<RowTable<'_>, String> {
    let table = match reply {
        RespReply::Null => RowTable { columns: vec![VALUE.into()], rows: Vec::new() },
        RespReply::List(values)
            if kind == StatementKind::One && !values.is_empty() && values.iter().all(is_single) =>
        {
            RowTable { columns: numbered(values.len()), rows: vec![values.iter().collect()] }
        }
        RespReply::List(values) => {
            let rows: Vec<Vec<&RespReply>> = values.iter().map(row).collect();
            let columns = rows.first().map_or(1, Vec::len);
            RowTable { columns: if columns == 2 { pair() } else { numbered(columns) }, rows }
        }
        RespReply::Map(values) if kind == StatementKind::One && !values.is_empty() => {
            let pairs = values.chunks_exact(2);
            let columns = pairs.clone().map(|pair| name(&pair[0])).collect();
            RowTable { columns, rows: vec![pairs.map(|pair| &pair[1]).collect()] }
        }
        RespReply::Map(values) => RowTable {
            columns: pair(),
            rows: values.chunks_exact(2).map(|pair| pair.iter().collect()).collect(),
        },
        single => RowTable { columns: vec![VALUE.into()], rows: vec![vec![single]] },
    };
    let columns = table.columns.len();
    if columns > VALUES_MAX {
        return Err(format!("its reply has more than {VALUES_MAX} columns"));
    }
    let fits = |row: &Vec<&RespReply>| row.len() == columns && row.iter().all(|value| is_single(value));
    match table.rows.iter().all(fits) {
        true => Ok(table),
        false => Err("its reply has lists in lists, which are no rows".into()),
    }
}

/// The values of one of several rows.
fn row(value: &RespReply) -> Vec<&RespReply> {
    match value {
        RespReply::List(values) => values.iter().collect(),
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
fn name(field: &RespReply) -> String {
    match field {
        RespReply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        RespReply::Int(number) => number.to_string(),
        RespReply::Real(number) => number.to_string(),
        _ => String::new(),
    }
}

fn is_single(value: &RespReply) -> bool {
    !matches!(value, RespReply::List(_) | RespReply::Map(_) | RespReply::Failed(_))
}

fn of(value: &RespReply) -> ValueRef<'_> {
    match value {
        RespReply::Int(number) => ValueRef::Int(*number),
        RespReply::Real(number) => ValueRef::Real(*number),
        RespReply::Bytes(bytes) => std::str::from_utf8(bytes).map_or(ValueRef::Blob(bytes), ValueRef::Text),
        RespReply::Null | RespReply::List(_) | RespReply::Map(_) | RespReply::Failed(_) => ValueRef::Null,
    }
}

/// Bytes of a row in an answer.
fn length(row: &[&RespReply]) -> usize {
    let value = |value: &&RespReply| match value {
        RespReply::Bytes(bytes) => bytes.len() + 5,
        RespReply::Int(_) | RespReply::Real(_) => 9,
        _ => 1,
    };
    1 + row.iter().map(value).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> RespReply {
        RespReply::Bytes(text.into())
    }

    fn shown(kind: StatementKind, reply: &RespReply) -> Result<(String, String), String> {
        let table = table(kind, reply)?;
        let row = |row: &Vec<&RespReply>| row.iter().map(|value| name(value)).collect::<Vec<_>>().join(",");
        Ok((table.columns.join(","), table.rows.iter().map(row).collect::<Vec<_>>().join(";")))
    }

    #[test]
    fn replies_are_rows() {
        let list = |values: &[RespReply]| RespReply::List(values.to_vec());
        let scores =
            list(&[list(&[bytes("a"), RespReply::Real(1.5)]), list(&[bytes("b"), RespReply::Real(2.0)])]);
        let session = RespReply::Map(vec![bytes("user"), bytes("ann"), bytes("hits"), bytes("3")]);
        let three = list(&[bytes("a"), RespReply::Null, bytes("c")]);
        for (reply, one, many) in [
            (RespReply::Null, ("value", ""), ("value", "")),
            (RespReply::Int(7), ("value", "7"), ("value", "7")),
            (list(&[]), ("value", ""), ("value", "")),
            (list(&[bytes("a")]), ("value", "a"), ("value", "a")),
            (three, ("value1,value2,value3", "a,,c"), ("value", "a;;c")),
            (scores, ("field,value", "a,1.5;b,2"), ("field,value", "a,1.5;b,2")),
            (session, ("user,hits", "ann,3"), ("field,value", "user,ann;hits,3")),
            (RespReply::Map(vec![]), ("field,value", ""), ("field,value", "")),
        ] {
            for (kind, (columns, rows)) in [(StatementKind::One, one), (StatementKind::Many, many)] {
                assert_eq!(shown(kind, &reply), Ok((columns.into(), rows.into())), "{kind:?} {reply:?}");
            }
        }
        for deep in
            [list(&[list(&[list(&[])])]), list(&[list(&[bytes("a")]), list(&[bytes("a"), bytes("b")])])]
        {
            assert!(shown(StatementKind::Many, &deep).is_err(), "{deep:?}");
        }
    }

    #[test]
    fn a_change_is_counted_as_far_as_the_server_says() {
        let cases = [
            (RespReply::Int(3), 3),
            (RespReply::Int(-2), 0),
            (RespReply::Null, 0),
            (bytes("OK"), 1),
            (RespReply::List(vec![RespReply::Null; 2]), 2),
        ];
        for (reply, count) in cases {
            assert_eq!(changed(&reply), count, "{reply:?}");
        }
    }
}
