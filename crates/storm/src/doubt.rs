//! Blocks of a disk that no promise covers after a power cut: those it tears, and those it lied
//! about.

use crate::marks;
use crate::scene::{Scene, Stack};
use crate::seen::Seen;
use crate::stack_base::Base;
use tidegate_crashcheck::script::block_of;
use tidegate_disk_cache::Mode;
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::{Content, DiskCut, DiskImage, Oracle};

impl Scene {
    /// Takes over which blocks of a bare disk a cut has torn.
    pub(crate) fn take_torn(&mut self, left: &DiskImage) {
        if self.setting.base != Base::Disk {
            return;
        }
        let mut block = vec![0; self.setting.block_bytes];
        for lba in (0..self.setting.blocks).map(Lba) {
            left.read(lba.0 * block.len() as u64, &mut block);
            let parts = self.seen().power.allowed(lba);
            if self.seen().takes_over(lba, &block, &parts) {
                self.marks.reach(marks::TORN_BLOCK);
            }
        }
    }

    /// Remembers which blocks a disk that loses its power had lied about.
    pub(crate) fn take_lies(&mut self, cut: &DiskCut) {
        let size = self.setting.block_bytes as u64;
        let mut seen = self.seen();
        seen.lied_about.extend(cut.lied_about().map(|at| Lba(at / size)));
    }

    /// `block` is what `lba` shows after an end. Takes it over if the disk has torn it, or lied
    /// about it and lost it.
    pub(crate) fn takes_over(&mut self, stack: &Stack, lba: Lba, block: &[u8]) -> Result<(), String> {
        let (lied_about, torn) = {
            let mut seen = self.seen();
            let lied_about = seen.lied_about.contains(&lba);
            let parts = match lied_about {
                true => seen.contents_of(lba).clone(),
                false => seen.power.allowed(lba),
            };
            let may = lied_about || (seen.tearable.contains(&lba) && self.setting.base.has_disk_cache());
            (lied_about, may && seen.takes_over(lba, block, &parts))
        };
        match (torn, lied_about) {
            (true, true) => self.marks.reach(marks::LIE),
            (true, false) => self.marks.reach(marks::TORN_PAST),
            (false, _) => {}
        }
        if lied_about { self.write_anew(stack, lba, block) } else { Ok(()) }
    }

    /// Writes `block` to `lba` again, of which the disk lied: a cache may still show it, and lose
    /// it when it relies on the disk.
    fn write_anew(&self, stack: &Stack, lba: Lba, block: &[u8]) -> Result<(), String> {
        stack.disk_cache.iter().for_each(|cache| cache.set_mode(Mode::WriteBack));
        let (below, block) = (stack.below.clone(), block.to_vec());
        let written = self.alone(move || below.write(lba, &block, Durability::Fua))?;
        stack.disk_cache.iter().for_each(|cache| cache.set_mode(self.setting.mode));
        written.map_err(|error| format!("writing {lba} anew: {error}"))
    }

    /// Everything was read, and no doubt is left.
    pub(crate) fn settle_doubt(&mut self) {
        let was_cut = self.was_cut;
        let mut seen = self.seen();
        seen.lied_about.clear();
        if was_cut {
            seen.tearable.clear();
        }
    }
}

impl Seen {
    /// Whether `block` is none of what `lba` may show, but a mixture of `parts`. If it is, that is
    /// what it shows from now on.
    fn takes_over(&mut self, lba: Lba, block: &[u8], parts: &[Content]) -> bool {
        let content = Content::of(block);
        if self.power.allows(lba, content) && self.kill.allows(lba, content) {
            return false;
        }
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| self.bytes_of(*part, block.len())).collect();
        let (words, _) = block.as_chunks::<8>();
        let known = |(at, word): (usize, &[u8; 8])| parts.iter().any(|part| part[at * 8..at * 8 + 8] == *word);
        if parts.is_empty() || !words.iter().enumerate().all(known) {
            return false;
        }
        self.torn.insert(content, block.to_vec());
        self.contents_of(lba).push(content);
        let Seen { power, kill, .. } = self;
        [power, kill].into_iter().for_each(|oracle: &mut Oracle| oracle.tore(lba, content));
        true
    }

    /// The bytes of a content that was written or found.
    fn bytes_of(&self, content: Content, len: usize) -> Vec<u8> {
        if let Some(torn) = self.torn.get(&content) {
            return torn.clone();
        }
        match self.tags.get(&content) {
            Some(tag) => block_of(*tag, len),
            None => vec![0; len],
        }
    }
}
