//! Where the code of this process is.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::slice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidegate_preload_common::lock::Lock;

/// Segments with code that are known; further ones count as none.
const SEGMENTS_MAX: usize = 512;

/// Which addresses have code, but for this crate's own module. It is read without a lock: what was
/// found while it changed is not remembered.
pub(crate) struct Modules {
    changing: Lock,
    /// How often the loader had added and removed modules when they were looked at.
    seen: AtomicU64,
    generation: AtomicU64,
    count: AtomicUsize,
    segments: [Segment; SEGMENTS_MAX],
    own: Segment,
    /// The two ranges that all code is in: an executable and libraries are far apart.
    spans: [Segment; 2],
}

/// A range of addresses with code.
struct Segment {
    from: AtomicUsize,
    bytes: AtomicUsize,
    /// What an address is moved by, so that it is the same in every run.
    moved_by: AtomicU64,
}

/// A range of addresses with code, read.
#[derive(Clone, Copy, Debug, Default)]
struct Code {
    from: usize,
    bytes: usize,
    moved_by: u64,
}

impl Code {
    fn has(self, address: usize) -> bool {
        address.wrapping_sub(self.from) < self.bytes
    }
}

impl Segment {
    const fn new() -> Segment {
        Segment { from: AtomicUsize::new(0), bytes: AtomicUsize::new(0), moved_by: AtomicU64::new(0) }
    }

    fn read(&self) -> Code {
        Code {
            from: self.from.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            moved_by: self.moved_by.load(Ordering::Relaxed),
        }
    }

    fn store(&self, code: Code) {
        self.from.store(code.from, Ordering::Relaxed);
        self.bytes.store(code.bytes, Ordering::Relaxed);
        self.moved_by.store(code.moved_by, Ordering::Relaxed);
    }
}

/// Says of many words whether they point into code.
#[derive(Clone, Copy)]
pub(crate) struct CodeRanges<'a> {
    modules: &'a Modules,
    spans: [Code; 2],
}

impl CodeRanges<'_> {
    #[inline]
    pub(crate) fn has(self, word: usize) -> bool {
        // Most words are data, far from any code.
        self.spans.iter().any(|span| span.has(word)) && self.modules.segment_of(word).is_some()
    }
}

impl Modules {
    pub(crate) const fn new() -> Modules {
        Modules {
            changing: Lock::new(),
            seen: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            segments: [const { Segment::new() }; SEGMENTS_MAX],
            own: Segment::new(),
            spans: [const { Segment::new() }; 2],
        }
    }

    /// Looks again if the loader has loaded or unloaded anything since the last look. Says whether
    /// it did.
    pub(crate) fn refresh(&self) -> bool {
        let mut changes = 0_u64;
        // SAFETY: S3; `changes_of` is called with the loader's facts and this number.
        unsafe { libc::dl_iterate_phdr(Some(changes_of), (&raw mut changes).cast()) };
        // One more, so that it differs from nothing seen.
        let changes = changes.wrapping_add(1);
        if self.seen.load(Ordering::Acquire) == changes || !self.changing.take() {
            return false;
        }
        // Another thread may have looked while this one waited.
        let is_new = self.seen.load(Ordering::Acquire) != changes;
        if is_new {
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.look();
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.seen.store(changes, Ordering::Release);
        }
        self.changing.give();
        is_new
    }

    fn look(&self) {
        self.count.store(0, Ordering::Relaxed);
        let mut found = Collected { modules: self, count: 0 };
        // SAFETY: S3; `collect` is called with the loader's facts and this collection.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut found).cast()) };
        let count = found.count;
        self.sort(count);
        self.count.store(count, Ordering::Relaxed);
        self.span(count);
    }

    /// By address, in place: there is no room for a copy on a small stack.
    fn sort(&self, count: usize) {
        for end in 1..count {
            let code = self.segments[end].read();
            let mut at = end;
            while at > 0 && self.segments[at - 1].read().from > code.from {
                self.segments[at].store(self.segments[at - 1].read());
                at -= 1;
            }
            self.segments[at].store(code);
        }
    }

    /// Finds the widest gap between segments, which parts the two spans.
    fn span(&self, count: usize) {
        let end_of = |code: Code| code.from + code.bytes;
        let gap = |at: usize| self.segments[at].read().from.saturating_sub(end_of(self.segments[at - 1].read()));
        let second = (1..count).max_by_key(|at| gap(*at)).unwrap_or(count);
        for (span, range) in self.spans.iter().zip([0..second, second..count]) {
            let code = if range.is_empty() {
                Code::default()
            } else {
                let from = self.segments[range.start].read().from;
                Code { from, bytes: end_of(self.segments[range.end - 1].read()).saturating_sub(from), moved_by: 0 }
            };
            span.store(code);
        }
    }

    pub(crate) fn code(&self) -> CodeRanges<'_> {
        CodeRanges { modules: self, spans: self.spans.each_ref().map(Segment::read) }
    }

    /// Whether an address is in this crate's own module.
    pub(crate) fn is_ours(&self, address: usize) -> bool {
        self.own.read().has(address)
    }

    /// An address of code as it is in every run: from the beginning of its module, plus a number of
    /// the module. `None`: no module has it.
    pub(crate) fn in_every_run(&self, address: usize) -> Option<u64> {
        self.segment_of(address).map(|code| (address as u64).wrapping_add(code.moved_by))
    }

    /// How often it was begun and ended to look; odd: now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// In a child that was forked: whoever looked is not there, and has not ended.
    pub(crate) fn forget(&self) {
        self.changing.reset();
        self.seen.store(0, Ordering::Relaxed);
        self.generation.fetch_add(self.generation.load(Ordering::Relaxed) & 1, Ordering::Relaxed);
    }

    fn segment_of(&self, address: usize) -> Option<Code> {
        let segments = self.segments.get(..self.count.load(Ordering::Relaxed))?;
        let after = segments.partition_point(|segment| segment.from.load(Ordering::Relaxed) <= address);
        let code = segments.get(after.checked_sub(1)?)?.read();
        code.has(address).then_some(code)
    }
}

struct Collected<'a> {
    modules: &'a Modules,
    count: usize,
}

unsafe extern "C" fn changes_of(info: *mut dl_phdr_info, _: size_t, changes: *mut c_void) -> c_int {
    // SAFETY: S3.
    let (info, changes) = unsafe { (&*info, &mut *changes.cast::<u64>()) };
    *changes = info.dlpi_adds.wrapping_add(info.dlpi_subs);
    // The first module has the numbers already.
    1
}

unsafe extern "C" fn collect(info: *mut dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
    // SAFETY: S3.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Collected<'_>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says that so many are there.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    // Which module it is, told by the shape of what is loaded.
    let shape = loaded().fold(0_u64, |shape, header| {
        let words = [header.p_vaddr, header.p_memsz, header.p_filesz, header.p_offset];
        words.iter().fold(shape, |shape, word| (shape.rotate_left(9) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    });
    let moved_by = shape.wrapping_sub(info.dlpi_addr);
    for header in loaded().filter(|header| header.p_flags & libc::PF_X != 0) {
        let from = usize::try_from(info.dlpi_addr.wrapping_add(header.p_vaddr)).unwrap_or(0);
        let code = Code { from, bytes: usize::try_from(header.p_memsz).unwrap_or(0), moved_by };
        if code.has(collect as *const () as usize) {
            found.modules.own.store(code);
        } else if let Some(segment) = found.modules.segments.get(found.count) {
            segment.store(code);
            found.count += 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_libc() -> usize {
        let function: unsafe extern "C" fn() -> libc::pid_t = libc::getpid;
        function as usize
    }

    #[test]
    fn code_is_known_but_for_our_own_and_data_is_none() {
        let modules = Modules::new();
        assert!(!modules.code().has(of_libc()), "nobody has looked yet");
        assert!(modules.refresh() && !modules.refresh(), "the second look finds nothing new");
        let local = 0;
        let (ours, data) = (of_libc as *const () as usize, (&raw const local).addr());
        assert!(modules.code().has(of_libc()) && !modules.code().has(ours) && !modules.code().has(data));
        assert!(modules.is_ours(ours) && !modules.is_ours(of_libc()));
        assert_ne!(modules.in_every_run(of_libc()), modules.in_every_run(of_libc() + 1));
        assert_eq!(modules.in_every_run(data), None);
    }

    #[test]
    fn a_library_that_is_loaded_later_is_found_at_the_next_look() {
        let modules = Modules::new();
        modules.refresh();
        // SAFETY: its constructors are the C library's own.
        let library = unsafe { libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "glibc brings it");
        assert!(modules.refresh() && !modules.refresh());
        // SAFETY: nobody uses it.
        unsafe { libc::dlclose(library) };
    }
}
