//! Writes to the disk, which keep account of its first blocks: see `open/guard.rs` for the order of
//! both.

use crate::cache::DiskCache;
use crate::destage::first_blocks::{TakenBlock, place, store};
use tidegate_layout::disk_cache::StartSum;
use tidegate_media::{Region, Result, Run, Sealed};

impl<R: Region> DiskCache<R> {
    /// Writes `runs` to the disk. Each has its answer.
    pub(crate) fn write_to_disk(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        let size = self.geometry.block_size as usize;
        let failures = self.flush_failures();
        let lbas = |run: &Run<'_>| run.at.0 / self.disk_blocks_each..;
        let first = runs.iter().flat_map(|run| lbas(run).take(run.data.len() / size));
        if let Err(sealed) = self.doubt_start(first) {
            return runs.iter().map(|_| Err(sealed.into())).collect();
        }
        let answers = self.disk.write_runs(runs);
        if self.destager.first_blocks.blocks > 0 {
            let done = runs.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
            let blocks = done.flat_map(|(run, _)| lbas(run).zip(run.data.chunks_exact(size)));
            let blocks = blocks.filter(|(lba, _)| *lba < self.destager.first_blocks.blocks);
            let words: Vec<(u64, u64)> = blocks.map(|(lba, data)| (lba, StartSum::word_of(data))).collect();
            let mut written = self.destager.first_blocks.written.lock();
            for (lba, word) in words {
                let turn = written.turns[place(lba)];
                written.taken.push(TakenBlock { lba, turn, word, failures });
            }
        }
        answers
    }

    /// Nothing is known of what the disk holds in those of `lbas` that are among its first blocks,
    /// durably.
    pub(crate) fn doubt_start(&self, lbas: impl Iterator<Item = u64>) -> Result<(), Sealed> {
        let mut first = lbas.filter(|lba| *lba < self.destager.first_blocks.blocks).peekable();
        if first.peek().is_none() {
            return Ok(());
        }
        // A word may be zero without being durable then.
        self.medium.refuse_after_failure()?;
        let mut written = self.destager.first_blocks.written.lock();
        let mut stored = false;
        for lba in first {
            written.turns[place(lba)] += 1;
            let at = self.medium.plan.start_sum_at(lba).expect("one of the first blocks");
            // What cannot be read may not be stored to, and says nothing.
            if self.medium.region.load_u64(at).is_ok_and(|word| word != StartSum::UNKNOWN) {
                store(&self.medium, at, StartSum::UNKNOWN);
                stored = true;
            }
        }
        if stored { self.medium.fence() } else { Ok(()) }
    }

    /// The disk has confirmed a flush that began when `taken` had been written; `failures` have
    /// failed so far.
    pub(crate) fn settle_start(&self, taken: Vec<TakenBlock>, failures: u64) {
        if taken.is_empty() {
            return;
        }
        let written = self.destager.first_blocks.written.lock();
        for block in taken {
            let at = self.medium.plan.start_sum_at(block.lba).expect("one of the first blocks");
            let is_last = written.turns[place(block.lba)] == block.turn && block.failures == failures;
            if is_last && self.medium.region.load_u64(at).is_ok() {
                store(&self.medium, at, block.word);
            }
        }
    }
}
