//! The program's whole surface, given what it cannot use: every command with every kind of wrong
//! file, configuration files, arguments.
//!
//! Each ends soon, with words of three lines and a documented exit code, and leaves every file as
//! it was and no file behind.

use crate::program::{Ended, Folder, NOBODY, as_nobody, need_root, tidegate};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
const ENVIRONMENT: i32 = 5;

/// After so many seconds a command hangs.
const DEADLINE_SECONDS: &str = "60";

/// What lies at a path that is no volume, and how it is made.
struct Wrong {
    name: &'static str,
    make: fn(&Path),
}

const WRONG: &[Wrong] = &[
    Wrong { name: "absent", make: |_| () },
    Wrong { name: "text/region", make: |_| () },
    Wrong { name: "empty", make: |path| sized(path, 0) },
    Wrong { name: "one-byte", make: |path| sized(path, 1) },
    Wrong { name: "odd-size", make: |path| sized(path, (16 << 20) + 17) },
    Wrong { name: "zeroes", make: |path| sized(path, 32 << 20) },
    Wrong { name: "text", make: |path| fs::write(path, "not a region\n".repeat(1000)).unwrap() },
    Wrong { name: "program", make: |path| _ = fs::copy("/bin/ls", path).unwrap() },
    Wrong { name: "file-system", make: ext4 },
    Wrong { name: "folder", make: |path| fs::create_dir(path).unwrap() },
    Wrong { name: "loop", make: |path| symlink(path, path).unwrap() },
    Wrong { name: "dangling", make: |path| symlink("nowhere", path).unwrap() },
    Wrong { name: "pipe", make: pipe },
    Wrong { name: "socket", make: |path| drop(UnixListener::bind(path).unwrap()) },
    Wrong { name: "null", make: |path| symlink("/dev/null", path).unwrap() },
    Wrong { name: "zero", make: |path| symlink("/dev/zero", path).unwrap() },
    Wrong { name: "proc", make: |path| symlink("/proc/self/maps", path).unwrap() },
];

fn sized(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

fn ext4(path: &Path) {
    sized(path, 32 << 20);
    File::options().write(true).open(path).unwrap().write_all_at(b"\x53\xef", 0x438).unwrap();
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Every command that takes a region, a disk or a pool, with that file in the place of `{}`.
const COMMANDS: &[&[&str]] = &[
    &["info", "--pmem", "{}"],
    &["info", "{}"],
    &["check", "{}"],
    &["serve", "--pmem", "{}", "--listen", "unix:{folder}/s"],
    &["serve", "--pmem", "{}", "--read-only", "--listen", "unix:{folder}/s"],
    &["stat", "--pmem", "{}"],
    &["stat", "--control", "{}"],
    &["stop", "{}"],
    &["stop", "--control", "{}"],
    &["flush", "--pmem", "{}", "--wait"],
    &["mode", "--pmem", "{}", "write-through"],
    &["detach", "--pmem", "{}"],
    &["attach", "--pmem", "{}", "--disk", "{folder}/good-disk"],
    &["resize", "--pmem", "{}", "--size", "64M"],
    &["salvage", "--pmem", "{}", "--to", "{folder}/salvaged"],
    &["scrub", "--pmem", "{}"],
    &["replay", "{}", "--force"],
    &["status", "{}"],
    &["recover", "{}"],
    &["create", "--pmem", "{}", "--size", "1000"],
    &["serve", "--config", "{}"],
    &["doctor", "{}"],
    &["config", "check", "{}"],
];

/// A folder's files as they are: what they are and what they hold.
fn state(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let state = |path: PathBuf| {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let bytes = if kind.is_file() { fs::read(&path).unwrap_or_default() } else { format!("{kind:?}").into_bytes() };
        (path, bytes)
    };
    paths(folder).map(state).collect()
}

/// When each of a folder's files was last changed, and its length: every change of a file shows.
fn stamps(folder: &Path) -> BTreeMap<PathBuf, [i64; 5]> {
    let stamp = |path: PathBuf| {
        let file = fs::symlink_metadata(&path).unwrap();
        let length = file.size().try_into().unwrap();
        (path, [length, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()])
    };
    paths(folder).map(stamp).collect()
}

fn paths(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

/// Runs a command that is to end soon.
fn timed(program: &Command) -> Ended {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", DEADLINE_SECONDS]).arg(program.get_program()).args(program.get_args());
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What is wrong with how a command refused, if anything is.
fn complaint(ended: &Ended, codes: &[i32]) -> Option<String> {
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let told = lines.windows(3).any(|three| {
        three[0].starts_with("tidegate: error: ") && three[1].starts_with("  why: ") && three[2].starts_with("  next: ")
    });
    let ill = !codes.contains(&ended.code) || !told || ended.stderr.contains("panicked");
    ill.then(|| format!("exit {} (of {codes:?}): {}{}", ended.code, ended.stdout, ended.stderr))
}

/// Runs each of `lines` of words in turn, and fails with everything that is wrong with how one was
/// refused, or with what it left.
fn refuse_all(folder: &Folder, lines: impl IntoIterator<Item = (Command, Vec<String>, &'static [i32])>) -> usize {
    let (bytes, mut before) = (state(folder.0.path()), stamps(folder.0.path()));
    let (mut complaints, mut tried) = (Vec::new(), 0);
    for (mut program, words, codes) in lines {
        if let Some(complaint) = complaint(&timed(program.args(&words)), codes) {
            complaints.push(format!("{words:?}: {complaint}"));
        }
        let mut after = stamps(folder.0.path());
        if after != before {
            for (path, _) in state(folder.0.path()).iter().filter(|(path, holds)| bytes.get(*path) != Some(holds)) {
                complaints.push(format!("{words:?} made or changed {}", path.display()));
            }
        }
        for (path, _) in after.extract_if(.., |path, _| !bytes.contains_key(path)) {
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        before = after;
        tried += 1;
    }
    assert!(state(folder.0.path()) == bytes, "some line removed or changed a file");
    assert!(complaints.is_empty(), "{} complaints in {tried} lines:\n{}", complaints.len(), complaints.join("\n"));
    tried
}

/// The words of `line` with `path` and the folder in their places.
fn filled(folder: &Folder, line: &[&str], path: &str) -> Vec<String> {
    let folder = folder.0.path().to_str().unwrap();
    line.iter().map(|word| word.replace("{}", path).replace("{folder}", folder)).collect()
}

/// A folder with a small disk and every wrong file.
fn stocked() -> Folder {
    let folder = Folder::new();
    sized(&folder.path("good-disk"), 1 << 20);
    WRONG.iter().for_each(|wrong| (wrong.make)(&folder.path(wrong.name)));
    folder
}

#[test]
fn every_command_refuses_every_wrong_file_and_leaves_it() {
    let folder = stocked();
    let lines = WRONG.iter().flat_map(|wrong| COMMANDS.iter().map(move |line| (wrong, line)));
    let lines = lines.map(|(wrong, line)| {
        let words = filled(&folder, line, &folder.text(wrong.name));
        (tidegate(), words, &[USAGE, REFUSED, ENVIRONMENT][..])
    });
    assert!(refuse_all(&folder, lines) >= 200);
}

#[test]
fn every_command_of_another_user_is_refused_in_words() {
    need_root("make files that another user may not read");
    let folder = stocked();
    let nobody = as_nobody(&folder).get_program().to_owned();
    let closed = folder.text("closed");
    folder.volume("closed");
    let lines = COMMANDS.iter().map(|line| {
        let mut program = Command::new("setpriv");
        program.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        program.arg(&nobody);
        (program, filled(&folder, line, &closed), &[USAGE, REFUSED, ENVIRONMENT][..])
    });
    refuse_all(&folder, lines);
}

/// Configuration files that cannot be meant.
const CONFIGURATIONS: &[&str] = &[
    "",
    "=",
    "[[volume]]",
    "[volume]\npmem = \"v\"",
    "[[volume]]\npmem = 1",
    "[[volume]]\npmem = \"\"",
    "[[volume]]\npmem = \"v\"\nread_only = \"yes\"",
    "[[volume]]\npmem = \"v\"\nsize = \"1G\"",
    "[[volume]]\npmem = \"v\"\nemulate = \"tape\"",
    "[[volume]]\npmem = \"v\"\nwrite_cache = \"lots\"",
    "[[volume]]\npmem = \"v\"\nwrite_cache = \"1\"",
    "[[volume]]\npmem = \"v\"\ndisk_mode = \"write-sideways\"",
    "[[volume]]\npmem = \"v\"\nreplacement = \"mru\"",
    "[[volume]]\npmem = \"v\"\nread_admission = \"sometimes\"",
    "[[volume]]\npmem = \"v\"\ndirty_percent = 0",
    "[[volume]]\npmem = \"v\"\ndirty_percent = 101",
    "[[volume]]\npmem = \"v\"\ndirty_age = -1",
    "[[volume]]\npmem = \"v\"\nwear_leveling = 0",
    "[[volume]]\npmem = \"v\"\n[[volume]]\npmem = \"v\"",
    "[[volume]]\npmem = \"a\"\nname = \"x\"\n[[volume]]\npmem = \"b\"\nname = \"x\"",
    "listen = [\"/tmp/x\"]\n[[volume]]\npmem = \"v\"",
    "listen = [1]\n[[volume]]\npmem = \"v\"",
    "listen = [\"tcp:0.0.0.0:1\"]\n[[volume]]\npmem = \"v\"",
    "socket_mode = \"rw\"\n[[volume]]\npmem = \"v\"",
    "allow_uid = [\"no such\"]\n[[volume]]\npmem = \"v\"",
    "allow_gid = [\"no such\"]\n[[volume]]\npmem = \"v\"",
    "connections_max = 0\n[[volume]]\npmem = \"v\"",
    "tls_certificate = \"c\"\n[[volume]]\npmem = \"v\"",
    "metrics = \"tcp:0.0.0.0:1\"\n[[volume]]\npmem = \"v\"",
    "metrics_token = \"t\"\n[[volume]]\npmem = \"v\"",
    "metrics = \"tcp:127.0.0.1:1\"\nmetrics_token = \"none\"\n[[volume]]\npmem = \"v\"",
    "unheard_of = 1\n[[volume]]\npmem = \"v\"",
    "[[volume]]\npmem = \"v\"\npmem = \"w\"",
];

#[test]
fn every_wrong_configuration_file_is_refused() {
    let folder = Folder::new();
    for (number, text) in CONFIGURATIONS.iter().enumerate() {
        fs::write(folder.path(&format!("{number}.toml")), text).unwrap();
    }
    fs::write(folder.path("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    let names = (0..CONFIGURATIONS.len()).map(|number| format!("{number}.toml")).chain(["binary.toml".to_owned()]);
    let words = |name: String| filled(&folder, &["serve", "--config", "{}"], &folder.text(&name));
    refuse_all(&folder, names.map(|name| (tidegate(), words(name), &[USAGE, REFUSED, ENVIRONMENT][..])));
}

#[test]
fn every_place_that_cannot_be_listened_on_is_refused() {
    let folder = stocked();
    let volume = folder.volume("volume");
    let long = format!("unix:{}/{}", folder.0.path().display(), "x".repeat(200));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp:{}", taken.local_addr().unwrap());
    let places = ["unix:{folder}/text", "unix:{folder}/folder", "unix:/proc/s", &long, &taken];
    let lines = places.iter().flat_map(|place| {
        let serve = ["serve", "--pmem", "{}"];
        let listen = [&serve[..], &["--insecure", "--listen", place]].concat();
        let control = place
            .strip_prefix("unix:")
            .map(|path| [&serve[..], &["--listen", "unix:{folder}/s", "--control", path]].concat());
        let lines = std::iter::once(listen).chain(control).map(|line| filled(&folder, &line, &volume));
        lines.collect::<Vec<_>>()
    });
    let lines: Vec<_> = lines.collect();
    refuse_all(&folder, lines.into_iter().map(|words| (tidegate(), words, &[USAGE, REFUSED, IN_USE, ENVIRONMENT][..])));
}
