//! Write-back in the background: one thread, which looks at the pool a few times a second.
//!
//! | what | is done |
//! | --- | --- |
//! | not synced for [`DIRTY_AGE`], of a file that was synced before | committed to the pool |
//! | likewise, of another file that has bytes there, by a write of 64 KiB at most | likewise |
//! | not synced for [`DIRTY_AGE`], of another file | written below, without a sync |
//! | not synced, in a lane whose DRAM is more than half full | likewise, the oldest first |
//! | of a file that nobody can reach any more | given up, when the loss of its name is durable |
//! | out of sync for [`OUT_OF_SYNC_AGE`] | written back: what is written twice until then, once |
//! | cut since the last look | synced below, so that the pool can forget the file |
//! | out of sync, and more than a lane's part of [`Limits::bytes`] | written back without a pause |
//! | a file below that refuses | tried again later, behind the others |

use crate::lifecycle::failure::{ServiceFailure, not_durable};
use crate::service::nodes::open_files::{OpenFiles, to_millis};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_file_cache::{FileError, WriteBackStep};
use tidegate_host::progress::ProgressMeter;
use tidegate_host::threads::Periodic;
use tidegate_layout::file_cache::VERSION_MAX;
use tidegate_source_files::SourceDirectory;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long what programs synced stays in the pool alone, about.
const OUT_OF_SYNC_AGE: Duration = Duration::from_secs(1);

/// How long what no program syncs stays in DRAM alone.
pub(crate) const DIRTY_AGE: Duration = Duration::from_secs(5);

/// Bytes that one step writes back.
const STEP_BYTES: u64 = 4 << 20;

/// When write-back goes on without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes that may be out of sync.
    pub(crate) bytes: u64,
}

impl Limits {
    /// Half of a pool of so many bytes.
    pub(crate) fn of(pool_bytes: u64) -> Limits {
        Limits { bytes: pool_bytes / 2 }
    }
}

/// Starts the thread.
pub(crate) fn start(files: Arc<OpenFiles>, limits: Limits) -> std::io::Result<Periodic> {
    let mut ages = Ages::default();
    Periodic::start("write-back", LOOK_EVERY, move || note(look(&files, limits, &mut ages).err(), &files.obstacle))
}

/// What the newest commits of the lanes were at the last looks, the oldest first.
#[derive(Default)]
struct Ages(VecDeque<(Instant, Vec<u64>)>);

impl Ages {
    /// Notes what they are `now`, and says what they were [`OUT_OF_SYNC_AGE`] before; nothing at
    /// first.
    fn aged(&mut self, now: Instant, versions: Vec<u64>) -> Option<&[u64]> {
        self.0.push_back((now, versions));
        let is_old = |(at, _): &(Instant, Vec<u64>)| now.duration_since(*at) >= OUT_OF_SYNC_AGE;
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
        self.0.front().filter(|oldest| is_old(oldest)).map(|(_, versions)| versions.as_slice())
    }
}

/// Notes what keeps files from being written back, and tells of it once.
fn note(obstacle: Option<FileError>, known: &Mutex<Option<FileError>>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = &obstacle
        && *known != obstacle
    {
        tracing::warn!("files are not written back: {error}; the pool keeps their data, and they are tried again");
    }
    *known = obstacle;
}

fn look(files: &OpenFiles, limits: Limits, ages: &mut Ages) -> Result<(), FileError> {
    let gone = files.give_up_gone();
    let now = files.tick();
    let aged = write_dirty(files, now.saturating_sub(DIRTY_AGE), 0);
    // A lane that is full makes its writers wait for room.
    let half = files.pool.fill().dram / files.pool.lanes().max(1) as u64 / 2;
    let aged = aged.and(write_dirty(files, now, half));
    files.follow_leases();
    let old = ages.aged(Instant::now(), files.pool.versions());
    let written = write_back_old(files, old, limits.bytes / files.pool.lanes().max(1) as u64);
    gone.and(aged).and(written).and(files.let_go())
}

/// Has what was written before `older_than` and not synced leave DRAM, until no lane has more than
/// `most` bytes there. A file that refuses does not keep the others.
fn write_dirty(files: &OpenFiles, older_than: Duration, most: u64) -> Result<(), FileError> {
    let (mut outcome, older_than) = (Ok(()), to_millis(older_than));
    for lane in 0..files.pool.lanes() {
        while most == 0 || files.pool.dram_used(lane) > most {
            match files.pool.write_dirty_step(lane, STEP_BYTES, older_than) {
                Ok(progress) if progress.bytes == 0 => break,
                Ok(_) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
    }
    outcome
}

/// Writes back what the lanes committed up to the versions `old`, and everything of a lane as long
/// as it has more than `limit` bytes out of sync.
fn write_back_old(files: &OpenFiles, old: Option<&[u64]>, limit: u64) -> Result<(), FileError> {
    let until = |lane| {
        let is_full = files.pool.out_of_sync(lane) > limit;
        if is_full { Some(VERSION_MAX) } else { old?.get(lane).copied() }
    };
    while write_back_lanes(files, until)?.into_iter().any(|left| left > limit) {}
    Ok(())
}

/// Writes back what is out of sync now, and on while `goes_on` with the bytes that are left.
pub(crate) fn write_back(files: &OpenFiles, mut goes_on: impl FnMut(u64) -> bool) -> Result<(), FileError> {
    loop {
        let left: u64 = write_back_lanes(files, |_| Some(VERSION_MAX))?.into_iter().sum();
        if !goes_on(left) || left == 0 {
            return Ok(());
        }
    }
}

/// Writes back what each lane has out of sync now, up to a version, if `until` names one. Says how
/// many bytes are left of it.
fn write_back_lanes(files: &OpenFiles, until: impl Fn(usize) -> Option<u64>) -> Result<Vec<u64>, FileError> {
    let of_lane = |lane| until(lane).map_or(Ok(0), |until| write_back_lane(files, lane, until));
    // Every lane has its turn, whatever the others meet.
    let left: Vec<_> = (0..files.pool.lanes()).map(of_lane).collect();
    files.settle_shares();
    left.into_iter().collect()
}

/// Writes back what a lane has out of sync now, up to a version. Says how many bytes are left.
fn write_back_lane(files: &OpenFiles, lane: usize, until: u64) -> Result<u64, FileError> {
    let mut todo = None;
    loop {
        let WriteBackStep { bytes, left_bytes, left_cut } =
            files.pool.write_back_step_until(lane, STEP_BYTES, until)?;
        let (todo_bytes, todo_cut) = todo.get_or_insert((left_bytes, left_cut));
        if (*todo_bytes, *todo_cut) == (0, 0) || bytes == 0 && *todo_cut == 0 {
            return Ok(left_bytes);
        }
        // A file that was only cut has no bytes.
        *todo_cut = todo_cut.saturating_sub(u64::from(bytes == 0));
        *todo_bytes = todo_bytes.saturating_sub(bytes);
    }
}

/// Writes everything back, durably, and has the pool forget the files. `tell` hears how much is
/// left and how fast it goes, once a second.
pub(crate) fn drain(
    files: &OpenFiles,
    source: &SourceDirectory,
    pool: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ServiceFailure> {
    write_back_all(files, source, pool, tell)?;
    files.drain_all().map_err(|error| ServiceFailure::NotWrittenBack { pool: pool.to_owned(), error })
}

/// Writes everything back, durably. `tell` hears how much is left and how fast it goes, once a
/// second. A file that refuses does not keep the others from being written back.
pub(crate) fn write_back_all(
    files: &OpenFiles,
    source: &SourceDirectory,
    pool: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ServiceFailure> {
    let failed = |error| ServiceFailure::NotWrittenBack { pool: pool.to_owned(), error };
    let aged = write_dirty(files, files.tick(), 0);
    let mut meter = ProgressMeter::begin(files.pool.fill().out_of_sync);
    let mut write = || {
        write_back(files, |left| {
            meter.line(Instant::now(), left).iter().for_each(|line| tell(line));
            true
        })
    };
    let mut written = write();
    // Each turn begins with the files that were refused least.
    for _ in 0..files.len() {
        if written.is_ok() {
            break;
        }
        written = write();
    }
    aged.and(written).and_then(|()| files.let_go()).map_err(failed)?;
    rustix::fs::syncfs(source.root()).map_err(not_durable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_is_what_was_there_at_the_last_look_that_is_long_enough_ago() {
        let (began, mut ages) = (Instant::now(), Ages::default());
        let mut look =
            |millis: u64| ages.aged(began + Duration::from_millis(millis), vec![millis]).map(<[u64]>::to_vec);
        assert_eq!([0, 250, 500, 750].map(&mut look), [const { None }; 4]);
        assert_eq!([1000, 1250, 1300].map(&mut look), [0, 250, 250].map(|millis| Some(vec![millis])));
        assert_eq!(look(9000), Some(vec![1300]), "a look that took long");
    }
}
