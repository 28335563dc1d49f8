//! Which addresses of this process have pages of files that the kernel keeps, in a mount: what may
//! become direct mappings.

use libc::c_int;
use std::ops::Range;

/// Such mappings that are known.
const KERNEL_MAX: usize = 256;

/// Syncs of a mapping before it is upgraded.
const SYNCS: u32 = 8;

/// Bytes of the longest sync that counts. In a direct mapping, a sync takes the longer the more
/// bytes it is of; in the kernel's pages it does not.
const SYNC_BYTES_MAX: usize = 2 << 20;

/// Most syncs before an upgrade, after others that came to nothing.
const SYNCS_MAX: u32 = 8192;

/// A mapping of the kernel's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMapping {
    /// Its first address.
    pub base: usize,
    /// The address behind its last one.
    pub end: usize,
    /// Device and inode of its file.
    pub file: (u64, u64),
    /// Where its first page lies in the file.
    pub from: u64,
    /// The descriptor by which it was mapped. The program may have closed it since.
    pub fd: c_int,
    /// How the process may reach it, as `mmap` takes it.
    pub access: c_int,
    /// Whether what is stored there is the file's.
    pub is_shared: bool,
    /// How often it is synced before the next upgrade of it, and before the one after that.
    syncs: u32,
    syncs_then: u32,
}

impl KernelMapping {
    /// A mapping of nothing.
    pub const NONE: KernelMapping = KernelMapping {
        base: 0,
        end: 0,
        file: (0, 0),
        from: 0,
        fd: -1,
        access: 0,
        is_shared: false,
        syncs: SYNCS,
        syncs_then: SYNCS,
    };

    /// A mapping of a file from `from` on, by a descriptor.
    pub fn new(addresses: Range<usize>, (file, from): ((u64, u64), u64), fd: c_int) -> KernelMapping {
        KernelMapping { base: addresses.start, end: addresses.end, file, from, fd, ..KernelMapping::NONE }
    }

    /// This mapping with this access, and as it was mapped.
    pub fn with(self, access: c_int, is_shared: bool) -> KernelMapping {
        KernelMapping { access, is_shared, ..self }
    }

    /// The addresses that it has.
    pub fn addresses(&self) -> Range<usize> {
        self.base..self.end
    }

    /// This mapping, of which an upgrade came to nothing, or came back: the next one takes longer.
    pub fn later(self) -> KernelMapping {
        let syncs = (2 * self.syncs_then).min(SYNCS_MAX);
        KernelMapping { syncs, syncs_then: syncs, ..self }
    }

    /// What it has of these addresses, which are its own.
    pub fn part(&self, range: Range<usize>) -> KernelMapping {
        let from = self.from + (range.start - self.base) as u64;
        KernelMapping { base: range.start, end: range.end, from, ..*self }
    }

    fn meets(&self, range: &Range<usize>) -> bool {
        self.base < range.end && range.start < self.end
    }
}

/// All of them, in no order. If they are more than there is room for, none is known any more: a
/// file may only be mapped directly if it is known how else it is mapped.
pub struct KernelMappings {
    known: [KernelMapping; KERNEL_MAX],
    used: usize,
    are_too_many: bool,
}

impl KernelMappings {
    /// No mapping is known.
    pub const NONE: KernelMappings =
        KernelMappings { known: [KernelMapping::NONE; KERNEL_MAX], used: 0, are_too_many: false };

    /// How many are known.
    pub fn count(&self) -> usize {
        self.used
    }

    fn iter(&self) -> impl Iterator<Item = &KernelMapping> {
        self.known[..self.used].iter()
    }

    /// Whether any of these addresses has some.
    pub fn has(&self, range: &Range<usize>) -> bool {
        self.iter().any(|mapping| mapping.meets(range))
    }

    /// Knows of one more.
    pub fn add(&mut self, mapping: KernelMapping) {
        match self.known.get_mut(self.used).filter(|_| !self.are_too_many) {
            Some(free) => {
                *free = mapping;
                self.used += 1;
            }
            None => self.give_up(),
        }
    }

    /// Nothing that is known has these addresses any more.
    pub fn cut(&mut self, range: &Range<usize>) {
        while self.take(range).is_some() {}
    }

    /// Takes what one mapping has of these addresses out; the rest of it stays.
    fn take(&mut self, range: &Range<usize>) -> Option<KernelMapping> {
        let place = self.iter().position(|mapping| mapping.meets(range))?;
        let mapping = self.known[place];
        self.used -= 1;
        self.known[place] = self.known[self.used];
        for left in [mapping.base..range.start, range.end..mapping.end] {
            self.add_part(&mapping, left);
        }
        Some(mapping.part(range.start.max(mapping.base)..range.end.min(mapping.end)))
    }

    fn add_part(&mut self, mapping: &KernelMapping, range: Range<usize>) {
        if !range.is_empty() {
            self.add(mapping.part(range));
        }
    }

    /// These addresses have this access from now on.
    pub fn has_access(&mut self, range: &Range<usize>, access: c_int) {
        let is_other = |mapping: &&KernelMapping| mapping.access != access && mapping.meets(range);
        loop {
            let Some(mapping) = self.iter().find(is_other).copied() else { break };
            let part = range.start.max(mapping.base)..range.end.min(mapping.end);
            self.cut(&part);
            self.add(KernelMapping { access, ..mapping.part(part) });
        }
    }

    /// The first of these addresses are another `len` ones from `to` on.
    pub fn moves(&mut self, range: &Range<usize>, to: usize, len: usize) {
        let first = self.take(range);
        self.cut(range);
        self.cut(&(to..to + len));
        if let Some(mapping) = first {
            self.add(KernelMapping { base: to, end: to + len, ..mapping });
        }
    }

    /// In a child: its parent's descriptors are those of the mappings, which are shared.
    pub fn forget_all(&mut self) {
        self.used = 0;
    }

    /// Knows of none from now on.
    pub fn give_up(&mut self) {
        (self.used, self.are_too_many) = (0, true);
    }

    /// Whether it is known still, and its file is mapped nowhere else.
    pub fn is_alone(&self, mapping: &KernelMapping) -> bool {
        let mut of_file = self.iter().filter(|known| known.file == mapping.file);
        of_file.next().is_some_and(|known| known.addresses() == mapping.addresses()) && of_file.next().is_none()
    }

    /// Counts a sync of these addresses. The mapping that was synced often enough to be upgraded.
    pub fn sync(&mut self, range: &Range<usize>) -> Option<KernelMapping> {
        if range.len() > SYNC_BYTES_MAX {
            return None;
        }
        let is_such = |mapping: &&mut KernelMapping| {
            mapping.meets(range) && mapping.is_shared && mapping.access & libc::PROT_WRITE != 0
        };
        let mapping = self.known[..self.used].iter_mut().find(is_such)?;
        mapping.syncs = mapping.syncs.saturating_sub(1);
        if mapping.syncs > 0 {
            return None;
        }
        let now = *mapping;
        *mapping = now.later();
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(base: usize, inode: u64) -> KernelMapping {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        KernelMapping { base, end: base + 10, file: (1, inode), access, is_shared: true, ..KernelMapping::NONE }
    }

    #[test]
    fn a_mapping_is_upgraded_after_some_syncs_and_then_after_twice_as_many() {
        let mut all = Box::new(KernelMappings::NONE);
        all.add(mapping(100, 7));
        all.add(KernelMapping { access: libc::PROT_READ, ..mapping(200, 8) });
        let mut syncs_until = |range: Range<usize>| (1..100).find(|_| all.sync(&range).is_some());
        assert_eq!([syncs_until(105..106), syncs_until(90..101), syncs_until(105..900)], [8, 16, 32].map(Some));
        assert_eq!((syncs_until(110..200), syncs_until(200..210)), (None, None), "nothing there, or read alone");
        assert_eq!(syncs_until(100..SYNC_BYTES_MAX + 101), None, "too long a sync");
    }

    #[test]
    fn a_file_that_is_mapped_twice_is_not_alone_and_what_was_cut_is_not_known() {
        let mut all = Box::new(KernelMappings::NONE);
        all.add(mapping(100, 7));
        all.add(mapping(200, 8));
        assert!(all.is_alone(&mapping(100, 7)) && !all.is_alone(&mapping(110, 7)));
        all.add(KernelMapping { is_shared: false, ..mapping(300, 7) });
        assert!(!all.is_alone(&mapping(100, 7)));
        all.cut(&(302..310));
        assert!(!all.is_alone(&mapping(100, 7)), "some of it is there still");
        all.cut(&(0..90));
        all.cut(&(300..302));
        assert!(all.is_alone(&mapping(100, 7)) && all.has(&(109..110)) && !all.has(&(110..200)));
        all.cut(&(104..106));
        assert!(!all.is_alone(&mapping(100, 7)) && all.count() == 3);
        assert!(all.iter().any(|piece| (piece.base, piece.end, piece.from) == (106, 110, 6)));
    }

    #[test]
    fn what_is_moved_or_protected_is_known_where_it_is() {
        let mut all = Box::new(KernelMappings::NONE);
        all.add(mapping(100, 7));
        all.has_access(&(103..105), libc::PROT_READ);
        let accesses = |all: &KernelMappings| {
            let mut accesses: Vec<_> = all.iter().map(|piece| (piece.base, piece.end, piece.access)).collect();
            accesses.sort_unstable();
            accesses
        };
        assert_eq!(accesses(&all), [(100, 103, 3), (103, 105, 1), (105, 110, 3)]);
        all.moves(&(103..105), 200, 8);
        assert_eq!(accesses(&all), [(100, 103, 3), (105, 110, 3), (200, 208, 1)]);
        all.moves(&(500..510), 100, 10);
        assert_eq!(accesses(&all), [(200, 208, 1)], "nobody knows what came there");
    }

    #[test]
    fn of_too_many_none_is_known() {
        let mut all = Box::new(KernelMappings::NONE);
        (0..=KERNEL_MAX).for_each(|number| all.add(mapping(number * 10, 7)));
        all.add(mapping(0, 8));
        assert!(all.count() == 0 && !all.is_alone(&mapping(0, 8)));
    }
}
