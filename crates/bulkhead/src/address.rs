//! Addresses as people type them after `--listen` and `--bind`.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words. Never: resolves a name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads `8080`, `:8080`, `127.0.0.1:8080` or `[::1]:8080`; without an address, this machine only is meant.
///
/// # Errors
/// What an address looks like.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    read(text, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The same, but without an address every one of this machine is meant.
///
/// # Errors
/// What an address looks like.
pub fn parse_public(text: &str) -> Result<SocketAddr, String> {
    read(text, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

fn read(text: &str, local: IpAddr) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let address = match port.parse::<u16>() {
        Ok(port) => SocketAddr::new(local, port),
        Err(_) => text.parse::<SocketAddr>().map_err(|_| {
            format!("{text:?} is not an address; write 8080, :8080, 127.0.0.1:8080 or [::1]:8080")
        })?,
    };
    if address.port() == 0 {
        return Err("port 0 means \"any\", and nobody would find it; choose 1 to 65535".into());
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_usual_forms() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            (":81", "127.0.0.1:81"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:8443", "[::1]:8443"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), address);
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", ":", "0", ":0", "localhost:80", "::1", "127.0.0.1", "65536", "-1", "1.2.3.4:0"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
