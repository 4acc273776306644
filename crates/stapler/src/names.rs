//! From a responder's name to its addresses: `hosts`, and the servers of names that `resolv.conf` has.
//!
//! Runs in: the stapler. Untrusted input: answers of servers of names. Must never: send a datagram, which the jail does
//! not let out: what is small enough for one goes over TCP as well (RFC 7766 5).
//!
//! LIMIT: names are looked up as they are, without `search` and `options` of `resolv.conf`: a certificate's URL is whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::base::iana::Class;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The port of servers of names.
const PORT: u16 = 53;
/// LIMIT: servers that are asked, as many as the C library asks (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
/// LIMIT: addresses of a name.
const ADDRESSES_MAX: usize = 8;

/// What is known of names without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    servers: Vec<IpAddr>,
    hosts: Vec<(String, IpAddr)>,
}

impl Names {
    /// Takes what `resolv.conf` says, in place of what it said.
    pub fn resolver(&mut self, text: &str) {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
        // A zone (`fe80::1%eth0`) names an interface, which no certificate's responder needs.
        let servers = lines.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        self.servers = servers.take(SERVERS_MAX).collect();
    }

    /// Takes what `hosts` says, in place of what it said.
    pub fn hosts(&mut self, text: &str) {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let entries = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let address: IpAddr = words.next()?.parse().ok()?;
            Some(words.map(move |name| (name.to_ascii_lowercase(), address)))
        });
        self.hosts = entries.flatten().collect();
    }

    /// The addresses of a name, at least one.
    ///
    /// # Errors
    /// Why there is none, in words that continue "its name".
    pub async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let known: Vec<IpAddr> =
            self.hosts.iter().filter(|(known, _)| known == name).map(|(_, address)| *address).collect();
        if !known.is_empty() {
            return Ok(known);
        }
        // RFC 6761 6.3: never asked of a server.
        if name == "localhost" {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let mut why = "cannot be looked up: `/etc/resolv.conf` names no server".to_owned();
        for server in &self.servers {
            match ask_both(SocketAddr::new(*server, PORT), name).await {
                Ok(found) if found.is_empty() => why = format!("has no address that is good, says {server}"),
                Ok(found) => return Ok(found),
                Err(error) => why = format!("cannot be looked up: {server}: {error}"),
            }
        }
        Err(why)
    }
}

async fn ask_both(server: SocketAddr, name: &str) -> std::io::Result<Vec<IpAddr>> {
    let mut found = ask(server, name, Rtype::A).await?;
    if found.is_empty() {
        found = ask(server, name, Rtype::AAAA).await?;
    }
    found.retain(is_good);
    found.truncate(ADDRESSES_MAX);
    Ok(found)
}

async fn ask(server: SocketAddr, name: &str, kind: Rtype) -> std::io::Result<Vec<IpAddr>> {
    // On a connection of its own, a question needs no number that nobody can guess.
    let question = question(name, kind).ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&(question.len() as u16).to_be_bytes()).await?;
    stream.write_all(&question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    addresses(&answer, &question).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// A question of a server of names.
pub fn question(name: &str, kind: Rtype) -> Option<Vec<u8>> {
    let name: Name<Vec<u8>> = name.parse().ok()?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    builder.push((&name, kind, Class::IN)).ok()?;
    Some(builder.finish())
}

/// The addresses in a server's answer to `question`; `None` if it is none.
pub fn addresses(answer: &[u8], question: &[u8]) -> Option<Vec<IpAddr>> {
    let (answer, question) = (Message::from_octets(answer).ok()?, Message::from_octets(question).ok()?);
    if !answer.is_answer(&question) {
        return None;
    }
    let Some(owner) = answer.canonical_name() else { return Some(Vec::new()) };
    let section = answer.answer().ok()?;
    // What is broken anywhere is nothing at all.
    let four: Vec<_> = section.limit_to_in::<A>().collect::<Result<_, _>>().ok()?;
    let six: Vec<_> = section.limit_to_in::<Aaaa>().collect::<Result<_, _>>().ok()?;
    let four =
        four.iter().filter(|record| record.owner() == &owner).map(|record| record.data().addr().into());
    let six = six.iter().filter(|record| record.owner() == &owner).map(|record| record.data().addr().into());
    Some(four.chain(six).take(ADDRESSES_MAX).collect())
}

/// Whether a server of names may send us there: to this machine, to its neighbours on the wire or to many at once only
/// the operator may, by an address in the certificate or by `hosts`. An authority of a company's own is in its network,
/// so private addresses are good.
fn is_good(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast())
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_good(&IpAddr::V4(v4)),
            None => {
                !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast())
            }
        },
    }
}

#[cfg(test)]
mod tests;
