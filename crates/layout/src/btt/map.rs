//! Map entries: where each block the user sees lies, and whether it reads as data, zeroes or an
//! error.

const STATE_SHIFT: u32 = 30;
const BLOCK_MASK: u32 = (1 << STATE_SHIFT) - 1;

/// One entry of the map, as it lies on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapEntry(u32);

/// What bits 31 and 30 of a map entry say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// Never written: the entry of block n stands for internal block n, whatever its low bits are.
    Initial,
    /// The block could not be read back.
    Error,
    /// The block reads as zeroes.
    Zero,
    /// The block holds data.
    Normal,
}

impl MapState {
    /// All states, in the order of their bits.
    pub const ALL: [MapState; 4] = [MapState::Initial, MapState::Error, MapState::Zero, MapState::Normal];

    /// What reads and writes do in this state.
    pub fn meaning(self) -> &'static str {
        match self {
            MapState::Initial => {
                "never written; occupies the internal block of its own number (low bits ignored), reads that block"
            }
            MapState::Error => "the data was lost; reads fail, a write makes it normal",
            MapState::Zero => "reads as zeroes; keeps its internal block",
            MapState::Normal => "reads the internal block",
        }
    }
}

impl MapEntry {
    /// The entry in these 4 bytes.
    pub const fn from_raw(raw: u32) -> MapEntry {
        MapEntry(raw)
    }

    /// The 4 bytes of the entry.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// An entry that holds data in `block`.
    pub const fn normal(block: u32) -> MapEntry {
        MapEntry::new(MapState::Normal, block)
    }

    /// An entry in `state` that occupies `block`.
    pub const fn new(state: MapState, block: u32) -> MapEntry {
        MapEntry((state as u32) << STATE_SHIFT | block & BLOCK_MASK)
    }

    /// What the entry reads as.
    pub const fn state(self) -> MapState {
        MapState::ALL[(self.0 >> STATE_SHIFT) as usize]
    }

    /// The internal block that the entry of block `lba` occupies.
    pub const fn block(self, lba: u32) -> u32 {
        match self.state() {
            MapState::Initial => lba,
            MapState::Error | MapState::Zero | MapState::Normal => self.0 & BLOCK_MASK,
        }
    }

    /// The block number in a flog field, which other writers store with the flags of a map entry.
    pub const fn strip(raw: u32) -> u32 {
        raw & BLOCK_MASK
    }

    /// What a flog entry keeps of a replaced map entry: the bare block, and the error bit if it was
    /// in error.
    pub const fn as_replaced(self, lba: u32) -> u32 {
        match self.state() {
            MapState::Error => MapEntry::new(MapState::Error, self.block(lba)).0,
            MapState::Initial | MapState::Zero | MapState::Normal => self.block(lba),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_linux() {
        assert_eq!(MapEntry::normal(0x1ef0).raw(), 0xc000_1ef0);
        assert_eq!(MapEntry::new(MapState::Zero, 5).raw(), 0x8000_0005);
        assert_eq!(MapEntry::new(MapState::Error, 5).raw(), 0x4000_0005);
        assert_eq!(MapEntry::from_raw(0).state(), MapState::Initial);
    }

    #[test]
    fn an_initial_entry_stands_for_its_own_number() {
        assert_eq!(MapEntry::from_raw(0).block(77), 77);
        assert_eq!(MapEntry::from_raw(12).block(77), 77);
        assert_eq!(MapEntry::normal(12).block(77), 12);
    }

    #[test]
    fn a_replaced_entry_keeps_only_the_error_bit() {
        assert_eq!(MapEntry::normal(9).as_replaced(1), 9);
        assert_eq!(MapEntry::new(MapState::Zero, 9).as_replaced(1), 9);
        assert_eq!(MapEntry::new(MapState::Error, 9).as_replaced(1), 0x4000_0009);
        assert_eq!(MapEntry::from_raw(0).as_replaced(1), 1);
    }
}
