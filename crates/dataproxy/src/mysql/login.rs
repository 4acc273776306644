//! The login: who the proxy is, and how it proves that.

use std::io;

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin as _, Context, Response};
use mysql_common::constants::CapabilityFlags;
use mysql_common::packets::{
    AuthPlugin, AuthSwitchRequest, ErrPacket, HandshakePacket, HandshakeResponse, SslRequest,
};

use super::line::{PacketStream, read};
use crate::server::Login;

/// The capabilities that the proxy asks for: rows that a statement has found count as changed, as with other databases.
const CAPABILITIES: CapabilityFlags = CapabilityFlags::CLIENT_PROTOCOL_41
    .union(CapabilityFlags::CLIENT_SECURE_CONNECTION)
    .union(CapabilityFlags::CLIENT_LONG_PASSWORD)
    .union(CapabilityFlags::CLIENT_LONG_FLAG)
    .union(CapabilityFlags::CLIENT_TRANSACTIONS)
    .union(CapabilityFlags::CLIENT_PLUGIN_AUTH)
    .union(CapabilityFlags::CLIENT_CONNECT_WITH_DB)
    .union(CapabilityFlags::CLIENT_FOUND_ROWS)
    .union(CapabilityFlags::CLIENT_DEPRECATE_EOF);

/// LIMIT: bytes of a packet, as the proxy says when it asks for TLS.
const PACKET_MAX: u32 = u32::MAX;
/// `utf8mb4_general_ci`, as the number of a collation.
const UTF8MB4: u8 = 45;
/// A version that has this collation, which `mysql_common` derives from the version; all servers since 2010 do.
///
/// SECURITY: what the server says of its version is not read: `mysql_common` panics at digits that are not ASCII's.
const VERSION: (u16, u16, u16) = (5, 7, 0);
/// The bytes within the proof of `caching_sha2_password` by which a server asks for the password itself.
const WANTS_PASSWORD: [u8; 2] = [0x01, 0x04];

/// The inputs of the proof.
struct LoginSecret<'a> {
    password: &'a [u8],
    nonce: &'a [u8],
    is_local: bool,
    is_secured: bool,
}

impl Context for LoginSecret<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }
    fn is_ipc_transport(&self) -> bool {
        self.is_local
    }
    fn is_tls_transport(&self) -> bool {
        self.is_secured
    }
    fn scramble(&self) -> &[u8] {
        self.nonce
    }
    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

/// The connection's number at the server, and the capabilities of both ends.
pub(super) struct LoggedIn {
    pub(super) id: u32,
    pub(super) capabilities: CapabilityFlags,
}

/// Logs in on a new connection.
pub(super) async fn log_in(mut line: PacketStream, login: &Login) -> io::Result<(PacketStream, LoggedIn)> {
    let first = line.packet().await?;
    if first[0] == 0xFF {
        return Err(refused(first, CapabilityFlags::empty()));
    }
    check_nonce_length(first)?;
    let hello: HandshakePacket<'_> = read::<HandshakePacket<'_>>(first, ())?.into_owned();
    let id = hello.connection_id();
    let mut capabilities = CAPABILITIES & hello.capabilities();
    if let Some(tls) = login.tls.clone() {
        if !hello.capabilities().contains(CapabilityFlags::CLIENT_SSL) {
            return Err(io::Error::other("it speaks no TLS, which `server_ca` asks for"));
        }
        capabilities |= CapabilityFlags::CLIENT_SSL;
        line.send(&SslRequest::new(capabilities, PACKET_MAX, UTF8MB4)).await?;
        line = line.secure(tls).await?;
    }
    let plugin = hello.auth_plugin().unwrap_or(AuthPlugin::MysqlNativePassword).into_owned();
    let nonce = twenty(&hello.nonce());
    let (mut proof, answer) = begin(&plugin, &secret(&line, login, &nonce))?;
    let response = HandshakeResponse::new(
        Some(answer),
        VERSION,
        Some(login.user.as_bytes()),
        Some(login.database.as_bytes()),
        Some(plugin),
        capabilities,
        None,
        PACKET_MAX,
    );
    line.send(&response).await?;
    prove(&mut line, login, nonce, &mut proof, capabilities).await?;
    Ok((line, LoggedIn { id, capabilities }))
}

/// Answers what the server asks, until it lets the proxy in.
async fn prove(
    line: &mut PacketStream,
    login: &Login,
    mut nonce: Vec<u8>,
    proof: &mut AuthProc,
    capabilities: CapabilityFlags,
) -> io::Result<()> {
    loop {
        let packet = line.packet().await?.to_vec();
        check_who_sees_the_password(line, &packet)?;
        let answer = match packet[0] {
            0x00 => return Ok(()),
            0xFF => return Err(refused(&packet, capabilities)),
            0xFE => {
                let asked: AuthSwitchRequest<'_> = read(&packet, ())?;
                nonce = twenty(asked.plugin_data());
                let (next, answer) = begin(&asked.auth_plugin(), &secret(line, login, &nonce))?;
                *proof = next;
                Some(answer)
            }
            0x01 => match proof.run(secret(line, login, &nonce), &packet[1..]).map_err(io::Error::other)? {
                Response::Next { packet } | Response::Last { packet } => packet,
            },
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the login is answered with nonsense",
                ));
            }
        };
        if let Some(answer) = answer {
            line.send_bytes(&answer).await?;
        }
    }
}

/// Begins a proof.
///
/// SECURITY: one that has the password sent as it is, or as good as that, is refused.
fn begin(plugin: &AuthPlugin<'_>, secret: &LoginSecret<'_>) -> io::Result<(AuthProc, Vec<u8>)> {
    if !matches!(plugin, AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password) {
        let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
        return Err(io::Error::other(format!(
            "the server wants `{name}` of this user: give him a password by `mysql_native_password` or \
             `caching_sha2_password`"
        )));
    }
    let mut proof = plugin.init().map_err(io::Error::other)?;
    let borrowed = LoginSecret { ..*secret };
    match proof.run(borrowed, secret.nonce).map_err(io::Error::other)? {
        Response::Next { packet } | Response::Last { packet } => Ok((proof, packet.unwrap_or_default())),
    }
}

/// SECURITY: where somebody else could sit between, the password is not sent, not even encrypted with a key that the
/// server sends: it could be that of whoever sits there.
fn check_who_sees_the_password(line: &PacketStream, packet: &[u8]) -> io::Result<()> {
    if packet == WANTS_PASSWORD && !line.is_local() && !line.is_secured() {
        return Err(io::Error::other(
            "it asks for the password itself, as `caching_sha2_password` does at a first login: speak TLS by \
             `server_ca`, or give this user a password by `mysql_native_password`",
        ));
    }
    Ok(())
}

fn secret<'a>(line: &PacketStream, login: &'a Login, nonce: &'a [u8]) -> LoginSecret<'a> {
    let password = login.password.as_deref().unwrap_or_default().as_bytes();
    LoginSecret { password, nonce, is_local: line.is_local(), is_secured: line.is_secured() }
}

/// Refuses a first packet that says of its nonce that it has 128 bytes or more: `mysql_common` takes that for a
/// negative number, and may panic when it subtracts from it.
fn check_nonce_length(hello: &[u8]) -> io::Result<()> {
    // The version of the protocol, that of the server up to a NUL, and 20 bytes.
    let length = hello.iter().skip(1).position(|&byte| byte == 0).and_then(|end| hello.get(end + 22));
    if length.is_some_and(|&length| length > i8::MAX as u8) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the server begins with nonsense"));
    }
    Ok(())
}

/// A nonce without the NUL behind it.
fn twenty(nonce: &[u8]) -> Vec<u8> {
    nonce.iter().copied().take(20).collect()
}

fn refused(packet: &[u8], capabilities: CapabilityFlags) -> io::Error {
    match read::<ErrPacket<'_>>(packet, capabilities) {
        Ok(ErrPacket::Error(error)) => io::Error::other(error.message_str().into_owned()),
        Ok(ErrPacket::Progress(_)) => io::ErrorKind::InvalidData.into(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const PASSWORD: &str = "not a secret";
    /// A server with `caching_sha2_password` that asks for the password itself.
    const ASKS: &[u8] = include_bytes!("../../../../fuzz/seeds/mysql_session/sha2_password");

    /// The outcome of a login, and all bytes that were sent to the server.
    async fn log_in_at(stream: impl Into<OwnedFd>, mut server: impl io::Read) -> (io::Result<()>, Vec<u8>) {
        let stream = stream.into().try_into().unwrap();
        let login = Login {
            database: "shop".into(),
            user: "shop".into(),
            password: Some(PASSWORD.into()),
            tls: None,
        };
        let outcome = log_in(PacketStream::new(stream), &login).await.map(drop);
        let mut sent = Vec::new();
        server.read_to_end(&mut sent).unwrap();
        (outcome, sent)
    }

    fn holds(sent: &[u8], text: &str) -> bool {
        sent.windows(text.len()).any(|window| window == text.as_bytes())
    }

    async fn over_tcp(said: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        theirs.write_all(said).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        log_in_at(ours, theirs).await
    }

    #[tokio::test]
    async fn over_tcp_without_tls_nobody_is_sent_the_password() {
        let (outcome, sent) = over_tcp(ASKS).await;
        let reason = outcome.unwrap_err().to_string();
        assert!(reason.contains("`server_ca`"), "{reason}");
        assert!(holds(&sent, "caching_sha2_password") && !holds(&sent, PASSWORD));
        // Nor is the server asked for its key: the proof is the last packet.
        let proof = sent.len() - 4;
        assert_eq!(usize::from(sent[0]), proof);
    }

    #[tokio::test]
    async fn a_socket_of_this_machine_is_the_servers() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(ASKS).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let (outcome, sent) = log_in_at(ours, theirs).await;
        outcome.unwrap();
        assert!(holds(&sent, PASSWORD));
    }

    #[tokio::test]
    async fn a_proof_that_the_server_takes_is_enough() {
        let (outcome, sent) = over_tcp(include_bytes!("../../../../fuzz/seeds/mysql_session/sha2")).await;
        outcome.unwrap();
        assert!(!holds(&sent, PASSWORD));
    }

    /// Digits of other scripts are digits for a regular expression.
    #[tokio::test]
    async fn a_version_may_be_anything() {
        let seed = include_bytes!("../../../../fuzz/seeds/mysql_session/version_of_other_digits");
        over_tcp(seed).await.0.unwrap();
    }
}
