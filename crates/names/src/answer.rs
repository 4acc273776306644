//! Questions to DNS servers, and their answers (RFC 1035 4).
//!
//! Untrusted input: every byte of an answer. Must never: believe a record that is not of the name that was asked for,
//! or of one that its aliases lead to.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa, Cname};

use crate::ADDRESSES_MAX;

/// A DNS server's answer about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// These addresses, at least one, and for how many seconds they may be used.
    Addresses(Vec<IpAddr>, u32),
    /// There is no such name, or it has no address of the kind.
    Absent,
    /// It does not say, and why not.
    Failed(String),
}

/// A question for the addresses of a kind that a name has.
pub fn question(name: &str, kind: Rtype) -> Option<Vec<u8>> {
    let name: Name<Vec<u8>> = name.parse().ok()?;
    let mut builder = MessageBuilder::new_vec();
    // The connection says already whose answer it is; an identifier that nobody can guess costs nothing.
    builder.header_mut().set_id(RandomState::new().hash_one(0u8) as u16);
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    builder.push((&name, kind, Class::IN)).ok()?;
    Some(builder.finish())
}

/// Reads a server's answer to `question`; `None` if it is no answer to that.
pub fn addresses(answer: &[u8], question: &[u8]) -> Option<DnsAnswer> {
    let (answer, question) = (Message::from_octets(answer).ok()?, Message::from_octets(question).ok()?);
    if !answer.is_answer(&question) {
        return None;
    }
    match answer.header().rcode() {
        Rcode::NOERROR => {}
        Rcode::NXDOMAIN => return Some(DnsAnswer::Absent),
        other => return Some(DnsAnswer::Failed(format!("it answers {other}"))),
    }
    // LIMIT: 20 aliases in a row, by the library.
    let Some(owner) = answer.canonical_name() else {
        return Some(DnsAnswer::Failed("its answer is a circle of aliases".into()));
    };
    let section = answer.answer().ok()?;
    // An answer that is broken anywhere is nothing at all.
    let aliases: Vec<_> = section.limit_to_in::<Cname<_>>().collect::<Result<_, _>>().ok()?;
    let four: Vec<_> = section.limit_to_in::<A>().collect::<Result<_, _>>().ok()?;
    let six: Vec<_> = section.limit_to_in::<Aaaa>().collect::<Result<_, _>>().ok()?;
    let four = four.iter().filter(|record| record.owner() == &owner);
    let four = four.map(|record| (IpAddr::from(record.data().addr()), record.ttl()));
    let six = six.iter().filter(|record| record.owner() == &owner);
    let six = six.map(|record| (IpAddr::from(record.data().addr()), record.ttl()));
    let (found, times): (Vec<IpAddr>, Vec<_>) = four.chain(six).take(ADDRESSES_MAX).unzip();
    let times = times.into_iter().chain(aliases.iter().map(|alias| alias.ttl()));
    match times.min() {
        Some(time) if !found.is_empty() => Some(DnsAnswer::Addresses(found, time.as_secs())),
        _ => Some(DnsAnswer::Absent),
    }
}

/// Whether a DNS server may send us there: to this machine, to its neighbours on the wire (which have the metadata of a
/// cloud's machine) or to many at once only the operator may, by an address or by `hosts`. Private addresses are good:
/// servers of one's own are in a network of one's own.
pub(crate) fn is_good(address: &IpAddr) -> bool {
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
