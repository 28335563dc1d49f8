//! How clients find a served volume: the NBD URI of a place, and the commands that attach it.
//!
//! A command that attaches a volume takes nothing that another one may have: it makes a folder that
//! is named after the volume and its URI, and ends if that is there, and it takes an NBD device
//! that is free. It makes a file system only on a volume that is all zero when the command runs.

use serde::Serialize;
use std::ffi::OsStr;
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tidegate_host::shell::{quoted, word};
use tidegate_server::sockets::listen::ListenAddress;
use uuid::Uuid;

/// How TCP connections are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// By TLS.
    Tls,
}

/// Where clients' certificates lie, in the commands that are printed: QEMU and libnbd look into a
/// folder.
const CERTIFICATES: &str = "/etc/pki/qemu";

/// The NBD URI of an export at `place`; the empty name is the default one's.
pub fn uri(place: &ListenAddress, export: &str, protection: Protection) -> String {
    match place {
        ListenAddress::Unix(path) => {
            let (export, path) = (escaped(export.as_bytes()), escaped(path.as_os_str().as_bytes()));
            format!("nbd+unix:///{export}?socket={path}")
        }
        ListenAddress::Tcp(address) => tcp_uri(&address.to_string(), export, protection),
    }
}

fn tcp_uri(authority: &str, export: &str, protection: Protection) -> String {
    let scheme = if protection == Protection::Tls { "nbds" } else { "nbd" };
    format!("{scheme}://{authority}/{}", escaped(export.as_bytes()))
}

/// An export, as the commands that attach it need to know it.
#[derive(Clone, Copy, Debug)]
pub struct Exported<'a> {
    /// What clients choose it by; the empty name is the default one's.
    pub export: &'a str,
    /// The volume's own name.
    pub name: &'a str,
    /// Which volume it is.
    pub uuid: Uuid,
    /// What may be done with it.
    pub holds: ExportContents,
}

/// What there is to be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportContents {
    /// Something, in a volume that cannot be written.
    ReadOnly,
    /// Something.
    Something,
    /// Zeroes, as far as was looked.
    Zeroes,
}

/// How to use an export, for a shell.
#[derive(Clone, Debug, Serialize)]
pub struct Attaching {
    /// One command a line, each a whole way.
    pub attach: Vec<String>,
    /// What undoes the one that mounts it.
    pub undo: String,
}

/// How to use `exported` at `place`.
pub fn attaching(place: &ListenAddress, exported: Exported<'_>, protection: Protection) -> Attaching {
    let export = exported.export;
    let uri = match place {
        // A certificate is for a name, and nobody is called like every address.
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => {
            tcp_uri(&format!("localhost:{}", address.port()), export, protection)
        }
        _ => uri(place, export, protection),
    };
    let (libnbd, qemu, kernel) = match (place, protection) {
        (ListenAddress::Unix(path), _) => {
            (quoted(&uri), format!("file={}", quoted(&uri)), format!("-unix {}", word(path)))
        }
        (ListenAddress::Tcp(address), Protection::None) => {
            (quoted(&uri), format!("file={}", quoted(&uri)), shown_address(*address))
        }
        (ListenAddress::Tcp(address), Protection::Tls) => (
            quoted(&format!("{uri}?tls-certificates={CERTIFICATES}")),
            encrypted_drive(*address, export),
            format!("{} -cacertfile {CERTIFICATES}/ca-cert.pem", shown_address(*address)),
        ),
    };
    let only_if_read_only = |option| if exported.holds == ExportContents::ReadOnly { option } else { "" };
    let (drive, client) = (only_if_read_only(",readonly=on"), only_if_read_only(" -readonly"));
    let name = if export.is_empty() { String::new() } else { format!(" -name {}", word(export)) };
    let folder = folder_of(exported, &uri);
    Attaching {
        attach: vec![
            format!("nbdinfo {libnbd}"),
            mounting(&folder, &libnbd, exported.holds),
            format!("qemu-system-x86_64 -drive format=raw,if=virtio{drive},{qemu}"),
            format!(
                "modprobe nbd && nbd=$({FREE_DEVICE}) && nbd-client {kernel} \"$nbd\"{name}{client} && \
                 echo \"attached to $nbd, which nbd-client -d $nbd detaches\""
            ),
        ],
        undo: unmounting(&folder),
    }
}

/// Starts a virtual machine whose disk is the volume at the vhost-user-blk socket `socket`: the
/// machine's memory is shared, and it waits for a server that is started again.
pub fn virtual_machine(socket: &Path) -> String {
    // In a list of options a comma stands for itself if it is doubled.
    let doubled = socket.as_os_str().as_bytes().split(|byte| *byte == b',').collect::<Vec<_>>().join(&b",,"[..]);
    format!(
        "qemu-system-x86_64 -object memory-backend-memfd,id=ram,size=1G,share=on -machine memory-backend=ram -m 1G \
         -chardev socket,id=disk,path={},reconnect=1 -device vhost-user-blk-pci,chardev=disk",
        word(OsStr::from_bytes(&doubled))
    )
}

/// Mounts the block device `device` of `exported`, as root.
pub fn block_device(device: &Path, exported: Exported<'_>) -> String {
    let (device, folder) = (word(device), folder_of(exported, &device.display().to_string()));
    let (make, options) = match exported.holds {
        ExportContents::ReadOnly => (String::new(), " -o ro"),
        ExportContents::Something => (String::new(), ""),
        ExportContents::Zeroes => (make_if_zero(&device), ""),
    };
    format!("mkdir -m 700 {folder} && {{ {make}mount{options} {device} {folder}; }}")
}

/// The first NBD device that no client uses.
const FREE_DEVICE: &str = r#"for d in /sys/block/nbd*; do [ -e "$d/pid" ] || { echo "/dev/${d##*/}"; break; }; done"#;

/// Characters of a volume's name that a folder is named after.
const NAME_CHARACTERS_MAX: usize = 32;

/// A folder that no other volume's commands use, and that is one word to a shell.
fn folder_of(exported: Exported<'_>, uri: &str) -> String {
    let is_safe = |character: &char| character.is_ascii_alphanumeric() || "-_".contains(*character);
    let name: String = exported.name.chars().filter(is_safe).take(NAME_CHARACTERS_MAX).collect();
    // FNV-1a: volumes that are copies of each other have one UUID, and a URI may be another
    // machine's on another day.
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let sum = exported.uuid.as_bytes().iter().chain(uri.as_bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
    format!("/tmp/tide-{name}{}{sum:016x}", if name.is_empty() { "" } else { "-" })
}

/// Mounts what is at `uri` below `folder`, as root. A file system is made only where every byte is
/// zero, which is looked at then.
fn mounting(folder: &str, uri: &str, holds: ExportContents) -> String {
    let (disk, mount) = (format!("{folder}/nbd/disk"), format!("{folder}/mnt"));
    let (fuse, losetup, options, make) = match holds {
        ExportContents::ReadOnly => (" --readonly", " --read-only", " -o ro", String::new()),
        ExportContents::Something => ("", "", "", String::new()),
        ExportContents::Zeroes => ("", "", "", make_if_zero("\"$loop\"")),
    };
    format!(
        "mkdir -m 700 {folder} && mkdir {folder}/nbd {mount} && {{ nbdfuse{fuse} {disk} {uri} & \
         until [ -e {disk} ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done; \
         loop=$(losetup --find --show{losetup} {disk}) && {{ {make}mount{options} \"$loop\" {mount}; }}; }}"
    )
}

/// Blocks of 4 KiB, whatever the size: below 512 MiB `mkfs.ext4` chooses 1 KiB, and a page of a
/// file may then lie across two blocks of the volume, so that a power loss tears it.
fn make_if_zero(device: &str) -> String {
    format!("cmp -s -n \"$(blockdev --getsize64 {device})\" {device} /dev/zero && mkfs.ext4 -q -b 4096 {device}; ")
}

/// Takes back what [`mounting`] did, as far as that came. What is busy stays.
fn unmounting(folder: &str) -> String {
    let (disk, mount) = (format!("{folder}/nbd/disk"), format!("{folder}/mnt"));
    format!(
        "{{ ! mountpoint -q {mount} || umount {mount}; }} && \
         losetup --noheadings --output NAME --associated {disk} | xargs -r losetup --detach && \
         fusermount3 -u -z {folder}/nbd; rmdir {folder}/nbd {mount} {folder}"
    )
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

/// An address clients can connect to, and its port: a server on every address is reached on this
/// machine's own.
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

    fn exported(export: &str, holds: ExportContents) -> Exported<'_> {
        Exported { export, name: "db", uuid: Uuid::nil(), holds }
    }

    fn commands(place: &ListenAddress, export: &str, protection: Protection, holds: ExportContents) -> Vec<String> {
        attaching(place, exported(export, holds), protection).attach
    }

    #[test]
    fn a_virtual_machine_is_given_the_socket_whatever_its_name() {
        let command = virtual_machine(Path::new("/run/a,b/c d"));
        assert!(command.contains(",path='/run/a,,b/c d',reconnect=1"), "{command}");
    }

    #[test]
    fn uris_escape_what_a_query_may_not_hold() {
        let place = ListenAddress::Unix("/run/a b&c%ü.sock".into());
        assert_eq!(uri(&place, "", Protection::None), "nbd+unix:///?socket=/run/a%20b%26c%25%C3%BC.sock");
        assert_eq!(
            uri(&ListenAddress::Tcp("[::1]:7".parse().expect("an address")), "a b", Protection::None),
            "nbd://[::1]:7/a%20b"
        );
    }

    #[test]
    fn encrypted_ports_are_shown_with_certificates_and_unix_sockets_without() {
        let port = ListenAddress::Tcp("10.0.0.1:7".parse().expect("an address"));
        assert_eq!(uri(&port, "", Protection::Tls), "nbds://10.0.0.1:7/");
        let commands = commands(&port, "db", Protection::Tls, ExportContents::ReadOnly);
        assert!(commands[0].ends_with("'nbds://10.0.0.1:7/db?tls-certificates=/etc/pki/qemu'"), "{commands:?}");
        assert!(commands[2].contains("file.export='db' -object tls-creds-x509"), "{commands:?}");
        assert!(
            commands[3].contains("-cacertfile") && commands[3].contains("\"$nbd\" -name db -readonly"),
            "{commands:?}"
        );
        assert!(uri(&ListenAddress::Unix("/s".into()), "", Protection::Tls).starts_with("nbd+unix:"));
    }

    #[test]
    fn a_server_on_every_address_is_reached_by_a_name_that_certificates_have() {
        for every in ["0.0.0.0:7", "[::]:7"] {
            let port = ListenAddress::Tcp(every.parse().expect("an address"));
            let commands = commands(&port, "", Protection::Tls, ExportContents::Zeroes);
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
        let commands =
            commands(&ListenAddress::Unix("/run/it's.sock".into()), "", Protection::Tls, ExportContents::Zeroes);
        assert!(commands.iter().any(|command| command.contains(r"'/run/it'\''s.sock'")), "{commands:?}");
    }

    #[test]
    fn each_volume_has_a_folder_of_its_own_that_is_one_word() {
        let of = |export: &'static str, name: &'static str, uuid: u128, socket: &str| {
            let exported = Exported { export, name, uuid: Uuid::from_u128(uuid), holds: ExportContents::Something };
            folder_of(exported, &uri(&ListenAddress::Unix(socket.into()), export, Protection::None))
        };
        let folders = [
            of("", "v", 7, "/a"),
            of("", "v", 7, "/b"),
            of("", "v", 8, "/a"),
            of("w", "v", 7, "/a"),
            of("", "../../etc; rm -r ~ '$x'", 7, "/a"),
            of("", "ü", 7, "/a"),
            of("", &"n".repeat(300).leak()[..], 7, "/a"),
        ];
        let different: std::collections::BTreeSet<&String> = folders.iter().collect();
        assert_eq!(different.len(), folders.len(), "{folders:?}");
        for folder in &folders {
            assert!(folder.starts_with("/tmp/tide-") && folder.len() < 100, "{folder}");
            assert!(!folder["/tmp/".len()..].contains('/') && word(folder) == *folder, "{folder}");
        }
    }

    #[test]
    fn a_block_device_is_mounted_and_a_file_system_made_only_where_all_is_zero() {
        let of = |holds| block_device(Path::new("/dev/ublkb3"), exported("", holds));
        let [read_only, something, zeroes] =
            [ExportContents::ReadOnly, ExportContents::Something, ExportContents::Zeroes].map(of);
        assert!(!read_only.contains("mkfs") && read_only.contains("mount -o ro /dev/ublkb3 /tmp/"), "{read_only}");
        assert!(!something.contains("mkfs") && something.contains("mount /dev/ublkb3 /tmp/"), "{something}");
        let made = "/dev/ublkb3 /dev/zero && mkfs.ext4 -q -b 4096 /dev/ublkb3; mount /dev/ublkb3 ";
        assert!(zeroes.starts_with("mkdir ") && zeroes.contains(" && { cmp ") && zeroes.contains(made), "{zeroes}");
    }

    #[test]
    fn a_file_system_is_made_only_where_nothing_was_found_and_looked_for_again() {
        let place = ListenAddress::Unix("/s".into());
        let mounting = |holds| commands(&place, "", Protection::None, holds).swap_remove(1);
        let [read_only, something, zeroes] =
            [ExportContents::ReadOnly, ExportContents::Something, ExportContents::Zeroes].map(mounting);
        assert!(!read_only.contains("mkfs") && read_only.contains("mount -o ro"), "{read_only}");
        assert!(!something.contains("mkfs") && something.contains("mount \"$loop\""), "{something}");
        assert!(zeroes.contains("/dev/zero && mkfs.ext4 -q -b 4096 "), "{zeroes}");
    }
}
