//! By which program context each thread calls, said to the services of mounts on their boards.
//!
//! A thread looks for its context only while its requests reach a service, which counts them on its
//! board: what the kernel's page cache answers is no request. The rules of a board are in
//! `tidegate-file-wire`.

use crate::process;
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_file_wire::{
    BOARD_BYTES, BOARD_DEVICE_AT, BOARD_KEPT_READS_AT, BOARD_LEASED_AT, BOARD_LOST_AT, BOARD_MAGIC, BOARD_RECALL_AT,
    BOARD_ROOM_AT, BOARD_WANTED_AT, BOARDS_MAX, CONTEXTS, FRAMES, FRAMES_MAX, Said, board_place, leased_bit,
    leased_place, said_by, said_word, shown_context,
};
use tidegate_program_context::{ProgramContexts, StackTop, VERIFY_EVERY};

/// After a request that the service answered, a thread says so many contexts at first, and at most:
/// twice as many after each time that they were too few for the next request.
const SAID_FIRST: u32 = 64;
const SAID_MAX: u32 = 512;

static PROGRAM: ProgramContexts = ProgramContexts::new();
/// Set before the program begins.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);
static BOARDS: [OnceLock<Board>; BOARDS_MAX] = [const { OnceLock::new() }; BOARDS_MAX];

thread_local! {
    static SPEAKER: Cell<Speaker> = const { Cell::new(Speaker::NEW) };
}

/// This thread, as it uses the board.
#[derive(Clone, Copy)]
struct Speaker {
    /// Its number; 0: not known yet.
    thread: u32,
    /// How many of its requests the service had answered when it last looked.
    heard: u64,
    /// How many contexts it says after a request.
    window: u32,
    /// How many more of them it says now.
    left: u32,
}

impl Speaker {
    const NEW: Speaker = Speaker { thread: 0, heard: 0, window: SAID_FIRST, left: 0 };
}

/// The board, mapped for as long as the process lives.
struct Board {
    words: &'static [AtomicU64],
    device: u64,
}

impl Board {
    fn at(&self, offset: u64) -> Option<&'static AtomicU64> {
        self.words.get(usize::try_from(offset / 8).ok()?)
    }
}

/// Looks which boards there are. Before the program begins.
pub(crate) fn start() {
    let Some(said) = process::said(CONTEXTS) else { return };
    let mut words = said.to_bytes().split(|byte| *byte == b':');
    let frames = words.next().and_then(|frames| str::from_utf8(frames).ok()?.parse().ok());
    PROGRAM.configure(frames.unwrap_or(FRAMES).min(FRAMES_MAX), VERIFY_EVERY);
    for (place, board) in BOARDS.iter().zip(words.filter_map(mapped)) {
        if board.at(BOARD_WANTED_AT).is_some_and(|wanted| wanted.load(Ordering::Relaxed) != 0) {
            ARE_WANTED.store(true, Ordering::Relaxed);
        }
        // It is the first one.
        let _ = place.set(board);
    }
    if are_wanted() {
        // The unwinder prepares itself now, and not on a small stack.
        PROGRAM.unwound();
    }
}

/// Those that there are.
fn boards() -> impl Iterator<Item = &'static Board> {
    BOARDS.iter().map_while(OnceLock::get)
}

fn mapped(path: &[u8]) -> Option<Board> {
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let about = fstat(&file).ok()?;
    let is_regular = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    // Whose file it is could cut it off below the mapping.
    let is_own = about.st_uid == rustix::process::geteuid().as_raw();
    if !is_regular || !is_own || u64::try_from(about.st_size) != Ok(BOARD_BYTES) {
        return None;
    }
    let bytes = usize::try_from(BOARD_BYTES).ok()?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }.ok()?;
    // SAFETY: L3: it was just mapped, begins at a page, and stays.
    let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), bytes / size_of::<AtomicU64>()) };
    let board = Board { words, device: words.get(usize::try_from(BOARD_DEVICE_AT / 8).ok()?)?.load(Ordering::Relaxed) };
    (words.first()?.load(Ordering::Relaxed) == BOARD_MAGIC).then_some(board)
}

/// Whether a device is that of a mount that has a board.
pub(crate) fn is_device_of_mount(device: u64) -> bool {
    boards().any(|board| board.device == device)
}

/// Says on the board of the mount on `device` that so many reads needed no request.
pub(crate) fn count_kept_reads(device: u64, count: u64) {
    let board = boards().find(|board| board.device == device);
    if let Some(word) = board.and_then(|board| board.at(BOARD_KEPT_READS_AT)) {
        word.fetch_add(count, Ordering::Relaxed);
    }
}

/// Whether there is a board.
pub(crate) fn has_boards() -> bool {
    boards().next().is_some()
}

/// Where the boards say whether a file may have a lease, if it is in a mount that has one.
pub(crate) fn place_of_leases(device: u64, inode: u64) -> Option<u16> {
    is_device_of_mount(device).then(|| leased_place(inode))
}

/// Whether a file with this place on its board may have a lease.
#[inline]
pub(crate) fn may_be_leased(place: u16) -> bool {
    let (word, bit) = leased_bit(place);
    let has_bit = |word: &AtomicU64| word.load(Ordering::Relaxed) & bit != 0;
    boards().filter_map(|board| board.at(BOARD_LEASED_AT + 8 * word as u64)).any(has_bit)
}

/// The words that change when a program waits for room for mapped pages.
pub(crate) fn room_words() -> impl Iterator<Item = &'static AtomicU64> {
    boards().filter_map(|board| board.at(BOARD_ROOM_AT))
}

/// The words that change when somebody wants a file of which a mapping was upgraded.
pub(crate) fn recall_words() -> impl Iterator<Item = &'static AtomicU64> {
    boards().filter_map(|board| board.at(BOARD_RECALL_AT))
}

/// Whether a mount's policy asks for contexts.
#[inline]
pub(crate) fn are_wanted() -> bool {
    ARE_WANTED.load(Ordering::Relaxed)
}

/// Tells that an access could not be recorded to a trace.
pub(crate) fn lost_record() {
    if let Some(lost) = boards().next().and_then(|board| board.at(BOARD_LOST_AT)) {
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a thread says of its call, until this is dropped.
pub(crate) struct Saying(u32);

/// Says the context of the call that this thread is in, if that may be of use. Whether the call is
/// about a file of a mount with a board, `is_in_mount` tells.
#[inline]
pub(crate) fn say(top: StackTop, is_in_mount: impl FnOnce() -> bool) -> Option<Saying> {
    if !are_wanted() || !is_in_mount() {
        return None;
    }
    let mut speaker = SPEAKER.get();
    if speaker.thread == 0 {
        speaker.thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    }
    // Another thread may have had the place since.
    let is_there = |board: &Board| {
        board
            .at(board_place(speaker.thread))
            .is_some_and(|place| said_by(speaker.thread, place.load(Ordering::Relaxed)) != Said::Nothing)
    };
    if !boards().all(is_there) {
        store_everywhere(speaker.thread, 0);
    }
    let answered = |board: &Board| Some(board.at(board_place(speaker.thread) + 8)?.load(Ordering::Relaxed));
    let heard = boards().filter_map(answered).fold(0, u64::wrapping_add);
    if heard != speaker.heard {
        let was_too_short = speaker.left == 0 && speaker.heard != 0;
        speaker.window = if was_too_short { SAID_MAX.min(2 * speaker.window) } else { speaker.window };
        (speaker.heard, speaker.left) = (heard, speaker.window);
    }
    let is_saying = speaker.left > 0;
    speaker.left = speaker.left.saturating_sub(1);
    SPEAKER.set(speaker);
    is_saying.then(|| {
        store_everywhere(speaker.thread, found(top));
        Saying(speaker.thread)
    })
}

impl Drop for Saying {
    fn drop(&mut self) {
        store_everywhere(self.0, 0);
    }
}

fn store_everywhere(thread: u32, context: u64) {
    let places = boards().filter_map(|board| board.at(board_place(thread)));
    places.for_each(|place| place.store(said_word(thread, context), Ordering::Relaxed));
}

/// The context of the call that this thread is in.
pub(crate) fn found(top: StackTop) -> u64 {
    shown_context(PROGRAM.of_call(top))
}

/// The context of the call that this thread is in, for whoever asks seldom; 0: it is not wanted.
pub(crate) fn of_call() -> u64 {
    if are_wanted() { shown_context(PROGRAM.unwound()) } else { 0 }
}

/// In a child that was forked: its one thread is another one than its parent's.
pub(crate) fn forget() {
    PROGRAM.forget();
    SPEAKER.set(Speaker::NEW);
}
