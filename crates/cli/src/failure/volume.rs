//! Region files that cannot be used, and volumes in them that are refused.

use super::{Doing, Exit, Told};
use crate::create::size_in_place_of;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_btt::OpenError;
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::{Corrupt, LockHolder, MapError, Poison};

/// Why a region file, or the volume in it, is not used.
#[derive(Debug)]
pub(crate) enum VolumeFailure {
    /// No file of this name.
    Absent {
        /// The region file.
        path: PathBuf,
    },
    /// No folder to create the file in.
    NoFolder {
        /// The region file.
        path: PathBuf,
    },
    /// A folder, socket or the like where a file should be.
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is, as a phrase.
        kind: &'static str,
    },
    /// `create` met a file that already holds something.
    Exists {
        /// The region file.
        path: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// Another process holds the file's lock.
    InUse {
        /// The region file.
        path: PathBuf,
        /// Which.
        holder: LockHolder,
    },
    /// The file holds no volume at all, only zeroes.
    Blank {
        /// The region file.
        path: PathBuf,
        /// Bytes in the file.
        bytes: u64,
    },
    /// The file holds something that is no volume.
    Foreign {
        /// The region file.
        path: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// Something else lies where the volume begins.
    Overwritten {
        /// The region file.
        path: PathBuf,
        /// What was recognised there.
        holds: String,
    },
    /// The file is shorter than the volume in it.
    CutShort {
        /// The region file.
        path: PathBuf,
        /// Bytes the volume needs.
        needs: u64,
        /// Bytes in the file.
        has: u64,
    },
    /// The volume is of a version this program does not know.
    Version {
        /// The region file.
        path: PathBuf,
        /// The version found.
        found: String,
    },
    /// The volume breaks rules of its format.
    Damaged {
        /// The region file.
        path: PathBuf,
        /// The first rule broken, where, and how many more.
        why: String,
    },
    /// Nothing tells any more where the volume's parts lie.
    BeyondRepair {
        /// The region file.
        path: PathBuf,
        /// The rule broken, and where.
        why: String,
    },
    /// A repair would give blocks up, and nobody consented.
    RepairLoses {
        /// The region file.
        path: PathBuf,
        /// Which blocks.
        why: String,
    },
    /// A cache of a disk breaks rules of its format.
    BrokenCache {
        /// The region file.
        path: PathBuf,
        /// The first rule broken, and where.
        why: String,
    },
    /// A device of fixed size was asked for another.
    DeviceSize {
        /// The device.
        path: PathBuf,
        /// Bytes it has.
        bytes: u64,
    },
    /// The medium holds bytes it cannot give back.
    Unreadable {
        /// The region file.
        path: PathBuf,
        /// Which bytes.
        why: String,
    },
    /// The medium neither gives back what a repair needs nor takes what it stores in its place.
    NotRepairable {
        /// The region file.
        path: PathBuf,
        /// What the medium answered.
        why: String,
    },
    /// The last flush failed, or stores were lost on the way.
    NotDurable {
        /// The region file.
        path: PathBuf,
        /// What the medium answered.
        why: String,
    },
    /// Blocks of the volume are in its cache only.
    InCache {
        /// The region file.
        path: PathBuf,
        /// The cache's file.
        cache: PathBuf,
        /// Why they are not in the region.
        trouble: CacheTrouble,
    },
    /// The file system cannot allocate in advance.
    CannotAllocate {
        /// The region file.
        path: PathBuf,
    },
    /// A file that is there gets no room for more.
    NotLonger {
        /// The region file.
        path: PathBuf,
        /// What kind of refusal it is.
        kind: &'static str,
        /// What the system says.
        why: String,
    },
    /// More bytes than the system can map or the file system can hold.
    TooLarge {
        /// The region file.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
    },
    /// Not enough room for the region file.
    NoSpace {
        /// The region file.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
    },
    /// The system refused for want of permission.
    Denied {
        /// The region file.
        path: PathBuf,
        /// What was tried.
        doing: Doing,
    },
    /// The file is on a file system mounted for reading only, or marked immutable.
    ReadOnly {
        /// The region file.
        path: PathBuf,
    },
    /// Any other answer of the system.
    Io {
        /// The region file.
        path: PathBuf,
        /// What was tried.
        doing: Doing,
        /// What the system answered.
        error: io::Error,
    },
}

/// Whether what the system said is about the words of a path, not about what lies there.
pub(super) fn is_of_the_path(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG))
}

/// Why blocks in a cache are not in its volume.
#[derive(Debug)]
pub(crate) enum CacheTrouble {
    /// A killed server left them, and they could not be written.
    NotCompleted {
        /// What was in the way.
        why: String,
    },
    /// A killed server left them, and the volume is not to be changed.
    ReadOnly,
    /// A killed server left them, and the volume is damaged: it must not be written before it was
    /// repaired.
    Damaged,
    /// There is no room for a cache of the size that was asked for.
    NoRoom {
        /// Bytes of its file.
        bytes: u64,
    },
    /// The region failed while the cache was drained.
    NotDrained {
        /// Bytes of them.
        bytes: u64,
        /// What the region answered.
        why: String,
    },
}

impl CacheTrouble {
    fn class(&self) -> (&'static str, Exit) {
        match self {
            CacheTrouble::NotCompleted { .. } => ("cache-not-completed", Exit::Refused),
            CacheTrouble::ReadOnly | CacheTrouble::Damaged => ("cache-left", Exit::Refused),
            CacheTrouble::NoRoom { .. } => ("cache-no-space", Exit::Environment),
            CacheTrouble::NotDrained { .. } => ("not-drained", Exit::Environment),
        }
    }

    fn what_and_why(&self, path: &Path, cache: &Path) -> (String, String) {
        let (path, cache) = (path.display(), cache.display());
        match self {
            CacheTrouble::NotCompleted { why } => {
                (format!("{path} lacks blocks that a killed server left in {cache}"), why.clone())
            }
            CacheTrouble::ReadOnly => (
                format!("{path} lacks blocks that a killed server left in its cache"),
                format!("{cache} holds them, and the volume is not to be changed"),
            ),
            CacheTrouble::Damaged => (
                format!("{path} lacks blocks that a killed server left in its cache"),
                format!("{cache} holds them, and the volume is too damaged to be written"),
            ),
            CacheTrouble::NoRoom { bytes } => (
                format!("{path} cannot have that cache"),
                format!("{bytes} bytes ({}) have no room in {cache}", Human(*bytes)),
            ),
            CacheTrouble::NotDrained { bytes, why } => {
                (format!("{bytes} bytes ({}) of {path} are still in {cache}", Human(*bytes)), why.clone())
            }
        }
    }

    fn next(&self, path: &str, cache: &Path) -> String {
        match self {
            CacheTrouble::NotCompleted { .. } => {
                format!("keep {}: it is the only copy; if nobody needs the blocks, remove it", cache.display())
            }
            CacheTrouble::ReadOnly => {
                format!("serve it once without --read-only, which completes it: tidegate serve --pmem {path}")
            }
            CacheTrouble::Damaged => format!(
                "keep a copy of the volume, then repair it and serve it, which completes it: tidegate check --repair --pmem {path}"
            ),
            CacheTrouble::NoRoom { .. } => "ask for a smaller one, or for none: --write-cache off".to_owned(),
            CacheTrouble::NotDrained { .. } => {
                format!("do not switch the machine off; see dmesg, then serve it again: tidegate serve --pmem {path}")
            }
        }
    }
}

impl VolumeFailure {
    /// What the memory says when a region cannot be mapped.
    pub(crate) fn of_map(doing: Doing, error: MapError) -> VolumeFailure {
        match error {
            MapError::NotFound { path } if doing == Doing::Create => VolumeFailure::NoFolder { path },
            MapError::NotFound { path } => VolumeFailure::Absent { path },
            MapError::AlreadyExists { path } => {
                VolumeFailure::Exists { path, holds: "what was made just now, or it is a link to nowhere".to_owned() }
            }
            MapError::InUse { path, holder } => VolumeFailure::InUse { path, holder },
            MapError::Permission { path } => VolumeFailure::Denied { path, doing },
            MapError::NoSpace { path, len } => VolumeFailure::NoSpace { path, bytes: len },
            MapError::CannotAllocate { path } => VolumeFailure::CannotAllocate { path },
            MapError::ReadOnlyFile { path } => VolumeFailure::ReadOnly { path },
            MapError::Empty { path } => VolumeFailure::Blank { path, bytes: 0 },
            MapError::TooLarge { path, len } => VolumeFailure::TooLarge { path, bytes: len },
            MapError::NotAFile { path, kind } => VolumeFailure::NotAFile { path, kind },
            MapError::Io { path, source, .. } => VolumeFailure::Io { path, doing, error: source },
        }
    }

    /// What the engine says when a region of `bytes` at `path` holds no volume it can use.
    pub(crate) fn of_open(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
        let path = path.to_owned();
        match error {
            OpenError::Blank => VolumeFailure::Blank { path, bytes },
            OpenError::Foreign { what } => VolumeFailure::Foreign { path, holds: what.to_owned() },
            OpenError::FirstCopyForeign { what, .. } => VolumeFailure::Overwritten { path, holds: what.to_owned() },
            OpenError::CutShort { needs, has } => VolumeFailure::CutShort { path, needs, has },
            OpenError::Corrupt(corrupt) | OpenError::Unwritable(corrupt) => VolumeFailure::of_corrupt(&path, corrupt),
            OpenError::Media(poison) => VolumeFailure::of_poison(&path, poison),
            OpenError::Sealed(sealed) => VolumeFailure::NotDurable { path, why: sealed.to_string() },
        }
    }

    /// Why the cache in `path` is not opened.
    pub(crate) fn of_open_cache(path: &Path, error: tidegate_disk_cache::OpenError) -> VolumeFailure {
        use tidegate_disk_cache::OpenError as Refused;
        match error {
            Refused::Unreadable(poison) | Refused::Device(tidegate_media::Error::Media(poison)) => {
                VolumeFailure::of_poison(path, poison)
            }
            Refused::Device(tidegate_media::Error::Sealed(sealed)) => {
                VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() }
            }
            other => VolumeFailure::BrokenCache { path: path.to_owned(), why: other.to_string() },
        }
    }

    /// What the check says when it finds no volume to check.
    pub(crate) fn of_check(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
        match VolumeFailure::of_open(path, bytes, error) {
            VolumeFailure::Damaged { path, why } => VolumeFailure::BeyondRepair { path, why },
            other => other,
        }
    }

    /// What a repair says that could not be made: the same, but for a medium that fails it.
    pub(crate) fn of_repair(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
        match VolumeFailure::of_check(path, bytes, error) {
            VolumeFailure::Unreadable { path, why } | VolumeFailure::NotDurable { path, why } => {
                VolumeFailure::NotRepairable { path, why }
            }
            other => other,
        }
    }

    /// A broken rule; one about versions is told apart, for nothing may be broken there.
    fn of_corrupt(path: &Path, corrupt: Corrupt) -> VolumeFailure {
        let path = path.to_owned();
        match corrupt {
            Corrupt { rule, found, .. } if rule.contains("version") => VolumeFailure::Version { path, found },
            corrupt => VolumeFailure::Damaged { path, why: corrupt.to_string() },
        }
    }

    /// Bytes the medium does not give back.
    pub(crate) fn of_poison(path: &Path, poison: Poison) -> VolumeFailure {
        VolumeFailure::Unreadable { path: path.to_owned(), why: poison.to_string() }
    }

    /// What the system says when a file or folder cannot be used.
    pub(crate) fn of_io(path: &Path, doing: Doing, error: io::Error) -> VolumeFailure {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound if doing != Doing::Create => VolumeFailure::Absent { path },
            io::ErrorKind::PermissionDenied => VolumeFailure::Denied { path, doing },
            io::ErrorKind::ReadOnlyFilesystem => VolumeFailure::ReadOnly { path },
            _ => VolumeFailure::Io { path, doing, error },
        }
    }

    /// What the system says when the `bytes` of a file cannot be allocated.
    pub(crate) fn of_allocation(path: &Path, bytes: u64, error: io::Error) -> VolumeFailure {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => VolumeFailure::NoSpace { path, bytes },
            io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => VolumeFailure::TooLarge { path, bytes },
            io::ErrorKind::Unsupported => VolumeFailure::CannotAllocate { path },
            _ => VolumeFailure::Io { path, doing: Doing::Create, error },
        }
    }

    /// What the system says when a file that is there cannot get room for `bytes`. It is as long as
    /// before.
    pub(crate) fn of_growth(path: &Path, bytes: u64, error: io::Error) -> VolumeFailure {
        match VolumeFailure::of_allocation(path, bytes, error) {
            VolumeFailure::Io { path, error, .. } => VolumeFailure::Io { path, doing: Doing::Write, error },
            refused => {
                let (kind, why) = (refused.kind().0, refused.what_and_why().1);
                VolumeFailure::NotLonger { path: path.to_owned(), kind, why }
            }
        }
    }

    pub(super) fn told(&self) -> Told {
        Told::of(self.kind(), self.what_and_why(), self.next())
    }

    fn kind(&self) -> (&'static str, Exit) {
        match self {
            VolumeFailure::Absent { .. } => ("absent", Exit::Refused),
            VolumeFailure::NoFolder { .. } => ("no-folder", Exit::Environment),
            VolumeFailure::NotAFile { .. } => ("not-a-file", Exit::Environment),
            VolumeFailure::Exists { .. } => ("exists", Exit::Refused),
            VolumeFailure::InUse { .. } => ("in-use", Exit::InUse),
            VolumeFailure::Blank { .. } => ("blank", Exit::Refused),
            VolumeFailure::Foreign { .. } => ("foreign", Exit::Refused),
            VolumeFailure::Overwritten { .. } => ("overwritten", Exit::Refused),
            VolumeFailure::CutShort { .. } => ("cut-short", Exit::Refused),
            VolumeFailure::Version { .. } => ("version", Exit::Refused),
            VolumeFailure::Damaged { .. } => ("damaged", Exit::Refused),
            VolumeFailure::BeyondRepair { .. } => ("beyond-repair", Exit::Refused),
            VolumeFailure::RepairLoses { .. } => ("repair-loses", Exit::Refused),
            VolumeFailure::BrokenCache { .. } => ("broken-cache", Exit::Refused),
            VolumeFailure::DeviceSize { .. } => ("device-size", Exit::Refused),
            VolumeFailure::Unreadable { .. } => ("unreadable", Exit::Environment),
            VolumeFailure::NotRepairable { .. } => ("not-repairable", Exit::Environment),
            VolumeFailure::NotDurable { .. } => ("not-durable", Exit::Environment),
            VolumeFailure::InCache { trouble, .. } => trouble.class(),
            VolumeFailure::CannotAllocate { .. } => ("cannot-allocate", Exit::Environment),
            VolumeFailure::NotLonger { kind, .. } => (kind, Exit::Environment),
            VolumeFailure::TooLarge { .. } => ("too-large", Exit::Environment),
            VolumeFailure::NoSpace { .. } => ("no-space", Exit::Environment),
            VolumeFailure::Denied { .. } => ("permission", Exit::Environment),
            VolumeFailure::ReadOnly { .. } => ("read-only", Exit::Environment),
            VolumeFailure::Io { .. } => ("io", Exit::Environment),
        }
    }

    /// The region file the failure is about.
    fn file(&self) -> &Path {
        match self {
            VolumeFailure::Absent { path }
            | VolumeFailure::NoFolder { path }
            | VolumeFailure::NotAFile { path, .. }
            | VolumeFailure::Exists { path, .. }
            | VolumeFailure::InUse { path, .. }
            | VolumeFailure::Blank { path, .. }
            | VolumeFailure::Foreign { path, .. }
            | VolumeFailure::Overwritten { path, .. }
            | VolumeFailure::CutShort { path, .. }
            | VolumeFailure::Version { path, .. }
            | VolumeFailure::Damaged { path, .. }
            | VolumeFailure::BeyondRepair { path, .. }
            | VolumeFailure::RepairLoses { path, .. }
            | VolumeFailure::BrokenCache { path, .. }
            | VolumeFailure::DeviceSize { path, .. }
            | VolumeFailure::Unreadable { path, .. }
            | VolumeFailure::NotRepairable { path, .. }
            | VolumeFailure::NotDurable { path, .. }
            | VolumeFailure::InCache { path, .. }
            | VolumeFailure::CannotAllocate { path }
            | VolumeFailure::NotLonger { path, .. }
            | VolumeFailure::TooLarge { path, .. }
            | VolumeFailure::NoSpace { path, .. }
            | VolumeFailure::Denied { path, .. }
            | VolumeFailure::ReadOnly { path }
            | VolumeFailure::Io { path, .. } => path,
        }
    }

    /// The same as it is shown.
    fn path(&self) -> std::path::Display<'_> {
        self.file().display()
    }

    /// What happened where the volume's structures or its medium say why.
    fn what_the_medium_did(&self) -> String {
        let path = self.path();
        match self {
            VolumeFailure::Damaged { .. } => format!("the volume in {path} is damaged"),
            VolumeFailure::BrokenCache { .. } => format!("the cache in {path} is damaged"),
            VolumeFailure::NotRepairable { .. } => format!("the volume in {path} cannot be repaired"),
            VolumeFailure::RepairLoses { .. } => format!("the volume in {path} was not repaired"),
            VolumeFailure::NotDurable { .. } => format!("{path} was not made durable"),
            _ => format!("{path} cannot be read"),
        }
    }

    /// What happened where the file holds something else, and what that is.
    fn what_it_holds(&self, holds: &str) -> (String, String) {
        let path = self.path();
        match self {
            VolumeFailure::Exists { .. } => (format!("{path} already exists"), format!("it holds {holds}")),
            VolumeFailure::Overwritten { .. } => (
                format!("the beginning of the volume in {path} is overwritten"),
                format!("{holds} lies there; the volume's second info block is intact"),
            ),
            _ => (format!("there is no volume in {path}"), format!("it holds {holds}")),
        }
    }

    /// What to do next where a repair may help; the file is `path`, as a word of a shell.
    fn next_by_repair(&self, path: &str) -> String {
        match self {
            VolumeFailure::Overwritten { .. } => format!(
                "if the file was given to something else, leave it; to get the volume back, keep a copy, then run: tidegate check --repair --pmem {path}"
            ),
            VolumeFailure::RepairLoses { .. } => format!(
                "keep a copy of the file, and copy out what can be read (serve --read-only); then: tidegate check --repair --yes --pmem {path}"
            ),
            _ => format!("keep a copy of the file, then run: tidegate check --repair --pmem {path}"),
        }
    }

    fn what_and_why(&self) -> (String, String) {
        let path = self.path();
        let (what, why) = match self {
            VolumeFailure::Absent { .. } => (format!("there is no volume {path}"), "no such file".to_owned()),
            VolumeFailure::NoFolder { .. } => (format!("cannot create {path}"), "its folder does not exist".to_owned()),
            VolumeFailure::NotAFile { kind, .. } => {
                (format!("{path} is no region"), format!("it is {kind}; a region is a file or a DAX device"))
            }
            VolumeFailure::Exists { holds, .. }
            | VolumeFailure::Foreign { holds, .. }
            | VolumeFailure::Overwritten { holds, .. } => self.what_it_holds(holds),
            VolumeFailure::InUse { holder, .. } => (format!("{path} is in use"), holder.to_string()),
            VolumeFailure::Blank { .. } => {
                (format!("there is no volume in {path}"), "where it would begin are only zeroes".to_owned())
            }
            VolumeFailure::CutShort { needs, has, .. } => {
                (format!("{path} is cut short"), format!("it has {has} bytes, and the volume in it needs {needs}"))
            }
            VolumeFailure::Version { found, .. } => (
                format!("the volume in {path} is of another version"),
                format!("found {found}; known are version 1.1 at byte 4096 and 2.0 at byte 0"),
            ),
            VolumeFailure::BeyondRepair { why, .. } => {
                (format!("the volume in {path} is damaged beyond repair"), format!("both info blocks are lost: {why}"))
            }
            VolumeFailure::DeviceSize { bytes, .. } => {
                (format!("{path} cannot have that size"), format!("it is a device of {bytes} bytes"))
            }
            VolumeFailure::Damaged { why, .. }
            | VolumeFailure::BrokenCache { why, .. }
            | VolumeFailure::RepairLoses { why, .. }
            | VolumeFailure::Unreadable { why, .. }
            | VolumeFailure::NotRepairable { why, .. }
            | VolumeFailure::NotDurable { why, .. } => (self.what_the_medium_did(), why.clone()),
            VolumeFailure::InCache { path, cache, trouble } => trouble.what_and_why(path, cache),
            VolumeFailure::CannotAllocate { .. } => {
                (format!("cannot create {path}"), "its file system cannot allocate space in advance".to_owned())
            }
            VolumeFailure::NotLonger { why, .. } => (format!("{path} stays as it was"), why.clone()),
            VolumeFailure::TooLarge { bytes, .. } => (
                format!("cannot create {path}"),
                format!("{bytes} bytes ({}) are more than one file or mapping can have here", Human(*bytes)),
            ),
            VolumeFailure::NoSpace { bytes, .. } => (
                format!("no space for {path}"),
                format!("its file system has no room for {bytes} bytes ({})", Human(*bytes)),
            ),
            VolumeFailure::Denied { doing, .. } => {
                (format!("no permission to {doing} {path}"), "the system refused it to this user".to_owned())
            }
            VolumeFailure::ReadOnly { .. } => (
                format!("{path} cannot be written"),
                "it lies on a file system mounted read-only, or is immutable".to_owned(),
            ),
            VolumeFailure::Io { doing, error, .. } => (format!("cannot {doing} {path}"), error.to_string()),
        };
        (what, why)
    }

    fn next(&self) -> String {
        let path = word(self.file());
        match self {
            VolumeFailure::Absent { .. } => {
                format!("name another: --pmem FILE; or create it: tidegate create --pmem {path} --size 1G")
            }
            VolumeFailure::NoFolder { .. } => "create the folder first (mkdir -p)".to_owned(),
            VolumeFailure::NotAFile { .. } => "name a file or a DAX device: --pmem FILE".to_owned(),
            VolumeFailure::Exists { .. } => {
                "choose another name: --pmem FILE; --force would destroy what this one holds".to_owned()
            }
            VolumeFailure::InUse { .. } => {
                format!("stop that process, or look without it: tidegate info --pmem {path}")
            }
            VolumeFailure::Blank { bytes, .. } => {
                format!("create it: tidegate create --pmem {path} --size {}", size_in_place_of(*bytes))
            }
            VolumeFailure::Foreign { .. } => {
                "name the file that holds the volume: --pmem FILE; this one stays as it is".to_owned()
            }
            VolumeFailure::CutShort { .. } => "restore the file from a copy; what was cut off is lost".to_owned(),
            VolumeFailure::Version { .. } => {
                "use the program that wrote it, or create a new volume elsewhere".to_owned()
            }
            VolumeFailure::Damaged { .. } | VolumeFailure::Overwritten { .. } | VolumeFailure::RepairLoses { .. } => {
                self.next_by_repair(&path)
            }
            VolumeFailure::BeyondRepair { .. } => "restore the file from a copy".to_owned(),
            VolumeFailure::BrokenCache { .. } => {
                "keep a copy of the file: it may hold blocks that the disk does not have".to_owned()
            }
            VolumeFailure::DeviceSize { .. } => "leave --size out".to_owned(),
            VolumeFailure::Unreadable { .. } => {
                format!("see what can be saved: tidegate check --pmem {path}; then replace the medium")
            }
            VolumeFailure::NotRepairable { .. } => {
                "copy what can still be read to another medium, and replace this one".to_owned()
            }
            VolumeFailure::NotDurable { .. } => {
                format!("writes since the last flush may be lost; see dmesg, then run: tidegate check --pmem {path}")
            }
            VolumeFailure::InCache { cache, trouble, .. } => trouble.next(&path, cache),
            VolumeFailure::NotLonger { kind, .. } => next_of_growth(kind, &path),
            VolumeFailure::CannotAllocate { .. } => "add --sparse, or choose another file system".to_owned(),
            VolumeFailure::TooLarge { .. } => "choose a smaller --size".to_owned(),
            VolumeFailure::NoSpace { .. } => {
                "free some space, choose a smaller --size, or create it with --sparse and risk running out later"
                    .to_owned()
            }
            VolumeFailure::Denied { doing: Doing::Write, .. } => {
                "run as the owner of the file, change its mode, or serve it with --read-only".to_owned()
            }
            VolumeFailure::Denied { .. } => "run as another user, or change the mode of the file or folder".to_owned(),
            VolumeFailure::ReadOnly { .. } => "serve it with --read-only, or make it writable".to_owned(),
            VolumeFailure::Io { error, .. } if is_of_the_path(error) => "correct the path: --pmem FILE".to_owned(),
            VolumeFailure::Io { .. } => "see the kernel's log (dmesg) for the device under this file".to_owned(),
        }
    }
}

/// What to do about a region file that gets no room for more, by the kind of the refusal.
fn next_of_growth(kind: &str, path: &str) -> String {
    match kind {
        "cannot-allocate" => {
            format!("detach it (tidegate detach --pmem {path}), and create a larger one with --sparse")
        }
        _ => "free some space in its file system, or choose a smaller --size; nothing was changed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::Sealed;

    #[test]
    fn a_medium_that_fails_a_repair_is_to_be_replaced() {
        let told = |error| VolumeFailure::of_repair(Path::new("/v"), 1 << 20, error).told();
        for error in [OpenError::Media(Poison { at: 4096, len: 8 }), OpenError::Sealed(Sealed::StoreLost { at: 4096 })]
        {
            let told = told(error);
            assert!(told.what.contains("cannot be repaired") && told.why.contains("4096"), "{told:?}");
            assert!(told.next.contains("replace this one") && !told.next.contains("--repair"), "{told:?}");
        }
        assert_eq!(told(OpenError::Blank).kind, "blank");
    }
}
