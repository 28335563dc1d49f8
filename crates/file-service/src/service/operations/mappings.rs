//! The `ioctl`s of programs that map pages of the pool: see `tidegate-file-wire`.

use crate::service::FileService;
use crate::service::lending::Lending;
use crate::service::nodes::open_files::OpenFile;
use rustix::io::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_file_wire::{Answer, Map, UPGRADES, Upgrade, UpgradeStep, VERSION, WAITS_FOR_ROOM};
use tidegate_fuse::{Handle, NodeId};

impl FileService {
    /// Has pages of a file mapped, and says where they lie. An error is the program's errno.
    pub(crate) fn map_pages(&self, (node, handle): (NodeId, Handle), map: &mut Map, lending: &Lending) -> Result<()> {
        let file = self.handles.lent_file(handle)?;
        if map.version.get() != VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        // One at a time: see `lend`.
        let Ok(_turn) = lending.turn.try_lock() else {
            map.answer = Answer::Later.word().into();
            return Ok(());
        };
        if !self.open_files.is_made_pooled(&file)? {
            return Err(Errno::OPNOTSUPP);
        }
        // Handles that are opened from now on have the kernel keep no pages.
        let was_direct = file.lease.set_direct(true);
        let mut mapped = self.map_kept_out((node, handle), map, lending);
        if mapped == Err(Errno::NOMEM) {
            // Programs may have unmapped pages since the last look, also to have room for these.
            self.open_files.end_mappings(lending.pool());
            file.lease.set_direct(true);
            mapped = self.map_kept_out((node, handle), map, lending);
            if mapped == Err(Errno::NOMEM) && map.count.get() & WAITS_FOR_ROOM != 0 {
                self.open_files.board.get().inspect(|board| board.ask_for_room());
            }
        }
        if mapped.is_err() && !was_direct && self.open_files.mapped_runs(&file).is_empty() {
            file.lease.set_direct(false);
        }
        mapped
    }

    /// What a program asks about mappings of the kernel's pages that it upgrades.
    pub(crate) fn upgrade(&self, of: (NodeId, Handle), asked: &Upgrade, lending: &Lending) -> Result<Answer> {
        let file = self.handles.lent_file(of.1)?;
        let step = UpgradeStep::of(asked.step.get()).filter(|_| asked.version.get() == VERSION);
        let counts = &self.open_files.mappings;
        Ok(match step {
            None => Answer::Never,
            Some(UpgradeStep::Begin) => self.may_upgrade(&file, of.1)?,
            Some(UpgradeStep::Done) => {
                file.lease.set_upgraded(true);
                // Relaxed, here and below: it is read for people.
                counts.upgraded.fetch_add(1, Ordering::Relaxed);
                Answer::Granted
            }
            Some(UpgradeStep::IsWanted) if file.lease.is_recalled() => Answer::Granted,
            Some(UpgradeStep::IsWanted) => Answer::Later,
            Some(UpgradeStep::End) => {
                // Some may be of a read before the last store. No program stores meanwhile.
                let size = self.open_files.size(&file)?.unwrap_or(0);
                let Ok(turn) = lending.turn.try_lock() else { return Ok(Answer::Later) };
                let dropped = lending.drop_caches(of.0, size);
                drop(turn);
                self.open_files.end_mappings(lending.pool());
                if !dropped || file.lease.is_direct() {
                    return Ok(Answer::Later);
                }
                counts.recalled.fetch_add(1, Ordering::Relaxed);
                Answer::Granted
            }
        })
    }

    /// Whether the only program that has a file open may upgrade its mappings, by its only handle.
    fn may_upgrade(&self, file: &Arc<OpenFile>, handle: Handle) -> Result<Answer> {
        if !self.open_files.is_made_pooled(file)? {
            return Ok(Answer::Never);
        }
        let is_used = file.groups.is_used() || file.lease.is_direct() || self.handles.has_others(file, handle);
        Ok(if is_used { Answer::Later } else { Answer::Granted })
    }

    /// Cuts or lengthens a file. If mapped pages are in the way, it is asked now whether a program
    /// has them mapped still, and gives them back if it does not know of them: that is looked at
    /// once a second otherwise.
    pub(crate) fn truncate(&self, file: &OpenFile, size: u64) -> Result<()> {
        let cut = self.open_files.truncate(file, size);
        let Some(lending) = self.lending.get().filter(|_| cut == Err(Errno::TXTBSY)) else { return cut };
        self.open_files.recall(file);
        self.open_files.end_mappings(lending.pool());
        self.open_files.truncate(file, size)
    }

    /// Maps a file of which the kernel is to keep no pages.
    fn map_kept_out(&self, (node, handle): (NodeId, Handle), map: &mut Map, lending: &Lending) -> Result<()> {
        let file = self.handles.lent_file(handle)?;
        let is_mapped = self.open_files.is_mapped_still(&file);
        let is_upgrade = map.count.get() & UPGRADES != 0;
        let is_mapped_by_kernel = file.lease.is_mapped() && !is_upgrade;
        if file.groups.is_used() || is_mapped_by_kernel || !is_mapped && self.handles.has_others(&file, handle) {
            return Err(Errno::BUSY);
        }
        if is_upgrade && !is_mapped {
            file.lease.may_have_pages();
        }
        if file.lease.take_pages() {
            let size = self.open_files.size(&file)?.unwrap_or(0);
            if !lending.drop_caches(node, size) {
                file.lease.may_have_pages();
                return Err(Errno::BUSY);
            }
        }
        if !is_mapped && !lending.drop_attributes(node) {
            return Err(Errno::BUSY);
        }
        let (at, end) = (map.at.get(), map.at.get().checked_add(map.len.get()).ok_or(Errno::INVAL)?);
        let (runs, time_page) = self.open_files.map(&file, at..end)?;
        if is_upgrade {
            file.lease.note_not_mapped();
        }
        map.grant(runs.iter().map(|run| (run.pool_at, run.bytes)), time_page.map(|page| page.pool_at));
        Ok(())
    }
}
