//! The only instructions that touch mapped memory on aarch64: leaf routines in one range of text.
//!
//! The same law as on x86-64: arguments and answers in registers, no stack, only registers that a
//! caller does not keep. There is no store that bypasses the caches for certain, so to stream is to
//! copy each line and begin its write-back. `dc cvap` is written as the `sys` instruction it is,
//! for assemblers that do not know its name.

use super::{FlushRoutine, LeafResult, LinesRoutine, PAGE, PageRoutine};
use std::arch::{asm, global_asm, is_aarch64_feature_detected};

/// One routine that copies x2 bytes from x1 to x0, 64 at a time, and ends each line with `$flush`.
macro_rules! lines_routine {
    ($name:literal, $flush:literal) => {
        concat!(
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.p2align 4\n",
            $name,
            ":\n",
            "2: ldp q16, q17, [x1]\nldp q18, q19, [x1, #32]\n",
            "stp q16, q17, [x0]\nstp q18, q19, [x0, #32]\n",
            $flush,
            "\nadd x0, x0, #64\nadd x1, x1, #64\nsubs x2, x2, #64\nb.ne 2b\n",
            "mov x0, #0\nret\n"
        )
    };
}

/// One routine that begins the write-back of x1 lines from x0 on.
macro_rules! flush_routine {
    ($name:literal, $flush:literal) => {
        concat!(
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.p2align 4\n",
            $name,
            ":\n",
            "2: ",
            $flush,
            "\nadd x0, x0, #64\nsubs x1, x1, #1\nb.ne 2b\n",
            "mov x0, #0\nret\n"
        )
    };
}

global_asm!(
    ".pushsection .text.tidegate_leaf, \"ax\", @progbits",
    ".p2align 4",
    ".globl tidegate_leaf_begin",
    ".hidden tidegate_leaf_begin",
    "tidegate_leaf_begin:",
    // copy_words(x0: to, x1: from, x2: bytes, x3: the region's side)
    ".globl tidegate_copy_words",
    ".hidden tidegate_copy_words",
    "tidegate_copy_words:",
    "cbz x2, 9f",
    "tbz x3, #0, 2f",
    "ldrb w4, [x1], #1",
    "strb w4, [x0], #1",
    "add x3, x3, #1",
    "sub x2, x2, #1",
    "2: tbz x3, #1, 3f",
    "cmp x2, #2",
    "b.lo 6f",
    "ldrh w4, [x1], #2",
    "strh w4, [x0], #2",
    "add x3, x3, #2",
    "sub x2, x2, #2",
    "3: tbz x3, #2, 4f",
    "cmp x2, #4",
    "b.lo 6f",
    "ldr w4, [x1], #4",
    "str w4, [x0], #4",
    "sub x2, x2, #4",
    "4: cmp x2, #8",
    "b.lo 6f",
    "5: ldr x4, [x1], #8",
    "str x4, [x0], #8",
    "sub x2, x2, #8",
    "cmp x2, #8",
    "b.hs 5b",
    "6: tbz x2, #2, 7f",
    "ldr w4, [x1], #4",
    "str w4, [x0], #4",
    "7: tbz x2, #1, 8f",
    "ldrh w4, [x1], #2",
    "strh w4, [x0], #2",
    "8: tbz x2, #0, 9f",
    "ldrb w4, [x1]",
    "strb w4, [x0]",
    "9: mov x0, #0",
    "ret",
    // load_word(x0: at) -> x1. The load is an acquire, and the store below a release, as the region
    // promises.
    ".globl tidegate_load_word",
    ".hidden tidegate_load_word",
    "tidegate_load_word:",
    "ldar x1, [x0]",
    "mov x0, #0",
    "ret",
    ".globl tidegate_store_word",
    ".hidden tidegate_store_word",
    "tidegate_store_word:",
    "stlr x1, [x0]",
    "mov x0, #0",
    "ret",
    // exchange_word(x0: at, x1: old, x2: new) -> x1
    ".globl tidegate_exchange_word",
    ".hidden tidegate_exchange_word",
    "tidegate_exchange_word:",
    "2: ldaxr x3, [x0]",
    "cmp x3, x1",
    "b.ne 3f",
    "stlxr w4, x2, [x0]",
    "cbnz w4, 2b",
    "3: dmb ish",
    "mov x1, x3",
    "mov x0, #0",
    "ret",
    flush_routine!("tidegate_flush_cvap", "sys #3, c7, c12, #1, x0"),
    flush_routine!("tidegate_flush_cvac", "dc cvac, x0"),
    lines_routine!("tidegate_copy_lines", ""),
    lines_routine!("tidegate_stream_lines_cvap", "sys #3, c7, c12, #1, x0"),
    lines_routine!("tidegate_stream_lines_cvac", "dc cvac, x0"),
    ".globl tidegate_leaf_end",
    ".hidden tidegate_leaf_end",
    "tidegate_leaf_end:",
    // Where abandoned routines go on.
    ".globl tidegate_leaf_abandoned",
    ".hidden tidegate_leaf_abandoned",
    "tidegate_leaf_abandoned:",
    "mov x0, #1",
    "ret",
    ".popsection",
);

// SAFETY: the definitions above have these signatures.
unsafe extern "C" {
    #[link_name = "tidegate_copy_words"]
    pub(super) fn copy_words(to: *mut u8, from: *const u8, bytes: usize, side: *const u8) -> LeafResult;
    #[link_name = "tidegate_load_word"]
    pub(super) fn load_word(at: *const u8) -> LeafResult;
    #[link_name = "tidegate_store_word"]
    pub(super) fn store_word(at: *mut u8, word: u64) -> LeafResult;
    #[link_name = "tidegate_exchange_word"]
    pub(super) fn exchange_word(at: *mut u8, old: u64, new: u64) -> LeafResult;
    fn tidegate_flush_cvap(first: *const u8, lines: usize) -> LeafResult;
    fn tidegate_flush_cvac(first: *const u8, lines: usize) -> LeafResult;
    fn tidegate_copy_lines(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_stream_lines_cvap(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_stream_lines_cvac(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;

    static tidegate_leaf_begin: u8;
    static tidegate_leaf_end: u8;
    static tidegate_leaf_abandoned: u8;
}

/// Nothing streams less than a line here.
pub(super) const STREAM_WORDS: Option<LinesRoutine> = None;

/// How bulk data is copied and its write-back begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bulk {
    Cvap,
    Cvac,
}

impl Bulk {
    /// What this processor has, best first.
    pub(super) fn supported() -> impl Iterator<Item = Bulk> {
        is_aarch64_feature_detected!("dpb").then_some(Bulk::Cvap).into_iter().chain([Bulk::Cvac])
    }

    pub(super) fn name(self) -> &'static str {
        "neon"
    }

    pub(super) fn copy_lines(self) -> LinesRoutine {
        tidegate_copy_lines
    }

    pub(super) fn copy_page(self) -> PageRoutine {
        copy_page
    }

    pub(super) fn stream_lines(self) -> LinesRoutine {
        match self {
            Bulk::Cvap => tidegate_stream_lines_cvap,
            Bulk::Cvac => tidegate_stream_lines_cvac,
        }
    }
}

/// Copies a page from `from` to `to`, line by line: whether quarters at once are quicker here too,
/// nobody has measured.
///
/// # Safety
/// As for every routine over lines.
unsafe extern "C" fn copy_page(to: *mut u8, from: *const u8) -> LeafResult {
    // SAFETY: the caller's promise.
    unsafe { tidegate_copy_lines(to, from, PAGE) }
}

/// The instruction that begins the write-back of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushInstruction {
    Cvap,
    Cvac,
}

impl FlushInstruction {
    /// What this processor has, best first.
    pub(super) fn supported() -> impl Iterator<Item = FlushInstruction> {
        is_aarch64_feature_detected!("dpb")
            .then_some(FlushInstruction::Cvap)
            .into_iter()
            .chain([FlushInstruction::Cvac])
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            FlushInstruction::Cvap => "dc cvap",
            FlushInstruction::Cvac => "dc cvac",
        }
    }

    pub(super) fn routine(self) -> FlushRoutine {
        match self {
            FlushInstruction::Cvap => tidegate_flush_cvap,
            FlushInstruction::Cvac => tidegate_flush_cvac,
        }
    }
}

/// Waits until what this thread flushed or streamed has reached the persistence domain.
pub(super) fn fence() {
    // SAFETY: dsb changes no register; as inline assembly it also keeps the compiler from moving
    // stores over it.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

/// Begins to bring the line at `address` here, to be stored to.
pub(super) fn prefetch_for_store(address: *const u8) {
    // SAFETY: a hint: it faults at no address and changes neither memory nor registers.
    unsafe { asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}

/// The virtual counter: ticks at a constant rate since the machine started.
pub(super) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets user space read the virtual counter; isb keeps the read in its place.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) }
    ticks
}

/// If the interrupted thread stands in a leaf routine, makes it go on at the landing pad; else
/// answers false.
///
/// # Safety
/// `context` is what the kernel handed to a signal handler that is still running.
pub(super) unsafe fn abandon(context: *mut libc::ucontext_t, fault: usize) -> bool {
    let (begin, end) = (&raw const tidegate_leaf_begin, &raw const tidegate_leaf_end);
    // SAFETY: the caller's promise; nobody else uses the saved registers while the handler runs.
    let machine = unsafe { &mut (*context).uc_mcontext };
    let at = machine.pc as usize;
    if at < begin.addr() || at >= end.addr() {
        return false;
    }
    machine.pc = (&raw const tidegate_leaf_abandoned).addr() as u64;
    machine.regs[1] = fault as u64;
    true
}
