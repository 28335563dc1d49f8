//! `tidegate run-log`: a program whose syncs end in persistent memory, and the supervisor beside
//! it.
//!
//! This crate is a quarantine: it gets no features. The file service replaces it, and then it is
//! deleted whole, with `preload-wire`, the strips of `wal`, and `layout`'s `kept`. Its words are
//! its own: no other crate uses them.
//!
//! The library that is loaded under the program (`libtidegate_preload.so`) asks this supervisor to
//! hold files and to keep what was written to them; see its preamble for the rules between the two.
//! Here `keeper` answers, `kept` is the persistent memory, `journal` says which file is which,
//! `recover` brings back what a power cut left, `door` listens, and `program` starts the program
//! and speaks for it.

#![forbid(unsafe_code)]

mod above;
mod beside;
mod blocks;
#[cfg(test)]
mod cuts;
mod deny;
mod door;
mod failure;
mod file_system;
mod folder;
mod follower;
mod ground;
mod held_file;
mod held_name;
mod journal;
mod keeper;
mod kept;
mod left;
mod near;
mod notes;
mod program;
mod recover;
mod sight;
mod span;
mod strips;
mod table;
mod version;

use beside::Beside;
use deny::Denied;
pub use failure::{Failure, RunFailure};
pub use file_system::FileSystem;
use folder::Folder;
use follower::Follower;
pub use ground::Unlike;
pub use held_file::IfUnmounted;
use journal::Journal;
pub use keeper::{FileStatus, Status, Unheld};
use keeper::{Keeper, Scope};
pub use kept::Fill;
use kept::Kept;
pub use left::{LeftFolder, LeftPool, is_supervisor, left_folders, left_pools};
use notes::Notes;
pub use program::library;
pub use recover::{LEFT_ALONE, LeftAlone, Recovered, Salvaged, Unmounted};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use table::Table;
use tidegate_host::Doing;
use tidegate_host::default_paths;
use tidegate_host::owned::{self, UntrustedFile};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_media::{Domain, MappedRegion, Region};
use version::is_pool;

/// Bytes of a pool that is made, unless asked otherwise.
const POOL_BYTES: u64 = 1 << 30;

/// How long a file that was removed stays open here.
const REMOVED_LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// The pool; None: that of the user.
    pub pool: Option<PathBuf>,
    /// Bytes of a pool that is made, if that was said.
    pub size: Option<u64>,
    /// Folders whose files may be held; none: the current one.
    pub roots: Vec<PathBuf>,
    /// Files that are never held.
    pub deny: Vec<String>,
    /// Whether the pool need not be persistent memory.
    pub is_trial: bool,
}

/// How the program around a run does what it alone decides.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Tells a line about progress.
    pub tell: fn(&str),
    /// The exit code of a run that a signal ends before its files are on their disks.
    pub interrupted: i32,
}

/// Runs `command` above `library` as it was `asked`; the answer is the program's.
pub fn run(library: &Path, asked: &Asked, command: &[OsString], around: Around) -> Result<ExitCode, Failure> {
    let scope = Scope { roots: roots(&asked.roots)?, denied: Denied::new(&asked.deny) };
    let pool = pool_or_default(asked.pool.as_deref());
    let region = Arc::new(map(&pool, asked.size.unwrap_or(POOL_BYTES), asked.is_trial)?);
    let domain = region.domain();
    if let Some(size) = asked.size.filter(|size| *size != region.len()) {
        let has = Human(region.len());
        tracing::warn!(
            "the pool {} has {has} and keeps them: --size {} is for one that is made",
            pool.display(),
            Human(size)
        );
    }
    warn_of(&pool, domain);
    warn_of_others(&pool);
    let beside = Beside::of(&pool);
    let journal_at = beside.journal();
    default_paths::make_folder_of(&journal_at)?;
    beside.refuse_in_memory(domain)?;
    let recovered = recover::recover(&beside, &region, beside.salvaged(), IfUnmounted::Keep)?;
    recovered.tell();
    // First: the journal stays then, and tells of doubtful files again.
    recovered.refuse_unmounted(&pool)?;
    if let Some(file) = recovered.doubtful() {
        return Err(RunFailure::Doubtful { file: file.to_owned(), aside: beside.salvaged() }.into());
    }
    let kept = Kept::fresh(&pool, region)?;
    let folder = Folder::make()?;
    let table = Table::create(&folder.table())?;
    let mut journal = Journal::begin(&journal_at, domain)?;
    journal.add_folder(folder.path()).map_err(Failure::system("writing the journal of holds"))?;
    let environment = program::Environment::new(library, &folder, &scope.roots, (&journal, &journal_at), beside.pool());
    let notes = Notes::create(&folder.notes())?;
    let keeper = Arc::new(Keeper::new(scope, kept, table, journal).with_notes(notes));
    let door = door::open(&folder.socket(), Arc::clone(&keeper))?;
    let of_follower = Arc::clone(&keeper);
    let follower = Follower::start(REMOVED_LOOK_EVERY, move || of_follower.let_go_of_removed());
    let follower = follower.map_err(Failure::system("starting a thread"))?;
    let ended = program::run(command, &environment);
    // Without it, only the end is to be waited for.
    let impatience = program::Impatience::begin(&pool, around.interrupted);
    drop((door, follower));
    let left = keeper.end(around.tell);
    drop(impatience);
    left.tell();
    ended
}

/// Maps the pool at `path`, made now with `size` bytes if it is absent: persistent memory, unless
/// it `is_trial`.
fn map(path: &Path, size: u64, is_trial: bool) -> Result<MappedRegion, Failure> {
    let is_new = matches!(path.try_exists(), Ok(false));
    let region = kept::map(path, size)?;
    version::refuse_others(path, &region)?;
    if is_trial || matches!(region.domain(), Domain::PowerFail { .. }) {
        return Ok(region);
    }
    if is_new {
        // Nobody else could use it so far. If it stays, it is an empty pool.
        let _ = std::fs::remove_file(path);
    }
    Err(RunFailure::NotPersistent { pool: path.to_owned(), is: what_it_is(region.domain()) }.into())
}

/// What a pool in `domain` is, if it is no persistent memory.
fn what_it_is(domain: Domain) -> &'static str {
    match domain {
        Domain::DiskFile => "an ordinary file, not persistent memory",
        _ => domain.meaning(),
    }
}

/// Brings what a run left in `pool` to its files, and what cannot go there to the folder `aside`.
pub fn recover_pool(pool: &Path, aside: Option<&Path>, if_unmounted: IfUnmounted) -> Result<Recovered, Failure> {
    if !pool.exists() {
        return Err(RunFailure::NoPool { pool: pool.to_owned() }.into());
    }
    let region = Arc::new(kept::open(pool)?);
    version::refuse_others(pool, &region)?;
    let beside = Beside::of(pool);
    // A run that was cut short while it made its pool has left a journal.
    if !is_pool(&region) && !beside.journal().exists() {
        let why = "no run has laid out a pool there".to_owned();
        return Err(RunFailure::Pool { pool: pool.to_owned(), why }.into());
    }
    let aside = aside.map_or_else(|| beside.salvaged(), Path::to_owned);
    recover::recover(&beside, &region, aside, if_unmounted)
}

/// The pool that is meant when none is named.
pub fn pool_or_default(pool: Option<&Path>) -> PathBuf {
    pool.map_or_else(default_paths::default_pool, Path::to_owned)
}

/// Whether `error` says that nothing is there: no such file, or a file where a folder would have to
/// be.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// What the run with `pool` is doing. None: there is none.
pub fn status_of(pool: &Path) -> Result<Option<Status>, Failure> {
    let beside = Beside::of(pool);
    let journal = beside.journal();
    let refused = |doing| {
        let journal = &journal;
        move |error: std::io::Error| match error.kind() {
            _ if UntrustedFile::in_error(&error).is_some() => RunFailure::of_file(journal, Doing::Read, error),
            std::io::ErrorKind::PermissionDenied => RunFailure::Denied { pool: pool.to_owned(), error }.into(),
            _ => Failure::System { doing, error },
        }
    };
    // Root may ask about the run of any user.
    let owner = beside.pool().metadata().map_or(owned::own(), |data| data.uid());
    let owners = if owned::own() == 0 { vec![0, owner] } else { vec![owned::own()] };
    let folder = match journal::folder_in(&journal, &owners) {
        Err(error) if is_absent(&error) => return Ok(None),
        folder => folder.map_err(refused("reading the journal of holds"))?,
    };
    let Some((folder, owner)) = folder else { return Ok(None) };
    match door::ask_status(&folder.join(tidegate_preload_wire::SOCKET), owner) {
        Ok(status) => Ok(Some(status)),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(refused("asking the supervisor")(error)),
    }
}

/// The roots as the kernel names them.
fn roots(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let current = [PathBuf::from(".")];
    let named = if named.is_empty() { &current[..] } else { named };
    let real = |root: &PathBuf| match root.canonicalize() {
        Ok(real) if real.is_dir() && !real.to_string_lossy().contains(':') => Ok(real),
        Ok(_) => {
            Err(RunFailure::NoRoot { root: root.clone(), why: "it is no folder, or has a colon in its name".into() }
                .into())
        }
        Err(error) => Err(RunFailure::NoRoot { root: root.clone(), why: error.to_string() }.into()),
    };
    named.iter().map(real).collect()
}

/// Says so if the pool is a file that others may read.
fn warn_of_others(pool: &Path) {
    let file = pool.metadata().ok().filter(std::fs::Metadata::is_file);
    if file.is_some_and(|file| file.mode() & 0o044 != 0) {
        let (shown, pool) = (pool.display(), word(pool));
        tracing::warn!("other users may read what programs sync to the pool {shown}: chmod 600 {pool}");
    }
}

/// Says so if what is synced would not outlive a power cut.
fn warn_of(pool: &Path, domain: Domain) {
    if !matches!(domain, Domain::PowerFail { .. }) {
        let is = what_it_is(domain);
        tracing::warn!(
            "the pool {} is {is}: what programs sync survives their end and this program's, but not a power cut",
            pool.display()
        );
    }
}
