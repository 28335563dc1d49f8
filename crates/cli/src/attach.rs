//! How clients find a served volume: the NBD URI of a place, and the commands that attach it.

use crate::listen::Place;
use std::fmt::Write;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

/// The NBD URI of an export at `place`; the empty name is the default one's.
pub(crate) fn uri(place: &Place, export: &str) -> String {
    let export = escaped(export.as_bytes());
    match place {
        Place::Unix(path) => format!("nbd+unix:///{export}?socket={}", escaped(path.as_os_str().as_bytes())),
        Place::Tcp(address) => format!("nbd://{address}/{export}"),
    }
}

/// One command a line, each a whole way to use an export at `place`, for a shell.
pub(crate) fn commands(place: &Place, export: &str, read_only: bool) -> Vec<String> {
    let uri = quoted(&uri(place, export));
    let kernel = match place {
        Place::Unix(path) => format!("-unix {}", quoted(&path.to_string_lossy())),
        Place::Tcp(address) => format!("{} {}", shown_host(address.ip()), address.port()),
    };
    let name = if export.is_empty() { String::new() } else { format!(" -name {}", quoted(export)) };
    let only_if_read_only = |option| if read_only { option } else { "" };
    let (fuse, qemu, client) =
        (only_if_read_only(" --readonly"), only_if_read_only(",readonly=on"), only_if_read_only(" -readonly"));
    let loops = only_if_read_only(" --read-only");
    vec![
        format!("nbdinfo {uri}"),
        format!(
            "mkdir -p /tmp/tide; nbdfuse{fuse} /tmp/tide/disk {uri} & \
             until [ -e /tmp/tide/disk ]; do sleep 0.1; done; losetup --find --show{loops} /tmp/tide/disk"
        ),
        format!("qemu-system-x86_64 -drive format=raw,if=virtio{qemu},file={uri}"),
        format!("nbd-client {kernel} /dev/nbd0{name}{client}"),
    ]
}

/// Bytes that a URI's path and query may hold as they are.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte)
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        if is_plain(*byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes all");
        }
    }
    text
}

/// `text` as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An address clients can connect to: a server on every address is reached on this machine's own.
fn shown_host(ip: IpAddr) -> String {
    if ip.is_unspecified() { "localhost".to_owned() } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_a_query_may_not_hold() {
        let place = Place::Unix("/run/a b&c%ü.sock".into());
        assert_eq!(uri(&place, ""), "nbd+unix:///?socket=/run/a%20b%26c%25%C3%BC.sock");
        assert_eq!(uri(&Place::Tcp("[::1]:7".parse().expect("an address")), "a b"), "nbd://[::1]:7/a%20b");
    }

    #[test]
    fn a_quote_in_a_path_stays_in_its_word() {
        let commands = commands(&Place::Unix("/run/it's.sock".into()), "", false);
        assert!(commands.iter().any(|command| command.contains(r"'/run/it'\''s.sock'")), "{commands:?}");
    }
}
