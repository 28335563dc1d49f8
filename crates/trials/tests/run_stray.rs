//! Where the processor has protection keys, nothing but the library reaches what a program under
//! `tidegate run-log` has mapped to store to: not a stray store of the program, on whichever
//! thread. In a guest, as its processor has them, on an NVDIMM.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use tidegate_trials::guest::{Guest, LIMIT, dax_image, disk_image};
use tidegate_trials::run::{STRAY, kept_syncs, library};
use tidegate_trials::served::program;

/// Lines that are synced between two looks.
const EACH: u64 = 15;
/// Who strays, in this order, each from every mapping.
const STRAYS: [&str; 6] = ["main", "older", "younger", "handler", "child", "main"];
/// How often the first process appends that many lines, and its child.
const APPENDS: u64 = 9;
const APPENDS_OF_CHILD: u64 = 3;

/// The pool on an NVDIMM, files on a disk.
fn guest(folder: &Path, script: &str) -> Guest {
    let mut guest = Guest::new();
    guest.dimm(&folder.join("dimm"), 0);
    guest.disk(&folder.join("disk"));
    let linked = [(program(), "tidegate"), (library(), "libtidegate_preload.so"), (&STRAY.build().unwrap(), "stray")];
    linked.into_iter().for_each(|(from, inside)| guest.linked(from, inside).unwrap());
    guest.script("mount_dax 0; disks; mkdir /files /run; mount -t ext4 /dev/vda /files; export XDG_RUNTIME_DIR=/run");
    guest.script("echo keys $(grep -c -w ospke /proc/cpuinfo)");
    guest.script("follow() { /tidegate run-log --verbose --size 64M --pool /mnt/pool --root /files -- $*; }");
    guest.script(script);
    guest
}

/// Every mapping was closed to everybody, by a key.
fn assert_closed(lines: &[String]) {
    let told: Vec<Vec<&str>> = lines
        .iter()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.get(1) == Some(&"load"))
        .collect();
    for words in &told {
        let [_, "load", load, "store", store, "key", key, "of", path] = words[..] else { panic!("{words:?}") };
        assert_eq!((load, store), ("closed", "closed"), "{words:?}");
        assert!(key.parse::<u8>().unwrap() > 0 && ["pool", "table"].iter().any(|end| path.ends_with(end)), "{words:?}");
    }
    let mut who: Vec<&str> = told.iter().map(|words| words[0]).collect();
    who.dedup();
    assert_eq!(who, STRAYS);
    let of = |who: &str, end: &str| told.iter().filter(|words| words[0] == who && words[8].ends_with(end)).count();
    // Two strips of the file, one of the name.
    assert_eq!((of("older", "/pool"), of("older", "/table")), (3, 1));
    assert!(of("child", "/pool") == 2);
}

#[test]
fn what_a_program_has_mapped_is_closed_by_a_key_while_its_syncs_go_on() {
    let folder = tempfile::tempdir().unwrap();
    dax_image(&folder.path().join("dimm"), 128 << 20);
    disk_image(&folder.path().join("disk"), 64 << 20);

    // Killed with the last lines synced, and its files not brought to the disk by anybody.
    let waits = format!("follow /stray /files {EACH} wait");
    let mut running = guest(folder.path(), &waits).boot(LIMIT).unwrap();
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.starts_with("all ")) {
        lines.extend(running.line().unwrap_or_else(|error| panic!("{error}")));
    }
    drop(running);
    let processors = lines.iter().find_map(|line| line.strip_prefix("keys ")).unwrap();
    assert_ne!(processors, "0", "the guest's processors have no protection keys");
    assert_closed(&lines);
    assert_eq!(lines.last().unwrap(), &format!("all {}", APPENDS * EACH));

    // What was synced is there, and a stray store that nobody catches is the program's end.
    let recovers = format!(
        "/tidegate recover /mnt/pool; for file in /files/lines*; do echo \"there $(wc -l <\"$file\") $file\"; done\n\
         rm /files/lines*; follow /stray /files {EACH} die || echo ended $?; echo \"left $(wc -l </files/lines)\""
    );
    let said = guest(folder.path(), &recovers).run().unwrap_or_else(|error| panic!("{error}"));
    let there = |name: &str, lines: u64| format!("there {lines} /files/{name}");
    for line in [there("lines", APPENDS * EACH), there("lines of the child", APPENDS_OF_CHILD * EACH)] {
        assert!(said.lines.contains(&line), "{line}: {:?}", said.lines);
    }
    assert_closed(&said.lines);
    let kept = kept_syncs(&said.lines.join("\n"));
    // All but the first ones of each file, and of files of the one name.
    assert!(kept >= (APPENDS + APPENDS_OF_CHILD) * EACH - 2 * 5, "{kept} syncs ended in the pool");
    assert_eq!(said.value("ended"), Some("139"), "SIGSEGV");
    assert_eq!(said.value("left"), Some(&*format!("{}", APPENDS * EACH)));
}
