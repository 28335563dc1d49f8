//! Why a region, or the volume in it, is not used.

use std::io;
use std::path::{Path, PathBuf};
use tidegate_btt::OpenError;
use tidegate_host::Doing;
use tidegate_media::{Corrupt, Domain, LockHolder, MapError, Poison};
use tidegate_mirror::MirrorError;

/// Why a region is not opened.
#[derive(Debug, thiserror::Error)]
pub enum RegionFailure {
    /// Its file, or the volume in it.
    #[error(transparent)]
    Volume(#[from] VolumeFailure),
    /// The mirror that it is a side of.
    #[error(transparent)]
    Mirror(#[from] MirrorFailure),
    /// A pool where a volume was expected.
    #[error("{} is no volume", pool.display())]
    IsPool {
        /// The pool.
        pool: PathBuf,
    },
}

/// Why a region file, or the volume in it, is not used.
#[derive(Debug, thiserror::Error)]
pub enum VolumeFailure {
    /// No file of this name.
    #[error("there is no volume {}", path.display())]
    Absent {
        /// The region file.
        path: PathBuf,
    },
    /// No folder to create the file in.
    #[error("cannot create {}", path.display())]
    NoFolder {
        /// The region file.
        path: PathBuf,
    },
    /// A folder, socket or the like where a file should be.
    #[error("{} is no region", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is, as a phrase.
        kind: &'static str,
    },
    /// `create` met a file that already holds something.
    #[error("{} already exists", path.display())]
    Exists {
        /// The region file.
        path: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// Another process holds the file's lock.
    #[error("{} is in use", path.display())]
    InUse {
        /// The region file.
        path: PathBuf,
        /// Which.
        holder: LockHolder,
    },
    /// The file holds no volume at all, only zeroes.
    #[error("there is no volume in {}", path.display())]
    Blank {
        /// The region file.
        path: PathBuf,
        /// Bytes in the file.
        bytes: u64,
    },
    /// The file holds something that is no volume.
    #[error("there is no volume in {}", path.display())]
    Foreign {
        /// The region file.
        path: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// Something else lies where the volume begins.
    #[error("the beginning of the volume in {} is overwritten", path.display())]
    Overwritten {
        /// The region file.
        path: PathBuf,
        /// What was recognised there.
        holds: String,
    },
    /// The file is shorter than the volume in it.
    #[error("{} is cut short", path.display())]
    CutShort {
        /// The region file.
        path: PathBuf,
        /// Bytes the volume needs.
        needs: u64,
        /// Bytes in the file.
        has: u64,
    },
    /// The volume is of a version this program does not know.
    #[error("the volume in {} is of another version", path.display())]
    Version {
        /// The region file.
        path: PathBuf,
        /// The version found.
        found: String,
    },
    /// The volume breaks rules of its format.
    #[error("the volume in {} is damaged", path.display())]
    Damaged {
        /// The region file.
        path: PathBuf,
        /// The first rule broken, where, and how many more.
        why: String,
    },
    /// Nothing tells any more where the volume's parts lie.
    #[error("the volume in {} is damaged beyond repair", path.display())]
    BeyondRepair {
        /// The region file.
        path: PathBuf,
        /// The rule broken, and where.
        why: String,
    },
    /// A repair would give blocks up, and nobody consented.
    #[error("the volume in {} was not repaired", path.display())]
    RepairLoses {
        /// The region file.
        path: PathBuf,
        /// Which blocks.
        why: String,
    },
    /// A cache of a disk breaks rules of its format.
    #[error("the cache in {} is damaged", path.display())]
    BrokenCache {
        /// The region file.
        path: PathBuf,
        /// The first rule broken, and where.
        why: String,
    },
    /// An append-only log breaks rules of its format.
    #[error("the log in {} is damaged", path.display())]
    BrokenLog {
        /// The region file.
        path: PathBuf,
        /// The rule broken, and where.
        why: String,
    },
    /// A device of fixed size was asked for another.
    #[error("{} cannot have that size", path.display())]
    DeviceSize {
        /// The device.
        path: PathBuf,
        /// Bytes it has.
        bytes: u64,
    },
    /// The medium holds bytes it cannot give back.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The region file.
        path: PathBuf,
        /// Which bytes.
        why: String,
    },
    /// The medium neither gives back what a repair needs nor takes what it stores in its place.
    #[error("the volume in {} cannot be repaired", path.display())]
    NotRepairable {
        /// The region file.
        path: PathBuf,
        /// What the medium answered.
        why: String,
    },
    /// The last flush failed, or stores were lost on the way.
    #[error("{} was not made durable", path.display())]
    NotDurable {
        /// The region file.
        path: PathBuf,
        /// What the medium answered.
        why: String,
    },
    /// The file system cannot allocate in advance.
    #[error("cannot create {}", path.display())]
    CannotAllocate {
        /// The region file.
        path: PathBuf,
    },
    /// A file that is there gets no room for more.
    #[error("{} stays as it was", path.display())]
    NotLonger {
        /// The region file.
        path: PathBuf,
        /// Why not.
        refused: Box<VolumeFailure>,
    },
    /// More bytes than the system can map or the file system can hold.
    #[error("cannot create {}", path.display())]
    TooLarge {
        /// The region file.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
    },
    /// Not enough room for the region file.
    #[error("no space for {}", path.display())]
    NoSpace {
        /// The region file.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
    },
    /// The system refused for want of permission.
    #[error("no permission to {doing} {}", path.display())]
    Denied {
        /// The region file.
        path: PathBuf,
        /// What was tried.
        doing: Doing,
    },
    /// The file is on a file system mounted for reading only, or marked immutable.
    #[error("{} cannot be written", path.display())]
    ReadOnly {
        /// The region file.
        path: PathBuf,
    },
    /// Any other answer of the system.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The region file.
        path: PathBuf,
        /// What was tried.
        doing: Doing,
        /// What the system answered.
        error: io::Error,
    },
}

impl VolumeFailure {
    /// What the memory says when a region cannot be mapped.
    pub fn of_map(doing: Doing, error: MapError) -> VolumeFailure {
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
    pub fn of_open(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
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
    pub fn of_open_cache(path: &Path, error: tidegate_disk_cache::OpenError) -> VolumeFailure {
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
    pub fn of_check(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
        let failure = VolumeFailure::of_open(path, bytes, error);
        let VolumeFailure::Damaged { path, why } = failure else { return failure };
        VolumeFailure::BeyondRepair { path, why }
    }

    /// What a repair says that could not be made; a medium that fails it is told apart.
    pub fn of_repair(path: &Path, bytes: u64, error: OpenError) -> VolumeFailure {
        let failure = VolumeFailure::of_check(path, bytes, error);
        let (VolumeFailure::Unreadable { path, why } | VolumeFailure::NotDurable { path, why }) = failure else {
            return failure;
        };
        VolumeFailure::NotRepairable { path, why }
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
    pub fn of_poison(path: &Path, poison: Poison) -> VolumeFailure {
        VolumeFailure::Unreadable { path: path.to_owned(), why: poison.to_string() }
    }

    /// What the system says when a file or folder cannot be used.
    pub fn of_io(path: &Path, doing: Doing, error: io::Error) -> VolumeFailure {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound if doing != Doing::Create => VolumeFailure::Absent { path },
            io::ErrorKind::PermissionDenied => VolumeFailure::Denied { path, doing },
            io::ErrorKind::ReadOnlyFilesystem => VolumeFailure::ReadOnly { path },
            _ => VolumeFailure::Io { path, doing, error },
        }
    }

    /// What the system says when the `bytes` of a file cannot be allocated.
    pub fn of_allocation(path: &Path, bytes: u64, error: io::Error) -> VolumeFailure {
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
    pub fn of_growth(path: &Path, bytes: u64, error: io::Error) -> VolumeFailure {
        let refused = VolumeFailure::of_allocation(path, bytes, error);
        let VolumeFailure::Io { path, error, .. } = refused else {
            return VolumeFailure::NotLonger { path: path.to_owned(), refused: Box::new(refused) };
        };
        VolumeFailure::Io { path, doing: Doing::Write, error }
    }
}

/// Why the sides of a mirror are not used.
#[derive(Debug, thiserror::Error)]
pub enum MirrorFailure {
    /// A side was named without its twin.
    #[error("{} is one side of a mirror", path.display())]
    IsSide {
        /// The side.
        path: PathBuf,
    },
    /// A region that is to change, and whose last page the memory does not give: it may be a side.
    #[error("{} may be one side of a mirror", path.display())]
    Unknown {
        /// The region.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
    },
    /// A look at the sides of a mirror, one of which is a DAX device.
    #[error("{} is not opened as a side for a look", path.display())]
    LookAtDevice {
        /// The device.
        path: PathBuf,
    },
    /// One region was named twice.
    #[error("{} cannot be both sides of a mirror", path.display())]
    Same {
        /// The region.
        path: PathBuf,
    },
    /// A side that is absent or empty, whose twin was named too.
    #[error("there is no side of a mirror at {}", path.display())]
    Missing {
        /// The absent side.
        path: PathBuf,
        /// The other one.
        other: PathBuf,
        /// What is there instead.
        found: &'static str,
    },
    /// A rebuild met a region that holds bytes of its own.
    #[error("{} is not overwritten", path.display())]
    Holds {
        /// The region.
        path: PathBuf,
        /// What was recognised in it.
        holds: String,
    },
    /// Sides in memory of different kinds.
    #[error("{} and {} do not survive the same failures", paths[0].display(), paths[1].display())]
    Domains {
        /// Both sides.
        paths: [PathBuf; 2],
        /// What each survives.
        domains: [Domain; 2],
    },
    /// A side that is opened alone is not used.
    #[error("{} is not opened as a side", path.display())]
    One {
        /// The side.
        path: PathBuf,
        /// Why.
        error: MirrorError,
    },
    /// Two regions are not used together.
    #[error("{} and {} are not opened as a mirror", paths[0].display(), paths[1].display())]
    Two {
        /// Both regions, as the error numbers them.
        paths: [PathBuf; 2],
        /// Why.
        error: MirrorError,
    },
    /// A mirrored region was to have another size.
    #[error("the mirrored region {} cannot be resized", path.display())]
    FixedSize {
        /// One side.
        path: PathBuf,
    },
    /// The times of another memory, on a mirror.
    #[error("{} cannot be as slow as another memory", path.display())]
    Emulated {
        /// One side.
        path: PathBuf,
    },
    /// A mirrored file that would get its space later.
    #[error("a mirrored region cannot be sparse")]
    Sparse,
}

impl MirrorFailure {
    /// Why the side at `path` is not opened alone.
    pub fn of_one(path: &Path, error: MirrorError) -> MirrorFailure {
        MirrorFailure::One { path: path.to_owned(), error }
    }

    /// Why the regions at `paths` are not used together.
    pub fn of_two(paths: [&Path; 2], error: MirrorError) -> MirrorFailure {
        MirrorFailure::Two { paths: paths.map(Path::to_owned), error }
    }
}
