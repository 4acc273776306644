//! One client of the administration socket: whether it may give orders, one request, one answer.
//!
//! Runs in: the admin role. Sees: bytes of any process that can reach the socket. Never: parses
//! what a process says that does not know the secret.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::admin::Admin;
use crate::clients::ClientSlot;
use crate::command::{Command, REQUEST_MAX};
use crate::reply::OrderReply;

/// How long a client may take to send its request, and to take the answer.
const CLIENT_WAIT: Duration = Duration::from_secs(5);

/// How long an order may take.
///
/// LIMIT: above the longest usual `start_timeout`; after it the order goes on, but nobody is told its end.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// LIMIT: the same of an upgrade, which replaces the processes of thousands of sites one after the other, and of the
/// templates of all sites.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(600);

/// Serves a client to its end. While it is waited for, a newer one may take its place.
pub(crate) async fn serve(mut stream: UnixStream, admin: &Admin, slot: &ClientSlot) {
    let reply = reply(&mut stream, admin, slot).await;
    admin.counters.answered();
    // A client that does not take its answer has only itself to blame.
    let _ = slot
        .waiting(timeout(CLIENT_WAIT, async {
            stream.write_all(&reply.line()).await?;
            stream.shutdown().await
        }))
        .await;
}

async fn reply(stream: &mut UnixStream, admin: &Admin, slot: &ClientSlot) -> OrderReply {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(error) => return OrderReply::failed(format!("the kernel does not say who you are: {error}")),
    };
    let command = match slot.waiting(timeout(CLIENT_WAIT, request(stream, admin))).await {
        Some(Ok(Ok(command))) => command,
        Some(Ok(Err(reply))) => return reply,
        Some(Err(_)) => return OrderReply::failed(format!("no request within {} s", CLIENT_WAIT.as_secs())),
        None => {
            return OrderReply::not_begun("no request before others needed the place, or the server stopped");
        }
    };
    let time = match command {
        Command::Upgrade { .. } | Command::Republish { .. } => UPGRADE_TIMEOUT,
        _ => COMMAND_TIMEOUT,
    };
    note(&command, peer.uid(), peer.pid());
    let carried_out = async {
        let _turn = slot.turn().await;
        admin.command(command).await
    };
    match timeout(time, carried_out).await {
        Ok(reply) => reply,
        Err(_) => OrderReply::failed(format!(
            "no answer within {} s; the order may still be carried out",
            time.as_secs()
        )),
    }
}

/// Reads the secret and the order, a line each.
async fn request(stream: &mut UnixStream, admin: &Admin) -> Result<Command, OrderReply> {
    let mut source = BufReader::new(stream.take(REQUEST_MAX as u64));
    let secret_line = line(&mut source).await?;
    // SECURITY: the modes of the socket and of the secret's file keep other users out. Of a process of the same user,
    // jailed in a rootless run, it is this alone: nothing that it says is parsed.
    if !admin.secret.get().is_some_and(|secret| secret.is(&secret_line)) {
        return Err(OrderReply::failed(
            "no permission to give orders: an order begins with the line of `admin.secret`, beside the socket",
        ));
    }
    Command::parse(&line(&mut source).await?).map_err(OrderReply::wrong)
}

/// Reads one line; the end of the stream ends it as well.
async fn line(source: &mut BufReader<Take<&mut UnixStream>>) -> Result<Vec<u8>, OrderReply> {
    let mut line = Vec::with_capacity(256);
    let read = source.read_until(b'\n', &mut line).await;
    read.map_err(|error| OrderReply::failed(format!("the request could not be read: {error}")))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if source.get_ref().limit() == 0 {
        return Err(OrderReply::wrong(format!("the request is longer than {REQUEST_MAX} bytes")));
    }
    Ok(line)
}

/// Leaves a trace in the error log of who ordered a change.
fn note(command: &Command, uid: u32, pid: Option<i32>) {
    let pid = pid.unwrap_or(0);
    // A log that cannot be written does not stop an administrator, so the result is not looked at.
    let _ = match command {
        Command::Status { .. }
        | Command::Conditioning {}
        | Command::Bans {}
        | Command::Certificates {}
        | Command::Reload { dry_run: true, .. }
        | Command::Upgrade { dry_run: true }
        | Command::Probe { .. } => Ok(()),
        Command::Unban { address } => {
            log(&format!("end of the bans of {address} ordered by uid {uid}, pid {pid}"))
        }
        Command::Relaunch { name, .. } => {
            log(&format!("relaunch of {name:?} ordered by uid {uid}, pid {pid}"))
        }
        Command::Republish { site } => {
            let of = site.as_deref().unwrap_or("all sites");
            log(&format!("republishing of the templates of {of:?} ordered by uid {uid}, pid {pid}"))
        }
        Command::Send { name, order, .. } => {
            let order = order.as_deref().unwrap_or("diagnostics");
            log(&format!("{order:?} sent to {name:?} by order of uid {uid}, pid {pid}"))
        }
        Command::TakeUidsBack {} => log(&format!("uids to be taken back ordered by uid {uid}, pid {pid}")),
        Command::Reopen {} => log(&format!("logs to be opened anew ordered by uid {uid}, pid {pid}")),
        Command::Reload { dry_run: false, site, .. } | Command::ReloadSites { site } => {
            let of = site.as_ref().map_or(String::new(), |site| format!(" of {site:?}"));
            log(&format!("reload{of} ordered by uid {uid}, pid {pid}"))
        }
        Command::Upgrade { dry_run: false } => log(&format!("upgrade ordered by uid {uid}, pid {pid}")),
        Command::Stop {} => log(&format!("stop ordered by uid {uid}, pid {pid}")),
    };
}

fn log(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{text}")
}
