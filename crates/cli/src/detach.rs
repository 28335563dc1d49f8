//! `tidegate detach` and `attach`: a cache parts from its disk once the disk has everything, and
//! gets another.
//!
//! A running server does either beside its clients: it goes on with the disk alone, and then with
//! both again. A detached cache is empty. Until then the region may have blocks that the disk
//! lacks, or that somebody else changes on the disk meanwhile.

use crate::answer;
use crate::belonging;
use crate::cached_disk::DiskState;
use crate::change::Change;
use crate::control::{self, DiskAct, DiskAnswer};
use crate::disks::{self, DETACHED};
use crate::failure::{DiskFailure, Exit, Failure};
use crate::flush::{self, Teller};
use crate::grammar::{Attach, Detach};
use crate::live_disk::lay_out;
use crate::notes::Note;
use crate::ordered::{erase_journal_of, put_journal_of};
use crate::risk::{self, Stake, Step};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_disk_cache::NewLayout;
use tidegate_host::default_paths;
use tidegate_host::progress::ProgressMeter;
use tidegate_host::shell::word;
use tidegate_media::{Access, DiskAccess, Region};

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
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pmem, disk) = (self.attached.display(), self.disk.display());
        match self.blocks {
            None => write!(f, "attached   {pmem} to {disk}, which is served through it from now on"),
            Some(blocks) => {
                writeln!(f, "attached   {pmem} to {disk}, {blocks} blocks")?;
                write!(f, "next: tidegate serve --pmem {} --disk {}", word(&self.attached), word(&self.disk))
            }
        }
    }
}

/// Has the running server make `change`, beside its clients, and tells how far it is. Returns what
/// it answers in the end.
///
/// # Errors
/// A block that the disk refuses is named, and the server goes on as before.
pub(crate) fn by_server(socket: &Path, pmem: &Path, change: Change, tell: Teller) -> Result<DiskAnswer, Failure> {
    let mut meter = None;
    let (answer, state) = control::ask_for(socket, pmem, change, |state| {
        let meter = meter.get_or_insert_with(|| ProgressMeter::begin(state.dirty_bytes));
        meter.line(Instant::now(), state.dirty_bytes).iter().for_each(|line| tell(line));
    })?;
    flush::ended(pmem, &answer, &state)?;
    Ok(answer)
}

/// Runs `tidegate detach`.
pub(crate) fn detach(wish: &Detach, json: bool) -> Result<Exit, Failure> {
    let socket = wish.control.clone().unwrap_or_else(|| default_paths::control_socket(&wish.pmem));
    let served = match by_server(&socket, &wish.pmem, Change::Detach, flush::teller(json)) {
        Ok(_) => true,
        Err(failure) if wish.control.is_none() && failure.is_no_server() => {
            detach_idle(wish, flush::teller(json))?;
            false
        }
        Err(failure) => return Err(failure),
    };
    answer::give(&Detached { detached: wish.pmem.clone(), served }, json)?;
    Ok(Exit::Done)
}

/// Without a server.
fn detach_idle(wish: &Detach, tell: Teller) -> Result<(), Failure> {
    let flush::Open { region, identity, cached, .. } = flush::open(&wish.pmem, wish.place.named())?;
    cached.drain(&wish.pmem, tell)?;
    let disk = cached.disk();
    drop(cached);
    let wish_for = NewLayout { disk: DETACHED, disk_blocks: identity.disk_blocks, region_bytes: region.len() };
    lay_out(&wish.pmem, &region, &wish_for)?;
    region.file().into_iter().for_each(|file| Note::Disk.remove(file));
    erase_journal_of(&identity, &disk)?;
    belonging::set_free(&disk, identity.uuid)
}

/// Runs `tidegate attach`.
pub(crate) fn attach(wish: &Attach, json: bool) -> Result<Exit, Failure> {
    let socket = wish.control.clone().unwrap_or_else(|| default_paths::control_socket(&wish.pmem));
    let disk = wish.disk.canonicalize().unwrap_or_else(|_| wish.disk.clone());
    let act = DiskAct::Attach { disk: disk.clone(), accept_volatile: wish.accept_volatile, force: wish.force };
    let (served, blocks) = match control::ask_disk(&socket, &wish.pmem, act) {
        Ok((_, state)) => {
            warn_of_the_risk(&wish.pmem, &state);
            (true, None)
        }
        Err(failure) if wish.control.is_none() && failure.is_no_server() => (false, Some(attach_idle(wish)?)),
        Err(failure) => return Err(failure),
    };
    answer::give(&Attached { attached: wish.pmem.clone(), disk, served, blocks }, json)?;
    Ok(Exit::Done)
}

/// Warns whoever asked a server for it of what completed writes of `pmem` risk, as its server does.
pub(crate) fn warn_of_the_risk(pmem: &Path, state: &DiskState) {
    state.risk.iter().for_each(|risk| tracing::warn!("{}: {risk}", pmem.display()));
}

/// Without a server: the blocks of the disk.
fn attach_idle(wish: &Attach) -> Result<u64, Failure> {
    let (region, identity) = flush::cache_in(&wish.pmem, Access::ReadWrite)?;
    if identity.disk != DETACHED {
        return Err(DiskFailure::Attached { pmem: wish.pmem.clone() }.into());
    }
    Stake::of(&wish.pmem, &region, &identity).admit(Step::Attach, risk::accepted(wish.accept_volatile))?;
    let disk = disks::open(&wish.disk, DiskAccess::ReadWrite, identity.block_size)?;
    if !wish.force {
        belonging::refuse_of_another(&disk, Some(identity.uuid))?;
    }
    let disk_blocks = put_journal_of(&identity, &disk, wish.force)?;
    belonging::take(&disk, &wish.pmem, identity.uuid)?;
    disks::warn_of_no_name(&disk);
    let wish_for = NewLayout { disk: disk.device.identity().0, disk_blocks, region_bytes: region.len() };
    lay_out(&wish.pmem, &region, &wish_for)?;
    region.file().into_iter().for_each(|file| Note::Disk.write(file, &disk.path));
    Ok(disk_blocks)
}
