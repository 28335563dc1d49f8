//! Why a mount does not begin, or a pool is not recovered.

use crate::lifecycle::belonging::NotTogether;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use tidegate_file_cache::{FileError, PoolFormatError, PoolOpenError};
use tidegate_host::default_paths::FolderError;
use tidegate_media::{MapError, Poison};
use tidegate_mount_transport::{DeviceError, HandoverError, MountError};
use tidegate_namespace_log::NamespaceError;
use tidegate_sandbox::SandboxFailure;
use tidegate_source_files::mark::MarkFailure;

/// What was refused or failed; the text says what, and the program adds what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ServiceFailure {
    /// A file is not one of a mount.
    #[error("{} is no file of a mount of Tidegate", file.display())]
    NotInMount {
        /// The file.
        file: PathBuf,
        /// What is known of it.
        why: String,
    },
    /// SOURCE cannot be opened as a directory.
    #[error("{} cannot be mounted", source_directory.display())]
    NoSource {
        /// SOURCE.
        source_directory: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// One of the two lies in the other.
    #[error("{} cannot be mounted on {}: one lies in the other", source_directory.display(), mountpoint.display())]
    Nested {
        /// SOURCE.
        source_directory: PathBuf,
        /// MOUNTPOINT.
        mountpoint: PathBuf,
    },
    /// Another mount shows SOURCE.
    #[error("{} is mounted already, by another file service", source_directory.display())]
    SourceInUse {
        /// SOURCE.
        source_directory: PathBuf,
    },
    /// SOURCE is another user's.
    #[error("{} belongs to another user", source_directory.display())]
    NotOwned {
        /// SOURCE.
        source_directory: PathBuf,
    },
    /// Programs use files of SOURCE, whose changes the service would not see.
    #[error("programs have files of {} open: {}", source_directory.display(), users.join(", "))]
    FilesInUse {
        /// SOURCE.
        source_directory: PathBuf,
        /// The programs, with a file of each.
        users: Vec<String>,
    },
    /// The pool and SOURCE do not belong together.
    #[error(transparent)]
    Belonging(#[from] NotTogether),
    /// There is no pool to recover or check.
    #[error("there is no pool at {}", pool.display())]
    NoPool {
        /// Where it was looked for.
        pool: PathBuf,
    },
    /// The limit on descriptors leaves no room for files.
    #[error("a process may open {limit} files at a time, and a mount needs {least} at least")]
    FewDescriptors {
        /// The limit.
        limit: u64,
        /// The least that is enough.
        least: u64,
    },
    /// A mount, whose pool this user cannot find out.
    #[error("the pool of the mount at {} is not known to this user", mountpoint.display())]
    UnknownPool {
        /// Its mountpoint.
        mountpoint: PathBuf,
    },
    /// No service has the pool.
    #[error("no file service has the pool {}", pool.display())]
    NotInUse {
        /// The pool.
        pool: PathBuf,
    },
    /// A mount has the pool, or another process that uses or looks at it.
    #[error("the pool {} is in use", pool.display())]
    PoolInUse {
        /// The pool.
        pool: PathBuf,
        /// By which process.
        #[source]
        error: MapError,
    },
    /// The pool does not survive a power loss.
    #[error("the pool {} is not persistent memory", pool.display())]
    NotPersistent {
        /// The pool.
        pool: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// The region holds something that is no pool.
    #[error("{} holds something that is no pool of a mount", pool.display())]
    NotAPool {
        /// The region.
        pool: PathBuf,
    },
    /// No mount ever had the region.
    #[error("there is no pool in {}", pool.display())]
    Blank {
        /// The region.
        pool: PathBuf,
    },
    /// A pool of this size cannot be made.
    #[error("a pool of a mount cannot be made at {}", pool.display())]
    NotFormatted {
        /// The pool.
        pool: PathBuf,
        /// Why.
        error: PoolFormatError,
    },
    /// So much DRAM cannot be had.
    #[error(transparent)]
    Dram(#[from] DramRefused),
    /// The pool cannot be opened.
    #[error("the pool {} cannot be used", pool.display())]
    NotOpened {
        /// The pool.
        pool: PathBuf,
        /// Why.
        error: PoolOpenError,
    },
    /// The log of names cannot be used, or does not belong to SOURCE as it is.
    #[error("the names that the pool {} has cannot be brought to SOURCE", pool.display())]
    Names {
        /// The pool.
        pool: PathBuf,
        /// Why.
        error: NamespaceError,
    },
    /// What the pool has was not written back; the pool retains it.
    #[error("the files of the pool {} are not all written back", pool.display())]
    NotWrittenBack {
        /// The pool.
        pool: PathBuf,
        /// Why.
        error: FileError,
    },
    /// A mount has ended, and its pool may keep data that files below lack.
    #[error("the mount has ended, and its pool {} may keep data that files in SOURCE lack", pool.display())]
    LeftInPool {
        /// The pool.
        pool: PathBuf,
    },
    /// Bytes of the pool cannot be read.
    #[error("the pool {} cannot be read", pool.display())]
    Poisoned {
        /// The pool.
        pool: PathBuf,
        /// Where.
        poison: Poison,
    },
    /// The pool cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The memory of unsynced writes cannot be mapped.
    #[error("the memory of unsynced writes cannot be used")]
    Memory(#[source] MapError),
    /// What was written to SOURCE cannot be made durable there.
    #[error("the file system of SOURCE does not make durable what is written there")]
    NotDurable {
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// The folder of a file is not made.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file of the service's own.
    #[error("cannot {doing} {}", file.display())]
    File {
        /// What was to be done.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The file system is not mounted, or not unmounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A sandbox was demanded, and there is none.
    #[error(transparent)]
    Sandbox(#[from] SandboxFailure),
    /// The kernel's requests cannot be read or answered any more.
    #[error("the kernel's requests cannot be answered any more")]
    Device(#[from] DeviceError),
    /// A service that should be asked does not answer.
    #[error("the file service of {} does not answer", pool.display())]
    NoAnswer {
        /// The pool.
        pool: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The service refused what it was asked for.
    #[error("the file service of {} refused: {why}", pool.display())]
    Refused {
        /// The pool.
        pool: PathBuf,
        /// Why.
        why: String,
    },
    /// One server of a mount after the other died at its start.
    #[error("the servers of the mount of {} died at their start, one after the other", source_directory.display())]
    ServersDied {
        /// SOURCE.
        source_directory: PathBuf,
        /// The pool.
        pool: PathBuf,
        /// How the last one ended.
        status: ExitStatus,
    },
    /// A server did not get the mount that it was to serve.
    #[error("there is no mount to serve")]
    Handover(#[from] HandoverError),
    /// A service of the system's.
    #[error("{doing} failed")]
    System {
        /// What was to be done.
        doing: &'static str,
        /// What the system answered.
        error: io::Error,
    },
}

/// Why unsynced writes cannot have as much DRAM as was asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum DramRefused {
    /// It is too little.
    #[error("{asked} bytes of DRAM are too few for unsynced writes")]
    TooSmall {
        /// Bytes asked for.
        asked: u64,
        /// The fewest bytes.
        least: u64,
    },
    /// The memory that outlives a server has no room for so much.
    #[error("{asked} bytes of DRAM are more than /dev/shm has")]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that there are, used or not.
        room: u64,
    },
}

impl ServiceFailure {
    /// Whether the service answered that it cannot do what was asked.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ServiceFailure::Refused { .. })
    }

    /// Whether there is no such mount.
    pub fn is_not_mounted(&self) -> bool {
        matches!(self, ServiceFailure::Mount(MountError::NotMounted { .. }))
    }

    /// The programs that use files of the mount, if that is why it does not end.
    pub fn users(&self) -> Option<&[String]> {
        let ServiceFailure::FilesInUse { users, .. } = self else { return None };
        Some(users)
    }

    /// For a file of the service's own.
    pub(crate) fn of_file(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> ServiceFailure {
        let file = file.to_owned();
        move |error| ServiceFailure::File { doing, file, error }
    }
}

/// For a pool that is named itself, and not as one of several that would do.
pub(crate) fn in_use(pool: &Path) -> impl FnOnce(ServiceFailure) -> ServiceFailure {
    let pool = pool.to_owned();
    move |failure| {
        let ServiceFailure::Map(error @ MapError::InUse { .. }) = failure else { return failure };
        ServiceFailure::PoolInUse { pool, error }
    }
}

impl From<MarkFailure> for ServiceFailure {
    fn from(MarkFailure { doing, error }: MarkFailure) -> ServiceFailure {
        ServiceFailure::System { doing, error }
    }
}

/// For a sync of SOURCE.
pub(crate) fn not_durable(errno: rustix::io::Errno) -> ServiceFailure {
    ServiceFailure::NotDurable { error: errno.into() }
}

/// For a service of the system's.
pub(crate) fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> ServiceFailure {
    move |errno| ServiceFailure::System { doing, error: errno.into() }
}
