//! What packages install beside the program fits the program.

use crate::encrypted::identities::Identities;
use crate::program::{Folder, Server, json, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const SERVICE: &str = include_str!("../../systemd/tidegate@.service");
const MOUNT: &str = include_str!("../../systemd/tidegate-mount@.service");
const METRICS: &str = include_str!("../../systemd/tidegate-metrics.service");
const MOUNT_HELPER: &str = include_str!("../../systemd/mount.fuse.tidegate");
const UMOUNT_HELPER: &str = include_str!("../../systemd/umount.fuse.tidegate");
const SOCKET: &str = include_str!("../../systemd/tidegate@.socket");
const EXAMPLE: &str = include_str!("../../systemd/example.toml");

fn value<'u>(unit: &'u str, key: &str) -> &'u str {
    let lines: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect();
    assert_eq!(lines.len(), 1, "{key}");
    lines[0]
}

#[test]
fn the_service_runs_a_command_line_that_the_program_knows() {
    let command: Vec<&str> = value(SERVICE, "ExecStart").split(' ').collect();
    let ["/usr/bin/tidegate", "serve", "--config", config] = command[..] else { panic!("{command:?}") };
    assert_eq!(config, "/etc/tidegate/%i.toml");
    assert_eq!(value(SERVICE, "Type"), "notify");
    assert_eq!(value(SERVICE, "ExecReload"), "/bin/kill -HUP $MAINPID");
    // The server beats twice in each of the watchdog's intervals, and drains for as long as this
    // lets it.
    assert!(value(SERVICE, "WatchdogSec").parse::<u32>().unwrap() >= 10);
    assert_eq!((value(SERVICE, "KillMode"), value(SERVICE, "User")), ("mixed", value(SOCKET, "SocketUser")));
    let limit: u64 = value(SERVICE, "LimitNOFILE").parse().unwrap();
    assert!(limit > 16384 + 64, "the default number of connections has no room");
}

#[test]
fn the_service_is_confined() {
    for line in ["NoNewPrivileges=yes", "CapabilityBoundingSet=", "MemoryDenyWriteExecute=yes", "PrivateTmp=yes"] {
        assert!(SERVICE.lines().any(|there| there == line), "{line}");
    }
    assert_eq!(value(SERVICE, "RestrictAddressFamilies"), "AF_UNIX AF_INET AF_INET6");
    // systemd 252 of Debian 12 ignores groups that it does not know, and @sandbox is newer.
    assert_eq!(
        value(SERVICE, "SystemCallFilter"),
        "@system-service seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"
    );
    assert_eq!(value(SOCKET, "SocketMode"), "0600");
}

#[test]
fn a_mounts_service_is_ordered_before_its_users_and_shows_its_mount_to_all() {
    let words = "/usr/bin/tidegate mount --config /etc/tidegate/mounts.toml --name %i";
    assert_eq!(
        (value(MOUNT, "ExecStart"), value(MOUNT, "Type"), value(MOUNT, "NotifyAccess")),
        (words, "notify", "all")
    );
    assert_eq!(value(MOUNT, "Before"), "local-fs.target umount.target");
    assert_eq!((value(MOUNT, "KillMode"), value(MOUNT, "OOMPolicy")), ("mixed", "continue"));
    // Each of these would give the service mounts of its own, and nobody else would see the files.
    for private in ["Private", "Protect", "ReadOnly", "Inaccessible", "MountFlags", "RootDirectory"] {
        assert!(!MOUNT.lines().any(|line| line.starts_with(private)), "{private}");
    }
}

#[test]
fn the_service_of_metrics_runs_a_command_line_that_stays_on_the_machine_and_is_confined() {
    let words = value(METRICS, "ExecStart").split(' ').collect::<Vec<_>>();
    assert_eq!(words, ["/usr/bin/tidegate", "top", "--metrics", "tcp:127.0.0.1:9810"]);
    assert_eq!(value(METRICS, "Type"), "notify");
    for line in ["NoNewPrivileges=yes", "ProtectSystem=strict", "SystemCallFilter=@system-service"] {
        assert!(METRICS.lines().any(|there| there == line), "{line}");
    }
}

#[test]
fn the_helpers_of_mount_and_umount_run_commands_that_the_program_knows() {
    for (script, command) in [(MOUNT_HELPER, "mount-helper"), (UMOUNT_HELPER, "umount-helper")] {
        assert!(script.ends_with(&format!("exec /usr/bin/tidegate {command} \"$@\"\n")), "{script}");
        let refused = run(&[command, "--"]);
        assert_eq!(refused.code, 1, "the code of mount(8) for a wrong command line: {}", refused.stderr);
        assert!(refused.stderr.contains("MOUNTPOINT"), "{}", refused.stderr);
    }
}

#[test]
fn the_example_serves_once_its_places_are_this_machines() {
    let folder = Folder::new();
    folder.volume("db.pmem");
    let disk = folder.text("disk");
    fs::write(&disk, [0; 4096]).unwrap();
    json(&["create", "--pmem", &folder.text("archive.pmem"), "--disk", &disk, "--size", "8M"]);
    let [side, other] = ["ledger.pmem", "other-ledger.pmem"].map(|name| folder.text(name));
    json(&["create", "--pmem", &side, "--mirror", &other, "--size", "24M"]);
    let identities = Identities::make();
    let token = folder.path("metrics-token");
    fs::write(&token, "a token of the test".replace(' ', "-")).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let here = EXAMPLE
        .replace("/run/tidegate", folder.0.path().to_str().unwrap())
        .replace("/mnt/pmem/", "")
        .replace("/mnt/pmem0/", "")
        .replace("/mnt/pmem1/", "other-")
        .replace("/dev/disk/by-id/ata-DISK", &disk)
        .replace("server-", identities.path("server-").to_str().unwrap())
        .replace("ca-cert", identities.path("ca-cert").to_str().unwrap())
        .replace("127.0.0.1:10809", "127.0.0.1:0")
        .replace("127.0.0.1:9809", "127.0.0.1:0");
    let config = folder.text("example.toml");
    fs::write(&config, here).unwrap();
    let mut server = Server::start_of_uris(6, &["--config", &config]);
    let stat = run(&["stat", "--control", &folder.text("control")]);
    assert!(stat.stdout.contains("volume     db in "), "{}{}", stat.stdout, stat.stderr);
    assert!(server.stop().success());
}
