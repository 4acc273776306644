//! A service for the tests: a WebSocket of the SDK's.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo. Sees: what tests send.
//! Never: asks for a privilege.

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use bulkhead_service::{Context, Error, Message, Request, Response, Service, WebSocket};

/// Bytes of a message of a flood.
const FLOOD_BYTES: usize = 64 << 10;

struct Talk {
    cx: Context,
    /// Messages of floods that were sent.
    sent: Rc<Cell<u64>>,
}

impl Service for Talk {
    async fn init(cx: &Context) -> Result<Self, Error> {
        Ok(Self { cx: cx.clone(), sent: Rc::default() })
    }

    async fn process(&self, mut request: Request) -> Response {
        if request.path().ends_with("/sent") {
            return Response::text(self.sent.get().to_string());
        }
        self.talk(&mut request).unwrap_or_else(|refusal| refusal)
    }
}

impl Talk {
    fn talk(&self, request: &mut Request) -> Result<Response, Response> {
        let quiet = request.optional_param_as::<u64>("quiet")?;
        let bytes = request.optional_param_as::<usize>("bytes")?;
        let asked = match request.path().ends_with("/all") {
            true => request.danger_websocket_for_all()?,
            false => request.websocket_for(&["https://friend.test"])?,
        };
        let mut asked = asked.protocols(&["echo.v2", "echo.v1"]);
        if let Some(quiet) = quiet {
            asked = asked.quiet(Duration::from_millis(quiet));
        }
        if let Some(bytes) = bytes {
            asked = asked.message_bytes_max(bytes);
        }
        let (sent, cx) = (self.sent.clone(), self.cx.clone());
        Ok(asked.accept(&self.cx, async move |socket| {
            let outcome = talk(socket, &sent).await;
            cx.event(bulkhead_service::Level::Info, format_args!("the talk has ended: {outcome:?}"));
            outcome
        }))
    }
}

/// Says everything again; some words are orders.
async fn talk(socket: &mut WebSocket, sent: &Cell<u64>) -> Result<(), Error> {
    while let Some(message) = socket.next().await? {
        match &message {
            Message::Text(text) if text == "fail" => return Err("it was told to fail".into()),
            Message::Text(text) if text == "leave" => {
                socket.close(4001, "as it was told").await;
                return Ok(());
            }
            Message::Text(text) if text == "flood" => loop {
                socket.send(vec![b'x'; FLOOD_BYTES]).await?;
                sent.set(sent.get() + 1);
            },
            Message::Text(_) | Message::Binary(_) => socket.send(message).await?,
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    bulkhead_service::main::<Talk>()
}
