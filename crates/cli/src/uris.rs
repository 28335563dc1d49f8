//! How clients find a served volume: the NBD URI of a place, and the commands that attach it.

use crate::listen::Place;
use crate::shell::{quoted, word};
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

/// How TCP connections are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not at all.
    None,
    /// By TLS.
    Tls,
}

/// Where clients' certificates lie, in the commands that are printed: QEMU and libnbd look into a folder.
const CERTIFICATES: &str = "/etc/pki/qemu";

/// The NBD URI of an export at `place`; the empty name is the default one's.
pub(crate) fn uri(place: &Place, export: &str, protection: Protection) -> String {
    match place {
        Place::Unix(path) => {
            let (export, path) = (escaped(export.as_bytes()), escaped(path.as_os_str().as_bytes()));
            format!("nbd+unix:///{export}?socket={path}")
        }
        Place::Tcp(address) => tcp_uri(&address.to_string(), export, protection),
    }
}

fn tcp_uri(authority: &str, export: &str, protection: Protection) -> String {
    let scheme = if protection == Protection::Tls { "nbds" } else { "nbd" };
    format!("{scheme}://{authority}/{}", escaped(export.as_bytes()))
}

/// One command a line, each a whole way to use an export at `place`, for a shell.
pub(crate) fn commands(place: &Place, export: &str, protection: Protection, read_only: bool) -> Vec<String> {
    let uri = match place {
        // A certificate is for a name, and nobody is called like every address.
        Place::Tcp(address) if address.ip().is_unspecified() => {
            tcp_uri(&format!("localhost:{}", address.port()), export, protection)
        }
        _ => uri(place, export, protection),
    };
    let (libnbd, qemu, kernel) = match (place, protection) {
        (Place::Unix(path), _) => (quoted(&uri), format!("file={}", quoted(&uri)), format!("-unix {}", word(path))),
        (Place::Tcp(address), Protection::None) => {
            (quoted(&uri), format!("file={}", quoted(&uri)), shown_address(*address))
        }
        (Place::Tcp(address), Protection::Tls) => (
            quoted(&format!("{uri}?tls-certificates={CERTIFICATES}")),
            encrypted_drive(*address, export),
            format!("{} -cacertfile {CERTIFICATES}/ca-cert.pem", shown_address(*address)),
        ),
    };
    let only_if_read_only = |option| if read_only { option } else { "" };
    let (fuse, drive, client) =
        (only_if_read_only(" --readonly"), only_if_read_only(",readonly=on"), only_if_read_only(" -readonly"));
    let loops = only_if_read_only(" --read-only");
    let name = if export.is_empty() { String::new() } else { format!(" -name {}", quoted(export)) };
    vec![
        format!("nbdinfo {libnbd}"),
        format!(
            "mkdir -p /tmp/tide; nbdfuse{fuse} /tmp/tide/disk {libnbd} & \
             until [ -e /tmp/tide/disk ]; do sleep 0.1; done; losetup --find --show{loops} /tmp/tide/disk"
        ),
        format!("qemu-system-x86_64 -drive format=raw,if=virtio{drive},{qemu}"),
        format!("nbd-client {kernel} /dev/nbd0{name}{client}"),
    ]
}

/// The rest of QEMU's drive that is encrypted, and the object it needs.
fn encrypted_drive(address: SocketAddr, export: &str) -> String {
    let (host, port) = (shown_host(address), address.port());
    let drive = format!("file.driver=nbd,file.host={host},file.port={port},file.tls-creds=tls");
    let name = if export.is_empty() { String::new() } else { format!(",file.export={}", quoted(export)) };
    format!("{drive}{name} -object tls-creds-x509,id=tls,endpoint=client,dir={CERTIFICATES}")
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

/// An address clients can connect to, and its port: a server on every address is reached on this machine's own.
fn shown_address(address: SocketAddr) -> String {
    format!("{} {}", shown_host(address), address.port())
}

fn shown_host(address: SocketAddr) -> String {
    let ip = address.ip();
    if ip.is_unspecified() { "localhost".to_owned() } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_a_query_may_not_hold() {
        let place = Place::Unix("/run/a b&c%ü.sock".into());
        assert_eq!(uri(&place, "", Protection::None), "nbd+unix:///?socket=/run/a%20b%26c%25%C3%BC.sock");
        assert_eq!(
            uri(&Place::Tcp("[::1]:7".parse().expect("an address")), "a b", Protection::None),
            "nbd://[::1]:7/a%20b"
        );
    }

    #[test]
    fn encrypted_ports_are_shown_with_certificates_and_unix_sockets_without() {
        let port = Place::Tcp("10.0.0.1:7".parse().expect("an address"));
        assert_eq!(uri(&port, "", Protection::Tls), "nbds://10.0.0.1:7/");
        let commands = commands(&port, "db", Protection::Tls, true);
        assert!(commands[0].ends_with("'nbds://10.0.0.1:7/db?tls-certificates=/etc/pki/qemu'"), "{commands:?}");
        assert!(commands[2].contains("file.export='db' -object tls-creds-x509"), "{commands:?}");
        assert!(commands[3].contains("-cacertfile") && commands[3].ends_with("-readonly"), "{commands:?}");
        assert!(uri(&Place::Unix("/s".into()), "", Protection::Tls).starts_with("nbd+unix:"));
    }

    #[test]
    fn a_server_on_every_address_is_reached_by_a_name_that_certificates_have() {
        for every in ["0.0.0.0:7", "[::]:7"] {
            let port = Place::Tcp(every.parse().expect("an address"));
            let commands = commands(&port, "", Protection::Tls, false);
            assert!(commands[0].contains("'nbds://localhost:7/?tls-certificates="), "{commands:?}");
            assert!(commands[2].contains("file.host=localhost,file.port=7"), "{commands:?}");
            assert!(
                commands.iter().all(|command| !command.contains("0.0.0.0") && !command.contains("::")),
                "{commands:?}"
            );
        }
    }

    #[test]
    fn a_quote_in_a_path_stays_in_its_word() {
        let commands = commands(&Place::Unix("/run/it's.sock".into()), "", Protection::Tls, false);
        assert!(commands.iter().any(|command| command.contains(r"'/run/it'\''s.sock'")), "{commands:?}");
    }
}
