//! Functions in the place of SQLite's own whose work is the product of two lengths: `LIKE`, `GLOB`, `instr`, `replace`,
//! `trim`, `unhex`, `json_patch`. These give the same, in time that grows with the sum, or look at the clock.
//!
//! Sees: values from services and of the database. Never: works for long without a look at the clock.
//!
//! SECURITY: SQLite looks at the clock between instructions only, and such a call is one instruction. With 20,000 bytes
//! of pattern and 4 MiB of text its `LIKE` takes minutes, for which it would hold the one connection that writes.
//!
//! Source: `func.c` and `json.c` of SQLite; a test compares what they give.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem::Finder;
use rusqlite::functions::{Context, FunctionFlags, SqlFnOutput, SubType};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, Result, ToSql, ffi};

use super::limits::{self, LENGTH_MAX, PATTERN_MAX};
use super::pattern::{Pattern, PatternLanguage};
use super::watch::Watch;

/// LIMIT: steps between two looks at the clock; some 50 µs.
const LOOK_EVERY: usize = 1 << 15;
/// LIMIT: the length of the patch of a `json_patch`, times that of both texts: SQLite looks for each member of the
/// patch among all that the target has, and was given of the patch before. 1 MiB may be patched with 511 bytes, 16 KiB
/// with as much, and nothing with 22 KiB; that takes some 100 ms at worst.
const PATCH_MAX: usize = 1 << 29;
/// The subtype of text that is JSON.
const JSON: SubType = Some(b'J' as u32);

/// Looks at the clock now and then.
pub(super) struct Ticker<'w> {
    watch: &'w Watch,
    left: usize,
}

impl Ticker<'_> {
    /// So many steps are done.
    ///
    /// # Errors
    /// The time is over.
    pub(super) fn tick(&mut self, steps: usize) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => self.left = left,
            None if self.watch.is_over() => return Err(failure(ffi::SQLITE_INTERRUPT, None)),
            None => self.left = LOOK_EVERY,
        }
        Ok(())
    }
}

fn failure(code: i32, message: Option<&str>) -> Error {
    Error::SqliteFailure(ffi::Error::new(code), message.map(str::to_owned))
}

/// Without words of its own: a function that fails with some has its code replaced by that of any failure.
fn too_big() -> Error {
    failure(ffi::SQLITE_TOOBIG, None)
}

/// The next character, as SQLite reads UTF-8 that may be none.
pub(super) fn read_char(rest: &mut &[u8]) -> Option<u32> {
    let (&first, mut after) = rest.split_first()?;
    let mut char = u32::from(first);
    if first >= 0xc0 {
        char = u32::from(match first {
            0xc0..=0xdf => first & 0x1f,
            0xe0..=0xef => first & 0x0f,
            0xf0..=0xf7 => first & 0x07,
            0xf8..=0xfb => first & 0x03,
            0xfc..=0xfd => first & 0x01,
            _ => 0,
        });
        while let Some((&byte, later)) = after.split_first().filter(|(byte, _)| **byte & 0xc0 == 0x80) {
            char = (char << 6).wrapping_add(u32::from(byte & 0x3f));
            after = later;
        }
        if char < 0x80 || char & 0xffff_f800 == 0xd800 {
            char = 0xfffd;
        }
    }
    *rest = after;
    Some(char)
}

/// The text that SQLite's functions see which take a text as C does.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(0, text).unwrap_or(text.len())]
}

/// The result of a function.
enum FunctionResult {
    Null,
    Int(i64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl ToSql for FunctionResult {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The state that all functions of a connection share.
#[derive(Clone)]
struct Functions {
    watch: Watch,
    /// SQLite's own functions, on a database without anything in it.
    own: Arc<Mutex<Connection>>,
}

/// Puts the functions in the place of SQLite's.
pub(super) fn replace(connection: &Connection, watch: &Watch) -> Result<()> {
    let own = Connection::open_in_memory()?;
    limits::set(&own)?;
    let all = Functions { watch: watch.clone(), own: Arc::new(Mutex::new(own)) };
    all.add(connection, "like", 2, |all, context| all.like(context))?;
    all.add(connection, "like", 3, |all, context| all.like(context))?;
    all.add(connection, "glob", 2, |all, context| all.matches(context, PatternLanguage::Glob))?;
    all.add(connection, "instr", 2, Functions::instr)?;
    all.add(connection, "replace", 3, Functions::replace)?;
    all.add(connection, "ltrim", 2, |all, context| all.trim(context, (true, false)))?;
    all.add(connection, "rtrim", 2, |all, context| all.trim(context, (false, true)))?;
    all.add(connection, "trim", 2, |all, context| all.trim(context, (true, true)))?;
    all.add(connection, "unhex", 2, Functions::unhex)?;
    all.add(connection, "json_patch", 2, |all, context| Ok((all.patch(context, "json_patch")?, JSON)))?;
    all.add(connection, "jsonb_patch", 2, |all, context| all.patch(context, "jsonb_patch"))
}

impl Functions {
    fn add<T: SqlFnOutput + 'static>(
        &self,
        connection: &Connection,
        name: &str,
        arguments: i32,
        function: fn(&Self, &Context<'_>) -> Result<T>,
    ) -> Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS
            | FunctionFlags::SQLITE_RESULT_SUBTYPE;
        let all = self.clone();
        connection.create_scalar_function(name, arguments, flags, move |context| function(&all, context))
    }

    fn ticker(&self) -> Ticker<'_> {
        Ticker { watch: &self.watch, left: LOOK_EVERY }
    }

    /// A value as text; `None` of NULL.
    fn text<'v>(&self, value: ValueRef<'v>) -> Result<Option<Cow<'v, [u8]>>> {
        Ok(Some(match value {
            ValueRef::Null => return Ok(None),
            ValueRef::Integer(number) => Cow::Owned(number.to_string().into_bytes()),
            ValueRef::Real(_) => {
                let said: String = self.ask("SELECT CAST(?1 AS TEXT)", &[value])?;
                Cow::Owned(said.into_bytes())
            }
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cow::Borrowed(bytes),
        }))
    }

    /// The result of SQLite's own function.
    fn ask<T: rusqlite::types::FromSql>(&self, sql: &str, values: &[ValueRef<'_>]) -> Result<T> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let values = values.iter().map(|value| ToSqlOutput::Borrowed(*value));
        own.prepare(sql)?.query_row(rusqlite::params_from_iter(values), |row| row.get(0))
    }

    fn like(&self, context: &Context<'_>) -> Result<FunctionResult> {
        if context.len() == 2 {
            return self.matches(context, PatternLanguage::Like(None));
        }
        let Some(escape) = self.text(context.get_raw(2))? else { return Ok(FunctionResult::Null) };
        let mut rest = until_nul(&escape);
        match (read_char(&mut rest), rest) {
            (Some(escape), []) => self.matches(context, PatternLanguage::Like(Some(escape))),
            _ => Err(failure(ffi::SQLITE_ERROR, Some("ESCAPE expression must be a single character"))),
        }
    }

    fn matches(&self, context: &Context<'_>, language: PatternLanguage) -> Result<FunctionResult> {
        let Some(pattern) = self.pattern(context, language)? else { return Ok(FunctionResult::Null) };
        let Some(text) = self.text(context.get_raw(1))? else { return Ok(FunctionResult::Null) };
        pattern.matches(&text, &mut self.ticker()).map(|matches| FunctionResult::Int(matches.into()))
    }

    /// The pattern, which is the same in each row for the most part.
    fn pattern(&self, context: &Context<'_>, language: PatternLanguage) -> Result<Option<Arc<Pattern>>> {
        let is_kept = context.len() == 2;
        if let Some(kept) = context.get_aux::<Pattern>(0)?.filter(|_| is_kept) {
            return Ok(Some(kept));
        }
        let Some(text) = self.text(context.get_raw(0))? else { return Ok(None) };
        if text.len() > PATTERN_MAX as usize {
            return Err(failure(ffi::SQLITE_ERROR, Some("LIKE or GLOB pattern too complex")));
        }
        let pattern = Pattern::new(language, &text);
        if is_kept { context.set_aux(0, pattern).map(Some) } else { Ok(Some(Arc::new(pattern))) }
    }

    fn instr(&self, context: &Context<'_>) -> Result<FunctionResult> {
        let are_bytes = [0, 1].map(|at| matches!(context.get_raw(at), ValueRef::Blob(_))) == [true; 2];
        let (Some(text), Some(wanted)) = (self.text(context.get_raw(0))?, self.text(context.get_raw(1))?)
        else {
            return Ok(FunctionResult::Null);
        };
        let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
        let found = match wanted.first() {
            // Inside of a character there is none.
            Some(byte) if !are_bytes && is_inside(byte) => text.starts_with(&wanted).then_some(0),
            _ => Finder::new(&*wanted).find(&text),
        };
        Ok(FunctionResult::Int(found.map_or(0, |at| {
            let before = text[..at].iter().skip(1).filter(|byte| are_bytes || !is_inside(byte)).count();
            (before + 1 + usize::from(at > 0)) as i64
        })))
    }

    fn replace(&self, context: &Context<'_>) -> Result<FunctionResult> {
        let (Some(text), Some(wanted)) = (self.text(context.get_raw(0))?, self.text(context.get_raw(1))?)
        else {
            return Ok(FunctionResult::Null);
        };
        if matches!(wanted.first(), None | Some(0)) {
            return Ok(FunctionResult::Text(text.into_owned()));
        }
        let Some(other) = self.text(context.get_raw(2))? else { return Ok(FunctionResult::Null) };
        let finder = Finder::new(&*wanted);
        let (mut made, mut after) = (Vec::new(), 0);
        for at in finder.find_iter(&text) {
            made.extend_from_slice(&text[after..at]);
            made.extend_from_slice(&other);
            after = at + wanted.len();
            if made.len() > LENGTH_MAX as usize {
                return Err(too_big());
            }
        }
        made.extend_from_slice(&text[after..]);
        if made.len() > LENGTH_MAX as usize { Err(too_big()) } else { Ok(FunctionResult::Text(made)) }
    }

    fn trim(&self, context: &Context<'_>, (at_start, at_end): (bool, bool)) -> Result<FunctionResult> {
        let (Some(text), Some(set)) = (self.text(context.get_raw(0))?, self.text(context.get_raw(1))?) else {
            return Ok(FunctionResult::Null);
        };
        let mut rest = until_nul(&set);
        let mut chars = HashSet::new();
        while !rest.is_empty() {
            let whole = rest;
            read_char(&mut rest);
            chars.insert(&whole[..whole.len() - rest.len()]);
        }
        let mut lengths: Vec<usize> = chars.iter().map(|char| char.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut ticker = self.ticker();
        let mut left = &text[..];
        let mut one = |left: &[u8], is_start: bool| -> Result<Option<usize>> {
            for length in lengths.iter().copied().take_while(|length| *length <= left.len()) {
                ticker.tick(length)?;
                let part = if is_start { &left[..length] } else { &left[left.len() - length..] };
                if chars.contains(part) {
                    return Ok(Some(length));
                }
            }
            Ok(None)
        };
        while at_start && let Some(length) = one(left, true)? {
            left = &left[length..];
        }
        while at_end && let Some(length) = one(left, false)? {
            left = &left[..left.len() - length];
        }
        Ok(FunctionResult::Text(left.to_vec()))
    }

    fn unhex(&self, context: &Context<'_>) -> Result<FunctionResult> {
        let (Some(text), Some(set)) = (self.text(context.get_raw(0))?, self.text(context.get_raw(1))?) else {
            return Ok(FunctionResult::Null);
        };
        let mut passed = &set[..];
        let passed: HashSet<u32> = std::iter::from_fn(|| read_char(&mut passed)).collect();
        let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
        let (mut rest, mut made) = (until_nul(&text), Vec::new());
        while let Some(first) = rest.first() {
            match (digit(Some(first)), digit(rest.get(1))) {
                (Some(high), Some(low)) => {
                    made.push((high << 4 | low) as u8);
                    rest = &rest[2..];
                }
                (Some(_), None) => return Ok(FunctionResult::Null),
                (None, _) => match read_char(&mut rest) {
                    Some(char) if passed.contains(&char) => {}
                    _ => return Ok(FunctionResult::Null),
                },
            }
        }
        Ok(FunctionResult::Blob(made))
    }

    /// SQLite's own, of two that are not too large for each other.
    fn patch(&self, context: &Context<'_>, name: &str) -> Result<Value> {
        let values = [context.get_raw(0), context.get_raw(1)];
        let [target, patch] = values.map(|value| match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 1,
        });
        if target.saturating_add(patch).saturating_mul(patch) > PATCH_MAX {
            return Err(too_big());
        }
        self.ask(&format!("SELECT {name}(?1, ?2)"), &values)
    }
}

#[cfg(test)]
#[path = "functions_tests.rs"]
mod tests;
