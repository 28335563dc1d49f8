//! `tidegate detach` and `attach`: a cache parts from its disk once the disk has everything, and
//! gets another.
//!
//! A running server does either beside its clients: it goes on with the disk alone, and then with
//! both again. A detached cache is empty. Until then the region may have blocks that the disk
//! lacks, or that somebody else changes on the disk meanwhile.

use crate::commands::cache::flush;
use crate::commands::volume::create::serving;
use crate::errors::{Exit, Failure};
use crate::grammar::{Attach, Detach};
use crate::output::{self, Teller};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_host::default_paths;
use tidegate_host::progress::ProgressMeter;
use tidegate_server::cached_disk::offline::{self, DiskToAttach};
use tidegate_server::cached_disk::online_change::CacheChange;
use tidegate_server::cached_disk::owner::if_claimed;
use tidegate_server::cached_disk::state::DiskState;
use tidegate_server::cached_disk::volatile;
use tidegate_server::control::client;
use tidegate_server::control::protocol::DiskAct;
use tidegate_server::control::protocol::DiskAnswer;
use tidegate_volume_region::mirror::MirrorPlan;

/// What `detach` answers.
#[derive(Serialize)]
struct Detached {
    #[serde(with = "tidegate_host::json_path")]
    detached: PathBuf,
    /// Whether a server goes on with the disk alone.
    served: bool,
}

impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "detached   {}: the disk has everything, and the cache is empty", self.detached.display())
    }
}

/// What `attach` answers.
#[derive(Serialize)]
struct Attached {
    #[serde(with = "tidegate_host::json_path")]
    attached: PathBuf,
    #[serde(with = "tidegate_host::json_path")]
    disk: PathBuf,
    /// Whether a server goes on with both.
    served: bool,
    /// Blocks of the disk, if no server knows them already.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    /// The command that serves both.
    #[serde(skip)]
    serve: String,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pmem, disk) = (self.attached.display(), self.disk.display());
        match self.blocks {
            None => write!(f, "attached   {pmem} to {disk}, which is served through it from now on"),
            Some(blocks) => {
                writeln!(f, "attached   {pmem} to {disk}, {blocks} blocks")?;
                write!(f, "next: {}", self.serve)
            }
        }
    }
}

/// Has the running server make `change`, beside its clients, and tells how far it is. Returns what
/// it answers in the end.
///
/// # Errors
/// A block that the disk refuses is named, and the server goes on as before.
pub(crate) fn by_server(socket: &Path, pmem: &Path, change: CacheChange, tell: Teller) -> Result<DiskAnswer, Failure> {
    let mut meter = None;
    let (answer, state) = client::ask_for(socket, pmem, change, |state| {
        let meter = meter.get_or_insert_with(|| ProgressMeter::begin(state.dirty_bytes));
        meter.line(Instant::now(), state.dirty_bytes).iter().for_each(|line| tell(line));
    })?;
    flush::ended(pmem, &answer, &state)?;
    Ok(answer)
}

/// Runs `tidegate detach`.
pub(crate) fn detach(args: &Detach, json: bool) -> Result<Exit, Failure> {
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&args.pmem));
    let served = match by_server(&socket, &args.pmem, CacheChange::Detach, output::teller(json)) {
        Ok(_) => true,
        Err(failure) if args.control.is_none() && failure.is_no_server() => {
            offline::detach(&args.pmem, args.place.location(), output::teller(json))?;
            false
        }
        Err(failure) => return Err(failure),
    };
    output::give(&Detached { detached: args.pmem.clone(), served }, json)?;
    Ok(Exit::Done)
}

/// Runs `tidegate attach`.
pub(crate) fn attach(args: &Attach, json: bool) -> Result<Exit, Failure> {
    let socket = args.control.clone().unwrap_or_else(|| default_paths::control_socket(&args.pmem));
    let disk = args.disk.canonicalize().unwrap_or_else(|_| args.disk.clone());
    let volatile = volatile::accepted(args.accept_volatile);
    let act = DiskAct::Attach { disk: disk.clone(), accept_volatile: args.accept_volatile, force: args.force };
    let (served, blocks) = match client::ask_disk(&socket, &args.pmem, act) {
        Ok((_, state)) => {
            warn_of_the_risk(&args.pmem, &state);
            (true, None)
        }
        Err(failure) if args.control.is_none() && failure.is_no_server() => {
            let disk = DiskToAttach { path: &args.disk, if_claimed: if_claimed(args.force) };
            let plan = MirrorPlan::with(args.mirror.clone());
            (false, Some(offline::attach((&args.pmem, &plan), disk, volatile)?))
        }
        Err(failure) => return Err(failure.into()),
    };
    let serve = serving(&args.pmem, (args.mirror.as_deref(), Some(&disk)), volatile);
    output::give(&Attached { attached: args.pmem.clone(), disk, served, blocks, serve }, json)?;
    Ok(Exit::Done)
}

/// Warns whoever asked a server for it of what completed writes of `pmem` risk, as its server does.
pub(crate) fn warn_of_the_risk(pmem: &Path, state: &DiskState) {
    state.risk.iter().for_each(|risk| tracing::warn!("{}: {risk}", pmem.display()));
}
