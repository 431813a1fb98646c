//! The choice of the GID that a port announces to peers.
//!
//! InfiniBand has one GID that matters. RoCE has one for each version and each IP address of the
//! network interface behind the port. Most fabrics route version 2 with an IPv4 address.

use std::{fs, path::PathBuf};

/// The kinds of GID, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GidKind {
    /// RoCE version 2, an IPv4 address.
    RoceV2Ip4,
    /// RoCE version 2, a routed IPv6 address.
    RoceV2Ip6,
    /// RoCE version 2, a link-local IPv6 address.
    RoceV2Link,
    /// RoCE version 1, or InfiniBand's own.
    Plain,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GidEntry {
    pub(crate) index: u8,
    pub(crate) gid: [u8; 16],
    pub(crate) kind: GidKind,
}

/// Returns the GID entry that was asked for, or else the best one.
pub(crate) fn choose(device: &str, port: u8, entries: i32, wanted: Option<u8>) -> Option<GidEntry> {
    let base = PathBuf::from(format!("/sys/class/infiniband/{device}/ports/{port}"));
    let read = |path: String| fs::read_to_string(base.join(path)).unwrap_or_default();
    (0..u8::try_from(entries).unwrap_or(u8::MAX))
        .filter(|index| wanted.is_none_or(|wanted| wanted == *index))
        .filter_map(|index| {
            let gid = parse(read(format!("gids/{index}")).trim())?;
            let kind = kind(read(format!("gid_attrs/types/{index}")).trim(), gid);
            Some(GidEntry { index, gid, kind })
        })
        .min_by_key(|entry| (entry.kind, entry.index))
}

fn kind(text: &str, gid: [u8; 16]) -> GidKind {
    if !text.eq_ignore_ascii_case("RoCE v2") {
        GidKind::Plain
    } else if gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) {
        GidKind::RoceV2Ip4
    } else if gid[0] == 0xfe && gid[1] & 0xc0 == 0x80 {
        GidKind::RoceV2Link
    } else {
        GidKind::RoceV2Ip6
    }
}

/// Parses eight groups of four hexadecimal digits. An entry of zeros is empty.
fn parse(text: &str) -> Option<[u8; 16]> {
    let mut gid = [0; 16];
    let mut groups = text.split(':');
    for pair in gid.chunks_exact_mut(2) {
        let group = u16::from_str_radix(groups.next()?, 16).ok()?;
        pair.copy_from_slice(&group.to_be_bytes());
    }
    (groups.next().is_none() && gid != [0; 16]).then_some(gid)
}

/// Formats a GID like an IPv6 address.
pub(crate) fn show(gid: [u8; 16]) -> String {
    std::net::Ipv6Addr::from(gid).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_in_the_format_of_the_kernel_are_parsed() {
        let gid = parse("0000:0000:0000:0000:0000:ffff:0a4d:0001").unwrap();
        assert_eq!(gid[10..], [0xff, 0xff, 10, 77, 0, 1]);
        assert_eq!(kind("RoCE v2", gid), GidKind::RoceV2Ip4);
        assert_eq!(kind("IB/RoCE v1", gid), GidKind::Plain);
        assert_eq!(show(gid), "::ffff:10.77.0.1");
        let link = parse("fe80:0000:0000:0000:3c6a:9fff:fe6c:eee6").unwrap();
        assert_eq!(kind("RoCE v2", link), GidKind::RoceV2Link);
        assert_eq!(kind("RoCE v2", [0x20; 16]), GidKind::RoceV2Ip6);
        assert_eq!(parse("0000:0000:0000:0000:0000:0000:0000:0000"), None);
        assert_eq!(parse("fe80:0000"), None);
        assert_eq!(parse("fe80::1:2:3:4:5:6:7:8:9"), None);
    }

    #[test]
    fn routed_version_2_comes_first() {
        let mut kinds = [
            GidKind::Plain,
            GidKind::RoceV2Link,
            GidKind::RoceV2Ip4,
            GidKind::RoceV2Ip6,
        ];
        kinds.sort_unstable();
        assert_eq!(kinds[0], GidKind::RoceV2Ip4);
        assert_eq!(kinds[3], GidKind::Plain);
    }
}
