//! Values on their way to MariaDB and MySQL, and back.

use mysql_common::Value as Bound;
use mysql_common::constants::{ColumnFlags, ColumnType};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{Column, NullBitmap};
use mysql_common::value::ServerSide;
use statements::Type;
use wire::data::{CallFault, Value, ValueRef};

use crate::answer::AnswerWriter;
use crate::server::SessionFault;

/// The character set of columns that have bytes in place of characters.
const BINARY: u16 = 63;

/// A value that is bound, never spliced.
pub(super) fn bound(value: &Value) -> Bound {
    match value {
        Value::Null => Bound::NULL,
        Value::Int(value) => Bound::Int(*value),
        Value::Real(value) => Bound::Double(*value),
        Value::Text(value) => Bound::Bytes(value.as_bytes().to_vec()),
        Value::Blob(value) => Bound::Bytes(value.clone()),
    }
}

/// Whether a column's values can be passed on as they are.
pub(super) fn gives(kind: ColumnType) -> bool {
    use ColumnType as T;
    let moments = [
        T::MYSQL_TYPE_DATE,
        T::MYSQL_TYPE_NEWDATE,
        T::MYSQL_TYPE_TIME,
        T::MYSQL_TYPE_TIME2,
        T::MYSQL_TYPE_DATETIME,
        T::MYSQL_TYPE_DATETIME2,
        T::MYSQL_TYPE_TIMESTAMP,
        T::MYSQL_TYPE_TIMESTAMP2,
        T::MYSQL_TYPE_GEOMETRY,
    ];
    !moments.contains(&kind)
}

/// The type that a column's values have for a service.
pub(super) fn described(column: &Column) -> Option<Type> {
    use ColumnType as T;
    Some(match column.column_type() {
        T::MYSQL_TYPE_NULL => return None,
        T::MYSQL_TYPE_TINY
        | T::MYSQL_TYPE_SHORT
        | T::MYSQL_TYPE_YEAR
        | T::MYSQL_TYPE_LONG
        | T::MYSQL_TYPE_INT24
        | T::MYSQL_TYPE_LONGLONG => Type::Int,
        T::MYSQL_TYPE_FLOAT | T::MYSQL_TYPE_DOUBLE => Type::Real,
        T::MYSQL_TYPE_NEWDECIMAL => Type::Text,
        _ if column.character_set() == BINARY => Type::Blob,
        _ => Type::Text,
    })
}

/// Passes a row on.
pub(super) fn row(
    packet: &[u8],
    columns: &[Column],
    answer: &mut AnswerWriter<'_>,
) -> Result<(), SessionFault> {
    if !answer.begin_row()? {
        return Ok(());
    }
    values(packet, columns, answer.bytes())?;
    Ok(answer.end_row()?)
}

/// Writes the values of a row: its mark, a bit for each column that is NULL, and the others.
pub(super) fn values(packet: &[u8], columns: &[Column], out: &mut Vec<u8>) -> Result<(), SessionFault> {
    let nonsense = || SessionFault::Broken("the server sends a row that is none".into());
    let mut input = ParseBuf(packet);
    let length = NullBitmap::<ServerSide>::bitmap_len(columns.len());
    if !input.checked_skip(1) {
        return Err(nonsense());
    }
    let nulls = NullBitmap::<ServerSide, _>::from_bytes(input.checked_eat(length).ok_or_else(nonsense)?);
    for (at, column) in columns.iter().enumerate() {
        if nulls.is_null(at) {
            ValueRef::Null.put(out);
        } else {
            let value = value(&mut input, column).ok_or_else(nonsense)?;
            value.map_err(|reason| SessionFault::Refused(CallFault::Database, reason))?.put(out);
        }
    }
    Ok(())
}

/// One value; `None` if the bytes are none, and why where it is too large for us.
fn value<'a>(input: &mut ParseBuf<'a>, column: &Column) -> Option<Result<ValueRef<'a>, String>> {
    use ColumnType as T;
    let is_unsigned = column.flags().contains(ColumnFlags::UNSIGNED_FLAG);
    let number = match column.column_type() {
        T::MYSQL_TYPE_TINY if is_unsigned => input.checked_eat_u8()?.into(),
        T::MYSQL_TYPE_TINY => input.checked_eat_i8()?.into(),
        T::MYSQL_TYPE_SHORT | T::MYSQL_TYPE_YEAR if is_unsigned => input.checked_eat_u16_le()?.into(),
        T::MYSQL_TYPE_SHORT | T::MYSQL_TYPE_YEAR => input.checked_eat_i16_le()?.into(),
        T::MYSQL_TYPE_LONG | T::MYSQL_TYPE_INT24 if is_unsigned => input.checked_eat_u32_le()?.into(),
        T::MYSQL_TYPE_LONG | T::MYSQL_TYPE_INT24 => input.checked_eat_i32_le()?.into(),
        T::MYSQL_TYPE_LONGLONG if is_unsigned => match i64::try_from(input.checked_eat_u64_le()?) {
            Ok(number) => number,
            Err(_) => return Some(Err(format!("`{}` has more than 63 bits", column.name_str()))),
        },
        T::MYSQL_TYPE_LONGLONG => input.checked_eat_i64_le()?,
        T::MYSQL_TYPE_FLOAT => return Some(Ok(ValueRef::Real(input.checked_eat_f32_le()?.into()))),
        T::MYSQL_TYPE_DOUBLE => return Some(Ok(ValueRef::Real(input.checked_eat_f64_le()?))),
        kind => {
            let bytes = input.checked_eat_lenenc_str()?;
            // Numerics have that character set, too.
            let is_bytes = column.character_set() == BINARY && kind != T::MYSQL_TYPE_NEWDECIMAL;
            let text = (!is_bytes).then(|| std::str::from_utf8(bytes).ok()).flatten();
            return Some(Ok(text.map_or(ValueRef::Blob(bytes), ValueRef::Text)));
        }
    };
    Some(Ok(ValueRef::Int(number)))
}
