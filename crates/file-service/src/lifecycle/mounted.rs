//! A mount from its beginning to its end.
//!
//! | step | after a crash here |
//! | --- | --- |
//! | SOURCE is locked, its users are looked for, the pool is mapped | the system is as before |
//! | what an earlier mount left in the pool is brought to its files | is done again |
//! | the record is written, SOURCE is hidden | the next mount or recovery shows SOURCE |
//! | the pool's lanes are opened, requests are answered | recovery brings the pool to its files |
//! | at the end all is written back, SOURCE is shown, the record is removed | is done again |

use crate::lifecycle::failure::ServiceFailure;
use crate::lifecycle::opening::{fresh_record, open_source, record_of, system};
use crate::lifecycle::recovered::{RecoveredFile, recover};
use crate::pool::hidden::{Cover, Hidden};
use crate::pool::write_back::{Limits, WriteBack, write_back_all};
use crate::pool::{Layout, Needed, POOL_BYTES, Pool, default_pool};
use crate::service::FileService;
use crate::source::users::{Use, users_of};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_media::{LockedFile, Region};

/// What is to be mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountRequest {
    /// The directory whose files are shown.
    pub source: PathBuf,
    /// Where they are shown.
    pub mountpoint: PathBuf,
    /// The pool; None: one in the user's state folder.
    pub pool: Option<PathBuf>,
    /// Bytes of a pool that is made, if that was said.
    pub pool_bytes: Option<u64>,
    /// Bytes of DRAM for unsynced writes, if that was said.
    pub dram_bytes: Option<u64>,
    /// Whether the pool need not be persistent memory.
    pub is_trial: bool,
}

/// A service that may answer requests.
pub(crate) struct Mounted {
    /// Answers the requests.
    pub(crate) service: Arc<FileService>,
    pool: Pool,
    write_back: WriteBack,
    _lock: LockedFile,
}

impl MountRequest {
    /// The pool that is meant.
    pub fn pool(&self) -> PathBuf {
        self.pool.clone().unwrap_or_else(|| default_pool(&self.source))
    }

    /// SOURCE and MOUNTPOINT as the kernel names them. Neither may lie in the other.
    pub fn resolved(mut self) -> Result<MountRequest, ServiceFailure> {
        self.source = resolve_source(&self.source)?;
        let failed = ServiceFailure::of_file("open", &self.mountpoint);
        self.mountpoint = self.mountpoint.canonicalize().map_err(failed)?;
        let (source, mountpoint) = (&self.source, &self.mountpoint);
        if source != mountpoint && (source.starts_with(mountpoint) || mountpoint.starts_with(source)) {
            let (source_directory, mountpoint) = (source.clone(), mountpoint.clone());
            return Err(ServiceFailure::Nested { source_directory, mountpoint });
        }
        Ok(self)
    }
}

fn resolve_source(source: &Path) -> Result<PathBuf, ServiceFailure> {
    source.canonicalize().map_err(|error| ServiceFailure::NoSource { source_directory: source.to_owned(), error })
}

/// Begins a mount that was [resolved](MountRequest::resolved): everything up to the first request.
pub(crate) fn begin(request: &MountRequest) -> Result<(Mounted, Vec<RecoveredFile>), ServiceFailure> {
    let (source, lock) = open_source(&request.source)?;
    let users = users_of(&request.source, Use::Changing);
    if !users.is_empty() {
        return Err(ServiceFailure::FilesInUse { source_directory: request.source.clone(), users });
    }
    let needed = if request.is_trial { Needed::Anything } else { Needed::PowerFail };
    let pool = Pool::open_or_create(&request.pool(), request.pool_bytes.unwrap_or(POOL_BYTES), needed)?;
    let former = record_of(&pool.path, &request.source, &source)?;
    if pool.layout()? == Layout::Blank {
        pool.format()?;
    }
    let record = match former {
        Some(record) => record,
        None => fresh_record(&request.source, &source)?,
    };
    let cover = if request.source == request.mountpoint { Cover::Mount } else { Cover::Mode };
    let hidden = Hidden::begin(pool.path.clone(), record, &source, cover)?;
    let (files, recovered) = recover(&pool, request.dram_bytes, &source, None)?;
    let files = Arc::new(files);
    let service = FileService::new(source, hidden, Arc::clone(&files)).map_err(system("looking at SOURCE"))?;
    let write_back = WriteBack::start(files, Limits::of(pool.region.len()))
        .map_err(|error| ServiceFailure::System { doing: "starting a thread", error })?;
    Ok((Mounted { service: Arc::new(service), pool, write_back, _lock: lock }, recovered))
}

impl Mounted {
    /// Ends the mount: no request comes any more. Writes everything back, and shows SOURCE. `tell`
    /// hears how much is left and how fast it goes, once a second.
    pub(crate) fn end(self, mut tell: impl FnMut(&str)) -> Result<(), ServiceFailure> {
        let Mounted { service, pool, write_back: thread, _lock } = self;
        drop(thread);
        write_back_all(&service.open_files, &service.source, &pool.path, &mut tell)?;
        if !service.open_files.is_written_back() {
            let pool = pool.path.display();
            tell(&format!("the pool {pool} keeps what some files lack, and SOURCE stays hidden: recover it"));
            return Ok(());
        }
        service.hidden.end(&service.source)?;
        pool.remove_volatile()
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Path {
        &self.pool.path
    }
}
