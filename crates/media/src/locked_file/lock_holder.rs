//! The holder of a lock that another process wants, as far as the kernel tells.
//!
//! A process that was killed may hold its locks for a while: the kernel ends its requests to disks
//! first, and a ring of them outlives its process. And the lock belongs to the open file, which
//! children share: it may be held by another process than the one that took it.

use rustix::fd::AsRawFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel tells its list of locks a page at a time, and leaves one out if others end meanwhile:
/// so often it is asked for a lock that somebody must have.
const LOOKS_MAX: u32 = 4;

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// A process that goes on.
    Living {
        /// Its number.
        pid: u32,
        /// The name of its program.
        program: String,
        /// Whether it shares the lock with others who only look.
        shared: bool,
    },
    /// A process that was killed, and that the kernel is about to end.
    Ending {
        /// Its number.
        pid: u32,
    },
    /// Nobody uses the block device but the kernel, as it is mounted.
    Mount {
        /// Where.
        at: PathBuf,
    },
    /// The kernel uses the disk otherwise: for a loop device, for swap, for a device that is made
    /// of it.
    User {
        /// What it does, as in "the system swaps to it".
        by: String,
    },
    /// A process that asked for no lock has the file open for writing.
    Writer {
        /// Its number.
        pid: u32,
        /// The name of its program.
        program: String,
    },
    /// Nobody who can be seen: a process that is gone, but for requests that the kernel has yet to
    /// end, or one of another container.
    Unseen,
}

impl LockHolder {
    /// Whose lock keeps others from `file`.
    pub(crate) fn of(file: &File) -> LockHolder {
        if let Some(at) = mounted_at(file) {
            return LockHolder::Mount { at };
        }
        let Some(key) = key_of(file) else { return LockHolder::Unseen };
        (0..LOOKS_MAX).find_map(|_| LockHolder::listed(&key)).unwrap_or(LockHolder::Unseen)
    }

    /// The holder, as one look at the kernel's list of locks shows it.
    fn listed(key: &str) -> Option<LockHolder> {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let taken: Vec<Lock> = locks.lines().filter_map(|line| Lock::parse(line, key)).collect();
        let by_who_took_it = taken.iter().filter_map(|lock| holder(lock.pid, lock.shared));
        // Whoever took it is gone: a child of it may have the file open yet.
        by_who_took_it.chain(inherited(key, &taken)).next()
    }

    /// Whose lock keeps others from the file at `path`, which cannot be opened as it is in use.
    pub(crate) fn of_path(path: &Path) -> LockHolder {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        file.map_or(LockHolder::Unseen, |file| LockHolder::of(&File::from(file)))
    }

    /// Whether the lock may soon be free without anybody's doing. Not that of a program like this
    /// one: it has what it opened for itself until it ends. And whoever only looks ends soon.
    pub(crate) fn may_let_go(&self) -> bool {
        match self {
            LockHolder::Living { shared: true, .. } | LockHolder::Ending { .. } | LockHolder::Unseen => true,
            // It may be a server that has given up its lock and is about to end, too.
            LockHolder::Writer { .. } => true,
            LockHolder::Living { program, .. } => {
                program != "tidegate" && Some(program) != program_of(std::process::id()).as_ref()
            }
            LockHolder::Mount { .. } | LockHolder::User { .. } => false,
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockHolder::Living { pid, program, .. } => write!(f, "process {pid} ({program}) holds its lock"),
            LockHolder::Ending { pid } => {
                write!(f, "process {pid}, which was killed, holds its lock until the kernel has ended its requests")
            }
            LockHolder::Mount { at } => write!(f, "it is mounted at {}", at.display()),
            LockHolder::User { by } => f.write_str(by),
            LockHolder::Writer { pid, program } => write!(f, "process {pid} ({program}) has it open for writing"),
            LockHolder::Unseen => f.write_str("a process holds its lock that has ended, or cannot be seen from here"),
        }
    }
}

/// A line of /proc/locks about a file.
struct Lock {
    pid: u32,
    shared: bool,
}

impl Lock {
    /// Such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. Behind `->` is one who waits.
    fn parse(line: &str, key: &str) -> Option<Lock> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, kind, pid, of, ..] if of == key => {
                // Of another container the number is 0 or negative.
                Some(Lock { pid: pid.parse().unwrap_or(0), shared: kind == "READ" })
            }
            _ => None,
        }
    }
}

/// How the kernel calls `file` where it tells of locks: the device of its file system and its
/// inode.
fn key_of(file: &File) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let number = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let inode = match number("ino:") {
        Some(inode) => inode.to_owned(),
        // Kernels before 5.14 do not tell.
        None => file.metadata().ok()?.ino().to_string(),
    };
    // What `stat` tells as its device may be another for each subvolume.
    let device = device_of_mount(&fs::read("/proc/self/mountinfo").ok()?, number("mnt_id:")?)?;
    let (major, minor) = device.split_once(':')?;
    Some(format!("{:02x}:{:02x}:{inode}", major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
}

/// The number of each mount, its device and its place, as the kernel's table has them. Any mount of
/// the machine may have a place that is no text.
fn rows(mounts: &[u8]) -> impl Iterator<Item = [&[u8]; 3]> {
    mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        Some([fields.next()?, fields.nth(1)?, fields.nth(1)?])
    })
}

/// The device of a mount by its number.
fn device_of_mount(mounts: &[u8], mount: &str) -> Option<String> {
    let [_, device, _] = rows(mounts).find(|[number, ..]| *number == mount.as_bytes())?;
    String::from_utf8(device.to_vec()).ok()
}

/// Where the block device `file` is mounted.
fn mounted_at(file: &File) -> Option<PathBuf> {
    let stat = fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return None;
    }
    let device = format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev));
    mounted_at_number(&device)
}

/// Where the block device of this number, as in `7:0`, is mounted.
pub(crate) fn mounted_at_number(number: &str) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let [.., place] = rows(&mounts).find(|[_, device, _]| *device == number.as_bytes())?;
    Some(unescaped(place))
}

/// A path in one of the kernel's tables, where `\040` is a space.
pub(crate) fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let number = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(number.unwrap_or(*first));
        rest = if number.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

/// The process with this number, if there is one.
fn holder(pid: u32, shared: bool) -> Option<LockHolder> {
    let program = program_of(pid)?;
    let about = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    match is_ending(&about("stat"), &about("status")) {
        true => Some(LockHolder::Ending { pid }),
        false => Some(LockHolder::Living { pid, program, shared }),
    }
}

fn program_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// Whether the kernel is about to end the process of which it tells this, or somebody has killed
/// it.
fn is_ending(stat: &str, status: &str) -> bool {
    const EXITING: u32 = 4;
    const KILL: u64 = 1 << 8;
    // The program's name, in parentheses, may have any letters.
    let behind_the_name: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let is_dead = matches!(behind_the_name.first(), Some(&("Z" | "X" | "x")));
    let flags = behind_the_name.get(6).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
    let pending = |name: &str| {
        let signals = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        signals.and_then(|signals| u64::from_str_radix(signals, 16).ok()).unwrap_or(0)
    };
    is_dead || flags & EXITING != 0 || (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0
}

/// Processes that have a file open whose lock another one took, which is gone.
fn inherited<'a>(key: &'a str, taken: &'a [Lock]) -> impl Iterator<Item = LockHolder> + use<'a> {
    let processes = (!taken.is_empty()).then(|| fs::read_dir("/proc").ok()).flatten();
    let numbers =
        processes.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(move |pid: &u32| has_locked(*pid, key)).filter_map(|pid| holder(pid, taken[0].shared))
}

/// Whether a descriptor of the process `pid` has the lock of the file that is called `key`.
fn has_locked(pid: u32, key: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let mut told = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    told.any(|about| {
        let locks = about.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.filter_map(|lock| Lock::parse(lock, key)).next().is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locked_file::map_error::MapError;
    use crate::locked_file::{LockedFile, when_unlocked};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    fn file(path: &Path) -> File {
        File::options().create(true).truncate(false).write(true).open(path).expect("a file")
    }

    /// A program of another name that has the lock of `path` until its input ends.
    fn locker(path: &Path) -> std::process::Child {
        let mut locker = Command::new("flock");
        locker.arg(path).args(["sh", "-c", "echo locked; read -r line"]);
        let mut locker = locker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("flock, of util-linux");
        let mut said = [0; 7];
        std::io::Read::read_exact(locker.stdout.as_mut().expect("piped"), &mut said).expect("it says so");
        locker
    }

    fn holder_of(refused: Result<LockedFile, MapError>) -> LockHolder {
        match refused {
            Err(MapError::InUse { holder, .. }) => holder,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mount_whose_path_is_no_text_hides_no_other_one() {
        let mounts = b"30 1 8:1 / /m\xff rw - ext4 /dev/sda1 rw\n31 1 7:2 / /n rw - ext4 /dev/loop2 rw\n";
        assert_eq!(device_of_mount(mounts, "31").as_deref(), Some("7:2"));
        assert_eq!(device_of_mount(mounts, "32"), None);
    }

    #[test]
    fn paths_in_tables_of_the_kernel_are_read_as_they_are() {
        assert_eq!(unescaped(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescaped(br"/a\04"), Path::new(r"/a\04"));
    }

    #[test]
    fn a_holder_is_told_and_waited_for_once_it_lets_go() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let mut other = locker(&path);
        let (mut told, mut input) = (Vec::new(), other.stdin.take());
        let tell = |path: &Path, holder: &LockHolder| {
            told.push((path.to_owned(), holder.clone()));
            drop(input.take());
        };
        let an_hour = Duration::from_secs(3600);
        when_unlocked(an_hour, tell, || LockedFile::exclusive(&path, file(&path))).expect("it lets go");
        let program = "flock".to_owned();
        assert_eq!(told, [(path, LockHolder::Living { pid: other.id(), program, shared: false })]);
        assert!(other.wait().is_ok());
    }

    #[test]
    fn whoever_inherits_a_lock_is_named_and_patience_ends() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let mut other = locker(&path);
        let _input = other.stdin.take();
        // Its child has the file, and the lock.
        other.kill().and_then(|()| other.wait()).expect("it ends");
        let holder = holder_of(LockedFile::exclusive(&path, file(&path)));
        assert!(matches!(&holder, LockHolder::Living { program, .. } if program == "sh"), "{holder:?}");
        let mut told = 0;
        let refused = when_unlocked(Duration::ZERO, |_, _| told += 1, || LockedFile::exclusive(&path, file(&path)));
        assert_eq!((holder_of(refused), told), (holder, 0));
    }

    #[test]
    fn a_program_of_the_same_name_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("file");
        let _own = LockedFile::exclusive(&path, file(&path)).expect("nobody has it");
        let waits = |_: &Path, _: &LockHolder| panic!("it waits");
        let an_hour = Duration::from_secs(3600);
        let holder = holder_of(when_unlocked(an_hour, waits, || LockedFile::shared(&path, file(&path))));
        assert!(matches!(holder, LockHolder::Living { pid, .. } if pid == std::process::id()), "{holder:?}");
        let living = |program: &str, shared| LockHolder::Living { pid: 1, program: program.to_owned(), shared };
        assert!(!living("tidegate", false).may_let_go() && living("tidegate", true).may_let_go());
    }

    #[test]
    fn a_killed_process_is_told_from_one_that_goes_on() {
        let stat = |state: &str, flags: u32| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 9");
        let status = |pending: &str| format!("SigQ:\t0/1\nSigPnd:\t0000000000000000\nShdPnd:\t{pending}\n");
        let quiet = status("0000000000000000");
        assert!(!is_ending(&stat("S", 0x40_0000), &quiet));
        assert!(is_ending(&stat("Z", 0), &quiet) && is_ending(&stat("D", 0x40_0004), &quiet));
        assert!(is_ending(&stat("D", 0), &status("0000000000000100")));
        assert!(!is_ending("", ""), "nothing is known");
    }
}
