//! The table of held files, as the supervisor writes it. Programs only read it.

use crate::failure::{Doing, Failure, VolumeFailure};
use std::path::Path;
use tidegate_media::{Allocation, MappedRegion, Region};
use tidegate_preload_wire::{EPOCH_AT, FileId, Row, SLOTS, TABLE_BYTES, USED_AT, row_at};

/// The table.
pub(super) struct Table {
    words: Box<dyn Region>,
    rows: Vec<Option<FileId>>,
    epoch: u64,
}

impl Table {
    /// An empty one in a new file.
    pub(super) fn create(path: &Path) -> Result<Table, Failure> {
        let words = MappedRegion::create(path, TABLE_BYTES, Allocation::Full);
        Ok(Table::on(Box::new(words.map_err(|error| VolumeFailure::of_map(Doing::Create, error))?)))
    }

    /// An empty one on zeroes.
    pub(super) fn on(words: Box<dyn Region>) -> Table {
        let mut table = Table { words, rows: Vec::new(), epoch: 0 };
        table.tell();
        table
    }

    /// Enters that `holder` holds `file`. False: there is no row left.
    pub(super) fn enter(&mut self, file: FileId, holder: u64) -> bool {
        let free = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        if free as u64 >= SLOTS {
            return false;
        }
        if free == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[free] = Some(file);
        self.store(free, Row { file, holder }.words());
        self.tell();
        true
    }

    /// Nobody holds `file` any more.
    pub(super) fn remove(&mut self, file: FileId) {
        if let Some(row) = self.rows.iter().position(|known| *known == Some(file)) {
            self.rows[row] = None;
            self.store(row, [0; 3]);
            while self.rows.last() == Some(&None) {
                self.rows.pop();
            }
            self.tell();
        }
    }

    fn store(&self, row: usize, words: [u64; 3]) {
        // The holder last if there is one, first if there is none: a row that is read meanwhile names no wrong file.
        let places = [0, 8, 16].map(|column| row_at(row as u64) + column);
        let pairs = places.into_iter().zip(words);
        if words[2] == 0 {
            pairs.rev().for_each(|(at, word)| self.words.store_u64(at, word));
        } else {
            pairs.for_each(|(at, word)| self.words.store_u64(at, word));
        }
    }

    /// The rows in use first, then the epoch.
    fn tell(&mut self) {
        self.epoch += 1;
        self.words.store_u64(USED_AT, self.rows.len() as u64);
        self.words.store_u64(EPOCH_AT, self.epoch);
        // A writer writes and looks at the epoch then; whoever is answered after this syncs what was written before. The system call of the
        // answer is a barrier by itself; this one says so.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
