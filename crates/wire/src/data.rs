//! Calls of services to data proxies: who asks, for which statement, and what comes back.
//!
//! Runs in: the launcher, data proxies, services. Sees: in a data proxy, bytes of a service, which may be compromised;
//! in a service, those of a data proxy. Never: SQL on the way from a service: a service knows statements by name alone.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3 (a token of 20 bytes
//! says which calls a service may make).

use std::fmt;
use std::time::Duration;

use crate::codec::{Bytes, DecodeError, Field, Reader, Text, choice, messages};
use crate::connector::SERVER_NAME_MAX;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 20;
/// LIMIT: bytes of a call's parameters or of an answer in one message; with its fixed part well below
/// [`crate::MESSAGE_MAX`].
pub const PART_MAX: usize = 60 * 1024;
/// LIMIT: bytes of all parameters of a call.
pub const PARAMETERS_BYTES_MAX: usize = 4 << 20;
/// LIMIT: bytes of parameters of all calls of one channel, or of one connection of another machine, that have no answer
/// yet.
pub const PARAMETERS_UNANSWERED_MAX: usize = 8 * PARAMETERS_BYTES_MAX;
/// LIMIT: bytes of answers that whoever calls on a channel has not read yet, over all calls; there are no more rows
/// until it reads.
pub const UNREAD_MAX: usize = 4 << 20;
/// LIMIT: how long calls stand still for whoever calls and reads nothing: they hold connections that others want.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// LIMIT: values of a call, or of a row; SQLite has no more columns.
pub const VALUES_MAX: usize = 4096;
/// LIMIT: threads of a data proxy that read; its launcher lets it have so many, one that writes, one that keeps time,
/// one for messages, and [`GIVEN_UP_MAX`].
pub const READERS: usize = 3;
/// LIMIT: threads of a data proxy that read, are within one instruction of a call that is over, and were given up;
/// there is another in the place of each. A service has as many as it may have threads, until the first of them is
/// back.
pub const GIVEN_UP_MAX: usize = 6;
/// By which number the connector of a data proxy knows its server.
pub const DATABASE_TARGET: u16 = 0;
/// LIMIT: how long after its timeout a service waits for the word of what has become of a call; then nobody knows.
pub const WORD_WAIT: Duration = Duration::from_millis(80);
/// LIMIT: names of statements and transactions with timeouts of their own that a service remembers.
pub const TIMEOUTS_MAX: usize = 4096;
/// LIMIT: calls of one service that have no answer yet.
pub const CALLS_MAX: usize = 128;
/// The longest name of a statement, a source or a service.
pub const NAME_MAX: usize = 63;
/// The longest host with a port.
const AUTHORITY_MAX: usize = SERVER_NAME_MAX + 6;
/// Below which path of its site a service of another machine has its doors, each under the name of a source.
pub const DOORS_AT: &str = "/data";
/// What is spoken on a WebSocket between a data proxy and a door: each binary message of the data proxy is a
/// [`ServiceToDataProxy`] without a login or a question for timeouts, each of the door a [`DataProxyToService`] without
/// a welcome. A door says its timeouts as soon as it knows them, and again when they change.
pub const DOOR_PROTOCOL: &str = "bulkhead-data.2";
/// The same without timeouts, of doors and data proxies of before.
pub const DOOR_PROTOCOL_BEFORE: &str = "bulkhead-data.1";
/// The one text that a door says: it takes no new calls, and what is under way is answered. The data proxy closes the
/// WebSocket then.
pub const DOOR_RETIRES: &str = "retire";
/// The longest path of a database.
const PATH_MAX: usize = 4096;

/// By which a data proxy knows a service. The launcher makes one for each channel; nobody else knows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub [u8; TOKEN_BYTES]);

/// SECURITY: a message that comes out of turn is printed; the log must not have the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Field for Token {
    fn layout() -> String {
        format!("Raw({TOKEN_BYTES})")
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(Self)
    }
}

choice! {
    /// What a database server speaks.
    pub enum Engine {
        /// PostgreSQL's protocol.
        0 => Postgresql,
        /// That of MariaDB and MySQL.
        1 => Mysql,
        /// That of Redis and Valkey.
        2 => Redis,
    }
}

impl Engine {
    /// How the configuration and command lines call each.
    pub const ALL: [(&'static str, Self); 3] =
        [("postgresql", Self::Postgresql), ("mysql", Self::Mysql), ("redis", Self::Redis)];

    /// How the configuration calls this one.
    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(word, known)| (known == self).then_some(word)).unwrap_or_default()
    }

    /// The one of this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(known, engine)| (known == word).then_some(engine))
    }
}

messages! {
    /// From the launcher to a data proxy.
    pub enum LauncherToDataProxy {
        /// First of all: how often buffered log records are handed to the logger.
        1 => Limits { flush_ms: u32 },
        /// The source is this SQLite database, which is made if it is not there; SQLite may have so much memory.
        2 => Sqlite { path: Text<PATH_MAX>, heap_bytes: u64 },
        /// The file of statements comes along; after `Begin`, it replaces an earlier one.
        3 => Statements {},
        /// The service of this name may have the source.
        4 => Service { name: Text<NAME_MAX> },
        /// All of the above has been said: open the source.
        5 => Begin {},
        /// A channel from a process of the service comes along, which knows this token.
        6 => Attach { service: Text<NAME_MAX>, token: Token },
        /// Asks for `Counters`.
        7 => Report {},
        /// The file comes along that is carried out if the database has no tables; before `Begin`.
        8 => Schema {},
        /// The source is this database of a server, to which the connector makes connections.
        9 => Server { engine: Engine, database: Text<NAME_MAX>, user: Text<NAME_MAX>, connections: u16 },
        /// The file with the password of the server's user comes along; after `Begin`, it replaces an earlier one.
        10 => Password {},
        /// A channel to the connector comes along, in place of an earlier one.
        11 => Connector {},
        /// The server is spoken to over TLS; its certificate is for this name, and signed by one of the authorities in
        /// the file that comes along, PEM; after `Begin`, they replace earlier ones.
        12 => Authorities { name: Text<SERVER_NAME_MAX> },
        /// The source is another machine's, where it has this name; each service has a door to it there, at this host
        /// and port.
        13 => Remote { source: Text<NAME_MAX>, authority: Text<AUTHORITY_MAX> },
        /// The file comes along with the certificate that is shown to the server, and those between it and the
        /// authority, PEM; before `Begin`.
        14 => Certificate {},
        /// The file comes along with the key of that certificate, PEM; before `Begin`.
        15 => Key {},
    }
}

messages! {
    /// From a service to a data proxy.
    pub enum ServiceToDataProxy {
        /// First of all.
        1 => Login { token: Token },
        /// Carry out a statement or a transaction with these parameters; unless they are complete, `More` follows.
        /// The answer names `id`, which no other call has that is under way.
        2 => Call { id: u32, name: Text<NAME_MAX>, complete: bool, values: Bytes<PART_MAX> },
        /// More parameters of a call.
        3 => More { id: u32, complete: bool, values: Bytes<PART_MAX> },
        /// The answer is not wanted any more. It may be on its way already, or the work done.
        4 => Cancel { id: u32 },
        /// No more rows of the answer are wanted for now, while the call's time goes on. Parts may be on their way
        /// already.
        5 => Pause { id: u32 },
        /// They are wanted again.
        6 => Resume { id: u32 },
        /// After `Login`: asks for `Timeouts`, now and whenever a call is made after they have changed.
        7 => Timeouts {},
    }
}

choice! {
    /// Why a call has failed.
    pub enum CallFault {
        /// There is no such statement, or the service may not call it.
        0 => Refused,
        /// The parameters are too many, too few, or not of the types of the statement.
        1 => Parameters,
        /// The answer has more rows or bytes than the statement may give.
        2 => TooLarge,
        /// Too many calls are under way, others kept it waiting for its turn as long as it may take, or the service has
        /// not read what came of the answer before the call's time was over.
        3 => Busy,
        /// It took too long. What a statement had changed is as before.
        4 => Late,
        /// A rule of the database's tables does not allow it: a value twice, a missing row, NULL.
        5 => Constraint,
        /// The database has failed. Nothing is changed.
        6 => Database,
        /// The database was lost while the call was under way, which may have been carried out, or not.
        7 => Lost,
    }
}

/// The longest reason of a failed call.
const REASON_MAX: usize = 512;

messages! {
    /// From a data proxy to a service.
    pub enum DataProxyToService {
        /// The token is right: call.
        1 => Welcome {},
        /// A part of an answer; more follows.
        2 => Part { id: u32, results: Bytes<PART_MAX> },
        /// The last part of an answer. What the call has changed is on disk.
        3 => Done { id: u32, results: Bytes<PART_MAX> },
        /// There is no answer, also if parts of it have come.
        4 => Failed { id: u32, fault: CallFault, reason: Text<REASON_MAX> },
        /// In place of what was said before: a call may take so long, unless `Timeout` follows; nobody here knows, if
        /// it is 0.
        5 => Timeouts { usual_ms: u32 },
        /// A call of this name may take so long.
        6 => Timeout { name: Text<NAME_MAX>, timeout_ms: u32 },
    }
}

/// A value of a parameter or a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A whole number; 0 and 1 stand for false and true.
    Int(i64),
    /// A number of double precision.
    Real(f64),
    /// Text in UTF-8.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// A value that is written without a copy of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// See [`Value`].
    Null,
    /// See [`Value`].
    Int(i64),
    /// See [`Value`].
    Real(f64),
    /// See [`Value`].
    Text(&'a str),
    /// See [`Value`].
    Blob(&'a [u8]),
}

impl Value {
    /// The same, borrowed.
    pub fn borrowed(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Int(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value),
            Self::Blob(value) => ValueRef::Blob(value),
        }
    }
}

impl ValueRef<'_> {
    /// Appends the value: a byte for its type, then 8 bytes, or a length of 4 and as many bytes.
    pub fn put(self, out: &mut Vec<u8>) {
        let mut long = |kind: u8, bytes: &[u8]| {
            out.push(kind);
            (bytes.len() as u32).put(out);
            out.extend_from_slice(bytes);
        };
        match self {
            Self::Null => out.push(0),
            Self::Int(value) => {
                out.push(1);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Real(value) => {
                out.push(2);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Text(value) => long(3, value.as_bytes()),
            Self::Blob(value) => long(4, value),
        }
    }
}

/// Reads what [`ValueRef::put`] and [`ResultWriter`] have written, from a peer that may be compromised.
#[derive(Debug)]
pub struct ValueReader<'a>(&'a [u8]);

impl<'a> ValueReader<'a> {
    /// All of the parameters of a call, or of an answer.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value.
    ///
    /// # Errors
    /// There is none.
    pub fn value(&mut self) -> Result<ValueRef<'a>, DecodeError> {
        self.read(|reader| {
            Ok(match u8::take(reader)? {
                0 => ValueRef::Null,
                1 => ValueRef::Int(i64::from_le_bytes(reader.array()?)),
                2 => ValueRef::Real(f64::from_le_bytes(reader.array()?)),
                3 => ValueRef::Text(
                    std::str::from_utf8(long(reader)?).map_err(|_| DecodeError::Value("text"))?,
                ),
                4 => ValueRef::Blob(long(reader)?),
                _ => return Err(DecodeError::Value("type of a value")),
            })
        })
    }

    /// All values of a call.
    ///
    /// # Errors
    /// They are none, or too many.
    pub fn values(mut self) -> Result<Vec<Value>, DecodeError> {
        let mut values = Vec::new();
        while !self.is_at_end() {
            if values.len() == VALUES_MAX {
                return Err(DecodeError::Limit(VALUES_MAX));
            }
            values.push(self.value()?.to_value());
        }
        Ok(values)
    }

    /// The names of the columns of the next result; none for a statement without rows.
    ///
    /// # Errors
    /// There is no result.
    pub fn columns(&mut self) -> Result<Vec<&'a str>, DecodeError> {
        let count = self.read(u16::take)?;
        if usize::from(count) > VALUES_MAX {
            return Err(DecodeError::Limit(VALUES_MAX));
        }
        let name = |_| match self.value()? {
            ValueRef::Text(name) => Ok(name),
            _ => Err(DecodeError::Value("name of a column")),
        };
        (0..count).map(name).collect()
    }

    /// Whether another row of the result follows; if not, how many rows the statement has changed.
    ///
    /// # Errors
    /// It is neither.
    pub fn end_of_rows(&mut self) -> Result<Option<u64>, DecodeError> {
        self.read(|reader| match u8::take(reader)? {
            1 => Ok(None),
            0 => u64::take(reader).map(Some),
            _ => Err(DecodeError::Value("row")),
        })
    }

    fn read<T>(
        &mut self,
        take: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let mut reader = Reader(self.0);
        let value = take(&mut reader)?;
        self.0 = reader.0;
        Ok(value)
    }
}

impl ValueRef<'_> {
    /// The same, with memory of its own.
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(value),
            Self::Real(value) => Value::Real(value),
            Self::Text(value) => Value::Text(value.to_owned()),
            Self::Blob(value) => Value::Blob(value.to_owned()),
        }
    }
}

fn long<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let count = u32::take(reader)? as usize;
    reader.bytes(count)
}

/// Writes the result of one statement: names of columns, rows, and how many rows have changed.
#[derive(Debug)]
pub struct ResultWriter;

impl ResultWriter {
    /// The names of its columns; none for a statement without rows.
    pub fn columns(names: &[&str], out: &mut Vec<u8>) {
        (names.len() as u16).put(out);
        names.iter().for_each(|name| ValueRef::Text(name).put(out));
    }

    /// Before the values of a row.
    pub fn row(out: &mut Vec<u8>) {
        out.push(1);
    }

    /// After the last row.
    pub fn end(changed: u64, out: &mut Vec<u8>) {
        out.push(0);
        changed.put(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message as _;

    #[test]
    fn values_come_back_as_they_were() {
        let values = [
            Value::Null,
            Value::Int(i64::MIN),
            Value::Real(-0.5),
            Value::Text("'; DROP TABLE users; -- \0 ü".into()),
            Value::Blob(vec![0, 255]),
        ];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| value.borrowed().put(&mut bytes));
        assert_eq!(ValueReader::new(&bytes).values().unwrap(), values);
        for cut in 1..bytes.len() {
            // Cut between two values, the values before are whole.
            let found = ValueReader::new(&bytes[..cut]).values();
            assert!(found.is_err() || found.unwrap().len() < values.len());
        }
    }

    #[test]
    fn results_come_back_as_they_were() {
        let mut bytes = Vec::new();
        ResultWriter::columns(&["id", "name"], &mut bytes);
        for id in [1, 2] {
            ResultWriter::row(&mut bytes);
            ValueRef::Int(id).put(&mut bytes);
            ValueRef::Null.put(&mut bytes);
        }
        ResultWriter::end(0, &mut bytes);
        ResultWriter::columns(&[], &mut bytes);
        ResultWriter::end(7, &mut bytes);
        let mut reader = ValueReader::new(&bytes);
        assert_eq!(reader.columns().unwrap(), ["id", "name"]);
        for id in [1, 2] {
            assert_eq!(reader.end_of_rows().unwrap(), None);
            assert_eq!(reader.value().unwrap(), ValueRef::Int(id));
            assert_eq!(reader.value().unwrap(), ValueRef::Null);
        }
        assert_eq!(reader.end_of_rows().unwrap(), Some(0));
        assert_eq!(reader.columns().unwrap(), [""; 0]);
        assert_eq!(reader.end_of_rows().unwrap(), Some(7));
        assert!(reader.is_at_end());
        assert!(reader.columns().is_err());
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for bytes in [&[5][..], &[3, 255, 255, 255, 255, 65], &[3, 1, 0, 0, 0, 255], &[1, 0]] {
            assert!(ValueReader::new(bytes).values().is_err(), "{bytes:?}");
        }
        let many = vec![0; VALUES_MAX + 1];
        assert_eq!(ValueReader::new(&many).values(), Err(DecodeError::Limit(VALUES_MAX)));
        assert_eq!(ValueReader::new(&[255, 255]).columns(), Err(DecodeError::Limit(VALUES_MAX)));
    }

    #[test]
    fn a_token_is_not_printed() {
        let login = ServiceToDataProxy::Login { token: Token([7; TOKEN_BYTES]) };
        assert_eq!(format!("{login:?}"), "Login { token: Token }");
        let mut bytes = Vec::new();
        login.encode(&mut bytes);
        assert_eq!(ServiceToDataProxy::decode(&bytes), Ok(login));
    }
}
