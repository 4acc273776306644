//! One client of the administration socket: who it is, one request, one answer.
//!
//! Runs in: the admin role. Sees: bytes of any process that can reach the socket. Never: obeys a
//! process that is neither root's nor the owner's.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::desk::Desk;
use crate::order::{Order, REQUEST_MAX};
use crate::reply::Reply;

/// How long a client may take to send its request, and to take the answer.
const CLIENT_WAIT: Duration = Duration::from_secs(5);

/// How long an order may take.
///
/// LIMIT: above the longest usual `start_timeout`; after it the order goes on, but nobody is told its end.
const ORDER_WAIT: Duration = Duration::from_secs(60);

/// Serves a client to its end.
pub(crate) async fn serve(mut stream: UnixStream, desk: &Desk) {
    let reply = reply(&mut stream, desk).await;
    desk.counters.answered();
    // A client that does not take its answer has only itself to blame.
    let _ = timeout(CLIENT_WAIT, async {
        stream.write_all(&reply.line()).await?;
        stream.shutdown().await
    })
    .await;
}

async fn reply(stream: &mut UnixStream, desk: &Desk) -> Reply {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(error) => return Reply::failed(format!("the kernel does not say who you are: {error}")),
    };
    let order = timeout(CLIENT_WAIT, request(stream)).await;
    // SECURITY: the mode of the socket keeps others out already; the kernel's word does so again.
    if peer.uid() != 0 && Some(peer.uid()) != desk.owner.get() {
        return Reply::failed(format!(
            "uid {} may not give orders; root or the server's owner may",
            peer.uid()
        ));
    }
    let order = match order {
        Ok(Ok(order)) => order,
        Ok(Err(error)) => return Reply::wrong(error),
        Err(_) => return Reply::failed(format!("no request within {} s", CLIENT_WAIT.as_secs())),
    };
    note(&order, peer.uid(), peer.pid());
    match timeout(ORDER_WAIT, desk.order(order)).await {
        Ok(reply) => reply,
        Err(_) => Reply::failed(format!(
            "no answer within {} s; the order may still be carried out",
            ORDER_WAIT.as_secs()
        )),
    }
}

/// Reads one line; the end of the stream ends it as well.
async fn request(stream: &mut UnixStream) -> Result<Order, String> {
    let mut line = Vec::with_capacity(256);
    let mut source = stream.take(REQUEST_MAX as u64);
    loop {
        let before = line.len();
        let count = source
            .read_buf(&mut line)
            .await
            .map_err(|error| format!("the request could not be read: {error}"))?;
        if let Some(end) = line[before..].iter().position(|&byte| byte == b'\n') {
            return Order::parse(&line[..before + end]);
        }
        if line.len() >= REQUEST_MAX {
            return Err(format!("the request is longer than {REQUEST_MAX} bytes"));
        }
        if count == 0 {
            return Order::parse(&line);
        }
    }
}

/// Leaves a trace in the error log of who ordered a change.
fn note(order: &Order, uid: u32, pid: Option<i32>) {
    let pid = pid.unwrap_or(0);
    // A log that cannot be written does not stop an administrator, so the result is not looked at.
    let _ = match order {
        Order::Status {} | Order::Conditioning {} | Order::Bans {} | Order::Probe { .. } => Ok(()),
        Order::Unban { address } => {
            say(&format!("end of the bans of {address} ordered by uid {uid}, pid {pid}"))
        }
        Order::Relaunch { name } => say(&format!("relaunch of {name:?} ordered by uid {uid}, pid {pid}")),
        Order::Reopen {} => say(&format!("logs to be opened anew ordered by uid {uid}, pid {pid}")),
        Order::Stop {} => say(&format!("stop ordered by uid {uid}, pid {pid}")),
    };
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{text}")
}
