//! What a program with the direct path and the service of its mount say to each other: `ioctl`s on
//! a descriptor of a file of the mount. Nothing else passes between the two but the pool's memory,
//! and the board of program contexts (`board.rs`).
//!
//! | command | asks | answer |
//! | --- | --- | --- |
//! | [`DESCRIBE`] | which file is the pool? | [`PoolDescription`] |
//! | [`CLAIM`] | a lease of this file, or a share in that of others | [`Claim`] |
//! | [`EXTEND`] | more blocks for a lease | [`LeaseRequest`] |
//! | [`LEAVE`] | nothing: the program touches the lease's memory no more | [`LeaseRequest`] |
//! | [`READ`] | bytes of a leased file, or where they lie; the lease goes on | [`Read`] |
//! | [`MAP`] | pages of the file, to be mapped from the pool | [`Map`], or the errno for `mmap` |
//! | [`UPGRADE`] | whether such pages may replace the kernel's, and back | [`Upgrade`] |
//!
//! A file system that is none of ours answers `ENOTTY`. A service that speaks another [`VERSION`]
//! answers a claim with [`Answer::Never`].
//!
//! A number is little-endian, and its bytes are where the struct says.

#![forbid(unsafe_code)]

mod access;
mod board;

pub use access::{AccessKind, AccessRecord, CHUNK_RECORDS, TRACE};
pub use board::{
    BOARD_BYTES, BOARD_DEVICE_AT, BOARD_KEPT_READS_AT, BOARD_LEASED_AT, BOARD_LEASED_WORDS, BOARD_LOST_AT, BOARD_MAGIC,
    BOARD_RECALL_AT, BOARD_ROOM_AT, BOARD_WANTED_AT, BOARDS_MAX, CONTEXTS, DIRECT, FRAMES, FRAMES_MAX, READ_CACHE,
    READ_CACHE_BYTES, Said, UPGRADE_MAPPINGS, board_place, contexts_said, leased_bit, leased_place, said_by, said_word,
    shown_context, variable,
};

use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Version of these messages.
pub const VERSION: u32 = 3;

/// Longest path of a pool, in bytes.
pub const PATH_BYTES_MAX: usize = 4056;

/// Most bytes of one [`Read`].
pub const READ_BYTES_MAX: usize = 8192;

/// Asks which file is the pool.
pub const DESCRIBE: u32 = command(OUT, 1, size_of::<PoolDescription>());
/// Asks for a lease.
pub const CLAIM: u32 = command(IN | OUT, 2, size_of::<Claim>());
/// Asks for more blocks for a lease.
pub const EXTEND: u32 = command(IN | OUT, 3, size_of::<LeaseRequest>());
/// Tells that a lease's memory is not touched any more.
pub const LEAVE: u32 = command(IN | OUT, 4, size_of::<LeaseRequest>());
/// Reads a leased file.
pub const READ: u32 = command(IN | OUT, 5, size_of::<Read>());
/// Has pages of the file stay in the pool, to be mapped.
pub const MAP: u32 = command(IN | OUT, 6, size_of::<Map>());

/// Asks about mappings of the kernel's pages that direct ones replace, or that replace these.
pub const UPGRADE: u32 = command(IN | OUT, 7, size_of::<Upgrade>());

/// Bytes of a page of the pool, or of a file.
const PAGE_BYTES: u64 = 4096;

/// Most runs of pages that one [`Map`] tells.
pub const MAP_RUNS_MAX: usize = 512;

/// Places in files end before this, as offsets do.
const PLACES_END: u64 = 1 << 62;
/// Most bytes that a claim asks for.
const CLAIMED_BYTES_MAX: u64 = 64 << 20;

/// The kernel's bits for an `ioctl` that passes its argument in, or out.
const IN: u32 = 1;
const OUT: u32 = 2;
/// The letter of these `ioctl`s: one that the kernel's list does not have.
const LETTER: u32 = 0xD7;

/// The number of an `ioctl`, as `_IOC` makes it.
const fn command(direction: u32, number: u32, bytes: usize) -> u32 {
    assert!(bytes < 1 << 14, "an ioctl passes less than 16 KiB");
    #[expect(clippy::cast_possible_truncation, reason = "it was just compared")]
    let bytes = bytes as u32;
    direction << 30 | bytes << 16 | LETTER << 8 | number
}

/// How a claim or a request about a lease was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As asked.
    Granted,
    /// Not now: others use the file, or the pool has no room. It may be asked again later.
    Later,
    /// Not for this file and this process.
    Never,
}

impl Answer {
    /// The word that says so in a message.
    pub fn word(self) -> u32 {
        match self {
            Answer::Granted => 1,
            Answer::Later => 2,
            Answer::Never => 3,
        }
    }

    /// What a word says. One that nobody knows is no grant.
    pub fn of(word: u32) -> Answer {
        match word {
            1 => Answer::Granted,
            2 => Answer::Later,
            _ => Answer::Never,
        }
    }
}

/// Which file is the pool.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PoolDescription {
    /// [`VERSION`] of the service.
    pub version: U32,
    /// Bytes of `path` that are its own.
    pub path_bytes: U32,
    /// The file's identity, as `fstat` tells it.
    pub device: U64,
    /// See `device`.
    pub inode: U64,
    /// The file's length in bytes.
    pub bytes: U64,
    /// Where the service opened it, without a zero byte.
    pub path: [u8; PATH_BYTES_MAX],
    /// Bytes of the pool that programs may pin in all. A service that knows of no pins says 0.
    pub pinned_bytes_max: U64,
}

/// A claim of a file, and its answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Claim {
    /// [`VERSION`] of the program.
    pub version: U32,
    /// Word of the [`Answer`]. What follows is 0 without a grant.
    pub answer: U32,
    /// Asked: where the program is about to write.
    pub at: U64,
    /// Asked: how many bytes.
    pub len: U64,
    /// Asked: a lease that the program has, and that has too little room; or 0. Told: the lease's
    /// number.
    pub lease: U64,
    /// Offset of the lease log in the pool.
    pub log_at: U64,
    /// Elements that the log has places for.
    pub log_elements: U64,
    /// Offset in the pool from which on the lane's blocks lie.
    pub blocks_at: U64,
    /// The file's length.
    pub size: U64,
    /// Offset in the file from which on the program may write.
    pub room_from: U64,
    /// One past the last byte that it may write.
    pub room_until: U64,
    /// Asked: [`JOINS`], or 0. Told with [`Answer::Later`]: [`SOON`], or 0.
    pub how: U64,
}

/// Of a claim: only a lease that other processes have already is to be shared.
pub const JOINS: u64 = 1;

/// Of a claim that is refused: the file is just being lent to another process. Whoever uses it now
/// keeps it from being lent; who asks again gets a share.
pub const SOON: u64 = 2;

/// A request about a lease.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LeaseRequest {
    /// The lease's number.
    pub lease: U64,
    /// Word of the [`Answer`].
    pub answer: U32,
    /// Zero.
    pub reserved: U32,
}

/// A read of a leased file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Read {
    /// The lease's number.
    pub lease: U64,
    /// Offset of the first byte.
    pub at: U64,
    /// Asked: how many bytes, at most [`READ_BYTES_MAX`], or [`LOCATED_BYTES_MAX`]. Answered: how
    /// many were read; fewer at the end of the file only.
    pub len: U32,
    /// Word of the [`Answer`].
    pub answer: U32,
    /// Asked: [`LOCATES`], or 0.
    pub how: U32,
    /// Told to who locates: how many runs there are in `data`.
    pub runs: U32,
    /// The bytes.
    pub data: [u8; READ_BYTES_MAX],
}

/// Of a read: where the bytes lie in the pool is to be told, and not the bytes.
pub const LOCATES: u32 = 1;

/// Most runs that one [`Read`] tells: as many as pages that it is asked about.
const LOCATED_RUNS_MAX: usize = READ_BYTES_MAX / size_of::<LocatedRun>();
/// Most bytes of a file that one [`Read`] is asked the places of.
pub const LOCATED_BYTES_MAX: u64 = LOCATED_RUNS_MAX as u64 * PAGE_BYTES;

/// Blocks of a file, of 4096 bytes, that lie one behind the other in the pool too. They do until
/// the lease's log says that something was written there or dropped, or the lease ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct LocatedRun {
    /// Offset in the pool.
    pool_at: U64,
    /// Offset in the file, from where it was asked about on.
    from: U32,
    /// How many blocks.
    blocks: U32,
}

/// Pages of a file that are to be mapped, and where they lie in the pool. Whoever maps them locks
/// their places there, and asks again then: only an answer that says the same holds.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Map {
    /// [`VERSION`] of the program.
    pub version: U32,
    /// Word of the [`Answer`].
    pub answer: U32,
    /// Asked: offset of the first page.
    pub at: U64,
    /// Asked: bytes, whole pages that lie within the file.
    pub len: U64,
    /// Asked: [`WAITS_FOR_ROOM`] and [`UPGRADES`], or 0. Told: how many runs there are, from `at`
    /// on; they may be too many for all of `len`.
    pub count: U32,
    /// In which page of the pool, of 4096 bytes, the program says when it stored to these: a
    /// `StoreTimes` of `tidegate-layout`. 0: it does not.
    pub time_page: U32,
    /// The runs.
    pub runs: [MapRun; MAP_RUNS_MAX],
}

/// A thread waits for the pages, for which there was no room: programs that can are to give some
/// back.
pub const WAITS_FOR_ROOM: u32 = 1;

/// The pages are of a mapping that was one of the kernel's pages: the program has none of those any
/// more.
pub const UPGRADES: u32 = 2;

/// A question about mappings of one file that are upgraded: that show the pool's pages in place of
/// the kernel's, under a program that asked for neither.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Upgrade {
    /// [`VERSION`] of the program.
    pub version: U32,
    /// Word of the [`Answer`].
    pub answer: U32,
    /// Asked: word of the [`UpgradeStep`].
    pub step: U32,
    /// Zero.
    pub reserved: U32,
}

/// What a program asks about an upgrade. Each but the first is by a descriptor of any of its
/// handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// It is about to replace its mappings of the kernel's pages. Granted: nobody else has the file
    /// open, by other handles than this descriptor's.
    Begin,
    /// It has replaced them, and gives them back when that is wanted: see [`BOARD_RECALL_AT`].
    Done,
    /// Granted: somebody wants to use the file, and cannot as long as it is mapped directly.
    IsWanted,
    /// It has nothing of the file mapped directly any more. Granted: nobody has, and the kernel may
    /// keep pages again.
    End,
}

impl UpgradeStep {
    const ALL: [UpgradeStep; 4] = [UpgradeStep::Begin, UpgradeStep::Done, UpgradeStep::IsWanted, UpgradeStep::End];

    /// The word that says so in a message.
    pub fn word(self) -> u32 {
        match self {
            UpgradeStep::Begin => 1,
            UpgradeStep::Done => 2,
            UpgradeStep::IsWanted => 3,
            UpgradeStep::End => 4,
        }
    }

    /// What a word says.
    pub fn of(word: u32) -> Option<UpgradeStep> {
        UpgradeStep::ALL.into_iter().find(|step| step.word() == word)
    }
}

/// Pages that lie one behind the other in the pool too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MapRun {
    /// Offset in the pool.
    pub pool_at: U64,
    /// Bytes.
    pub bytes: U64,
}

impl PoolDescription {
    /// The pool of `bytes` bytes that the service opened at `path`, of which programs may pin so
    /// many in all; by its device and inode. `None`: the path is too long.
    pub fn new(path: &[u8], identity: (u64, u64), bytes: u64, pinned_bytes_max: u64) -> Option<PoolDescription> {
        let mut described = PoolDescription::new_zeroed();
        described.path.get_mut(..path.len())?.copy_from_slice(path);
        described.path_bytes = u32::try_from(path.len()).ok()?.into();
        described.version = VERSION.into();
        (described.device, described.inode) = (identity.0.into(), identity.1.into());
        (described.bytes, described.pinned_bytes_max) = (bytes.into(), pinned_bytes_max.into());
        Some(described)
    }
}

impl Map {
    /// Grants what was asked for: says where the pages lie, by offset and bytes of each run, as
    /// many as there is room for; and where in the pool the page of times is, if there is one.
    pub fn grant(&mut self, runs: impl IntoIterator<Item = (u64, u64)>, time_page_at: Option<u64>) {
        let number = time_page_at.and_then(|at| u32::try_from(at / PAGE_BYTES).ok());
        self.time_page = number.unwrap_or(0).into();
        let mut count = 0;
        for (place, (pool_at, bytes)) in self.runs.iter_mut().zip(runs) {
            *place = MapRun { pool_at: pool_at.into(), bytes: bytes.into() };
            count += 1;
        }
        self.count = count.into();
        self.answer = Answer::Granted.word().into();
    }
}

impl Claim {
    /// Where the program is about to write; `None`: that cannot be.
    pub fn asked(&self) -> Option<Range<u64>> {
        asked_range(self.at.get(), self.len.get(), CLAIMED_BYTES_MAX)
    }
}

fn asked_range(at: u64, len: u64, most: u64) -> Option<Range<u64>> {
    let end = at.checked_add(len).filter(|end| *end <= PLACES_END && len <= most)?;
    Some(at..end)
}

impl Read {
    /// No message yet.
    pub const EMPTY: Read = Read {
        lease: U64::ZERO,
        at: U64::ZERO,
        len: U32::ZERO,
        answer: U32::ZERO,
        how: U32::ZERO,
        runs: U32::ZERO,
        data: [0; READ_BYTES_MAX],
    };

    /// Which bytes of the file are asked about; `None`: more than one message is for.
    pub fn asked(&self) -> Option<Range<u64>> {
        let most = if self.how.get() == LOCATES { LOCATED_BYTES_MAX } else { READ_BYTES_MAX as u64 };
        asked_range(self.at.get(), self.len.get().into(), most)
    }

    /// Room for so many bytes of the file.
    pub fn room(&mut self, bytes: u64) -> &mut [u8] {
        self.data.fill(0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(READ_BYTES_MAX);
        &mut self.data[..bytes]
    }

    /// Tells where blocks lie: by their offset in the file, that in the pool, and how many bytes;
    /// as many runs as there is room for.
    pub fn tell(&mut self, runs: impl IntoIterator<Item = (u64, u64, u64)>) {
        let (asked_at, mut count) = (self.at.get(), 0);
        let number = |number: u64| U32::new(u32::try_from(number).unwrap_or(0));
        let places = self.data.chunks_exact_mut(size_of::<LocatedRun>());
        for (place, (at, pool_at, bytes)) in places.zip(runs) {
            let (from, blocks) = (number(at.saturating_sub(asked_at)), number(bytes / PAGE_BYTES));
            place.copy_from_slice(LocatedRun { pool_at: pool_at.into(), from, blocks }.as_bytes());
            count += 1;
        }
        self.runs = count.into();
    }

    /// The runs that were told, by the offset of each in the file, that in the pool, and its bytes.
    pub fn told(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let told = self.data.chunks_exact(size_of::<LocatedRun>()).take(self.runs.get() as usize);
        let is_short = |run: &LocatedRun| run.blocks.get() as usize <= LOCATED_RUNS_MAX;
        told.filter_map(move |run| LocatedRun::read_from_bytes(run).ok().filter(is_short)).map(|run| {
            let [from, blocks] = [run.from, run.blocks].map(|number| u64::from(number.get()));
            (self.at.get().saturating_add(from), run.pool_at.get(), blocks * PAGE_BYTES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program and a service of different builds meet.
    #[test]
    fn golden_numbers_of_the_commands() {
        assert_eq!(
            [DESCRIBE, CLAIM, EXTEND, LEAVE, READ, MAP, UPGRADE],
            [0x9000_d701, 0xc058_d702, 0xc010_d703, 0xc010_d704, 0xe020_d705, 0xe020_d706, 0xc010_d707]
        );
        assert_eq!(UpgradeStep::ALL.map(UpgradeStep::word), [1, 2, 3, 4]);
    }

    #[test]
    fn a_step_that_nobody_knows_is_none() {
        assert!(UpgradeStep::ALL.into_iter().all(|step| UpgradeStep::of(step.word()) == Some(step)));
        assert_eq!([0, 5, u32::MAX].map(UpgradeStep::of), [None; 3]);
    }

    #[test]
    fn a_grant_says_as_many_runs_as_there_is_room_for() {
        let mut map = Map::new_zeroed();
        map.grant((0..1000).map(|run| (run * 8192, 4096)), Some(12_288));
        let last = map.runs[MAP_RUNS_MAX - 1];
        assert_eq!((map.count.get(), last.pool_at.get()), (512, 511 * 8192));
        assert_eq!((map.time_page.get(), Answer::of(map.answer.get())), (3, Answer::Granted));
        map.grant([(4096, 4096)], None);
        assert_eq!((map.count.get(), map.time_page.get(), map.runs[0].bytes.get()), (1, 0, 4096));
    }

    #[test]
    fn a_read_says_as_many_places_of_blocks_as_there_is_room_for() {
        let mut read = Read { at: 8192.into(), ..Read::EMPTY };
        read.tell((0..1000).map(|run| (8197 + run * 4096, run * 12_288, 4096)));
        let told: Vec<_> = read.told().collect();
        assert_eq!((told.len(), told[0], told[511]), (512, (8197, 0, 4096), (8197 + 511 * 4096, 511 * 12_288, 4096)));
        assert_eq!((LOCATED_RUNS_MAX, LOCATED_BYTES_MAX), (512, 2 << 20));
        let mut asked = |how: u32, len: u32, at: u64| {
            (read.how, read.len, read.at) = (how.into(), len.into(), at.into());
            read.asked().map(|asked| asked.end - asked.start)
        };
        assert_eq!([asked(0, 8192, 5), asked(0, 8193, 5), asked(0, 1, 1 << 62)], [Some(8192), None, None]);
        assert_eq!([asked(LOCATES, 2 << 20, 5), asked(LOCATES, (2 << 20) + 1, 5)], [Some(2 << 20), None]);
        // What cannot be is nothing to stumble over.
        (read.at, read.runs) = (u64::MAX.into(), u32::MAX.into());
        assert_eq!(read.told().count(), 512);
        read.tell([]);
        assert_eq!(read.told().count(), 0);
    }

    #[test]
    fn a_description_has_the_whole_path_or_there_is_none() {
        let described = PoolDescription::new(b"/p", (3, 4), 5, 6).expect("a short path");
        assert_eq!((&described.path[..3], described.path_bytes.get()), (&b"/p\0"[..], 2));
        let numbers = [described.device, described.inode, described.bytes, described.pinned_bytes_max];
        assert_eq!(numbers.map(U64::get), [3, 4, 5, 6]);
        assert!(PoolDescription::new(&[b'p'; PATH_BYTES_MAX + 1], (3, 4), 5, 6).is_none());
    }

    #[test]
    fn a_word_that_nobody_knows_is_no_grant() {
        for answer in [Answer::Granted, Answer::Later, Answer::Never] {
            assert_eq!(Answer::of(answer.word()), answer);
        }
        for word in [0, 4, u32::MAX] {
            assert_eq!(Answer::of(word), Answer::Never);
        }
    }
}
