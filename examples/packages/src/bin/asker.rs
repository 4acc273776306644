//! A service for the tests: calls whatever statement a test names, with whatever values.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo, and must not be put on
//! a server. Sees: requests of tests. Never: asks for a privilege.
//!
//! `/asker/many?statement=NAME&values=[1,"a",null]` and the like; the argument of the program is the name of its data
//! source.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_service::{
    Context, DataError, DataSource, DataValue, Error, Request, Response, Service, StatusCode,
};
use serde_json::{Map, Value, json};

struct Asker {
    source: DataSource,
}

impl Service for Asker {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let name = cx.arguments().first().ok_or("usage: asker SOURCE [STATEMENT]")?;
        let source = cx.data(name)?;
        // As a program does that reads what it needs before it serves.
        if let Some(statement) = cx.arguments().get(1) {
            source.many::<Map<String, Value>>(statement, ()).await?;
        }
        Ok(Self { source })
    }

    async fn process(&self, request: Request) -> Response {
        let statement = request.raw_param("statement").unwrap_or_default();
        let lists = request.raw_param("values").unwrap_or("[]".into());
        let Ok(lists) = serde_json::from_str::<Value>(&lists) else {
            return Response::text("`values` is no JSON\n").with_status(StatusCode::BAD_REQUEST);
        };
        // Behind the path of the service, which a test has chosen.
        let how = request.path().rsplit('/').next().unwrap_or_default();
        let outcome = match how {
            "transaction" => self.transaction(&statement, &lists).await,
            // Asks, and does not wait for the answer.
            "give-up" => {
                let values = values(&lists);
                let asked = self.ask("many", &statement, &values);
                match tokio::time::timeout(Duration::from_millis(50), asked).await {
                    Ok(outcome) => outcome,
                    Err(_) => Ok(json!("gave up")),
                }
            }
            how => self.ask(how, &statement, &values(&lists)).await,
        };
        match outcome {
            Ok(found) => Response::text(format!("{found}\n")),
            Err(DataError::Failed { fault, reason }) => {
                Response::text(format!("{fault:?}: {reason}\n")).with_status(StatusCode::BAD_GATEWAY)
            }
            Err(error) => Response::text(format!("{error}\n")).with_status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

impl Asker {
    async fn ask(&self, how: &str, statement: &str, values: &[DataValue]) -> Result<Value, DataError> {
        match how {
            "one" => Ok(json!(self.source.one::<Map<String, Value>>(statement, values).await?)),
            "exec" => Ok(json!(self.source.exec(statement, values).await?)),
            _ => Ok(json!(self.source.many::<Map<String, Value>>(statement, values).await?)),
        }
    }

    /// `lists` has a list of values for each statement.
    async fn transaction(&self, name: &str, lists: &Value) -> Result<Value, DataError> {
        let lists = lists.as_array().into_iter().flatten();
        let call = lists.fold(self.source.transaction(name), |call, list| call.with(&values(list)[..]));
        let mut found = Vec::new();
        for result in call.run().await? {
            let changed = result.changed();
            found.push(json!({ "changed": changed, "rows": result.into_rows::<Map<String, Value>>()? }));
        }
        Ok(json!(found))
    }
}

fn values(list: &Value) -> Vec<DataValue> {
    let value = |value: &Value| match value {
        Value::Null => DataValue::Null,
        Value::Bool(value) => DataValue::Int((*value).into()),
        Value::Number(number) => match number.as_i64() {
            Some(number) => DataValue::Int(number),
            None => DataValue::Real(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => DataValue::Text(text.clone()),
        // A text, as bytes.
        other => DataValue::Blob(other.to_string().into_bytes()),
    };
    list.as_array().into_iter().flatten().map(value).collect()
}

fn main() -> ExitCode {
    bulkhead_service::main::<Asker>()
}
