//! The dull model of a recovery: an image read by the rules as they stand in the layout, without
//! the engine.

use std::collections::BTreeMap;
use tidegate_layout::disk_cache::{CURSORS_AT, CacheEntry, CachePlan, EntryState, RingElement, is_ahead};
use tidegate_sim::{Content, Image};
use zerocopy::FromBytes;

/// The contents of every block of the disk, as the cache shows them.
pub(crate) type Contents = Vec<Content>;

/// What an image of memory and one of a disk show after a recovery.
pub struct PlainCache<'a> {
    plan: &'a CachePlan,
    region: &'a Image,
    disk: &'a Image,
    /// The block of the cache in which each cached block of the disk lies.
    cached: BTreeMap<u64, u32>,
}

impl<'a> PlainCache<'a> {
    /// Applies every element that counts; or says which rule is broken.
    pub fn recover(plan: &'a CachePlan, region: &'a Image, disk: &'a Image) -> Result<PlainCache<'a>, String> {
        let words = |at: u64| [region.load_u64(at), region.load_u64(at + 8)];
        let mut entries = Vec::new();
        for entry in 0..plan.blocks {
            entries.push(CacheEntry::from_words(words(plan.entry_at(entry))).check(plan).map_err(|e| e.to_string())?);
        }
        let [head, tail] = words(CURSORS_AT);
        if head < tail || head - tail > u64::from(plan.ring_slots) {
            return Err(format!("head {head}, tail {tail}"));
        }
        for number in tail..head {
            let mut bytes = [0; 16];
            region.read(plan.element_at(number), &mut bytes);
            let element = RingElement::read_from_bytes(&bytes).expect("sixteen bytes");
            let (entry, becomes) = element.check(plan).map_err(|e| e.to_string())?;
            let own = &mut entries[entry as usize];
            if is_ahead(becomes.counter(), own.counter()) {
                *own = becomes;
            }
        }
        let mut cached = BTreeMap::new();
        let mut named = vec![false; plan.blocks as usize];
        for state in entries {
            if let EntryState::Holds { lba, block, .. } = state {
                if std::mem::replace(&mut named[block as usize], true) {
                    return Err(format!("block {block} is named twice"));
                }
                if cached.insert(lba, block).is_some() {
                    return Err(format!("block {lba} of the disk is cached twice"));
                }
            }
        }
        Ok(PlainCache { plan, region, disk, cached })
    }

    /// What each block of the disk shows.
    pub fn contents(&self) -> Vec<Content> {
        (0..self.plan.disk_blocks).map(|lba| self.content(lba)).collect()
    }

    fn content(&self, lba: u64) -> Content {
        let mut bytes = vec![0; self.plan.block_size as usize];
        match self.cached.get(&lba) {
            Some(block) => self.region.read(self.plan.block_at(*block), &mut bytes),
            None => self.disk.read(lba * u64::from(self.plan.block_size), &mut bytes),
        }
        Content::of(&bytes)
    }
}
