//! `tidegate flush`: everything that only a cache has reaches its disk. A running server does it
//! beside its clients; without one this command does it itself.

use crate::answer;
use crate::belonging;
use crate::cached_disk::{Cached, DiskState, FLUSH_ASKED_EVERY};
use crate::compose;
use crate::control::{self, DiskAct, DiskAnswer};
use crate::create;
use crate::disk_left::{self, IfChanged};
use crate::disks::{self, DiskPlan, Named};
use crate::failure::{DiskFailure, Exit, Failure, VolumeFailure, of_opening};
use crate::grammar::Flush;
use crate::holdings;
use crate::live_disk::FlushTicket;
use crate::notes::Note;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tidegate_disk_cache::{Guard, Identity};
use tidegate_host::default_paths;
use tidegate_host::progress::ProgressMeter;
use tidegate_media::{Access, DiskAccess, MappedRegion};

/// What `flush` answers.
#[derive(Serialize)]
struct Answer {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server does it.
    served: bool,
    /// Whether everything that was dirty is on the disk.
    flushed: bool,
    /// Bytes that are dirty now: what came since, or what is still on its way.
    dirty_bytes: u64,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, dirty) = (self.file.display(), self.dirty_bytes);
        match (self.flushed, dirty) {
            (true, _) => writeln!(
                f,
                "flushed    {file}: all blocks that were dirty are on the disk; {dirty} bytes are dirty since"
            )?,
            (false, 0) => writeln!(f, "flushing   {file}: nothing is dirty")?,
            (false, _) => {
                writeln!(f, "flushing   {file}: {dirty} bytes are on their way to the disk (--wait waits for them)")?;
            }
        }
        write!(
            f,
            "once flushed, the disk may be read, and must not be written without its region: `tidegate detach` frees it"
        )
    }
}

/// Runs `tidegate flush`.
pub(crate) fn run(wish: &Flush, json: bool) -> Result<Exit, Failure> {
    let file = wish.pmem.clone();
    let socket = wish.control.clone().unwrap_or_else(|| default_paths::control_socket(&file));
    let (served, flushed, dirty_bytes) = match control::ask_disk(&socket, &file, DiskAct::Flush) {
        Ok((DiskAnswer::Flushing { ticket }, state)) if wish.wait => {
            (true, true, wait(&socket, &file, ticket, &state, teller(json))?)
        }
        Ok((_, state)) => (true, false, state.dirty_bytes),
        Err(failure) if wish.control.is_none() && failure.is_no_server() => {
            flush(wish, teller(json))?;
            (false, true, 0)
        }
        Err(failure) => return Err(failure),
    };
    answer::give(&Answer { file, served, flushed, dirty_bytes }, json)?;
    Ok(Exit::Done)
}

/// Without a server.
pub(crate) fn flush(wish: &Flush, tell: Teller) -> Result<(), Failure> {
    let if_changed = if wish.force { IfChanged::GoOn } else { IfChanged::Refuse };
    let pmem = &wish.pmem;
    let Open { region, identity, cached, stale } = open_for(pmem, wish.named(), if_changed)?;
    cached.drain(pmem, tell)?;
    create::sync(pmem, &region)?;
    let disk = cached.disk();
    drop(cached);
    if stale {
        disk_left::drop_all(pmem, &region, &identity)?;
    }
    disk.device.note_as_left(&region);
    Ok(())
}

/// Waits for the flush `ticket`, and tells how far it is; the bytes that are dirty then.
pub(crate) fn wait(
    socket: &Path,
    pmem: &Path,
    ticket: FlushTicket,
    state: &DiskState,
    tell: Teller,
) -> Result<u64, Failure> {
    let mut meter = ProgressMeter::begin(state.dirty_bytes);
    loop {
        std::thread::sleep(FLUSH_ASKED_EVERY);
        let (answer, state) = control::ask_disk(socket, pmem, DiskAct::Flushed { ticket })?;
        match answer {
            DiskAnswer::Flushed { .. } => return ended(pmem, &answer, &state).map(|()| state.dirty_bytes),
            _ => meter.line(Instant::now(), state.dirty_bytes).iter().for_each(|line| tell(line)),
        }
    }
}

/// What a server's last `answer` means: that blocks stay in the region, if it names one.
pub(crate) fn ended(pmem: &Path, answer: &DiskAnswer, state: &DiskState) -> Result<(), Failure> {
    match answer {
        DiskAnswer::Flushed { trouble: Some(kept) } => {
            let (pmem, dirty_bytes, kept) = (pmem.to_owned(), state.dirty_bytes, kept.clone());
            Err(DiskFailure::Kept { pmem, dirty_bytes, kept }.into())
        }
        _ => Ok(()),
    }
}

/// Tells a line about progress.
pub(crate) type Teller = fn(&str);

/// Who tells of progress on stderr: for people, or by objects of JSON.
pub(crate) fn teller(json: bool) -> Teller {
    match json {
        true => |progress| on_stderr(&in_json(progress)),
        false => |progress| on_stderr(&format!("tidegate: {progress}")),
    }
}

fn in_json(progress: &str) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        progress: &'a str,
    }
    serde_json::to_string(&Line { progress }).expect("a string has a JSON form")
}

/// Writes a line to stderr.
pub(crate) fn on_stderr(line: &str) {
    use std::io::Write;
    // A closed stderr has no reader.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A cache that no server uses, and its disk.
pub(crate) struct Open {
    /// The region.
    pub(crate) region: Arc<MappedRegion>,
    /// What its superblock says.
    pub(crate) identity: Identity,
    /// The cache.
    pub(crate) cached: Cached<Arc<MappedRegion>>,
    /// Whether the disk was changed without it, so that nothing may be read of what it holds.
    stale: bool,
}

/// Opens the cache in `pmem` for this command alone; its disk is where it is `named`, or where it
/// was noted.
pub(crate) fn open(pmem: &Path, named: Named<'_>) -> Result<Open, Failure> {
    open_for(pmem, named, IfChanged::Refuse)
}

fn open_for(pmem: &Path, named: Named<'_>, if_changed: IfChanged) -> Result<Open, Failure> {
    let (region, identity) = cache_in(pmem, Access::ReadWrite)?;
    let disk = disks::open_of(pmem, &identity, named, DiskAccess::ReadWrite)?;
    belonging::refuse_taken(&disk, &identity, named.force)?;
    belonging::take_again(&disk, pmem, identity.uuid)?;
    let stale = disk_left::distrust(pmem, &region, &identity, &disk, if_changed)?;
    if !stale {
        disk_left::forget(pmem, &region)?;
    }
    region.file().into_iter().for_each(|file| Note::Disk.write(file, &disk.path));
    let guard = if if_changed == IfChanged::GoOn { Guard::Forced } else { Guard::default() };
    let path = disk.path.clone();
    let cached = Cached::open(Arc::clone(&region), disk, &DiskPlan { guard, ..DiskPlan::default() });
    let cached = cached.map_err(|error| of_opening(pmem, &path, error))?;
    Ok(Open { region, identity, cached, stale })
}

/// The region at `pmem`, which has to hold a cache of a disk.
pub(crate) fn cache_in(pmem: &Path, access: Access) -> Result<(Arc<MappedRegion>, Identity), Failure> {
    let mapped = compose::map(pmem, access).map_err(|failure| match failure {
        Failure::Volume(VolumeFailure::Absent { path }) => DiskFailure::NoRegion { pmem: path }.into(),
        other => other,
    });
    let region = Arc::new(mapped?);
    let identity = compose::disk_cache_in(pmem, &region)?;
    let identity = identity.ok_or_else(|| holdings::no_cache(pmem, &region))?;
    Ok((region, identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_json_where_answers_are() {
        let line: serde_json::Value = serde_json::from_str(&in_json("draining: 1 \"MiB\" left")).expect("JSON");
        assert_eq!(line["progress"], "draining: 1 \"MiB\" left");
    }
}
