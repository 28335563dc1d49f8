//! Failures of a server, and of work on a volume without one. Each arises in a module below, with
//! the facts that its report needs; the program words the reports.

pub use crate::cached_disk::failure::{AtFault, DiskFailure, Growth, JournalFailure, Obstacle, Step};
pub use crate::control::failure::{ControlFailure, Refused};
pub use crate::sockets::failure::{Exposed, Exposure, ListenFailure, NoListenAddress};
pub use crate::sockets::token::TokenError;
pub use crate::volume::failure::{CreateFailure, WriteCacheFailure};
pub use tidegate_host::Doing;
pub use tidegate_ublk::{CommandError, UblkFailure};
pub use tidegate_volume_region::{MirrorFailure, VolumeFailure};

use std::io;
use std::path::{Path, PathBuf};
use tidegate_disk_cache::{FormatError, OpenError};
use tidegate_host::default_paths::FolderError;
use tidegate_host::owned::NotOwn;
use tidegate_volume_region::RegionFailure;

/// The smallest region in front of a disk.
pub(crate) const REGION_BYTES_MIN: u64 = 1 << 20;

/// Any failure of this library.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The region file, or the volume in it.
    #[error(transparent)]
    Volume(#[from] VolumeFailure),
    /// The mirror that a region is a side of.
    #[error(transparent)]
    Mirror(#[from] MirrorFailure),
    /// The write cache of a volume.
    #[error(transparent)]
    WriteCache(#[from] WriteCacheFailure),
    /// A volume or cache to be made.
    #[error(transparent)]
    Create(#[from] CreateFailure),
    /// The disk behind a cache.
    #[error(transparent)]
    Disk(#[from] DiskFailure),
    /// The journal of an ordered disk.
    #[error(transparent)]
    Journal(#[from] JournalFailure),
    /// A socket to listen on.
    #[error(transparent)]
    Listen(#[from] ListenFailure),
    /// The block device of a volume.
    #[error(transparent)]
    BlockDevice(#[from] UblkFailure),
    /// The control socket of a running server.
    #[error(transparent)]
    Control(#[from] ControlFailure),
    /// A file or folder that other users may have put there.
    #[error("{} is not used: other users may have put it there", .0.file.display())]
    NotOwn(NotOwn),
    /// A pool where a volume was expected.
    #[error("{} is no volume", pool.display())]
    IsPool {
        /// The pool.
        pool: PathBuf,
    },
    /// A service of the operating system that ought always to work.
    #[error("failed while {doing}")]
    System {
        /// What was being done, as in "while ...".
        doing: &'static str,
        /// What the system answered.
        error: io::Error,
    },
}

impl Failure {
    /// A failure of the system while `doing`, for `map_err`.
    pub fn system(doing: &'static str) -> impl Fn(io::Error) -> Failure {
        move |error| Failure::System { doing, error }
    }

    /// This failure, if it is about a socket: of a place that `flag` named.
    pub(crate) fn named_by(self, flag: &'static str) -> Failure {
        let Failure::Listen(failure) = self else { return self };
        ListenFailure::Named { flag, failure: Box::new(failure) }.into()
    }

    /// Why the cache in `pmem` is not opened in front of the disk at `disk`.
    pub(crate) fn of_opening(pmem: &Path, disk: &Path, error: OpenError) -> Failure {
        match error {
            OpenError::DiskChanged { lba, dirty, block_size } => {
                let [at, dirty_bytes] = [lba, dirty].map(|blocks| blocks * u64::from(block_size));
                DiskFailure::Differs { pmem: pmem.to_owned(), disk: disk.to_owned(), at, dirty_bytes }.into()
            }
            error => VolumeFailure::of_open_cache(pmem, error).into(),
        }
    }

    /// Why no cache of that form comes to be in the region at `path`.
    pub(crate) fn of_format(path: &Path, error: FormatError) -> Failure {
        match error {
            FormatError::TooSmall { has, min } => {
                CreateFailure::CacheTooSmall { size: has, min: min.max(REGION_BYTES_MIN) }.into()
            }
            FormatError::BlockSize(size) => CreateFailure::CacheBlockSize { size }.into(),
            FormatError::Sealed(sealed) => {
                VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() }.into()
            }
            error @ (FormatError::DiskBlocks(_)
            | FormatError::RingSlots(_)
            | FormatError::RingElsewhere { .. }
            | FormatError::Journal { .. }) => {
                VolumeFailure::BrokenCache { path: path.to_owned(), why: error.to_string() }.into()
            }
        }
    }
}

impl From<RegionFailure> for Failure {
    fn from(failure: RegionFailure) -> Failure {
        match failure {
            RegionFailure::Volume(volume) => volume.into(),
            RegionFailure::Mirror(mirror) => mirror.into(),
            RegionFailure::IsPool { pool } => Failure::IsPool { pool },
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Failure {
        match error {
            FolderError::NotMade { folder, error } => VolumeFailure::of_io(&folder, Doing::Create, error).into(),
            FolderError::NotOwn(not_own) => Failure::NotOwn(not_own),
        }
    }
}
