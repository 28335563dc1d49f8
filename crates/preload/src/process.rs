//! This process under `run`: the table, the places that the environment names, and whether it was
//! forked since.

use crate::{descriptors, files, line, names, quiet};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsFd, IntoRawFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use tidegate_media::ProtectionKey;
use tidegate_preload_common::wiped_page;
use tidegate_preload_wire as wire;
use wire::notes::NOTES_BYTES;
use wire::{FileId, Row};

/// What the environment says.
pub(crate) struct Places {
    /// The supervisor's socket.
    pub(crate) socket: CString,
    /// The table.
    table: CString,
    /// The notes of common files.
    notes: CString,
    /// The journal of holds.
    pub(crate) holds: CString,
    /// The run's number.
    pub(crate) session: CString,
    /// The same as records on strips have it.
    pub(crate) session_number: u64,
    /// The pool, and which file it is.
    pub(crate) pool: Option<(CString, FileId)>,
    roots: Vec<Box<[u8]>>,
}

static PLACES: OnceLock<Places> = OnceLock::new();
static TABLE: AtomicPtr<u64> = AtomicPtr::new(null_mut());
/// The part of the table that programs may write, once this one needs it.
static YOUNG: AtomicPtr<u64> = AtomicPtr::new(null_mut());
/// The notes of common files, once this process needs them.
static NOTES: AtomicPtr<u64> = AtomicPtr::new(null_mut());
/// A word in a page that is wiped in a forked child.
static MARK: AtomicPtr<u32> = AtomicPtr::new(null_mut());
/// The process that learned what is known; another one is its child between vfork and exec.
static PID: AtomicI32 = AtomicI32::new(0);
/// Whether something writes here that no export sees.
static UNSEEN: AtomicU32 = AtomicU32::new(0);

const FORKED: u32 = 0;
const SAME: u32 = 1;
const CLEARING: u32 = 2;

/// Whether there is anything to do beside the kernel's work.
pub(crate) fn is_followed() -> bool {
    let mark = MARK.load(Ordering::Acquire);
    if mark.is_null() {
        return false;
    }
    // SAFETY: L3; the page is only ever used as this atomic.
    let mark = unsafe { AtomicU32::from_ptr(mark) };
    if mark.load(Ordering::Acquire) != SAME {
        start_as_forked(mark, Copies::Left);
    }
    true
}

/// What a child does with its copies of the descriptors that the library of its parent has opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// It closes them.
    Closed,
    /// It leaves them: they may be its parent's own, as both may share their descriptors, or it may
    /// have locked files since it began.
    Left,
}

/// Nothing of what the parent knew is true here.
fn start_as_forked(mark: &AtomicU32, copies: Copies) {
    if mark.compare_exchange(FORKED, CLEARING, Ordering::Acquire, Ordering::Acquire).is_ok() {
        PID.store(pid(), Ordering::Relaxed);
        line::leave_to_parent(copies);
        quiet::leave_to_parent(copies);
        files::forget_all();
        names::forget_all();
        descriptors::forget_all();
        mark.store(SAME, Ordering::Release);
    }
    while mark.load(Ordering::Acquire) == CLEARING {
        rustix::thread::sched_yield();
    }
}

/// Whether this is the process that owns this memory.
pub(crate) fn owns_memory() -> bool {
    PID.load(Ordering::Relaxed) == pid()
}

fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Ends the following: the supervisor is gone, and what it kept is void.
pub(crate) fn stop_following() {
    MARK.store(null_mut(), Ordering::Release);
}

/// What the environment said.
pub(crate) fn places() -> Option<&'static Places> {
    PLACES.get()
}

/// Whether `path` lies under a root.
pub(crate) fn is_rooted(path: &[u8]) -> bool {
    let below = |root: &[u8]| path.strip_prefix(root).is_some_and(|rest| rest.starts_with(b"/") || root == b"/");
    PLACES.get().is_some_and(|places| places.roots.iter().any(|root| below(root)))
}

/// Whether something writes here that no export sees.
pub(crate) fn has_unseen_writer() -> bool {
    UNSEEN.load(Ordering::Relaxed) != 0
}

/// From now on something does.
pub(crate) fn set_unseen_writer() {
    UNSEEN.store(1, Ordering::Relaxed);
}

fn word(at: u64) -> u64 {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() || at >= wire::TABLE_BYTES {
        return 0;
    }
    // SAFETY: L3, `at` is inside, and all of the file is words that the supervisor stores whole.
    let word = unsafe { AtomicU64::from_ptr(table.byte_add(usize::try_from(at).unwrap_or(0))) };
    word.load(Ordering::Acquire)
}

/// The table's epoch. What the kernel did for this thread before has happened before the look.
#[expect(clippy::cast_possible_truncation, reason = "an epoch is compared with a recent one only")]
pub(crate) fn epoch() -> u32 {
    // SeqCst: a writer writes and then looks here; a holder is entered here and syncs by the kernel
    // then.
    fence(Ordering::SeqCst);
    word(wire::EPOCH_AT) as u32
}

/// Whether any file is held.
pub(crate) fn anything_is_held() -> bool {
    fence(Ordering::SeqCst);
    word(wire::USED_AT) != 0
}

/// Whether any name is held.
pub(crate) fn names_are_held() -> bool {
    // As above. A process that is not followed has no table.
    fence(Ordering::SeqCst);
    word(wire::NAMES_AT) != 0 && is_followed()
}

/// Whether some process holds `file`, or made it with a name that it holds.
pub(crate) fn is_held(file: FileId) -> bool {
    row_of(file).is_some()
        || names_are_held() && rows().any(|(number, row)| row.file.is_name() && young_at(number) == file)
}

/// Who holds `file`.
pub(crate) fn row_of(file: FileId) -> Option<Row> {
    rows().map(|(_, row)| row).find(|row| row.file == file)
}

/// In which row that stands.
pub(crate) fn row_number_of(file: FileId) -> Option<u64> {
    rows().find(|(_, row)| row.file == file).map(|(number, _)| number)
}

fn rows() -> impl Iterator<Item = (u64, Row)> {
    let row = |slot| [0, 8, 16, wire::SLOT_COLUMN].map(|column| word(wire::row_at(slot) + column));
    (0..word(wire::USED_AT).min(wire::SLOTS)).filter_map(move |slot| Row::of(row(slot)).map(|row| (slot, row)))
}

/// Whether some process is making a file with a name that it holds.
pub(crate) fn is_making() -> bool {
    names_are_held() && rows().any(|(number, row)| row.file.is_name() && young_at(number).inode == names::BEING_MADE)
}

/// The names that are held.
pub(crate) fn names() -> impl Iterator<Item = FileId> {
    rows().map(|(_, row)| row.file).filter(|file| file.is_name())
}

/// The names in `folder` that are held.
pub(crate) fn names_in(folder: FileId) -> impl Iterator<Item = FileId> {
    rows().map(|(_, row)| row.file).filter(move |file| file.is_name_in(folder))
}

fn young_at(row: u64) -> FileId {
    FileId { device: word(wire::young_at(row)), inode: word(wire::young_at(row) + 8) }
}

/// Which file the holder of `name` made with it.
pub(crate) fn young_of(name: FileId) -> Option<FileId> {
    row_number_of(name).map(young_at).filter(|file| file.device != 0 || file.inode != 0)
}

/// Gives `act` the words of row `row` that say so, if this process may write them.
pub(crate) fn young<T>(row: u64, act: impl FnOnce(&[AtomicU64; 2]) -> T) -> Option<T> {
    if YOUNG.load(Ordering::Acquire).is_null() {
        let mapped = map_words(&PLACES.get()?.table, wire::YOUNG_AT, wire::YOUNG_BYTES)?;
        // If another thread was first, both mappings stay: they are of the same pages.
        YOUNG.store(mapped, Ordering::Release);
    }
    let at = usize::try_from(wire::young_at(row) - wire::YOUNG_AT).ok().filter(|_| row < wire::SLOTS)?;
    let _open = ProtectionKey::of_process().map(ProtectionKey::open);
    // SAFETY: L3 and L6, the row is inside, and all of it is words that are stored whole.
    Some(act(unsafe { &*YOUNG.load(Ordering::Acquire).byte_add(at).cast() }))
}

/// The bits of a word that tell whose number the lower ones are.
const UPPER: u64 = 0xffff << 48;

/// The words of the notes of common files.
pub(crate) struct Words(*const u64);

impl Words {
    fn at(&self, at: u64) -> &AtomicU64 {
        assert!(at < NOTES_BYTES && at.is_multiple_of(8), "a note at {at}");
        // SAFETY: L3 and L6, the word is inside, and all of the file is words that are stored
        // whole.
        unsafe { &*self.0.byte_add(usize::try_from(at).unwrap_or(0)).cast() }
    }

    /// What stands at `at`.
    pub(crate) fn load(&self, at: u64) -> u64 {
        self.at(at).load(Ordering::SeqCst)
    }

    /// Sets `bits` at `at`.
    pub(crate) fn set(&self, at: u64, bits: u64) {
        // Most are set already, and the line is not taken from others for nothing.
        if self.load(at) & bits != bits {
            self.at(at).fetch_or(bits, Ordering::SeqCst);
        }
    }

    /// Adds `more` to the number in the lower bits at `at`, if the upper ones are those of `upper`;
    /// whether they are.
    pub(crate) fn add_beside(&self, at: u64, upper: u64, more: u64) -> bool {
        let added = |word: u64| (word & UPPER == upper).then_some(upper | word.wrapping_add(more) & !UPPER);
        self.at(at).fetch_update(Ordering::SeqCst, Ordering::SeqCst, added).is_ok()
    }
}

/// Whether this process may note writes of common files.
pub(crate) fn has_notes() -> bool {
    if NOTES.load(Ordering::Acquire).is_null()
        && let Some(mapped) = PLACES.get().and_then(|places| map_words(&places.notes, 0, NOTES_BYTES))
    {
        // As in `young`.
        NOTES.store(mapped, Ordering::Release);
    }
    !NOTES.load(Ordering::Acquire).is_null()
}

/// Gives `act` the words of the notes, if this process has them.
pub(crate) fn notes(act: impl FnOnce(Words)) {
    let notes = NOTES.load(Ordering::Acquire);
    if !notes.is_null() {
        let _open = ProtectionKey::of_process().map(ProtectionKey::open);
        act(Words(notes));
    }
}

/// Maps words that programs may write.
fn map_words(path: &CStr, at: u64, bytes: u64) -> Option<*mut u64> {
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (bytes, access) = (usize::try_from(bytes).ok()?, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let mapped = unsafe { rustix::mm::mmap(null_mut(), bytes, access, MapFlags::SHARED, file.as_fd(), at) };
    line::close(file.into_raw_fd());
    let mapped = mapped.ok()?;
    // If the system refuses, it is open, as where there are no keys.
    // SAFETY: L6; it was mapped just now, and nobody else knows it.
    ProtectionKey::of_process().into_iter().for_each(|key| _ = unsafe { key.close(mapped, bytes) });
    Some(mapped.cast())
}

/// Reads the environment and maps the table; without either nothing is followed.
pub(crate) fn start() {
    let Some(folder) = variable(wire::FOLDER_VARIABLE) else { return };
    let [Some(roots), Some(holds), Some(session)] =
        [wire::ROOTS_VARIABLE, wire::HOLDS_VARIABLE, wire::SESSION_VARIABLE].map(variable)
    else {
        return;
    };
    let inside = |name: &str| CString::new([folder.as_bytes(), b"/", name.as_bytes()].concat());
    let [Ok(socket), Ok(table), Ok(notes)] = [wire::SOCKET, wire::TABLE, wire::NOTES].map(inside) else { return };
    let Some((mapped, mark)) = map_table(&table).zip(wiped_page::mapped(SAME)) else { return };
    let roots = roots.as_bytes().split(|byte| *byte == b':').map(Box::from).collect();
    let pool = variable(wire::POOL_VARIABLE).and_then(|pool| pool_in(&pool));
    let session_number = wire::session_number(session.as_bytes());
    if PLACES.set(Places { socket, table, notes, holds, session, session_number, pool, roots }).is_ok() {
        PID.store(pid(), Ordering::Relaxed);
        TABLE.store(mapped, Ordering::Release);
        MARK.store(mark.as_ptr(), Ordering::Release);
        // SAFETY: it has no conditions, and the function does nothing that a child may not do that
        // has one thread of many.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// A child of libc's `fork` begins: before it locks any file, it has closed what would drop its
/// locks later.
extern "C" fn forked() {
    let mark = MARK.load(Ordering::Acquire);
    if !mark.is_null() {
        // SAFETY: L3; the page is only ever used as this atomic.
        crate::guarded(|| start_as_forked(unsafe { AtomicU32::from_ptr(mark) }, Copies::Closed));
    }
}

fn pool_in(text: &CStr) -> Option<(CString, FileId)> {
    let mut fields = text.to_bytes().splitn(3, |byte| *byte == b':');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let file = FileId { device: number()?, inode: number()? };
    Some((CString::new(fields.next()?).ok()?, file))
}

fn variable(name: &str) -> Option<CString> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with a zero byte.
    let value: *mut c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: not null, so it is a text of the environment; it is copied before anybody could
    // change it.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_owned())
}

fn map_table(path: &CStr) -> Option<*mut u64> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let bytes = usize::try_from(wire::TABLE_BYTES).ok()?;
    let long_enough = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_size.unsigned_abs() >= wire::TABLE_BYTES);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let mapped = unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0) };
    line::close(file.into_raw_fd());
    mapped.ok().filter(|_| long_enough).map(<*mut _>::cast)
}
