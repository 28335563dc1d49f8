//! The page of a mirror's side: the last bytes of a region that has a twin.
//!
//! The page has two slots of [`MirrorRecord`], in two pages of memory, so that no torn write, bad
//! line or page that the kernel withdraws takes both. A writer stores the same record to both,
//! one after the other, and acts on it once both are durable: so either slot alone says enough. The
//! valid record with the greatest generation counts. All bytes before the page are the volume's,
//! from byte 0 on: a driver that knows no mirrors finds the volume there.

use crate::on_media::{Broken, on_media, rule};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// The first bytes of a record.
const MIRROR_MAGIC: [u8; 16] = *b"tidegate-mirror\0";

/// The first bytes of a redo.
const REDO_MAGIC: [u8; 16] = *b"tidegate-mirredo";

/// The version of a record that names no opening.
const MIRROR_VERSION: u8 = 1;

/// The version of a record that names the opening of its generation.
const MIRROR_VERSION_OPENING: u8 = 2;

/// Bytes at the end of each side that are not the volume's.
pub const MIRROR_PAGE_BYTES: u64 = 8192;

/// Where the two slots lie in the page: 4096 bytes apart.
pub const MIRROR_SLOTS_AT: [u64; 2] = [0, MIRROR_PAGE_BYTES / 2];

on_media! {
    /// A slot in the page of a mirror's side: which set the region belongs to, and which of
    /// both sides has every write. The checksum covers the bytes before it.
    pub struct MirrorRecord [64] {
        /// `tidegate-mirror`, then zero
        0: magic: [u8; 16],
        /// the set: a UUID that both sides share
        16: set: [u8; 16],
        /// grows with each opening and change of state; both sides of a whole set have one
        32: generation: U64,
        /// bytes of the region, this page included
        40: region_bytes: U64,
        /// 0 or 1: which of both sides the region is
        48: side: u8,
        /// of the opening that drew the generation before this one, the first 3 bytes; else zero
        49: former: [u8; 3],
        /// 1: both sides have every write. 2: the other side lacks writes. 3: a copy of the other
        /// side that is not complete. 4, only of side 1: as 1, while both sides get this generation
        52: state: u8,
        /// the opening that drew this generation, a random number: its first 3 bytes; else zero
        53: opening_begin: [u8; 3],
        /// 1: `former` and the opening are zero. 2: they need not be
        56: version: u8,
        /// the rest of the opening
        57: opening_end: [u8; 3],
        /// CRC-32C of the first 60 bytes
        60: checksum: U32,
    }
}

/// Where [`RedoHead`] lies in the page.
pub const REDO_HEAD_AT: u64 = 64;
/// Where the places of the redo's lines lie in the page: 8 bytes each.
pub const REDO_PLACES_AT: u64 = 128;
/// Where the redo's lines lie in the page: 64 bytes each.
pub const REDO_LINES_AT: u64 = 256;
/// Lines in a redo, at most.
pub const REDO_LINES_MAX: usize = 16;
const _: () = assert!(REDO_PLACES_AT + 8 * REDO_LINES_MAX as u64 == REDO_LINES_AT);
const _: () = assert!(REDO_LINES_AT + 64 * REDO_LINES_MAX as u64 <= MIRROR_SLOTS_AT[1]);

on_media! {
    /// The head of the redo of a side: lines of it that are being stored anew from the other side.
    /// Their places and contents follow. If the checksum holds, the next opening stores them again.
    pub struct RedoHead [32] {
        /// `tidegate-mirredo`
        0: magic: [u8; 16],
        /// lines
        16: lines: U32,
        /// CRC-32C of the number of lines, their places and their contents
        20: checksum: U32,
        /// zero
        24: reserved: U64,
    }
}

impl RedoHead {
    /// The head before lines of those places and contents.
    pub fn new(places: &[u64], contents: &[u8]) -> RedoHead {
        let lines = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let checksum = U32::new(RedoHead::digest(places, contents));
        RedoHead { magic: REDO_MAGIC, lines: U32::new(lines), checksum, reserved: U64::ZERO }
    }

    /// How many lines the redo has, if this is the head of one.
    pub fn lines(&self) -> Option<usize> {
        let lines = usize::try_from(self.lines.get()).ok().filter(|lines| (1..=REDO_LINES_MAX).contains(lines));
        lines.filter(|_| self.magic == REDO_MAGIC)
    }

    /// Whether these are the lines that the head was written for.
    pub fn covers(&self, places: &[u64], contents: &[u8]) -> bool {
        self.checksum.get() == RedoHead::digest(places, contents)
    }

    fn digest(places: &[u64], contents: &[u8]) -> u32 {
        let number = crc32c::crc32c(&(places.len() as u64).to_le_bytes());
        let placed = places.iter().fold(number, |sum, place| crc32c::crc32c_append(sum, &place.to_le_bytes()));
        crc32c::crc32c_append(placed, contents)
    }
}

/// Which side of a set has every write, as one side knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideState {
    /// Both have.
    Mirrored,
    /// This side went on alone: the other one lacks writes.
    Alone,
    /// This side is an incomplete copy of the other.
    Copying,
    /// Both have, and are being opened with this generation; only side 1 says so. Side 0 has this
    /// generation or the one before it.
    Opening,
}

/// One opening of both sides of a mirror, by a number of 48 bits that is drawn at random: sides of
/// one generation that name different openings were opened apart from each other. Zero: none, of a
/// set that was not opened yet, or by programs that drew none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningId(pub [u8; 6]);

impl OpeningId {
    /// No opening.
    pub const ABSENT: OpeningId = OpeningId([0; 6]);

    /// What the record of the next generation keeps of it.
    pub fn beginning(self) -> [u8; 3] {
        let [one, two, three, ..] = self.0;
        [one, two, three]
    }
}

/// What a side says of itself and its set: a checked [`MirrorRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorSide {
    /// The set, which both sides share.
    pub set: [u8; 16],
    /// Grows with each opening and each change of state.
    pub generation: u64,
    /// Bytes of the region, its page included.
    pub region_bytes: u64,
    /// 0 or 1.
    pub side: u32,
    /// Which side has every write.
    pub state: SideState,
    /// The opening that drew this generation; none if a side went on alone with it.
    pub opening: OpeningId,
    /// Of the opening that drew the generation before this one, its [`OpeningId::beginning`].
    pub former: [u8; 3],
}

impl MirrorSide {
    /// The record that says so.
    pub fn record(&self) -> MirrorRecord {
        let [begin @ .., four, five, six] = self.opening.0;
        let names_openings = self.opening != OpeningId::ABSENT || self.former != [0; 3];
        let mut record = MirrorRecord {
            magic: MIRROR_MAGIC,
            set: self.set,
            generation: U64::new(self.generation),
            region_bytes: U64::new(self.region_bytes),
            side: if self.side == 0 { 0 } else { 1 },
            former: self.former,
            state: match self.state {
                SideState::Mirrored => 1,
                SideState::Alone => 2,
                SideState::Copying => 3,
                SideState::Opening => 4,
            },
            opening_begin: begin,
            version: if names_openings { MIRROR_VERSION_OPENING } else { MIRROR_VERSION },
            opening_end: [four, five, six],
            checksum: U32::ZERO,
        };
        record.checksum = U32::new(record.digest());
        record
    }
}

impl MirrorRecord {
    /// What the side says, if these bytes are a record.
    pub fn check(&self) -> Result<MirrorSide, Broken> {
        rule(self.magic == MIRROR_MAGIC, "the magic is `tidegate-mirror`", 0, format_args!("{:02x?}", self.magic))?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the record", 60, self.checksum)?;
        rule((1..=2).contains(&self.version), "the version is known", 56, self.version)?;
        rule(self.side < 2, "the side is 0 or 1", 48, self.side)?;
        let [[one, two, three], [four, five, six]] = [self.opening_begin, self.opening_end];
        let opening = OpeningId([one, two, three, four, five, six]);
        let names_openings = opening != OpeningId::ABSENT || self.former != [0; 3];
        let may_name = self.version == MIRROR_VERSION_OPENING || !names_openings;
        rule(may_name, "version 1 names no opening", 53, format_args!("{:02x?}", opening.0))?;
        let state = match self.state {
            1 => SideState::Mirrored,
            2 => SideState::Alone,
            3 => SideState::Copying,
            4 if self.side == 1 => SideState::Opening,
            other => return Err(Broken { rule: "the state is known", offset: 52, found: other.to_string() }),
        };
        Ok(MirrorSide {
            set: self.set,
            generation: self.generation.get(),
            region_bytes: self.region_bytes.get(),
            side: u32::from(self.side),
            state,
            opening,
            former: self.former,
        })
    }

    /// Whether these bytes claim to be a record, be it a damaged one.
    pub fn has_magic(&self) -> bool {
        self.magic == MIRROR_MAGIC
    }

    fn digest(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..60])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn side(state: SideState) -> MirrorSide {
        MirrorSide {
            set: [0xab; 16],
            generation: 0x0102,
            region_bytes: 1 << 20,
            side: 1,
            state,
            opening: OpeningId::ABSENT,
            former: [0; 3],
        }
    }

    #[test]
    fn a_record_to_the_byte() {
        let record = side(SideState::Alone).record();
        let bytes = record.as_bytes();
        assert_eq!(&bytes[..16], b"tidegate-mirror\0");
        assert_eq!(&bytes[16..32], &[0xab; 16]);
        assert_eq!(
            &bytes[32..60],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]
        );
        assert_eq!(record.check(), Ok(side(SideState::Alone)));
    }

    #[test]
    fn a_record_of_an_opening_to_the_byte() {
        let opened =
            MirrorSide { opening: OpeningId([1, 2, 3, 4, 5, 6]), former: [7, 8, 9], ..side(SideState::Mirrored) };
        let record = opened.record();
        assert_eq!(&record.as_bytes()[48..60], &[1, 7, 8, 9, 1, 1, 2, 3, 2, 4, 5, 6]);
        assert_eq!(record.check(), Ok(opened));
    }

    #[test]
    fn version_1_names_no_opening() {
        let mut record = MirrorSide { former: [7, 8, 9], ..side(SideState::Mirrored) }.record();
        record.version = 1;
        record.checksum = U32::new(record.digest());
        assert_eq!(record.check().map_err(|broken| broken.rule), Err("version 1 names no opening"));
    }

    #[test]
    fn every_state_comes_back() {
        for state in [SideState::Mirrored, SideState::Alone, SideState::Copying, SideState::Opening] {
            assert_eq!(side(state).record().check(), Ok(side(state)));
        }
    }

    #[test]
    fn an_unknown_state_is_named() {
        let mut record = side(SideState::Alone).record();
        record.state = 5;
        record.checksum = U32::new(record.digest());
        assert_eq!(record.check().map_err(|broken| broken.rule), Err("the state is known"));
    }

    #[test]
    fn only_side_1_is_being_opened() {
        let record = MirrorSide { side: 0, ..side(SideState::Opening) }.record();
        assert_eq!(record.check().map_err(|broken| broken.rule), Err("the state is known"));
    }

    #[test]
    fn a_redo_covers_its_lines_alone() {
        let (places, contents) = ([64, 640], [7; 128]);
        let head = RedoHead::new(&places, &contents);
        assert_eq!((head.lines(), &head.as_bytes()[16..20]), (Some(2), &[2, 0, 0, 0][..]));
        assert!(head.covers(&places, &contents));
        assert!(!head.covers(&[64, 704], &contents) && !head.covers(&places, &[8; 128]));
        assert_eq!(RedoHead::new(&[], &[]).lines(), None);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let record = side(SideState::Mirrored).record();
        for byte in 0..size_of::<MirrorRecord>() {
            let mut bytes = [0; size_of::<MirrorRecord>()];
            bytes.copy_from_slice(record.as_bytes());
            bytes[byte] ^= 4;
            assert!(MirrorRecord::read_from_bytes(&bytes).unwrap().check().is_err(), "byte {byte}");
        }
    }
}
