//! Which listener an address reaches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use socket2::SockAddr;

/// Whether somebody who listens on `listening` is reached by `address`.
pub(super) fn covers(listening: &SockAddr, address: &SockAddr) -> bool {
    if listening == address {
        return true;
    }
    match (listening.as_socket(), address.as_socket()) {
        (Some(listening), Some(address)) => {
            let family_fits = listening.is_ipv6() || address.is_ipv4();
            listening.port() == address.port() && listening.ip().is_unspecified() && family_fits
        }
        _ => false,
    }
}

pub(super) fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_unspecified_address_is_reached_by_every_address_of_its_family() {
        let reaches = |listening: &str, address: &str| {
            let [listening, address] =
                [listening, address].map(|text| SockAddr::from(text.parse::<SocketAddr>().unwrap()));
            covers(&listening, &address)
        };
        assert!(reaches("127.0.0.1:80", "127.0.0.1:80"));
        assert!(reaches("0.0.0.0:80", "10.1.2.3:80"));
        assert!(reaches("[::]:80", "[::1]:80"));
        assert!(reaches("[::]:80", "127.0.0.1:80"));
        assert!(!reaches("0.0.0.0:80", "[::1]:80"));
        assert!(!reaches("0.0.0.0:80", "127.0.0.1:81"));
        assert!(!reaches("127.0.0.1:80", "127.0.0.2:80"));
    }
}
