//! `tidegate flush`: everything that only a cache has reaches its disk. A running server does it
//! beside its clients; without one this command does it itself. The pool of a mount is a cache too.

use crate::commands::files::mount_pool;
use crate::errors::{Exit, Failure};
use crate::grammar::Flush;
use crate::output::{self, Teller, teller};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_host::default_paths;
use tidegate_host::progress::ProgressMeter;
use tidegate_server::cached_disk::offline;
use tidegate_server::cached_disk::online::FlushTicket;
use tidegate_server::cached_disk::stale_check::IfChanged;
use tidegate_server::cached_disk::state::DiskState;
use tidegate_server::control::client;
use tidegate_server::control::protocol::DiskAct;
use tidegate_server::control::protocol::DiskAnswer;
use tidegate_server::failure::DiskFailure;
use tidegate_server::options::MirrorPlan;

/// What `flush` answers.
#[derive(Serialize)]
struct FlushReport {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    /// Whether a server does it.
    served: bool,
    /// Whether everything that was dirty is on the disk.
    flushed: bool,
    /// Bytes that are dirty now: what came since, or what is still on its way.
    dirty_bytes: u64,
}

impl fmt::Display for FlushReport {
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
pub(crate) fn run(args: &Flush, json: bool) -> Result<Exit, Failure> {
    let file = tidegate_file_service::pool_of(&args.region());
    if tidegate_file_service::is_pool(&file) {
        return mount_pool::flush(&file, json);
    }
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&file));
    let (served, flushed, dirty_bytes) = match client::ask_disk(&socket, &file, DiskAct::Flush) {
        Ok((DiskAnswer::Flushing { ticket }, state)) if args.wait => {
            (true, true, wait(&socket, &file, ticket, &state, teller(json))?)
        }
        Ok((_, state)) => (true, false, state.dirty_bytes),
        Err(failure) if args.control.is_none() && failure.is_no_server() => {
            let if_changed = if args.force { IfChanged::GoOn } else { IfChanged::Refuse };
            offline::flush((&file, &MirrorPlan::with(args.mirror.clone())), args.location(), if_changed, teller(json))?;
            (false, true, 0)
        }
        Err(failure) => return Err(failure.into()),
    };
    output::give(&FlushReport { file, served, flushed, dirty_bytes }, json)?;
    Ok(Exit::Done)
}

/// Waits for the flush `ticket`, and tells how far it is; the bytes that are dirty then.
fn wait(socket: &Path, pmem: &Path, ticket: FlushTicket, state: &DiskState, tell: Teller) -> Result<u64, Failure> {
    let mut meter = ProgressMeter::begin(state.dirty_bytes);
    loop {
        let (answer, state) = client::ask_flushed(socket, pmem, ticket)?;
        match answer {
            DiskAnswer::Flushed { .. } => return ended(pmem, &answer, &state).map(|()| state.dirty_bytes),
            _ => meter.line(Instant::now(), state.dirty_bytes).iter().for_each(|line| tell(line)),
        }
    }
}

/// What a server's last `answer` means: that blocks stay in the region, if it names one.
pub(crate) fn ended(pmem: &Path, answer: &DiskAnswer, state: &DiskState) -> Result<(), Failure> {
    match answer {
        DiskAnswer::Flushed { trouble: Some(obstacle) } => {
            let (pmem, dirty_bytes, obstacle) = (pmem.to_owned(), state.dirty_bytes, obstacle.clone());
            Err(DiskFailure::Undestaged { pmem, dirty_bytes, obstacle }.into())
        }
        _ => Ok(()),
    }
}
