//! Socket addresses as C structures: `sockaddr_in` and `sockaddr_in6`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Parses the bytes of a `sockaddr_in` or `sockaddr_in6`. Returns `None` for another family, or for too few bytes.
pub(crate) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let at = |offset: usize| {
        Some(u16::from_be_bytes([
            *bytes.get(offset)?,
            *bytes.get(offset + 1)?,
        ]))
    };
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = at(2)?;
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope: [u8; 4] = bytes.get(24..28)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(scope);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let mut four = vec![0; 16];
        four[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        four[2..8].copy_from_slice(&[0x12, 0x34, 10, 0, 0, 1]);
        assert_eq!(parse(&four), "10.0.0.1:4660".parse().ok());
        let mut six = vec![0; 28];
        six[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        six[2..4].copy_from_slice(&[0, 80]);
        six[23] = 1;
        assert_eq!(parse(&six), "[::1]:80".parse().ok());
    }

    #[test]
    fn other_bytes_are_no_address() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[1, 0, 0, 0]), None);
        let short = (libc::AF_INET6 as u16).to_ne_bytes();
        assert_eq!(parse(&[short[0], short[1], 0, 80, 0, 0, 0, 0]), None);
    }
}
