//! Names, with a server of names on this machine.

use std::time::Duration;

use domain::base::iana::Rcode;
use domain::rdata::Cname;
use tokio::net::TcpListener;

use super::*;

const NAME: &str = "ocsp.example.test";

#[test]
fn resolv_conf() {
    let mut names = Names::default();
    names.resolver(
        "# c\nsearch example.test\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # c\n\
         nameserver fe80::1%eth0\nnameserver\nnameserver 192.0.2.2\nnameserver 192.0.2.3\noptions edns0\n",
    );
    let servers: Vec<IpAddr> = ["192.0.2.1", "2001:db8::1", "192.0.2.2"].map(|ip| ip.parse().unwrap()).into();
    assert_eq!(names.servers, servers);
    names.resolver("");
    assert!(names.servers.is_empty());
}

#[tokio::test]
async fn hosts_are_asked_first() {
    let mut names = Names::default();
    let localhost = names.look_up("localhost").await.unwrap();
    assert!(localhost.iter().all(IpAddr::is_loopback));
    names.hosts(
        "127.0.0.1 localhost\n# 192.0.2.9 other\n192.0.2.1\tOCSP.example.test alias # c\nx y\n::1 alias\n",
    );
    assert_eq!(names.look_up(NAME).await.unwrap(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(names.look_up("alias").await.unwrap().len(), 2);
    let why = names.look_up("other").await.unwrap_err();
    assert!(why.contains("names no server"), "{why}");
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
            IpAddr::V4(v4) => builder.push((&alias, 9, A::new(v4))).unwrap(),
            IpAddr::V6(v6) => builder.push((&alias, 9, Aaaa::new(v6))).unwrap(),
        }
    }
    // Of another name: nobody has asked.
    let other: Name<Vec<u8>> = "c.test".parse().unwrap();
    builder.push((&other, 9, A::new(Ipv4Addr::new(192, 0, 2, 99)))).unwrap();
    builder.finish()
}

/// A server that knows these addresses of each kind; it serves two questions.
async fn server(four: &'static [&'static str], six: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let kind = Message::from_octets(&question).unwrap().qtype().unwrap();
            let found = if kind == Rtype::A { four } else { six };
            let answer = answer(&question, found, Rcode::NOERROR);
            stream.write_all(&(answer.len() as u16).to_be_bytes()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    });
    address
}

async fn found(four: &'static [&'static str], six: &'static [&'static str]) -> Vec<String> {
    let server = server(four, six).await;
    let found = tokio::time::timeout(Duration::from_secs(20), ask_both(server, NAME)).await;
    found.unwrap().unwrap().iter().map(IpAddr::to_string).collect()
}

#[tokio::test]
async fn servers_are_asked_over_tcp() {
    assert_eq!(found(&["192.0.2.1", "10.1.2.3"], &[]).await, ["192.0.2.1", "10.1.2.3"]);
    assert_eq!(found(&[], &["2001:db8::1"]).await, ["2001:db8::1"]);
    assert!(found(&[], &[]).await.is_empty());
}

#[tokio::test]
async fn a_server_of_names_sends_nobody_to_this_machine() {
    let bad = &["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"];
    assert!(found(bad, &[]).await.is_empty());
    let bad = &["::1", "fe80::1", "::", "ff02::1", "::ffff:127.0.0.1"];
    assert!(found(&[], bad).await.is_empty());
}

#[test]
fn what_is_no_answer_to_the_question() {
    let asked = question(NAME, Rtype::A).unwrap();
    let good = answer(&asked, &["192.0.2.1"], Rcode::NOERROR);
    assert_eq!(addresses(&good, &asked).unwrap().len(), 1);
    let other = question("other.test", Rtype::A).unwrap();
    assert_eq!(addresses(&answer(&other, &["192.0.2.1"], Rcode::NOERROR), &asked), None);
    assert_eq!(addresses(&asked, &asked), None, "a question is none");
    for end in 0..good.len() {
        assert!(addresses(&good[..end], &asked).is_none_or(|found| found.is_empty()), "{end}");
    }
    let many: Vec<&str> = vec!["192.0.2.1"; 50];
    assert_eq!(addresses(&answer(&asked, &many, Rcode::NOERROR), &asked).unwrap().len(), ADDRESSES_MAX);
    assert!(question("a..b", Rtype::A).is_none());
}
