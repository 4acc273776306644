//! Names, with a DNS server on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa, Cname};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::ask::ask_both;
use crate::{
    ADDRESSES_MAX, DnsAnswer, LocalNames, ResolveError, ResolvedAddresses, Search, addresses, question,
};

const NAME: &str = "ocsp.example.test";

#[test]
fn resolv_conf() {
    let mut names = LocalNames::default();
    names.resolver(
        "# c\nsearch example.test\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # c\n\
         nameserver fe80::1%eth0\nnameserver\nnameserver 192.0.2.2\nnameserver 192.0.2.3\noptions edns0\n",
    );
    let servers: Vec<SocketAddr> =
        ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"].map(|at| at.parse().unwrap()).into();
    assert_eq!(names.servers, servers);
    assert_eq!((names.domains.join(" "), names.ndots), ("example.test".into(), None));
    names.resolver("domain A.test\nsearch b.test. c.test\noptions edns0 ndots:99\noptions rotate\n");
    assert_eq!(
        (names.servers.len(), names.domains.join(" "), names.ndots),
        (0, "b.test c.test".into(), Some(15))
    );
    names.resolver("");
    assert_eq!(names, LocalNames::default());
}

#[tokio::test]
async fn hosts_are_asked_first() {
    let mut names = LocalNames::default();
    for local in ["localhost", "app.localhost", "localhost."] {
        let found = names.look_up(local, Search::Never).await.unwrap();
        assert!(found.addresses.iter().all(IpAddr::is_loopback) && found.ttl.is_none());
    }
    names.hosts(
        "127.0.0.1 localhost\n# 192.0.2.9 other\n192.0.2.1\tOCSP.example.test alias # c\nx y\n::1 alias\n",
    );
    let found = names.look_up(NAME, Search::Never).await.unwrap();
    assert_eq!(found, ResolvedAddresses { addresses: vec!["192.0.2.1".parse().unwrap()], ttl: None });
    assert_eq!(names.look_up("alias", Search::Never).await.unwrap().addresses.len(), 2);
    let why = names.look_up("other", Search::Never).await.unwrap_err();
    assert!(matches!(&why, ResolveError::Failed(why) if why.contains("names no server")), "{why}");
}

/// An answer with these addresses, under an alias.
fn answer(question: &[u8], found: &[&str], code: Rcode) -> Vec<u8> {
    let question = Message::from_octets(question).unwrap();
    let mut builder = MessageBuilder::new_vec().start_answer(&question, code).unwrap();
    let (owner, alias): (Name<Vec<u8>>, Name<Vec<u8>>) = (NAME.parse().unwrap(), "b.test".parse().unwrap());
    if !found.is_empty() {
        builder.push((&owner, 9, Cname::new(&alias))).unwrap();
    }
    for address in found {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => builder.push((&alias, 60, A::new(v4))).unwrap(),
            IpAddr::V6(v6) => builder.push((&alias, 60, Aaaa::new(v6))).unwrap(),
        }
    }
    // Of another name: nobody has asked.
    let other: Name<Vec<u8>> = "c.test".parse().unwrap();
    builder.push((&other, 9, A::new(Ipv4Addr::new(192, 0, 2, 99)))).unwrap();
    builder.finish()
}

/// The answers of a server of one name: how it alters its answer to a question for addresses of a kind.
type Sent = fn(&[u8], Rtype) -> Vec<u8>;

/// A server on this machine.
async fn server(sent: Sent) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let kind = Message::from_octets(&question).unwrap().qtype().unwrap();
            let answer = sent(&question, kind);
            stream.write_all(&(answer.len() as u16).to_be_bytes()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    address
}

async fn asked(sent: Sent) -> Result<Vec<String>, String> {
    let server = server(sent).await;
    let found = tokio::time::timeout(Duration::from_secs(20), ask_both(server, NAME)).await.unwrap()?;
    Ok(found.map_or_else(Vec::new, |found| found.addresses.iter().map(IpAddr::to_string).collect()))
}

#[tokio::test]
async fn servers_are_asked_over_tcp() {
    let four: Sent = |question, kind| {
        answer(question, if kind == Rtype::A { &["192.0.2.1", "10.1.2.3"] } else { &[] }, Rcode::NOERROR)
    };
    assert_eq!(asked(four).await.unwrap(), ["192.0.2.1", "10.1.2.3"]);
    let six: Sent = |question, kind| {
        answer(question, if kind == Rtype::A { &[] } else { &["2001:db8::1"] }, Rcode::NOERROR)
    };
    assert_eq!(asked(six).await.unwrap(), ["2001:db8::1"]);
    assert!(asked(|question, _| answer(question, &[], Rcode::NOERROR)).await.unwrap().is_empty());
    assert!(asked(|question, _| answer(question, &[], Rcode::NXDOMAIN)).await.unwrap().is_empty());
    let why = asked(|question, _| answer(question, &[], Rcode::SERVFAIL)).await.unwrap_err();
    assert_eq!(why, "it answers SERVFAIL");
    let why = asked(|question, _| question.to_vec()).await.unwrap_err();
    assert_eq!(why, "what it sends is no answer");
    assert!(asked(|_, _| Vec::new()).await.is_err());
}

#[tokio::test]
async fn a_dns_server_sends_nobody_to_this_machine() {
    let four: Sent = |question, _| {
        let bad = ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"];
        answer(question, &bad, Rcode::NOERROR)
    };
    assert!(asked(four).await.unwrap().is_empty());
    let six: Sent = |question, _| {
        answer(question, &["::1", "fe80::1", "::", "ff02::1", "::ffff:127.0.0.1"], Rcode::NOERROR)
    };
    assert!(asked(six).await.unwrap().is_empty());
}

#[tokio::test]
async fn short_names_are_searched_and_a_failure_ends_the_search() {
    // One that has NAME and nothing else.
    let only: Sent = |question, _| {
        let name = Message::from_octets(question).unwrap().first_question().unwrap().into_qname().to_string();
        match name.as_str() {
            NAME => answer(question, &["192.0.2.1"], Rcode::NOERROR),
            "ocsp.broken.test" => answer(question, &[], Rcode::SERVFAIL),
            _ => answer(question, &[], Rcode::NXDOMAIN),
        }
    };
    let mut names = LocalNames::default();
    names.resolver("search other.test example.test\n");
    names.servers = vec![server(only).await];
    let found = names.look_up("ocsp", Search::Short).await.unwrap();
    assert_eq!(found.ttl, Some(Duration::from_secs(9)));
    assert!(names.look_up(NAME, Search::Short).await.is_ok());
    for (absent, search) in [("ocsp", Search::Never), ("ocsp.", Search::Short), ("a.ocsp", Search::Short)] {
        let why = names.look_up(absent, search).await.unwrap_err();
        assert!(matches!(why, ResolveError::Absent(_)), "{absent}: {why}");
    }
    names.domains.insert(0, "broken.test".into());
    assert!(matches!(names.look_up("ocsp", Search::Short).await, Err(ResolveError::Failed(_))));
    names.domains.remove(0);
    // A server that is not there is passed over.
    names.servers.insert(0, "127.0.0.1:1".parse().unwrap());
    assert!(names.look_up("ocsp", Search::Short).await.is_ok());
}

/// How many addresses an answer has.
fn count(answer: &[u8], question: &[u8]) -> Option<usize> {
    addresses(answer, question).map(|found| match found {
        DnsAnswer::Addresses(found, _) => found.len(),
        _ => 0,
    })
}

#[test]
fn what_is_no_answer_to_the_question() {
    let asked = question(NAME, Rtype::A).unwrap();
    let good = answer(&asked, &["192.0.2.1"], Rcode::NOERROR);
    assert_eq!(count(&good, &asked), Some(1));
    let other = question("other.test", Rtype::A).unwrap();
    assert_eq!(addresses(&answer(&other, &["192.0.2.1"], Rcode::NOERROR), &asked), None);
    let mut other = good.clone();
    other[1] ^= 1;
    assert_eq!(addresses(&other, &asked), None, "another identifier");
    assert_eq!(addresses(&asked, &asked), None, "a question is none");
    for end in 0..good.len() {
        assert!(count(&good[..end], &asked).is_none_or(|found| found == 0), "{end}");
    }
    let many: Vec<&str> = vec!["192.0.2.1"; 50];
    assert_eq!(count(&answer(&asked, &many, Rcode::NOERROR), &asked), Some(ADDRESSES_MAX));
    assert!(question("a..b", Rtype::A).is_none());
}

#[test]
fn identifiers_differ() {
    let ids: std::collections::BTreeSet<_> =
        (0..20).map(|_| question(NAME, Rtype::A).unwrap()[..2].to_vec()).collect();
    assert!(ids.len() > 15);
}

#[test]
fn a_circle_of_aliases_ends() {
    let asked = question(NAME, Rtype::A).unwrap();
    let question = Message::from_octets(&asked).unwrap();
    let mut builder = MessageBuilder::new_vec().start_answer(&question, Rcode::NOERROR).unwrap();
    let (one, two): (Name<Vec<u8>>, Name<Vec<u8>>) = (NAME.parse().unwrap(), "b.test".parse().unwrap());
    builder.push((&one, 9, Cname::new(&two))).unwrap();
    builder.push((&two, 9, Cname::new(&one))).unwrap();
    builder.push((&one, 9, A::new(Ipv4Addr::new(192, 0, 2, 1)))).unwrap();
    assert!(matches!(addresses(&builder.finish(), &asked), Some(DnsAnswer::Failed(_))));
}
