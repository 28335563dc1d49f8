//! How a mount is operated: by systemd, by mount(8) and lines of fstab, by a configuration file, by
//! signals at any time.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tidegate_trials::mount_folders::{MountFolders, copy_program, shell};
use tidegate_trials::mounted::servers_of;
use tidegate_trials::served::{program, until};

const USAGE: i32 = 2;

/// The options of a mount of this bed.
const OPTIONS: [&str; 5] = ["--pool-size", "64M", "--dram", "16M", "--try"];

/// Longest wait for a datagram.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next datagram that has `word`, among those that systemd would hear.
fn hear(socket: &UnixDatagram, word: &str) -> String {
    let mut datagram = [0; 4096];
    loop {
        let len = socket.recv(&mut datagram).expect("something is said in time");
        let said = String::from_utf8_lossy(&datagram[..len]).into_owned();
        if said.contains(word) {
            return said;
        }
    }
}

/// Whether SOURCE has everything, and whoever could enter it may again.
fn is_shown(bed: &MountFolders) -> bool {
    let mode = fs::metadata(bed.at("source")).unwrap().permissions().mode();
    mode & 0o777 != 0o700 && !bed.memory().join("pool.mount").exists()
}

#[test]
fn systemd_hears_of_the_beginning_of_a_dead_server_and_of_the_end() {
    let bed = MountFolders::new();
    let systemd = UnixDatagram::bind(bed.at("notify")).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut mount = Command::new(program());
    mount.arg("mount").args([bed.at("source"), bed.at("mnt")]).args(OPTIONS).arg("--pool").arg(bed.pool());
    let mut mount = mount.env("NOTIFY_SOCKET", bed.at("notify")).stdout(Stdio::null()).spawn().unwrap();
    let ready = hear(&systemd, "READY=1");
    assert!(ready.contains(&format!("STATUS=files are at {}", bed.at("mnt").display())), "{ready}");
    shell(&bed.at("mnt"), "echo mine > file");
    for server in servers_of(mount.id()) {
        kill_process(server, Signal::KILL).unwrap();
    }
    hear(&systemd, "STATUS=the server died");
    let restarted = hear(&systemd, "replaced: 1");
    assert!(!restarted.contains("READY"), "systemd knows: {restarted}");
    kill_process(Pid::from_child(&mount), Signal::TERM).unwrap();
    hear(&systemd, "STOPPING=1");
    assert!(mount.wait().unwrap().success() && is_shown(&bed));
    assert_eq!(shell(&bed.at("source"), "cat file"), "mine");
}

#[test]
fn servers_of_a_mount_in_the_background_do_not_look_for_who_waited_for_its_beginning() {
    let bed = MountFolders::new();
    let waiting = UnixDatagram::bind(bed.at("notify")).unwrap();
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut mount = Command::new(program());
    mount.args(["mount", "--background"]).args([bed.at("source"), bed.at("mnt")]).args(OPTIONS);
    mount.arg("--pool").arg(bed.pool()).env("NOTIFY_SOCKET", bed.at("notify"));
    let mut mount = mount.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    hear(&waiting, "READY=1");
    drop(waiting);
    for server in servers_of(mount.id()) {
        kill_process(server, Signal::KILL).unwrap();
    }
    // The next server answers.
    shell(&bed.at("mnt"), "echo mine > file; sync file");
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success());
    assert!(mount.wait().unwrap().success());
    let told = std::io::read_to_string(mount.stderr.take().unwrap()).unwrap();
    assert!(!told.contains("NOTIFY_SOCKET"), "{told}");
}

#[test]
fn a_signal_in_the_first_moments_of_a_mount_ends_it_with_everything_written_back() {
    let bed = MountFolders::new();
    for round in 0..4 {
        let service = bed.mount();
        shell(&bed.at("mnt"), &format!("echo {round} > file; sync file; echo {round} >> file"));
        bed.kill(service);
        // It is mounted; the server may not even have been started.
        let mut service = bed.mount();
        if round % 2 == 1 {
            until("a server", || !servers_of(service.id()).is_empty());
            // Whoever ends a whole group of processes signals the server too.
            servers_of(service.id()).iter().for_each(|server| _ = kill_process(*server, Signal::TERM));
        }
        kill_process(Pid::from_child(&service), Signal::TERM).unwrap();
        assert!(service.wait().unwrap().success() && is_shown(&bed), "round {round}");
        assert_eq!(shell(&bed.at("source"), "cat file"), format!("{round}\n{round}"));
    }
}

#[test]
fn a_file_describes_several_mounts_and_its_mistakes_are_named_with_their_lines() {
    let bed = MountFolders::new();
    let config = bed.at("mounts.toml");
    let text = format!(
        "[[mount]]\nname = \"one\"\nsource = \"source\"\nmountpoint = \"mnt\"\npool = \"{}\"\npool_size = \"64M\"\ntry = true\n\
         [[mount]]\nsource = \"elsewhere\"\nmountpoint = \"two\"\n",
        bed.pool().display()
    );
    let mount = |text: &str, name: &str| {
        fs::write(&config, text).unwrap();
        let mut mount = Command::new(program());
        mount.args(["mount", "--config"]).arg(&config).args(["--name", name, "--dram", "16M"]);
        mount
    };
    let refused = mount(&text.replace("pool_size", "poolsize"), "one").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(USAGE), "{said}");
    assert!(said.contains("mounts.toml:6: ") && said.contains("write `pool_size`"), "{said}");
    let refused = mount(&text, "tow").output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--name two"), "{refused:?}");
    let mut service = mount(&text, "one").stdout(Stdio::null()).spawn().unwrap();
    until("the mount", || bed.is_mounted());
    shell(&bed.at("mnt"), "echo mine > file; sync file");
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success());
    assert!(service.wait().unwrap().success());
    assert_eq!(shell(&bed.at("source"), "cat file"), "mine");
}

/// Runs `line` as root of a machine where the helpers of mount(8) are installed: they are seen in
/// a mount namespace of its own.
fn with_helpers(bed: &MountFolders, line: &str) -> Output {
    let helpers = bed.at("helpers");
    fs::create_dir_all(&helpers).unwrap();
    let systemd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/systemd");
    for name in ["mount.fuse.tidegate", "umount.fuse.tidegate"] {
        let script = fs::read_to_string(systemd.join(name)).unwrap();
        let script = script.replace("/usr/bin/tidegate", &program().to_string_lossy());
        fs::write(helpers.join(name), script).unwrap();
        fs::set_permissions(helpers.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let sbin = fs::canonicalize("/sbin").unwrap();
    let seen = format!("mount -t overlay -o lowerdir={}:{} none {}", helpers.display(), sbin.display(), sbin.display());
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh", "-ec", &format!("{seen}; {line}")]).env_remove("JOURNAL_STREAM");
    own.current_dir(bed.at("source").parent().unwrap()).output().unwrap()
}

#[test]
fn mount_and_umount_know_the_type_of_file_system_and_lines_of_fstab() {
    let bed = MountFolders::new();
    let (source, mnt, pool) = (bed.at("source"), bed.at("mnt"), bed.pool());
    let options = format!("pool={},pool-size=64M,dram=16M,try", pool.display());
    let line = format!(
        "mount -t fuse.tidegate {} {} -o nodev,noexec,{options}; echo one > mnt/file; sync mnt/file; \
         grep ' {} fuse.tidegate ' /proc/self/mounts; umount mnt; cat source/file",
        source.display(),
        mnt.display(),
        mnt.display()
    );
    let done = with_helpers(&bed, &line);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.ends_with("\none\n"), "{done:?}");
    assert!(said.contains("nodev") && said.contains("noexec"), "{said}");
    assert!(is_shown(&bed), "umount waited");
    let fstab = bed.at("fstab");
    let entry =
        format!("{} {} fuse.tidegate {options},noauto,nofail,x-systemd.after=a 0 0\n", source.display(), mnt.display());
    fs::write(&fstab, entry).unwrap();
    let line =
        format!("mount -T {} {}; echo two > mnt/file; umount mnt; cat source/file", fstab.display(), mnt.display());
    let done = with_helpers(&bed, &line);
    assert!(done.status.success() && done.stdout == b"two\n", "{done:?}");
}

#[test]
fn mount_tells_why_a_line_of_fstab_is_refused() {
    let bed = MountFolders::new();
    let mount = |options: &str| {
        let (source, mnt) = (bed.at("source"), bed.at("mnt"));
        with_helpers(&bed, &format!("mount -t fuse.tidegate {} {} -o {options}", source.display(), mnt.display()))
    };
    let refused = mount("pol=/x");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("`pool`"), "{said}");
    // Not persistent, and no trial.
    let refused = mount(&format!("pool={},pool-size=64M", bed.pool().display()));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(32) && said.contains("is not persistent memory"), "{said}");
    assert!(is_shown(&bed) && !bed.is_mounted());
}

#[test]
fn a_file_that_was_removed_before_a_kill_keeps_nothing_hidden() {
    let bed = MountFolders::new();
    for line in ["rm f", "echo other > g; sync g; mv g f"] {
        let service = bed.mount();
        // The first sync is one of SOURCE; the second one waits in the pool.
        shell(&bed.at("mnt"), &format!("echo one > f; sync f; echo two >> f; sync f; {line}"));
        bed.kill(service);
        let recovered = bed.tidegate("recover", &bed.pool());
        assert!(recovered.status.success() && is_shown(&bed), "{line}: {recovered:?}");
    }
    assert_eq!(shell(&bed.at("source"), "cat *"), "other");
}

/// A user who owns no files.
const NOBODY: u32 = 65534;

const AS_ROOT: &str = r#"
    mknod "$1/fuse" c 10 229; chmod 666 "$1/fuse"; mount --bind "$1/fuse" /dev/fuse
    exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$3" sh "$1" "$2"
"#;

/// Mounts, writes what waits in the pool, and kills supervisor and server.
const AS_USER: &str = r#"
    cd "$1"; mkfifo said
    ./tidegate mount source mnt --pool "$2" --pool-size 64M --dram 16M --try > said &
    read first < said
    echo one > mnt/f; sync mnt/f; echo two >> mnt/f; sync mnt/f
    for process in $! $(cat /proc/$!/task/$!/children); do kill -9 $process; done
"#;

#[test]
fn root_recovers_a_users_pool_with_that_users_rights() {
    let bed = MountFolders::new();
    let (folder, source) = (bed.at(""), bed.at("source"));
    for folder in [&folder, &source, &bed.at("mnt"), bed.memory()] {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    copy_program(program(), &bed.at("tidegate"));
    // With a device that is open to every user, as it is on a machine with udev.
    let mut user = Command::new("unshare");
    user.args(["--mount", "--propagation", "private", "sh", "-ec", AS_ROOT, "sh"]).args([&folder, &bed.pool()]);
    let done = user.arg(AS_USER).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    // The record is the user's, and may name any directory.
    let (record, private) = (bed.memory().join("pool.mount"), bed.at("private"));
    let own = fs::read_to_string(&record).unwrap();
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&record, own.replace("/source", "/private")).unwrap();
    let refused = bed.tidegate("recover", &bed.pool());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("Permission denied"), "{said}");
    assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(&record, own).unwrap();
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success() && is_shown(&bed), "{recovered:?}");
    assert_eq!(shell(&source, "cat f; stat -c %u f"), format!("one\ntwo\n{NOBODY}"));
}
