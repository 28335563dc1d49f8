//! Test suites of others and unchanged programs on a mount.
//!
//! `docs/reference/mount-differences.md` has what differs from ext4.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::mount_folders::copy_program;
use tidegate_trials::mounted::{FSX, MountTestbed, suites};

/// What `fsx` does here beside the usual: with it, all that it can.
const MORE_FSX: &str = "
    invalidate = 1
    sendfile = 3
    posix_fadvise = 1
";

/// What `pjdfstest` may use, with users that every Debian has.
const PJDFSTEST: &str = r#"
    [features]
    posix_fallocate = {}
    rename_ctime = {}
    utime_now = {}
    utimensat = {}
    [settings]
    naptime = 0.01
    allow_remount = false
    [dummy_auth]
    entries = [["nobody", "nogroup"], ["games", "games"]]
"#;

#[test]
fn fsx_finds_every_byte_that_it_wrote() {
    let (suites, testbed) = (suites().unwrap(), MountTestbed::new());
    let config = testbed.beside().join("fsx.toml");
    fs::write(&config, format!("{FSX}{MORE_FSX}")).unwrap();
    for seed in ["1", "2", "3"] {
        let mut fsx = Command::new(suites.join("fsx"));
        fsx.args(["-N", "2000", "-S", seed, "-f"]).arg(&config);
        fsx.arg("-P").arg(testbed.beside()).arg(testbed.mountpoint().join(seed));
        run(&mut fsx, "cargo").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn pjdfstest_passes_as_on_the_disk() {
    let (suites, testbed) = (suites().unwrap(), MountTestbed::new());
    let config = testbed.beside().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let summary = |folder| {
        let mut pjdfstest = Command::new(suites.join("pjdfstest"));
        // Its users have to reach its folder.
        pjdfstest.arg("-c").arg(&config).arg("-p").arg(&folder).current_dir(&folder);
        let said = run(&mut pjdfstest, "cargo").unwrap_or_else(|error| panic!("{error}"));
        let skipped = said.lines().filter_map(|line| Some(line.strip_suffix("skipped")?.trim().to_owned()));
        (said.contains("Summary: 0 failed"), skipped.collect::<Vec<_>>())
    };
    open_to_all(&testbed);
    let (on_disk, on_mount) = (summary(testbed.beside()), summary(testbed.mountpoint()));
    assert!(on_disk.0 && on_mount.0, "{on_disk:?} {on_mount:?}");
    // A program asks for the most links of a file by the kind of file system.
    let more: Vec<_> = on_mount.1.iter().filter(|case| !on_disk.1.contains(case)).collect();
    assert!(more.iter().all(|case| *case == "link::link_count_max"), "{more:?}");
}

/// Lets every user enter the testbed's folders.
fn open_to_all(testbed: &MountTestbed) {
    let disk = testbed.beside().parent().unwrap().to_owned();
    for folder in [disk, testbed.beside(), testbed.mountpoint()] {
        run(Command::new("chmod").arg("755").arg(folder), "coreutils").unwrap();
    }
}

/// What a shell script prints in a mount of its own. At most two minutes.
fn said_by(script: &str) -> String {
    let testbed = MountTestbed::new();
    let mut shell = Command::new("timeout");
    shell.args(["120", "sh", "-euc", script]).current_dir(testbed.mountpoint()).stdin(Stdio::null());
    run(&mut shell, "coreutils").unwrap_or_else(|error| panic!("{error}"))
}

/// Fails with the line that installs it if a program is missing.
fn demand(program: &str, package: &'static str) {
    run(Command::new(program).arg("--version"), package).unwrap();
}

#[test]
fn programs_are_compiled_from_an_archive() {
    demand("make", "make");
    let script = r#"
        mkdir made && cd made
        for part in $(seq 12); do echo "int part$part(void) { return $part; }" > "part$part.c"; done
        { for part in $(seq 12); do echo "int part$part(void);"; done
          echo 'int main(void) { return part1() + part12() - 13; }'; } > main.c
        printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tgcc -o $@ $^\n' > Makefile
        cd .. && tar cf made.tar made && mkdir out && tar xf made.tar -C out
        make --quiet -C out/made -j2 && out/made/all
        cp -a out copied && diff -r out copied && make --quiet -C copied/made --question
        rm -r made out copied && ls
    "#;
    assert_eq!(said_by(script), "made.tar\n");
}

#[test]
fn git_keeps_a_repository() {
    demand("git", "git");
    let script = r#"
        git init --quiet --initial-branch main work && cd work
        git config user.email nobody@example.invalid
        git config user.name nobody
        git config core.fsync all
        for file in 1 2 3 4 5; do
            echo "$file" > "file$file" && git add . && git commit --quiet --message "$file"
        done
        git gc --quiet
        git clone --quiet --no-hardlinks . ../copy && cd ../copy
        git fsck --strict 2> /dev/null && git status --short && git log --oneline | wc -l
    "#;
    assert_eq!(said_by(script), "5\n");
}

#[test]
fn sqlite_keeps_its_transactions_in_every_mode() {
    demand("sqlite3", "sqlite3");
    let script = r#"
        for mode in wal delete truncate persist; do
            { echo "pragma journal_mode=$mode; pragma synchronous=full; create table t(a integer primary key, b);"
              for row in $(seq 30); do echo "insert into t(b) values('$mode $row');"; done
            } | sqlite3 "$mode.db"
            sqlite3 "$mode.db" 'pragma integrity_check; select count(*) from t;'
        done
    "#;
    let expected: String = ["wal", "delete", "truncate", "persist"].map(|mode| format!("{mode}\nok\n30\n")).concat();
    assert_eq!(said_by(script), expected);
}

/// Makes files with ACLs and in folders with default ones, has two users without privileges try
/// them, and prints all that came of it. At the end the folder itself gets an ACL.
const ACLS: &str = r#"
    mkdir given && setfacl -m u:games:rwx,g::r-x given && setfacl -d -m u:games:rw given
    (umask 077; echo a > given/file; mkdir given/folder; mkfifo given/pipe; cp -a given/file given/copy)
    setfacl -k given/folder && (umask 027; echo b > given/folder/plain)
    echo c > private && chmod 600 private && setfacl -m u:games:r private
    echo d > shared && chgrp nogroup shared && chmod 640 shared && setfacl -m u:games:rw shared
    echo e > masked && setfacl -m u:games:rw masked && chmod 600 masked
    echo f > removed && chmod 600 removed && setfacl -m u:games:r removed && setfacl -b removed
    echo g > set && chown games:root set && chmod 2770 set
    for user in games nobody; do
        for file in given/file given/copy given/folder/plain private shared masked removed; do
            setpriv --reuid $user --regid nogroup --clear-groups sh -c \
                "cat $file; echo $user >> $file; rm -f given/copy; touch given/$user" 2>&1 || true
        done
    done
    setpriv --reuid games --regid nogroup --clear-groups setfacl -m u:nobody:r set
    setfacl -m u:nobody:rwx,o::x . && getfacl -R -p . && stat -c '%a %U %n' . * given/*
    chmod 750 . && getfacl . && setfacl -m g::r . && getfacl . && setfacl -b . && stat -c %a . && getfacl .
    setfacl -m u:nobody:rwx,o::r .
"#;

/// Gives open files privileges, has them written to by who may keep those and who may not, and
/// prints what is left, again and again.
const PRIVILEGES: &str = r#"
    for file in user group both plain; do echo a > $file && chmod 666 $file && exec 7>> $file; done
    look() { stat -c '%a %n' user group both plain && getcap user group both plain; }
    for round in 1 2 3; do
        chmod 4766 user && chmod 2676 group && chmod 6777 both && setcap cap_net_raw=ep plain && look
        for writer in nobody root nobody nobody; do
            setpriv --reuid $writer --regid nogroup --clear-groups --bounding-set -fsetid \
                sh -c 'for file in user group both plain; do echo b >> $file; done'
            look
        done
        echo c >> plain && setcap cap_chown=ep both && look && truncate -s 1 both && look
    done
"#;

#[test]
fn writes_take_privileges_away_as_on_the_disk() {
    let testbed = MountTestbed::new();
    open_to_all(&testbed);
    let [expected, said] = said_on_disk_and_mount(&testbed, PRIVILEGES, "libcap2-bin");
    assert!(expected.contains("cap_net_raw=ep"), "{expected}");
    assert_eq!(said, expected);
}

/// What a shell script prints in a folder on the disk, and in the mount.
fn said_on_disk_and_mount(testbed: &MountTestbed, script: &str, package: &'static str) -> [String; 2] {
    let on_disk = testbed.beside().join("compared");
    fs::create_dir(&on_disk).unwrap();
    [on_disk, testbed.mountpoint()].map(|folder| {
        let mut shell = Command::new("sh");
        run(shell.args(["-euc", script]).current_dir(folder), package).unwrap_or_else(|error| panic!("{error}"))
    })
}

#[test]
fn acls_decide_as_on_the_disk() {
    demand("setfacl", "acl");
    let testbed = MountTestbed::new();
    open_to_all(&testbed);
    let [expected, said] = said_on_disk_and_mount(&testbed, ACLS, "acl");
    let on_disk = testbed.beside().join("compared");
    assert!(expected.contains("Permission denied"), "{expected}");
    assert_eq!(said, expected);
    assert_eq!(fs::metadata(testbed.source()).unwrap().permissions().mode() & 0o7777, 0o700, "SOURCE is hidden");
    let acl_of = |folder: &Path| run(Command::new("getfacl").arg(".").current_dir(folder), "acl").unwrap();
    assert_eq!(acl_of(&testbed.mountpoint()), acl_of(&on_disk));
    let source = testbed.source();
    // SOURCE shows it again.
    let ended = testbed.end();
    assert_eq!(acl_of(&source), acl_of(&on_disk));
    assert!(ended.is_written_back());
}

#[test]
fn the_file_of_a_running_program_cannot_be_cut() {
    let testbed = MountTestbed::new();
    let program = testbed.mountpoint().join("program");
    copy_program(Path::new("/bin/cat"), &program);
    // It waits for its standard input.
    let mut running = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    for writes in [OFlags::WRONLY, OFlags::RDONLY | OFlags::TRUNC] {
        let refused = rustix::fs::open(&program, writes, Mode::empty()).map(drop);
        assert_eq!(refused, Err(Errno::TXTBSY), "{writes:?}");
    }
    assert!(fs::read(&program).unwrap() == fs::read("/bin/cat").unwrap(), "the program was changed");
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
}
