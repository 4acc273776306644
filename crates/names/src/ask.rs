//! From a name to its addresses, by the files and then by DNS servers over TCP.
//!
//! Untrusted input: what DNS servers send. Must never: wait for a server without a deadline.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use domain::base::Rtype;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::{DnsAnswer, addresses, is_good, question};
use crate::{ADDRESSES_MAX, LocalNames};

/// LIMIT: how long one server may take for one question; the C library waits for 5 s.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);

/// Addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddresses {
    /// At least one.
    pub addresses: Vec<IpAddr>,
    /// How long they hold, as DNS says; `None`: until a file changes.
    pub ttl: Option<Duration>,
}

/// Why a name has no addresses, in words that continue the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// Nobody has it: a server says so.
    Absent(String),
    /// Nobody could say.
    Failed(String),
}

/// Whether the domains of `search` are tried after a short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// No: the name is whole.
    Never,
    /// If it has fewer dots than `ndots` says.
    Short,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Absent(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

impl LocalNames {
    /// The addresses of a name.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn look_up(&self, name: &str, search: Search) -> Result<ResolvedAddresses, ResolveError> {
        let whole = name.strip_suffix('.').unwrap_or(name);
        if let Some(addresses) = self.known(whole) {
            return Ok(ResolvedAddresses { addresses, ttl: None });
        }
        let mut absent =
            ResolveError::Failed("cannot be looked up: `/etc/resolv.conf` names no server".into());
        for candidate in self.candidates(name, search) {
            match self.ask(&candidate).await {
                Err(ResolveError::Absent(why)) => absent = ResolveError::Absent(why),
                // A name of another domain does not stand in for one that nobody could look up.
                answer => return answer,
            }
        }
        Err(absent)
    }

    /// The addresses that need no question.
    fn known(&self, name: &str) -> Option<Vec<IpAddr>> {
        let hosts = self.hosts.iter().filter(|(known, _)| known == name).map(|(_, address)| *address);
        let mut known: Vec<IpAddr> = hosts.take(ADDRESSES_MAX).collect();
        // RFC 6761 6.3: never asked of a server.
        if known.is_empty() && (name == "localhost" || name.ends_with(".localhost")) {
            known = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        (!known.is_empty()).then_some(known)
    }

    /// The names that are asked for, in turn (resolv.conf(5)).
    fn candidates(&self, name: &str, search: Search) -> Vec<String> {
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let is_short = name.matches('.').count() < self.ndots.unwrap_or(1);
        let domains = self.domains.iter().filter(|_| search == Search::Short && is_short);
        let longer = domains.map(|domain| format!("{name}.{domain}"));
        longer.chain([name.to_owned()]).collect()
    }

    /// Asks one server after the other until one answers.
    async fn ask(&self, name: &str) -> Result<ResolvedAddresses, ResolveError> {
        let mut why = "`/etc/resolv.conf` names no server".to_owned();
        for server in &self.servers {
            match ask_both(*server, name).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {
                    let ip = server.ip();
                    return Err(ResolveError::Absent(format!("has no address that is good, says {ip}")));
                }
                Err(error) => why = format!("{}: {error}", server.ip()),
            }
        }
        Err(ResolveError::Failed(format!("cannot be looked up: {why}")))
    }
}

/// The addresses of version 4, or else those of version 6: who has both reaches the same servers by either.
pub(crate) async fn ask_both(server: SocketAddr, name: &str) -> Result<Option<ResolvedAddresses>, String> {
    for kind in [Rtype::A, Rtype::AAAA] {
        let asked = timeout(SERVER_TIMEOUT, ask(server, name, kind)).await;
        let answer = asked.map_err(|_| format!("no answer within {} s", SERVER_TIMEOUT.as_secs()))?;
        match answer.map_err(|error| error.to_string())? {
            DnsAnswer::Failed(why) => return Err(why),
            DnsAnswer::Absent => {}
            DnsAnswer::Addresses(mut addresses, ttl) => {
                addresses.retain(is_good);
                let ttl = Some(Duration::from_secs(ttl.into()));
                if !addresses.is_empty() {
                    return Ok(Some(ResolvedAddresses { addresses, ttl }));
                }
            }
        }
    }
    Ok(None)
}

async fn ask(server: SocketAddr, name: &str, kind: Rtype) -> std::io::Result<DnsAnswer> {
    let question = question(name, kind).ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = (question.len() as u16).to_be_bytes().to_vec();
    framed.extend(&question);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    let broken = || std::io::Error::new(std::io::ErrorKind::InvalidData, "what it sends is no answer");
    addresses(&answer, &question).ok_or_else(broken)
}
