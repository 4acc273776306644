//! A door to data sources, for a service that runs on another machine.
//!
//! It is a service of its own, with the name of that one, so that it has its grants, its token and its limits. The data
//! proxy of the other machine comes with a certificate and a WebSocket; what it says is parsed here, where no database
//! is.
//!
//! Runs in: a service's worker, under that service's uid, inside its jail. Sees: what a machine with a certificate
//! sends. Never: opens to whoever has shown none, or makes a call for another service.

mod session;

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_service::{Context, Error, Request, Response, Service, StatusCode};
use wire::MESSAGE_MAX;
use wire::data::{DOOR_PROTOCOL, DOOR_PROTOCOL_BEFORE};

use session::DoorSession;

/// LIMIT: how often a connection is made again within `drain_timeout`: two thirds of that are for calls that are under
/// way.
const RENEWALS: u32 = 3;
const BY_HAND: &str = "this program is started by the launcher";

/// The service.
struct Door {
    cx: Context,
    /// Below which path it is asked for, each source under its name.
    path: String,
    /// How long a connection is for new calls. The worker that passes it on may retire at any time, and cuts it off
    /// then after `drain_timeout`; what is under way ends before that, as new calls have gone to another connection.
    renewal: Duration,
}

impl Service for Door {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let [path, drain] = cx.arguments() else { return Err(BY_HAND.into()) };
        let drain = Duration::from_millis(drain.parse().map_err(|_| BY_HAND)?);
        Ok(Self { cx: cx.clone(), path: path.clone(), renewal: drain / RENEWALS })
    }

    async fn process(&self, mut request: Request) -> Response {
        if request.client_certificate().is_none() {
            return Response::status_page(StatusCode::FORBIDDEN);
        }
        let path = request.uri().path();
        let name = path.strip_prefix(&*self.path).and_then(|rest| rest.strip_prefix('/'));
        let Some(source) = name.and_then(|name| self.cx.data(name).ok()) else {
            return Response::status_page(StatusCode::NOT_FOUND);
        };
        let socket = match request.websocket() {
            Ok(socket) => socket
                .protocols(&[DOOR_PROTOCOL, DOOR_PROTOCOL_BEFORE])
                .message_bytes_max(MESSAGE_MAX)
                .ends_itself(),
            Err(error) => return error.into(),
        };
        let says_timeouts = socket.protocol() == Some(DOOR_PROTOCOL);
        let (cx, renewal) = (self.cx.clone(), self.renewal);
        let session = DoorSession::new(source, says_timeouts);
        socket.accept(&self.cx, async move |socket| session.run(socket, &cx, renewal).await)
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Door>()
}
