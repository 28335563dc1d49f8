//! Everything the program refuses: what it says, and with which exit code.

use crate::program::{Ended, Folder, Server, as_nobody, ended, is_root, json, need_root, run, tidegate};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use tidegate_layout::btt::InfoBlock;
use zerocopy::{FromBytes, IntoBytes};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
const ENVIRONMENT: i32 = 5;

/// The first info block of a volume of version 1.1 starts here, and ends there; its second one in
/// 32 MiB.
pub(crate) const INFO_AT: u64 = 4096;
pub(crate) const INFO2_AT: u64 = (32 << 20) - 4096;

#[track_caller]
fn assert_tells(ended: &Ended, code: i32, phrases: &[&str]) {
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    for phrase in phrases {
        assert!(ended.stderr.contains(phrase), "no {phrase:?} in: {}", ended.stderr);
    }
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ended.stderr);
    assert!(lines[0].starts_with("tidegate: error: "), "{}", ended.stderr);
    assert!(lines[1].starts_with("  why: ") && lines[2].starts_with("  next: "), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, phrases: &[&str]) {
    assert_tells(&run(arguments), code, phrases);
}

pub(crate) fn poke(path: &str, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

pub(crate) fn info_block(path: &str, at: u64) -> InfoBlock {
    let mut bytes = [0; 4096];
    fs::File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    InfoBlock::read_from_bytes(&bytes).unwrap()
}

#[test]
fn a_value_that_is_missing_is_told_from_one_that_is_not_possible() {
    assert_refused(
        &["create", "--pmem"],
        USAGE,
        &["a value is required", "has to follow the option", "tidegate create --help"],
    );
    assert_refused(&["completions", "csh"], USAGE, &["'csh'", "only a few words", "tidegate completions --help"]);
}

#[test]
fn command_lines_that_are_never_right() {
    let folder = Folder::new();
    let new = &folder.text("new");
    let create = |more: &[&'static str]| run(&[&["create", "--pmem", new], more].concat());
    for (more, phrases) in [
        (&["--size", "1X"][..], &["\"1X\" is no size", "no unit", "1GiB"][..]),
        (&["--size", "G"], &["does not begin with a digit"]),
        (&["--size", "99999999999P"], &["64 bits"]),
        (&["--size", "0"], &["too small"]),
        (&["--size", "20000001"], &["not a multiple of 4096", "20000768", "19996672"]),
        (&["--size", "18446744073709551615"], &["not a multiple of 4096", "use --size 18446744073709547520\n"]),
        (&["--size", "17"], &["too small", "use --size 16781312 or more"]),
        (&["--size", "16M"], &["too small", "BTT 1.1", "16781312", "16 MiB and 4 KiB"]),
        (&["--size", "12M", "--btt", "2.0"], &["too small", "BTT 2.0", "16777216"]),
        (&[], &["no size was given", "--size 1G"]),
        (&["--size", "1G", "--block", "1024"], &["\"1024\" is no block size", "512, 520"]),
        (&["--size", "1G", "--btt", "1.2"], &["\"1.2\" is no version", "1.1 (the default) or 2.0"]),
        (
            &["--size", "1G", "--sprase"],
            &["--sprase", "takes no such argument", "similar argument exists: '--sparse'", "tidegate create --help"],
        ),
    ] {
        assert_tells(&create(more), USAGE, phrases);
    }
    for (arguments, phrases) in [
        (
            &["serve", "--listen", "/tmp/x"][..],
            &["\"/tmp/x\" names no place", "unix: nor tcp:", "--listen unix:/run/v.sock"][..],
        ),
        (&["serve", "--listen", "unix:"], &["no path"]),
        (&["serve", "--listen", "tcp:nowhere:1"], &["no address"]),
        (&["serve", "--listen", "tcp:0.0.0.0:1"], &["other machines", "no encryption", "--insecure"]),
        (
            &["serve", "--listen", "tcp:127.0.0.1:1"],
            &["every user of this machine", "does not tell users apart", "--listen unix:PATH", "--insecure"],
        ),
        (&["serve", "--emulate", "tape"], &["\"tape\"", "nvdimm, stt-ram, pcm, optane, cxl"]),
        (&["create", "--size", "1G"], &["--pmem", "cannot do without", "tidegate create --help"]),
        (&["repair"], &["'repair'", "no such command", "tidegate --help"]),
        (&["creat"], &["similar", "'create'"]),
        (&["serve", "--wear-leveling", "0"], &["no number from 1 on", "tidegate serve --help"]),
        (&["serve", "--connections-max", "0"], &["no number from 1 on", "tidegate serve --help"]),
        (&["serve", "--dirty-age", "x"], &["'x' for '--dirty-age <SECONDS>'\n", "why: invalid digit"]),
        (&["serve", "--allow-uid", "no such"], &["no user \"no such\"", "getent passwd"]),
        (&["serve", "--allow-gid", "no such"], &["no group \"no such\"", "getent group"]),
        (&["serve", "--write-cache", "1"], &["cache of 1 bytes is too small", "64K or more"]),
        (&["serve", "--listen", "unix:/s", "--listen", "unix:/s"], &["/s is named twice"]),
        (&["serve", "--listen", "unix:/s", "--control", "/s"], &["/s is named twice"]),
        (
            &["serve", "--insecure", "--listen", "tcp:127.0.0.1:9", "--metrics", "tcp:127.0.0.1:9"],
            &["127.0.0.1:9 is named twice"],
        ),
        (&["create", "--size", "8M", "--pmem", "/v", "--disk", "/v"], &["same file"]),
        (&["info", "/v", "--pmem", "/v"], &["cannot be used with"]),
        (&[], &["no command", "tidegate --help"]),
    ] {
        assert_refused(arguments, USAGE, phrases);
    }
    assert!(!Path::new(new).exists());
}

#[test]
fn what_already_holds_something_is_not_overwritten() {
    let folder = Folder::new();
    let btt = &folder.volume("btt");
    assert_refused(
        &["create", "--pmem", btt, "--size", "32M"],
        REFUSED,
        &["already exists", "a BTT 1.1 volume", "--force"],
    );
    for (name, at, bytes, holds) in [
        ("ext4", 0x438, &b"\x53\xef"[..], "ext4"),
        ("xfs", 0, b"XFSB", "XFS"),
        ("btrfs", 0x10040, b"_BHRfS_M", "btrfs"),
        ("luks", 0, b"LUKS\xba\xbe", "LUKS"),
        ("mbr", 510, b"\x55\xaa", "MBR"),
        ("gpt", 512, b"EFI PART", "GPT"),
        ("lvm", 512, b"LABELONE", "LVM2_member"),
        ("fat", 0x52, b"FAT32   ", "vfat"),
        ("iso", 0x8001, b"CD001", "ISO 9660"),
        ("zfs", 132 << 10, b"\x0c\xb1\xba\0\0\0\0\0", "ZFS"),
        ("raid", (32 << 20) - 8192, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
        ("pmemblk", 0, b"PMEMBLK\0", "libpmemblk"),
        ("near", 77, b"x", "not recognised"),
        ("far", 20 << 20, b"x", "not recognised"),
    ] {
        let file = &folder.text(name);
        fs::File::create(file).unwrap().set_len(32 << 20).unwrap();
        poke(file, at, bytes);
        assert_refused(&["create", "--pmem", file, "--size", "32M"], REFUSED, &["already exists", holds, "--force"]);
    }
}

#[test]
fn a_file_of_somebody_else_is_named_and_no_way_to_overwrite_it_is_shown() {
    let folder = Folder::new();
    let image = &folder.text("image");
    fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
    poke(image, 0x438, b"\x53\xef");
    let text = &folder.text("notes");
    fs::write(text, "remember the milk\n").unwrap();
    for (file, holds) in
        [(env!("CARGO_BIN_EXE_tidegate"), "an ELF program"), (image, "ext4 file system"), (text, "it holds text")]
    {
        let command = ["info", "check", "serve"];
        // A server would open the file for writing.
        for command in command.into_iter().take(if file == image { 3 } else { 2 }) {
            let refused = run(&[command, "--pmem", file]);
            assert_tells(
                &refused,
                REFUSED,
                &["there is no volume", holds, "next: name the file that holds the volume"],
            );
            assert!(!refused.stderr.contains("--force"), "{}", refused.stderr);
        }
        assert_refused(&["scrub", "--pmem", file], REFUSED, &["is no cache of a disk", holds]);
    }
}

#[test]
fn what_force_destroys_is_told() {
    let folder = Folder::new();
    let (region, disk) = (&folder.text("region"), &folder.text("disk"));
    fs::File::create(disk).unwrap().set_len(8 << 20).unwrap();
    let force = |more: &[&str]| {
        let made = run(&[&["create", "--pmem", region, "--size", "32M", "--force"], more].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        made.stderr
    };
    fs::File::create(region).unwrap().set_len(32 << 20).unwrap();
    assert_eq!(force(&[]), "", "there is nothing to lose");
    let told = force(&["--disk", disk]);
    assert!(told.contains("--force overwrites") && told.contains("a BTT 1.1 volume of 30.9 MiB, uuid"), "{told}");
    let told = force(&[]);
    assert!(told.contains(&format!("a cache of the disk {disk}, which lacks nothing")), "{told}");
    poke(disk, 0x438, b"\x53\xef");
    poke(disk, (8 << 20) - 5, b"x");
    let ordered = ["create", "--pmem", region, "--size", "1M", "--force", "--ordered", "--disk", disk];
    let made = run(&ordered);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stderr.contains(&format!("{disk} holds an ext2, ext3 or ext4 file system")), "{}", made.stderr);
}

#[test]
fn zeroes_are_overwritten_and_anything_with_force() {
    let folder = Folder::new();
    let (empty, blank, other) = (&folder.text("empty"), &folder.text("blank"), &folder.text("other"));
    fs::write(empty, "").unwrap();
    fs::File::create(blank).unwrap().set_len(64 << 20).unwrap();
    fs::write(other, "something else".repeat(1000)).unwrap();
    for arguments in [
        &["create", "--pmem", empty, "--size", "32M"][..],
        &["create", "--pmem", blank, "--size", "32M"],
        &["create", "--pmem", other, "--size", "32M", "--force"],
        &["create", "--pmem", other, "--size", "32M", "--force", "--btt", "2.0", "--block", "512"],
    ] {
        assert_eq!(json(arguments)["created"]["region_bytes"], 32 << 20);
        assert_eq!(fs::metadata(arguments[2]).unwrap().len(), 32 << 20);
    }
    assert_eq!(json(&["check", "--pmem", other])["sound"], true);
    assert_eq!(json(&["info", "--pmem", other])["volume"]["block_size"], 512);
}

#[test]
fn a_volume_that_is_served_is_in_use() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let listen = &format!("unix:{}", folder.text("s"));
    let server = Server::start(&["--pmem", volume, "--listen", listen]);
    let by = &format!("process {} (tidegate)", server.pid());
    let elsewhere = &format!("unix:{}", folder.text("t"));
    for arguments in [
        &["serve", "--pmem", volume, "--listen", elsewhere][..],
        &["serve", "--pmem", volume, "--listen", elsewhere, "--read-only"],
        &["create", "--pmem", volume, "--size", "32M", "--force"],
        &["create", "--pmem", volume, "--size", "64M", "--force"],
        &["check", "--pmem", volume],
        &["check", "--pmem", volume, "--repair"],
    ] {
        assert_refused(arguments, IN_USE, &["is in use", by, "lock", "tidegate info"]);
    }
    assert_eq!(json(&["info", "--pmem", volume])["in_use"], true);
}

#[test]
fn regions_without_a_usable_volume() {
    let folder = Folder::new();
    let file = |name: &str, contents: &[u8]| {
        fs::write(folder.path(name), contents).unwrap();
        folder.text(name)
    };
    let (absent, blank) = (folder.text("absent"), file("blank", &vec![0; 1 << 20]));
    let (text, empty) = (file("text", "no volume".as_bytes()), file("empty", b""));
    for command in ["serve", "info", "check"] {
        assert_refused(
            &[command, "--pmem", &absent],
            REFUSED,
            &["there is no volume", "no such file", "tidegate create"],
        );
        assert_refused(
            &[command, "--pmem", &blank],
            REFUSED,
            // It is too small for a volume.
            &["there is no volume", "only zeroes", "tidegate create", "--size 1G"],
        );
        assert_refused(&[command, "--pmem", &empty], REFUSED, &["there is no volume", "--size 1G"]);
        assert_refused(&[command, "--pmem", &text], REFUSED, &["there is no volume", "it holds text"]);
        let of_folder = &["it is a folder", "--pmem FILE"];
        assert_refused(&[command, "--pmem", folder.0.path().to_str().unwrap()], ENVIRONMENT, of_folder);
        assert_refused(&[command, "--pmem", "/dev/null"], ENVIRONMENT, &["is no region", "character device"]);
    }
    for command in ["flush", "scrub", "detach"] {
        assert_refused(
            &[command, "--pmem", &absent],
            REFUSED,
            &["there is no region", "next: name the region", "--pmem"],
        );
    }
    let long = &folder.text(&"x".repeat(300));
    assert_refused(&["info", "--pmem", long], ENVIRONMENT, &["too long", "next: correct the path: --pmem"]);
    assert_refused(
        &["create", "--pmem", &folder.text("no/where"), "--size", "1G"],
        ENVIRONMENT,
        &["folder does not exist"],
    );
    let of_folder = &["create", "--pmem", folder.0.path().to_str().unwrap(), "--size", "1G"];
    assert_refused(of_folder, ENVIRONMENT, &["it is a folder"]);
}

#[test]
fn what_is_to_be_typed_is_for_a_shell_and_nothing_acts_on_a_terminal() {
    assert_refused(&["info", "/no where/v"], REFUSED, &["no volume /no where/v", "create --pmem '/no where/v' --size"]);
    let wild = run(&["check", "--pmem", "/no\x1b[31m\n  why: it is well/v"]);
    assert_tells(&wild, REFUSED, &["/no\\u{1b}[31m\\n  why", "--pmem $'/no\\033[31m\\012  why: it is well/v'"]);
    assert!(!wild.stderr.contains('\x1b'), "{}", wild.stderr);
}

#[test]
fn a_volume_without_a_disk_takes_no_flag_about_disks() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    assert_eq!(json(&["check", volume])["sound"], json(&["check", "--pmem", volume])["sound"]);
    for flag in [["--disk-mode", "write-back"], ["--replacement", "lru"], ["--dirty-percent", "70"]] {
        assert_refused(&[&["serve", "--pmem", volume], &flag[..]].concat(), REFUSED, &["is no cache of a disk"]);
    }
}

#[test]
fn volumes_of_another_version_are_refused() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    for at in [INFO_AT, INFO2_AT] {
        let mut info = info_block(volume, at);
        info.version_major = 3.into();
        poke(volume, at, info.with_checksum().as_bytes());
    }
    for command in ["serve", "info", "check"] {
        assert_refused(&[command, "--pmem", volume], REFUSED, &["of another version", "3.1", "1.1 at byte 4096"]);
    }
}

#[test]
fn a_damaged_info_block_is_repaired_and_two_are_refused() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    poke(volume, INFO_AT + 60, &[0xff; 4]);
    let found = run(&["check", "--pmem", volume]);
    assert_eq!(found.code, REFUSED, "{}", found.stderr);
    assert!(found.stdout.contains("broken     at 0x1000: the first info block is good"), "{}", found.stdout);
    assert!(found.stdout.contains("damaged: 1 broken"), "{}", found.stdout);
    let repaired = json(&["check", "--pmem", volume, "--repair"]);
    assert_eq!((&repaired["sound"], &repaired["findings"][0]["repaired"]), (&true.into(), &true.into()));
    assert_eq!(json(&["check", "--pmem", volume])["findings"], Value::Array(vec![]));
    for at in [INFO_AT, INFO2_AT] {
        poke(volume, at + 60, &[0xff; 4]);
    }
    for arguments in [&["serve"][..], &["info"], &["check"], &["check", "--repair"]] {
        assert_refused(
            &[arguments, &["--pmem", volume]].concat(),
            REFUSED,
            &["damaged beyond repair", "both info blocks", "restore"],
        );
    }
}

#[test]
fn damage_behind_good_info_blocks_is_found_and_what_a_repair_costs_is_told() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let info = info_block(volume, INFO_AT);
    // Two sectors in one block.
    let map_at = INFO_AT + info.mapoff.get();
    poke(volume, map_at, &0xc000_0005_u32.to_le_bytes());
    let found = run(&["check", "--pmem", volume, "--json"]);
    assert_eq!(found.code, REFUSED, "{}", found.stderr);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["sound"], false);
    assert!(found["findings"][0]["offset"].as_u64().unwrap() >= map_at, "{found}");
    // What a repair costs is told before it: neither of the two can be believed.
    assert_eq!(found["repair_loses"]["ranges"][0]["first"], 0, "{found}");
    let before = fs::read(volume).unwrap();
    let dry = run(&["check", "--pmem", volume, "--repair", "--dry-run"]);
    assert_eq!(dry.code, REFUSED, "{}", dry.stderr);
    assert!(dry.stdout.contains("repair     would give up 2 blocks (8 KiB): 0, 5\n"), "{}", dry.stdout);
    let phrases = &["was not repaired", "would give up 2 blocks (8 KiB): 0, 5", "--repair --yes --pmem"];
    assert_refused(&["check", "--pmem", volume, "--repair"], REFUSED, phrases);
    assert!(fs::read(volume).unwrap() == before, "the file changed");
    let repaired = run(&["check", "--pmem", volume, "--repair", "--yes"]);
    assert_eq!(repaired.code, REFUSED, "{}", repaired.stderr);
    for phrase in
        ["2 lost", "sound again: 1 broken", "the data of 2 sectors was lost", "gave up 2 blocks (8 KiB): 0, 5"]
    {
        assert!(repaired.stdout.contains(phrase), "{phrase}: {}", repaired.stdout);
    }
    let again = json(&["check", "--pmem", volume, "--repair"]);
    assert_eq!((&again["given_up"], &again["blocks"]["lost"]), (&0.into(), &2.into()));
}

#[test]
fn a_volume_whose_flog_says_nothing_that_can_be_is_refused() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let flog_at = INFO_AT + info_block(volume, INFO_AT).logoff.get();
    poke(volume, flog_at + 64 * 9, &99_999_u32.to_le_bytes());
    for command in ["serve", "info"] {
        let phrases = &["is damaged", "a flog entry names a sector of its arena", "check --repair"];
        assert_refused(&[command, "--pmem", volume], REFUSED, phrases);
    }
}

#[test]
fn a_region_file_cut_short_is_refused() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    fs::File::options().write(true).open(volume).unwrap().set_len(24 << 20).unwrap();
    for arguments in [&["serve"][..], &["info"], &["check"], &["check", "--repair"]] {
        let phrases = &["cut short", "25165824", "33554432", "restore"];
        assert_refused(&[arguments, &["--pmem", volume]].concat(), REFUSED, phrases);
    }
}

#[test]
fn a_file_system_without_room_is_told() {
    // tmpfs knows its limit beforehand: nothing is allocated on the way.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("v");
    let arguments = ["create", "--pmem", file.to_str().unwrap(), "--size", "2P"];
    assert_refused(&arguments, ENVIRONMENT, &["no space", "no room for", "--sparse"]);
    assert!(!file.exists());
    fs::write(&file, "").unwrap();
    assert_refused(&arguments, ENVIRONMENT, &["no space", "no room for", "--sparse"]);
    let unmappable = ["create", "--pmem", file.to_str().unwrap(), "--size", "15360P", "--sparse"];
    assert_refused(&unmappable, ENVIRONMENT, &["cannot create", "more than one file", "smaller --size"]);
}

#[test]
fn manual_pages_that_cannot_be_written_are_told() {
    let folder = Folder::new();
    let file = folder.text("file");
    fs::write(&file, "").unwrap();
    assert_refused(&["man", "--out", &file], ENVIRONMENT, &["cannot write to", "--out FOLDER"]);
}

#[test]
fn what_the_user_may_not_do_is_told() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    fs::set_permissions(volume, fs::Permissions::from_mode(0o444)).unwrap();
    let serve = ended(as_nobody(&folder).args(["serve", "--pmem", volume]));
    assert_tells(&serve, ENVIRONMENT, &["no permission to write", "--read-only"]);
    if is_root() {
        let listen = &format!("unix:{}", folder.text("s"));
        let _server = Server::start(&["--pmem", volume, "--listen", listen]);
        for arguments in [&["stat", "--pmem", volume][..], &["mode", "--pmem", volume, "write-back"]] {
            let asked = ended(as_nobody(&folder).args(arguments));
            assert_tells(
                &asked,
                ENVIRONMENT,
                &["no permission to ask", "Permission denied", "as the user of the server"],
            );
        }
    }
    let pool = folder.text("pool");
    fs::write(&pool, "").unwrap();
    let _service = UnixListener::bind(format!("{pool}.control")).unwrap();
    fs::set_permissions(format!("{pool}.control"), fs::Permissions::from_mode(0o000)).unwrap();
    let status = ended(as_nobody(&folder).args(["status", &pool]));
    assert_tells(&status, ENVIRONMENT, &["does not answer", "Permission denied", "as root"]);
    fs::set_permissions(volume, fs::Permissions::from_mode(0o000)).unwrap();
    let info = ended(as_nobody(&folder).args(["info", "--pmem", volume]));
    assert_tells(&info, ENVIRONMENT, &["no permission to read"]);
    let mut program = as_nobody(&folder);
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let create = ended(program.args(["create", "--pmem", &folder.text("new"), "--size", "32M"]));
    assert_tells(&create, ENVIRONMENT, &["no permission to create"]);
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_file_system_mounted_read_only_is_told() {
    need_root("mount");
    let folder = Folder::new();
    let volume = folder.volume("v");
    let root = folder.0.path().to_str().unwrap();
    let in_a_read_only_view = |arguments: &str| {
        // The view belongs to a mount namespace that ends with the process.
        let script = format!(
            "mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec {} {arguments}",
            env!("CARGO_BIN_EXE_tidegate")
        );
        ended(Command::new("unshare").args(["--mount", "sh", "-c", &script]))
    };
    let serve = in_a_read_only_view(&format!("serve --pmem {volume}"));
    assert_tells(&serve, ENVIRONMENT, &["cannot be written", "mounted read-only", "--read-only"]);
    let create = in_a_read_only_view(&format!("create --pmem {root}/new --size 32M"));
    assert_tells(&create, ENVIRONMENT, &["cannot be written"]);
    assert_eq!(in_a_read_only_view(&format!("info --pmem {volume}")).code, 0);
}

#[test]
fn places_where_nobody_can_listen() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    let serve_at = |place: &str| run(&["serve", "--pmem", volume, "--insecure", "--listen", place]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    assert_tells(&serve_at(&format!("tcp:{taken}")), IN_USE, &["port", "is in use", "127.0.0.1:0"]);
    let file = folder.text("file");
    fs::write(&file, "").unwrap();
    assert_tells(&serve_at(&format!("unix:{file}")), ENVIRONMENT, &["cannot listen", "no socket"]);
    assert!(Path::new(&file).exists());
    let listen = &format!("unix:{}", folder.text("free"));
    let serve_with = |flag: &str, place: &str| run(&["serve", "--pmem", volume, "--listen", listen, flag, place]);
    assert_tells(
        &serve_with("--metrics", &format!("tcp:{taken}")),
        IN_USE,
        &["is in use", "next: choose another place: --metrics"],
    );
    assert_tells(&serve_with("--control", &file), ENVIRONMENT, &["no socket", "next: choose another place: --control"]);
    let long = folder.text(&"x".repeat(120));
    assert_tells(&serve_at(&format!("unix:{long}")), ENVIRONMENT, &["cannot listen", "107 bytes"]);
    let elsewhere = "tcp:192.0.2.1:10809";
    let refused = run(&["serve", "--pmem", volume, "--insecure", "--listen", elsewhere]);
    assert_tells(&refused, ENVIRONMENT, &["cannot listen on 192.0.2.1"]);
    fs::set_permissions(volume, fs::Permissions::from_mode(0o666)).unwrap();
    let mut nobody = as_nobody(&folder);
    let denied = ended(nobody.args(["serve", "--pmem", volume, "--listen", &format!("unix:{}", folder.text("s"))]));
    if is_root() {
        assert_tells(&denied, ENVIRONMENT, &["no permission to listen"]);
    }
}

#[test]
fn a_socket_that_answers_is_in_use() {
    let folder = Folder::new();
    let (one, two) = (&folder.volume("one"), &folder.volume("two"));
    let listen = &format!("unix:{}", folder.text("s"));
    let server = Server::start(&["--pmem", one, "--listen", listen]);
    let by = &format!("process {} answers", server.pid());
    assert_refused(&["serve", "--pmem", two, "--listen", listen], IN_USE, &["socket", "is in use", by]);
}

#[test]
fn with_json_a_refusal_is_one_object_on_stderr() {
    for (arguments, kind, code) in [
        (&["info", "--pmem", "/nowhere/v", "--json"][..], "absent", REFUSED),
        (&["--json", "create", "--pmem", "/nowhere/v", "--size", "1"], "size-too-small", USAGE),
        (&["create", "--json", "--pmem", "/nowhere/v", "--size", "x"], "bad-size", USAGE),
        (&["--json", "nonsense"], "usage", USAGE),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, code);
        assert_eq!(ended.stdout, "");
        let told: Value = serde_json::from_str(&ended.stderr).unwrap();
        let error = &told["error"];
        assert_eq!((&error["kind"], &error["exit"]), (&kind.into(), &code.into()), "{told}");
        assert!(["what", "why", "next"].iter().all(|part| error[part].as_str().is_some_and(|text| !text.is_empty())));
    }
}

#[test]
fn the_help_documents_the_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, 0);
    for code in 0..=5 {
        assert!(help.stdout.contains(&format!("\n  {code}  ")), "{}", help.stdout);
    }
    let version = run(&["--version"]);
    assert_eq!((version.code, version.stdout.as_str()), (0, concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    for arguments in [&["info", "--pmem", volume][..], &["check", "--pmem", volume, "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = tidegate();
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
    poke(volume, INFO_AT + 60, &[0xff; 4]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let found = tidegate().args(["check", "--pmem", volume]).stdout(writer).output().unwrap();
    assert_eq!(found.status.code(), Some(REFUSED), "findings are findings, read or not");
}

fn onto_a_full_disk(arguments: &[&str]) -> Command {
    let mut command = tidegate();
    command.args(arguments).stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    command
}

#[test]
fn an_answer_that_has_no_room_is_told() {
    let folder = Folder::new();
    let volume = &folder.volume("v");
    for arguments in [&["info", "--pmem", volume][..], &["check", "--pmem", volume, "--json"], &["--help"]] {
        let ended = onto_a_full_disk(arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(ENVIRONMENT));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains("stdout") && stderr.contains("No space"), "{stderr}");
    }
}

#[test]
fn a_server_serves_although_what_it_says_has_no_room() {
    let folder = Folder::new();
    let (volume, socket) = (&folder.volume("v"), folder.path("s"));
    let listen = format!("unix:{}", socket.display());
    let mut server = onto_a_full_disk(&["serve", "--pmem", volume, "--listen", &listen])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stderr.take().unwrap()), &mut line).unwrap();
    assert!(line.contains("cannot be written to stdout"), "{line}");
    Server::client(&socket).flush().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_misspelled_word_is_answered_with_the_nearest_one() {
    let folder = Folder::new();
    let config = folder.text("c.toml");
    for (flag, written, meant) in [
        ("--disk-mode", "write-bak", "write-back"),
        ("--replacement", "s3fifo", "s3-fifo"),
        ("--read-admission", "alwys", "always"),
        ("--emulate", "optan", "optane"),
    ] {
        let refused = run(&["serve", "--pmem", "v", flag, written]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("next: did you mean {meant}? ")), "{}", refused.stderr);
        let key = flag.trim_start_matches('-').replace('-', "_");
        fs::write(&config, format!("[[volume]]\npmem = \"v\"\n{key} = \"{written}\"\n")).unwrap();
        let refused = run(&["serve", "--config", &config]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("did you mean {meant}? ")), "{}", refused.stderr);
    }
    for (words, meant) in [
        (&["lst"][..], "list"),
        (&["stpo"], "stop"),
        (&["mode", "write-trough"], "write-through"),
        (&["completions", "bsh"], "bash"),
        (&["serve", "--lisen", "unix:s"], "--listen"),
    ] {
        let refused = run(words);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let next = refused.stderr.lines().find(|line| line.starts_with("  next: ")).unwrap();
        assert!(next.contains(meant), "{}", refused.stderr);
    }
}
