//! What a mount left in its pool: found below again, and brought to its files.

use crate::lifecycle::belonging::NotTogether;
use crate::lifecycle::failure::{ServiceFailure, system};
use crate::lifecycle::opening::{check_mark, open_source, record_of};
use crate::pool::hidden;
use crate::pool::record::{self, MountRecord};
use crate::pool::write_back::drain;
use crate::pool::{self, DRAM_BYTES, Layout, Pool};
use crate::service::nodes::open_files::OpenFiles;
use crate::source::mark::PoolMark;
use crate::source::recovery::SourceFiles;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use tidegate_file_cache::{BackingFile, Outcome, Recovered};

/// Opens the pool's lanes, and finds the files `below` of what they have.
pub(crate) fn recover(
    pool: &Pool,
    dram_bytes: Option<u64>,
    below: SourceFiles<'_>,
) -> Result<(OpenFiles, Vec<RecoveredFile>), ServiceFailure> {
    let failed = |error| ServiceFailure::NotWrittenBack { pool: pool.path.clone(), error };
    let files = OpenFiles::new(pool.lanes_open(dram_bytes.unwrap_or(DRAM_BYTES))?);
    let recovered = files.pool.recover(&below).map_err(failed)?;
    let attached: HashSet<_> = files.pool.files().into_iter().map(|(_, identity)| identity).collect();
    for (backing, hint) in below.into_found() {
        // One that was changed by others stays detached; one that was whole below is not there.
        let is_attached =
            recovered.iter().any(|file| file.identity == backing.identity() && file.outcome == Outcome::Attached);
        if is_attached && attached.contains(&backing.identity()) {
            files.adopt(backing, hint).map_err(failed)?;
        }
    }
    Ok((files, recovered.into_iter().map(RecoveredFile::of).collect()))
}

/// What recovery did about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredFile {
    /// The file, below SOURCE, where it was last known.
    pub file: PathBuf,
    /// Bytes that only the pool had.
    pub bytes: u64,
    /// Where these are now.
    pub outcome: Outcome,
}

impl RecoveredFile {
    fn of(recovered: Recovered) -> RecoveredFile {
        let Recovered { path_hint, bytes, outcome, .. } = recovered;
        RecoveredFile { file: OsString::from_vec(path_hint).into(), bytes, outcome }
    }

    /// Whether the pool still has what the file lacks.
    pub fn is_retained(&self) -> bool {
        matches!(self.outcome, Outcome::Retained(_))
    }
}

/// What [`recover_pool`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecovered {
    /// SOURCE, if the pool belonged to one.
    pub source: Option<PathBuf>,
    /// The files that the pool had something for.
    pub files: Vec<RecoveredFile>,
    /// Where what could not be written to its file is saved.
    pub salvage: PathBuf,
}

/// What happens to data in a pool whose file is missing or was changed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// It stays in the pool.
    Retain,
    /// It is saved beside the pool.
    Salvage,
}

/// Brings what a mount left in `pool` to the files of SOURCE, and shows SOURCE if the pool retains
/// nothing. It may be done again at any time.
pub fn recover_pool(
    path: &Path,
    unplaced: Unplaced,
    mut tell: impl FnMut(&str),
) -> Result<PoolRecovered, ServiceFailure> {
    if !path.exists() {
        return Err(ServiceFailure::NoPool { pool: path.to_owned() });
    }
    let pool = Pool::open(path)?;
    let salvage = pool::salvage_of(&pool.path);
    let layout = pool.layout()?;
    let Some(record) = MountRecord::read(&pool.path)? else {
        return match pool.is_empty(DRAM_BYTES)? {
            true => Ok(PoolRecovered { source: None, files: Vec::new(), salvage }),
            false => Err(NotTogether::NoRecord { record: record::path_of(&pool.path), pool: pool.path }.into()),
        };
    };
    let (source, _lock) = open_source(&record.source)?;
    record_of(&pool.path, &record.source, &source)?;
    check_mark(PoolMark::read(&source)?.as_ref(), &record.source, &pool)?;
    let (mut recovered, mut is_written_back) = (Vec::new(), true);
    if layout == Layout::Pool {
        let to = (unplaced == Unplaced::Salvage).then(|| salvage.clone());
        let (files, found) = recover(&pool, None, SourceFiles::new(&source, to))?;
        drain(&files, &source, &pool.path, &mut tell)?;
        (recovered, is_written_back) = (found, files.is_written_back());
    }
    rustix::fs::syncfs(source.root()).map_err(system("making SOURCE durable"))?;
    if is_written_back {
        hidden::show(&source, &record, &pool.path)?;
        if layout == Layout::Pool {
            pool.remove_volatile()?;
        }
    }
    Ok(PoolRecovered { source: Some(record.source), files: recovered, salvage })
}
