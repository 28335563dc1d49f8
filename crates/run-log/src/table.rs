//! The table of held files, as the supervisor writes it. Programs only read it, but for the words
//! in which holders of names say who has them.

use crate::failure::Failure;
use std::path::Path;
use tidegate_host::Doing;
use tidegate_media::{Allocation, MappedRegion, Region};
use tidegate_preload_wire::{
    EPOCH_AT, FileId, NAMES_AT, Row, SLOT_COLUMN, SLOTS, TABLE_BYTES, USED_AT, row_at, young_at,
};

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
        Ok(Table::on(Box::new(words.map_err(|error| Failure::Map { doing: Doing::Create, error })?)))
    }

    /// An empty one on zeroes.
    pub(super) fn on(words: Box<dyn Region>) -> Table {
        let mut table = Table { words, rows: Vec::new(), epoch: 0 };
        table.tell();
        table
    }

    /// Enters that `holder` holds `file`, and may commit to its strips for `slot`; 0: it may not.
    /// False: there is no row left.
    pub(super) fn enter(&mut self, file: FileId, holder: u64, slot: u32) -> bool {
        let free = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        if free as u64 >= SLOTS {
            return false;
        }
        if free == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[free] = Some(file);
        self.clear_young(free);
        self.store(free, Row { file, holder, slot: slot.into() }.words());
        self.tell();
        true
    }

    /// From now on the holder of `file` may commit to its strips for `slot`, and for no other; 0:
    /// for none. What it committed before is known of when this returns to whoever syncs the file
    /// then.
    pub(super) fn allow(&mut self, file: FileId, slot: u32) {
        if let Some(row) = self.rows.iter().position(|known| *known == Some(file)) {
            self.words.store_u64(row_at(row as u64) + SLOT_COLUMN, slot.into());
            self.tell();
        }
    }

    /// Nobody holds `file` any more.
    pub(super) fn remove(&mut self, file: FileId) {
        if let Some(row) = self.rows.iter().position(|known| *known == Some(file)) {
            self.rows[row] = None;
            self.store(row, [0; 4]);
            self.clear_young(row);
            while self.rows.last() == Some(&None) {
                self.rows.pop();
            }
            self.tell();
        }
    }

    /// Which name `file` has, if the holder of one has made it.
    pub(super) fn name_of(&self, file: FileId) -> Option<FileId> {
        let word = |at| self.words.load_u64(at).unwrap_or_default();
        let is_it = |row: u64| [word(young_at(row)), word(young_at(row) + 8)] == [file.device, file.inode];
        (0..).zip(&self.rows).find_map(|(row, known)| known.filter(|known| known.is_name() && is_it(row)))
    }

    fn clear_young(&self, row: usize) {
        [0, 8].into_iter().for_each(|word| self.words.store_u64(young_at(row as u64) + word, 0));
    }

    fn store(&self, row: usize, [device, inode, holder, slot]: [u64; 4]) {
        // The holder last if there is one, first if there is none: a row that is read meanwhile
        // names no wrong file.
        let mut columns = [(SLOT_COLUMN, slot), (0, device), (8, inode), (16, holder)];
        if holder == 0 {
            columns.reverse();
        }
        columns.into_iter().for_each(|(column, word)| self.words.store_u64(row_at(row as u64) + column, word));
    }

    /// The rows in use first, then the epoch.
    fn tell(&mut self) {
        self.epoch += 1;
        let names = self.rows.iter().flatten().filter(|file| file.is_name()).count();
        self.words.store_u64(NAMES_AT, names as u64);
        self.words.store_u64(USED_AT, self.rows.len() as u64);
        self.words.store_u64(EPOCH_AT, self.epoch);
        // A writer writes and looks at the epoch then; whoever is answered after this syncs what
        // was written before. The system call of the answer is a barrier by itself; this one says
        // so.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
