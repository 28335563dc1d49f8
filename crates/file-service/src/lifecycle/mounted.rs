//! A mount from its beginning to its end.
//!
//! | step | process | after a crash here |
//! | --- | --- | --- |
//! | SOURCE is locked, its users are sought, the pool is mapped | supervisor | all is as before |
//! | record and mark are written, SOURCE is hidden | supervisor | the next mount shows SOURCE |
//! | what an earlier mount left finds its files | supervisor | is done again |
//! | the pool's lanes are opened, requests are answered | server | the next server does |
//! | all is written back, SOURCE is shown, the record is removed | server | is done again |

use crate::lifecycle::belonging::NotTogether;
use crate::lifecycle::failure::{ServiceFailure, not_durable, system};
use crate::lifecycle::opening::{
    FoundSource, check_mark, fresh_record, open_covered_source, open_source, other_pool, record_of,
};
use crate::lifecycle::recovered::{FormerNames, RecoveredFile, recover};
use crate::pool::hidden::{self, Cover, Hidden};
use crate::pool::record::{self, MountRecord};
use crate::pool::volatile::Volatile;
use crate::pool::volatile::accepted;
use crate::pool::write_back::drain;
use crate::pool::{LANES_MAX, Layout, Needed, Origin, POOL_BYTES, Pool, default_pool};
use crate::service::nodes::open_files::OpenFiles;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_file_cache::Outcome;
use tidegate_host::files::mount_table;
use tidegate_host::files::users::{Use, users_below};
use tidegate_host::owned;
use tidegate_media::LockedFile;
use tidegate_mount_transport::{BelowDead, KIND};
use tidegate_policy::placement::{Bypass, NamedPlacement};
use tidegate_sandbox::SandboxWish;
use tidegate_source_files::mark::PoolMark;
use tidegate_source_files::name_log::NameLog;
use tidegate_source_files::recovery::SourceFiles;
use tidegate_source_files::{SourceDirectory, about};

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
    /// Bytes of the pool that programs may pin, if that was said.
    pub pinned_bytes_max: Option<u64>,
    /// Which clean bytes the pool keeps.
    pub policy: NamedPlacement,
    /// Which files bypass the pool.
    pub bypass: Bypass,
    /// Whether the pool need not be persistent memory.
    pub is_trial: bool,
    /// What becomes of the data of another pool that SOURCE belongs to.
    pub former_pool: FormerPool,
    /// Whether its servers enter a sandbox.
    pub sandbox: SandboxWish,
    /// Whether their threads never poll for requests.
    pub no_busy_poll: bool,
}

/// What becomes of the data of a pool that SOURCE belongs to, if another pool is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormerPool {
    /// It stays there: the mount is refused.
    #[default]
    Retain,
    /// It is given up.
    Discard,
}

/// A mount that may begin: SOURCE and the pool belong to this process, and to each other.
pub(crate) struct BegunMount {
    pub(crate) source: Arc<SourceDirectory>,
    pub(crate) lock: LockedFile,
    /// If SOURCE was found below a dead mount.
    pub(crate) below: Option<BelowDead>,
    pub(crate) pool: Pool,
    pub(crate) hidden: Hidden,
    pub(crate) files: OpenFiles,
}

impl MountRequest {
    /// The pool that is meant.
    pub fn pool(&self) -> PathBuf {
        self.pool.clone().unwrap_or_else(|| default_pool(&self.source))
    }

    /// SOURCE and MOUNTPOINT as the kernel names them. Neither may lie in the other.
    /// A mount that is there is not asked, and stays.
    pub fn resolved(mut self) -> Result<MountRequest, ServiceFailure> {
        self.source = resolve_source(&self.source)?;
        let failed = ServiceFailure::of_file("open", &self.mountpoint);
        self.mountpoint = mount_table::resolved(&self.mountpoint).map_err(failed)?;
        let (source, mountpoint) = (&self.source, &self.mountpoint);
        if source != mountpoint && (source.starts_with(mountpoint) || mountpoint.starts_with(source)) {
            let (source_directory, mountpoint) = (source.clone(), mountpoint.clone());
            return Err(ServiceFailure::Nested { source_directory, mountpoint });
        }
        Ok(self)
    }
}

fn resolve_source(source: &Path) -> Result<PathBuf, ServiceFailure> {
    mount_table::resolved(source)
        .map_err(|error| ServiceFailure::NoSource { source_directory: source.to_owned(), error })
}

/// Begins a mount that was [resolved](MountRequest::resolved): everything up to the first server.
pub(crate) fn begin(request: &MountRequest) -> Result<(BegunMount, Vec<RecoveredFile>), ServiceFailure> {
    let covers = request.source == request.mountpoint;
    let FoundSource { source, lock, below } = match covers {
        true => open_covered_source(&request.source)?,
        false => open_source(&request.source).map(|(source, lock)| FoundSource { source, lock, below: None })?,
    };
    if !covers && !is_permitted(&source)? {
        return Err(ServiceFailure::NotOwned { source_directory: request.source.clone() });
    }
    // Programs may still have files of a dead mount open, and SOURCE lies below that.
    let dead = if below.is_some() { mount_table::all_at(&request.source) } else { Vec::new() };
    let dead: Vec<_> = dead.into_iter().filter(|mounted| mounted.kind == KIND).collect();
    let users = users_below(&request.source, Use::Changing, &dead);
    if !users.is_empty() {
        return Err(ServiceFailure::FilesInUse { source_directory: request.source.clone(), users });
    }
    let dram = accepted(request.dram_bytes)?;
    let mark = PoolMark::read(&source)?;
    let pool = open_pool(request, mark.as_ref())?;
    let made = (pool.origin == Origin::Made).then(|| pool.path.clone());
    let begun = begin_with(pool, request, (&source, mark.as_ref()), dram);
    let (pool, hidden, files, recovered) =
        begun.inspect_err(|_| made.iter().for_each(|made| give_up_made(made, &source)))?;
    Ok((BegunMount { source, lock, below, pool, hidden, files }, recovered))
}

/// Whether this user may set the mode of SOURCE, as is done to hide it.
fn is_permitted(source: &SourceDirectory) -> Result<bool, ServiceFailure> {
    let about = about(source.root()).map_err(system("looking at SOURCE"))?;
    Ok([0, about.stx_uid].contains(&owned::own()))
}

/// Begins a mount with a pool, once SOURCE is known.
fn begin_with(
    mut pool: Pool,
    request: &MountRequest,
    (source, mark): (&Arc<SourceDirectory>, Option<&PoolMark>),
    dram: u64,
) -> Result<(Pool, Hidden, OpenFiles, Vec<RecoveredFile>), ServiceFailure> {
    let covers = request.source == request.mountpoint;
    let former = former_names(&pool, mark)?;
    let record = record_for((&pool, dram), request, source, mark)?;
    if pool.layout()? == Layout::Blank {
        pool = pool.format()?;
    }
    let cover = if covers { Cover::Mount } else { Cover::Mode };
    let hidden = Hidden::begin((pool.path.clone(), pool.id()?.unwrap_or_default()), record, source, cover)?;
    let recovery = recover(&pool, dram, SourceFiles::new(source, None), former)?;
    // A mount tells of those alone.
    let recovery = recovery.named_as_now(source, |outcome| matches!(outcome, Outcome::Retained(_)));
    // The first server opens the log of names.
    let (files, recovered) = recovery.into_open_files(&pool, Arc::new(NameLog::absent(source)))?;
    Ok((pool, hidden, files, recovered))
}

/// Removes a pool that was just made for a mount that is refused, and what there is because of it.
fn give_up_made(path: &Path, source: &SourceDirectory) {
    let shown = || -> Result<(), ServiceFailure> {
        if let Some(record) = MountRecord::read(path)? {
            hidden::show(source, &record, path)?;
        }
        let pool = Pool::open(path)?;
        if pool.layout()? == Layout::Pool {
            pool.remove_volatile()?;
        }
        Ok(())
    };
    if let Err(error) = shown() {
        tracing::debug!("the pool that was made is given up, but not all of it: {error}");
    }
    // Nobody had anything in it. If it stays, it is an empty pool.
    let _ = std::fs::remove_file(path);
}

/// Opens the pool that is meant, unless SOURCE is marked with another one.
fn open_pool(request: &MountRequest, mark: Option<&PoolMark>) -> Result<Pool, ServiceFailure> {
    let mark = mark.filter(|_| request.former_pool == FormerPool::Retain);
    let path = request.pool();
    if let Some(mark) = mark
        && !path.exists()
    {
        return Err(other_pool(mark, &request.source, &path));
    }
    let needed = if request.is_trial { Needed::Anything } else { Needed::PowerFail };
    let pool = Pool::open_or_create(&path, request.pool_bytes.unwrap_or(POOL_BYTES), needed)?;
    check_mark(mark, &request.source, &pool)?;
    Ok(pool)
}

/// What becomes of operations in a pool that belongs to no SOURCE: theirs was given up.
fn former_names(pool: &Pool, mark: Option<&PoolMark>) -> Result<FormerNames, ServiceFailure> {
    let id = pool.id()?;
    let belongs = record::path_of(&pool.path).exists() || mark.is_some_and(|mark| id.as_ref() == Some(&mark.id));
    Ok(if belongs { FormerNames::Repeat } else { FormerNames::RepeatOrGiveUp })
}

/// The record of the mount. It is the former one, if the pool has data of SOURCE.
fn record_for(
    (pool, dram): (&Pool, u64),
    request: &MountRequest,
    source: &SourceDirectory,
    mark: Option<&PoolMark>,
) -> Result<MountRecord, ServiceFailure> {
    let id = pool.id()?;
    let is_own = mark.is_some_and(|mark| id.as_ref() == Some(&mark.id));
    if let Some(mark) = mark.filter(|_| !is_own) {
        discard_former(mark, source)?;
    }
    if let Some(record) = record_of(&pool.path, &request.source, source)? {
        return Ok(record);
    }
    if !is_own && !pool.is_empty(dram)? {
        return Err(NotTogether::NoRecord { record: record::path_of(&pool.path), pool: pool.path.clone() }.into());
    }
    fresh_record(&request.source, source, mark)
}

/// Gives up what a pool has that SOURCE is marked with: without its record, nothing brings it to
/// SOURCE any more.
fn discard_former(mark: &PoolMark, source: &SourceDirectory) -> Result<(), ServiceFailure> {
    let root = source.identity(&about(source.root()).map_err(system("looking at SOURCE"))?);
    if MountRecord::read(&mark.pool)?.is_some_and(|record| record.is_of(root)) {
        MountRecord::remove(&mark.pool)?;
    }
    match Volatile::of_id(&mark.id) {
        Some(volatile) => {
            volatile.remove_gone()?;
            (0..LANES_MAX).try_for_each(|lane| volatile.remove(lane))
        }
        None => Ok(()),
    }
}

impl BegunMount {
    /// Ends the mount before it had a server.
    pub(crate) fn end(self) -> Result<(), ServiceFailure> {
        let BegunMount { source, lock: _lock, below: _below, pool, hidden, files } = self;
        end(&files, &source, &hidden, &pool, &mut |_| {})?;
        if pool.origin == Origin::Made {
            let _ = std::fs::remove_file(&pool.path);
        }
        Ok(())
    }
}

/// Ends a mount: no request comes any more. Writes everything back, and shows SOURCE. `tell` hears
/// how much is left and how fast it goes, once a second.
pub(crate) fn end(
    files: &OpenFiles,
    source: &SourceDirectory,
    hidden: &Hidden,
    pool: &Pool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ServiceFailure> {
    drain(files, source, &pool.path, tell)?;
    if !files.is_written_back() {
        let pool = pool.path.display();
        tell(&format!("the pool {pool} keeps what some files lack, and SOURCE stays hidden: recover it"));
        return Ok(());
    }
    files.names.end().map_err(not_durable)?;
    hidden.end(source)?;
    pool.remove_volatile()
}
