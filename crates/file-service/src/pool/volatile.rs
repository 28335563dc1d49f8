//! The memory of unsynced writes: one file in `/dev/shm` for each lane of a pool.
//!
//! It outlives the process, so that a service that was killed loses no write that a program made;
//! it does not outlive the machine. It is named after the pool's identity, and removed together
//! with what it was needed for.

use crate::lifecycle::failure::{DramRefused, ServiceFailure, system};
use crate::pool::DRAM_BYTES_MIN;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use tidegate_host::owned::{What, accept};
use tidegate_media::{Access, Allocation, MappedRegion};

/// Where memory that outlives a process is.
pub(crate) const FOLDER: &str = "/dev/shm";

/// Bytes of DRAM for unsynced writes, unless asked otherwise, where [`FOLDER`] has twice as many.
const USUAL_BYTES: u64 = 256 << 20;

/// Bytes of DRAM for unsynced writes: as many as asked for, if they can be had.
pub(crate) fn accepted(asked: Option<u64>) -> Result<u64, ServiceFailure> {
    let folder = rustix::fs::statvfs(FOLDER).map_err(system("looking at the size of /dev/shm"))?;
    let room = folder.f_blocks.saturating_mul(folder.f_frsize);
    match asked {
        None => Ok(USUAL_BYTES.min(room / 2).max(DRAM_BYTES_MIN)),
        Some(asked) if asked < DRAM_BYTES_MIN => Err(DramRefused::TooSmall { asked, least: DRAM_BYTES_MIN }.into()),
        Some(asked) if asked > room => Err(DramRefused::TooLarge { asked, room }.into()),
        Some(asked) => Ok(asked),
    }
}

/// The memory of a pool's lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volatile {
    pool: [u8; 16],
}

impl Volatile {
    /// That of the pool with this identity.
    pub(crate) fn of(pool: [u8; 16]) -> Volatile {
        Volatile { pool }
    }

    /// That of the pool that [`Volatile::id`] names; None: no pool has such a name.
    pub(crate) fn of_id(id: &str) -> Option<Volatile> {
        Some(Volatile { pool: uuid::Uuid::try_parse(id).ok()?.into_bytes() })
    }

    /// Whether a file of this name is the memory of a lane.
    pub(crate) fn is_name(name: &OsStr) -> bool {
        let id_and_lane = name.to_str().and_then(|name| name.strip_prefix("tidegate-")?.split_once('-'));
        id_and_lane.is_some_and(|(id, lane)| Volatile::of_id(id).is_some() && lane.parse::<u32>().is_ok())
    }

    /// The pool's identity as text.
    pub(crate) fn id(self) -> String {
        uuid::Uuid::from_bytes(self.pool).simple().to_string()
    }

    /// What a process that was killed left of a lane, or fresh memory of `bytes`.
    pub(crate) fn open_or_create(self, lane: u32, bytes: u64) -> Result<MappedRegion, ServiceFailure> {
        let path = self.path(lane);
        if !path.exists() {
            return Ok(MappedRegion::create(&path, bytes, Allocation::Sparse)?);
        }
        let own = |file: &File| accept(file, What::File);
        Ok(MappedRegion::open_if(&path, Access::ReadWrite, own)?)
    }

    /// Removes what there is of a lane.
    pub(crate) fn remove(self, lane: u32) -> Result<(), ServiceFailure> {
        let path = self.path(lane);
        let removed: io::Result<()> = std::fs::remove_file(&path);
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(ServiceFailure::of_file("remove", &path)),
        }
    }

    fn path(self, lane: u32) -> PathBuf {
        PathBuf::from(FOLDER).join(format!("tidegate-{}-{lane}", self.id()))
    }
}
