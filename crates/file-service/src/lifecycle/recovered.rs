//! What a mount left in its pool: found below again, and brought to its files.

use crate::lifecycle::belonging::NotTogether;
use crate::lifecycle::failure::{ServiceFailure, in_use, not_durable};
use crate::lifecycle::opening::{FoundSource, check_mark, open_covered_source, record_of};
use crate::pool::hidden;
use crate::pool::record::{self, MountRecord};
use crate::pool::volatile::accepted;
use crate::pool::write_back::drain;
use crate::pool::{self, Layout, Pool};
use crate::service::nodes::open_files::{OpenFiles, word_of_now};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_file_cache::{
    BackingFile, Below, Displaced, Disposition, FileIdentity, FilePool, Outcome, Recovered, Refused,
};
use tidegate_layout::file_cache::LEASE_CLASS;
use tidegate_media::{MappedRegion, MappedRuns};
use tidegate_mount_transport::{refuse_without_proc, remove_dead};
use tidegate_namespace_log::{NameConflict, NamesReplayed, NamespaceError, NamespaceLog, ReplayedBelow, Whereabouts};
use tidegate_source_files::SourceDirectory;
use tidegate_source_files::mark::PoolMark;
use tidegate_source_files::name_log::NameLog;
use tidegate_source_files::recovery::{FoundFile, SourceFiles};

/// What recovery brings to a mount.
pub(crate) struct Recovery {
    /// The pool's lanes, whose files are attached.
    lanes: FilePool<MappedRegion>,
    /// These files below.
    found: Vec<FoundFile>,
    files: Vec<Recovered>,
    /// Operations on names that were not repeated.
    conflicts: Vec<NameConflict>,
}

/// What is known of SOURCE and of the operations on names that the pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormerNames {
    /// SOURCE may have lost some. If they belong to another SOURCE, or to one at another time, the
    /// pool is refused.
    Repeat,
    /// Likewise, but such operations are given up.
    RepeatOrGiveUp,
    /// SOURCE has them all, if not durably, and perhaps it can only be read: it was mounted ever
    /// since.
    Done,
}

/// Repeats the operations on names that SOURCE lost, opens the pool's lanes, and finds the files
/// below of what they have.
pub(crate) fn recover(
    pool: &Pool,
    dram: u64,
    below: SourceFiles<'_>,
    former: FormerNames,
) -> Result<Recovery, ServiceFailure> {
    let of_names = |error| ServiceFailure::Names { pool: pool.path.clone(), error };
    let failed = |error| ServiceFailure::NotWrittenBack { pool: pool.path.clone(), error };
    let below = below.without(pool.gone()?);
    let source = below.source();
    let names = replayed(&pool.region, source, former).map_err(of_names)?;
    let lanes = pool.lanes_open(dram)?;
    // A lock that cannot be asked about is taken for one.
    let found = lanes.map_again(LEASE_CLASS, word_of_now(), &mut |range| {
        let has = |file: &File| MappedRuns::is_mapped(file.as_fd(), range.start, range.end - range.start);
        pool.region.file().is_some_and(|file| has(file).unwrap_or(true))
    });
    found.map_err(failed)?;
    let files = match &names {
        Some(names) => {
            let replayed = ReplayedBelow::new(names, &below);
            lanes.recover(&KnownFirst { below: &below, replayed })
        }
        None => lanes.recover(&below),
    };
    let (files, mut conflicts) = (files.map_err(failed)?, Vec::new());
    if let Some(mut names) = names {
        // The log alone knows where their contents belong.
        if let Some(refused) = files.iter().find_map(|file| refused_anew(&names, file)) {
            return Err(failed(refused.into()));
        }
        conflicts = std::mem::take(&mut names.conflicts);
        if former != FormerNames::Done && !names.is_empty() {
            names.finish(source).map_err(of_names)?;
        }
    }
    Ok(Recovery { lanes, found: below.into_found(), files, conflicts })
}

/// Files that an earlier server of the same mount knew, and all others by the names that were
/// replayed. A file that lost its name may still be open: the log alone takes it for removed.
struct KnownFirst<'a> {
    below: &'a SourceFiles<'a>,
    replayed: ReplayedBelow<'a, Arc<MappedRegion>>,
}

impl Below for KnownFirst<'_> {
    fn find(&self, identity: FileIdentity, path_hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        match self.below.find_known(identity, path_hint)? {
            Some(known) => Ok(Some(known)),
            None => self.replayed.find(identity, path_hint),
        }
    }

    fn displaced(&self, identity: FileIdentity, path_hint: &[u8], why: Displaced) -> Result<Disposition, Refused> {
        self.replayed.displaced(identity, path_hint, why)
    }
}

/// Repeats the operations that SOURCE lost. None: nothing is known of any.
fn replayed(
    region: &Arc<MappedRegion>,
    source: &SourceDirectory,
    former: FormerNames,
) -> Result<Option<NamesReplayed<Arc<MappedRegion>>>, NamespaceError> {
    let names = match former {
        FormerNames::Done => NamespaceLog::follow(Arc::clone(region), source),
        FormerNames::Repeat | FormerNames::RepeatOrGiveUp => NamespaceLog::replay(Arc::clone(region), source),
    };
    match names {
        Ok(names) => Ok(Some(names)),
        Err(NamespaceError::NoLog) => Ok(None),
        Err(
            error @ (NamespaceError::OtherSource
            | NamespaceError::OlderSource { .. }
            | NamespaceError::OlderPool { .. }),
        ) if former == FormerNames::RepeatOrGiveUp => {
            tracing::warn!("operations on names are given up: {error}");
            NamespaceLog::give_up(Arc::clone(region), source)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Why the contents of a file that was made anew were not written to it.
fn refused_anew(names: &NamesReplayed<Arc<MappedRegion>>, file: &Recovered) -> Option<Refused> {
    match (file.outcome, names.whereabouts(file.identity)) {
        (Outcome::Retained(Displaced::Refused(refused)), Whereabouts::MadeAnew { .. }) => Some(refused),
        _ => None,
    }
}

impl Recovery {
    /// Names those of the files that `is_told` as they are named in `source` now, where the pool
    /// has a former name. A server that tells nobody need not look.
    pub(crate) fn named_as_now(mut self, source: &SourceDirectory, is_told: impl Fn(&Outcome) -> bool) -> Recovery {
        let found: HashMap<_, _> = self.found.iter().map(|(file, _)| (file.identity(), file)).collect();
        for told in self.files.iter_mut().filter(|file| is_told(&file.outcome)) {
            let file = found.get(&told.identity);
            if let Some(path) = file.and_then(|file| source.path_of(file.descriptor())) {
                told.path_hint = path.into_os_string().into_vec();
            }
        }
        self
    }

    /// The files for a mount that logs names in `names`, and what recovery did.
    pub(crate) fn into_open_files(
        self,
        pool: &Pool,
        names: Arc<NameLog>,
    ) -> Result<(OpenFiles, Vec<RecoveredFile>), ServiceFailure> {
        let failed = |error| ServiceFailure::NotWrittenBack { pool: pool.path.clone(), error };
        for NameConflict { path, why } in &self.conflicts {
            tracing::warn!("an operation on {} was not repeated: {why}", String::from_utf8_lossy(path));
        }
        let files = OpenFiles::new(self.lanes, names);
        let attached: HashSet<_> = files.pool.files().into_iter().map(|(_, identity)| identity).collect();
        let recovered = self.files.iter().filter(|file| file.outcome == Outcome::Attached);
        let recovered: HashSet<_> = recovered.map(|file| file.identity).collect();
        for (backing, hint) in self.found {
            // One that was changed by others stays detached; one that was whole below is not there.
            if recovered.contains(&backing.identity()) && attached.contains(&backing.identity()) {
                files.adopt(backing, hint).map_err(failed)?;
            }
        }
        Ok((files, self.files.into_iter().map(RecoveredFile::of).collect()))
    }
}

/// What recovery did about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredFile {
    /// The file, below SOURCE: where it is, or where it was last known.
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

    /// Whether the data is in another file: one made anew in SOURCE, or one beside the pool.
    pub fn is_salvaged(&self) -> bool {
        matches!(self.outcome, Outcome::Salvaged(_))
    }

    /// Whether the file was removed through the mount, and its data is given up.
    pub fn is_removed(&self) -> bool {
        matches!(self.outcome, Outcome::Discarded(_))
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
    refuse_without_proc("recovery")?;
    path.exists().then_some(()).ok_or_else(|| ServiceFailure::NoPool { pool: path.to_owned() })?;
    let (pool, dram) = (Pool::open(path).map_err(in_use(path))?, accepted(None)?);
    let salvage = pool::salvage_of(&pool.path);
    let layout = pool.layout()?;
    let Some(record) = MountRecord::read(&pool.path)? else {
        if layout == Layout::Blank {
            return Err(ServiceFailure::Blank { pool: pool.path });
        }
        return match pool.is_empty(dram)? {
            true => {
                // The look into the pool made the memory that it may belong with.
                pool.remove_volatile()?;
                Ok(PoolRecovered { source: None, files: Vec::new(), salvage })
            }
            false => Err(NotTogether::NoRecord { record: record::path_of(&pool.path), pool: pool.path }.into()),
        };
    };
    // A mount over SOURCE whose service was killed hides it.
    let FoundSource { source, lock: _lock, below: _below } = open_covered_source(&record.source)?;
    record_of(&pool.path, &record.source, &source)?;
    check_mark(PoolMark::read(&source)?.as_ref(), &record.source, &pool)?;
    let (mut recovered, mut is_written_back) = (Vec::new(), true);
    if layout == Layout::Pool {
        let (to, former) = match unplaced {
            Unplaced::Retain => (None, FormerNames::Repeat),
            Unplaced::Salvage => (Some(salvage.clone()), FormerNames::RepeatOrGiveUp),
        };
        let names = Arc::new(NameLog::absent(&source));
        let recovery = recover(&pool, dram, SourceFiles::new(&source, to), former)?;
        let (files, found) = recovery.named_as_now(&source, |_| true).into_open_files(&pool, names)?;
        drain(&files, &source, &pool.path, &mut tell)?;
        (recovered, is_written_back) = (found, files.is_written_back());
    }
    rustix::fs::syncfs(source.root()).map_err(not_durable)?;
    if is_written_back {
        hidden::show(&source, &record, &pool.path)?;
        if layout == Layout::Pool {
            pool.remove_volatile()?;
        }
        remove_dead(&record.source)?;
    }
    Ok(PoolRecovered { source: Some(record.source), files: recovered, salvage })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::found::left_memory;
    use crate::pool::Needed;

    #[test]
    fn a_pool_that_has_no_data_is_looked_into_without_a_trace() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool");
        let pool = Pool::open_or_create(&path, 8 << 20, Needed::Anything).expect("room").format().expect("laid out");
        let id = pool.id().expect("readable").expect("it is laid out");
        drop(pool);
        let recovered = recover_pool(&path, Unplaced::Retain, |_| {}).expect("there is nothing to recover");
        assert_eq!((recovered.source, recovered.files), (None, Vec::new()));
        let left = left_memory().into_iter().find(|left| left.file.to_string_lossy().contains(&id));
        assert_eq!(left, None);
    }
}
