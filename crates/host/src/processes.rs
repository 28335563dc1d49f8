//! Processes of this program, by what the kernel tells of each: the unix sockets it listens on, and
//! the files it has locked. Programs that this one starts: the library that is loaded into them,
//! and their end.

use crate::default_paths::volume_of_control_socket;
use crate::owned;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// The flag of a socket that listens.
const LISTENS: u32 = 0x1_0000;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// The sockets it listens on.
    pub sockets: Vec<PathBuf>,
    /// Files that it has locked.
    pub locked: Vec<PathBuf>,
}

impl Process {
    /// The process `pid`, as far as this user may look at it.
    pub fn at(pid: u32) -> Option<Process> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let user = proc.metadata().ok()?.uid();
        let folder = fs::read_link(proc.join("cwd")).ok()?;
        let mut process = Process { pid, user, sockets: Vec::new(), locked: Vec::new() };
        let mut inodes = HashSet::new();
        for entry in fs::read_dir(proc.join("fd")).ok()?.flatten() {
            let Ok(open) = fs::read_link(entry.path()) else { continue };
            if let Some(inode) = socket_inode(&open) {
                inodes.insert(inode.to_owned());
            } else if open.is_absolute() && is_locked(&proc.join("fdinfo").join(entry.file_name())) {
                process.locked.push(open);
            }
        }
        process.locked.sort();
        process.locked.dedup();
        let table = fs::read(proc.join("net/unix")).unwrap_or_default();
        let entries = socket_entries(&table);
        let own = entries.iter().filter_map(|entry| listener(entry)).filter(|(inode, _)| inodes.contains(*inode));
        // A path is as it was when the socket was opened.
        process.sockets = own.map(|(_, path)| folder.join(path)).collect();
        Some(process)
    }

    /// Those of its sockets that are named as control sockets are by default.
    pub fn control_sockets(&self) -> Vec<&PathBuf> {
        self.sockets.iter().filter(|path| volume_of_control_socket(path).is_some()).collect()
    }

    /// Whether it listens on a socket of this name.
    pub fn listens_as(&self, socket: &Path) -> bool {
        self.sockets.iter().any(|own| own.file_name() == socket.file_name())
    }
}

/// Those of this program that belong to this user; for root those of every user. This one is none
/// of them.
pub fn of_this_user() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: Vec<_> = numbers
        .filter(|pid| *pid != std::process::id() && is_this_program(*pid))
        .filter_map(Process::at)
        .filter(|process| owned::own() == 0 || process.user == owned::own())
        .collect();
    all.sort_by_key(|process| process.pid);
    all
}

fn is_this_program(pid: u32) -> bool {
    let named = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "tidegate");
    let program = |pid: &str| fs::metadata(format!("/proc/{pid}/exe")).map(|about| (about.dev(), about.ino())).ok();
    named || program("self").is_some_and(|own| program(&pid.to_string()) == Some(own))
}

/// The inode of a socket, as a descriptor's link names it.
fn socket_inode(link: &Path) -> Option<&str> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')
}

/// Whether the descriptor that the kernel describes at `about` has a lock.
fn is_locked(about: &Path) -> bool {
    fs::read_to_string(about).is_ok_and(|about| about.lines().any(|line| line.starts_with("lock:")))
}

/// The sockets in the text of `/proc/net/unix`: a path may have ends of lines, which the kernel
/// writes as they are.
fn socket_entries(table: &[u8]) -> Vec<&[u8]> {
    let (mut entries, mut begin) = (Vec::new(), 0);
    let ends = table.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end);
    for end in ends.filter(|end| table.get(end + 1).is_none() || begins_entry(&table[end + 1..])) {
        entries.push(&table[begin..end]);
        begin = end + 1;
    }
    entries
}

/// Whether `rest` begins as the kernel begins a socket in `/proc/net/unix`: its address, how many
/// use it, and the protocol, which is zero.
fn begins_entry(rest: &[u8]) -> bool {
    let mut words = rest.splitn(4, u8::is_ascii_whitespace);
    let is_number = |digits: &[u8]| digits.len() == 8 && digits.iter().all(u8::is_ascii_hexdigit);
    words.next().is_some_and(|address| address.ends_with(b":"))
        && words.next().is_some_and(is_number)
        && words.next() == Some(b"00000000")
}

/// The inode and the path of a socket that listens, in its entry of `/proc/net/unix`.
fn listener(entry: &[u8]) -> Option<(&str, &Path)> {
    // Num RefCount Protocol Flags Type St Inode Path
    let mut rest = entry;
    let mut words = [""; 7];
    for word in &mut words {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace)?;
        *word = str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end..];
    }
    let path = Path::new(OsStr::from_bytes(rest.strip_prefix(b" ")?));
    let listens = u32::from_str_radix(words[3], 16).is_ok_and(|flags| flags & LISTENS != 0);
    // Names that begin otherwise are no files.
    (listens && !rest.starts_with(b" @")).then_some((words[6], path))
}

/// Where packages put libraries for programs, seen from this program's folder.
const LIBRARIES: &str = "../lib/tidegate";

/// What the loader reads.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The library `name` for programs that this one starts, beside it or where packages put it; or
/// where it was looked for.
pub fn library_for_programs(name: &str) -> io::Result<Result<PathBuf, Vec<PathBuf>>> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(name), folder.join(LIBRARIES).join(name)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => place.canonicalize().map(Ok),
        None => Ok(Err(places.to_vec())),
    }
}

/// The value of [`PRELOAD`] with which the loader loads `library` before `others`.
pub fn preloading(library: &Path, others: Option<OsString>) -> OsString {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

/// What a shell would say of a program's end: its exit code, or 128 and the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_is_known_by_the_sockets_it_listens_on_and_the_files_it_locked() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        let (socket, file) = (folder.join("a\nsocket"), folder.join("file"));
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let locked = fs::File::create(&file).expect("a file");
        let unlocked = fs::File::create(folder.join("other")).expect("a file");
        locked.lock().expect("nobody has it");
        let own = Process::at(std::process::id()).expect("this process");
        assert_eq!(own.user, owned::own());
        assert!(own.sockets.contains(&socket) && own.listens_as(Path::new("/elsewhere/a\nsocket")), "{own:?}");
        assert!(own.locked.contains(&file) && !own.locked.contains(&folder.join("other")), "{own:?}");
        drop(unlocked);
    }

    #[test]
    fn only_sockets_that_listen_and_are_files_count() {
        let line = |flags: &str, path: &str| format!("0000: 00000002 00000000 {flags} 0001 01 4711{path}");
        let read = |line: &str| listener(line.as_bytes()).map(|(inode, path)| (inode.to_owned(), path.to_owned()));
        assert_eq!(read(&line("00010000", " /a b")), Some(("4711".to_owned(), "/a b".into())));
        assert_eq!(read(&line("00000000", " /a b")), None);
        assert_eq!(read(&line("00010000", " @abstract")), None);
        assert_eq!(read(&line("00010000", "")), None);
        assert_eq!(read("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn a_path_with_ends_of_lines_is_one_entry() {
        let head = "0000: 00000002 00000000 00010000 0001 01 4711";
        let table = format!("Num RefCount\n{head} /a\nb\n\n{head}\n{head} /c\n");
        let read: Vec<_> = socket_entries(table.as_bytes()).into_iter().filter_map(listener).collect();
        assert_eq!(read, [("4711", Path::new("/a\nb\n")), ("4711", Path::new("/c"))]);
    }

    #[test]
    fn the_library_is_loaded_preloading() {
        let library = Path::new("/lib/a.so");
        assert_eq!(preloading(library, None), "/lib/a.so");
        assert_eq!(preloading(library, Some(OsString::new())), "/lib/a.so");
        assert_eq!(preloading(library, Some("b.so".into())), "/lib/a.so:b.so");
    }

    #[test]
    fn exit_codes_are_the_programs_or_128_and_the_signal() {
        assert_eq!([0, 7 << 8, 9].map(|raw| exit_code(ExitStatus::from_raw(raw))), [0, 7, 137]);
    }
}
