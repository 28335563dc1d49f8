//! The only instructions that touch mapped memory on x86-64: leaf routines in one range of text.
//!
//! Each takes its arguments and answers in registers, uses no stack, and changes only registers
//! that a caller does not keep. So each can be abandoned at any of its instructions: a fault sends
//! it to a landing pad, which returns 1 in `rax`; `rdx` then holds the address that faulted. Those
//! that leave the upper halves of vector registers dirty stand together behind `wide`, and have a
//! landing pad that cleans them. (The AVX-512 routines use only registers 16 to 19, which need no
//! cleaning.)
//!
//! `copy_words` goes by naturally aligned pieces of 1, 2, 4 and 8 bytes of the region's side (its
//! fourth argument), so an aligned 2-, 4- or 8-byte piece is never torn. The routines over lines
//! need the region's side to begin at a line; their lengths are in bytes, a multiple of 64, and not
//! 0. Those over a page copy 4096 bytes, from a line of the region on. `stream_words` needs aligned
//! words.

use super::{FlushRoutine, LeafResult, LinesRoutine, PageRoutine};
use std::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc, CpuidResult};
use std::arch::{asm, global_asm, is_x86_feature_detected};

/// The beginning of a routine, at a multiple of 2^`$align`.
macro_rules! begin {
    ($name:literal, $align:literal) => {
        concat!(
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.type ",
            $name,
            ", @function\n.p2align ",
            $align,
            "\n",
            $name,
            ":\n.cfi_startproc\n"
        )
    };
}

/// The end of one that has done all.
macro_rules! end {
    ($name:literal) => {
        concat!("xor eax, eax\nret\n.cfi_endproc\n.size ", $name, ", . - ", $name, "\n")
    };
}

/// One routine over lines: 256 bytes a turn, then 64; `$reg` and `$first` begin the names of its
/// registers.
macro_rules! lines_routine {
    ($name:literal, $load:literal, $store:literal, $reg:literal, $first:literal, $bytes:literal, $leave:literal) => {
        concat!(
            begin!($name, "6"),
            "mov rcx, rdx\nand rcx, -256\nje 3f\n",
            "add rsi, rcx\nadd rdi, rcx\nneg rcx\n",
            ".p2align 5\n2:\n",
            ".set tidegate_step, 0\n.rept 256 / (4 * ",
            $bytes,
            ")\n",
            $load,
            " ",
            $reg,
            $first,
            "6, [rsi + rcx + tidegate_step]\n",
            $load,
            " ",
            $reg,
            $first,
            "7, [rsi + rcx + tidegate_step + ",
            $bytes,
            "]\n",
            $load,
            " ",
            $reg,
            $first,
            "8, [rsi + rcx + tidegate_step + 2 * ",
            $bytes,
            "]\n",
            $load,
            " ",
            $reg,
            $first,
            "9, [rsi + rcx + tidegate_step + 3 * ",
            $bytes,
            "]\n",
            $store,
            " [rdi + rcx + tidegate_step], ",
            $reg,
            $first,
            "6\n",
            $store,
            " [rdi + rcx + tidegate_step + ",
            $bytes,
            "], ",
            $reg,
            $first,
            "7\n",
            $store,
            " [rdi + rcx + tidegate_step + 2 * ",
            $bytes,
            "], ",
            $reg,
            $first,
            "8\n",
            $store,
            " [rdi + rcx + tidegate_step + 3 * ",
            $bytes,
            "], ",
            $reg,
            $first,
            "9\n",
            ".set tidegate_step, tidegate_step + 4 * ",
            $bytes,
            "\n.endr\n",
            "add rcx, 256\njne 2b\n",
            "3:\nand edx, 192\nje 5f\n",
            "add rsi, rdx\nadd rdi, rdx\nneg rdx\n",
            "4:\n.set tidegate_step, 0\n.rept 64 / ",
            $bytes,
            "\n",
            $load,
            " ",
            $reg,
            $first,
            "6, [rsi + rdx + tidegate_step]\n",
            $store,
            " [rdi + rdx + tidegate_step], ",
            $reg,
            $first,
            "6\n",
            ".set tidegate_step, tidegate_step + ",
            $bytes,
            "\n.endr\n",
            "add rdx, 64\njne 4b\n",
            "5:\n",
            $leave,
            end!($name)
        )
    };
}

/// One load from a quarter of a page, or one store to it.
macro_rules! quarter {
    ($load:literal, $reg:literal, $first:literal, $last:literal, $at:literal) => {
        concat!($load, " ", $reg, $first, $last, ", [rsi + tidegate_step + ", $at, "]\n")
    };
    ($store:literal, $reg:literal, $first:literal, $last:literal => $at:literal) => {
        concat!($store, " [rdi + tidegate_step + ", $at, "], ", $reg, $first, $last, "\n")
    };
}

/// One routine over a page of 4096 bytes: its first lines are asked for, then all four quarters are
/// copied at once, so that the processor's own prefetching has four streams to follow
/// (`docs/decisions/0017`).
macro_rules! page_routine {
    ($name:literal, $load:literal, $store:literal, $reg:literal, $first:literal, $bytes:literal, $leave:literal) => {
        concat!(
            begin!($name, "6"),
            ".set tidegate_step, 0\n.rept 24\nprefetcht0 [rsi + tidegate_step]\n",
            ".set tidegate_step, tidegate_step + 64\n.endr\n",
            ".set tidegate_step, 0\n.rept 1024 / ",
            $bytes,
            "\n",
            quarter!($load, $reg, $first, "6", "0"),
            quarter!($load, $reg, $first, "7", "1024"),
            quarter!($load, $reg, $first, "8", "2048"),
            quarter!($load, $reg, $first, "9", "3072"),
            quarter!($store, $reg, $first, "6" => "0"),
            quarter!($store, $reg, $first, "7" => "1024"),
            quarter!($store, $reg, $first, "8" => "2048"),
            quarter!($store, $reg, $first, "9" => "3072"),
            ".set tidegate_step, tidegate_step + ",
            $bytes,
            "\n.endr\n",
            $leave,
            end!($name)
        )
    };
}

/// One routine that begins the write-back of `rsi` lines from `rdi` on.
macro_rules! flush_routine {
    ($name:literal, $flush:literal) => {
        concat!(begin!($name, "5"), "2:\n", $flush, " [rdi]\nadd rdi, 64\ndec rsi\njne 2b\n", end!($name))
    };
}

/// One naturally aligned piece of `copy_words`: through `$reg`, `$size` bytes, and the cursors
/// moved on.
macro_rules! piece {
    ($load:literal, $reg:literal, $size:literal) => {
        concat!($load, " [rsi]\nmov [rdi], ", $reg, "\nadd rsi, ", $size, "\nadd rdi, ", $size, "\n")
    };
}

global_asm!(
    ".pushsection .text.tidegate_leaf, \"ax\", @progbits",
    ".p2align 6",
    ".globl tidegate_leaf_begin",
    ".hidden tidegate_leaf_begin",
    "tidegate_leaf_begin:",
    // copy_words(rdi: to, rsi: from, rdx: bytes, rcx: the region's side)
    ".globl tidegate_copy_words",
    ".hidden tidegate_copy_words",
    ".type tidegate_copy_words, @function",
    "tidegate_copy_words:",
    ".cfi_startproc",
    "test rdx, rdx",
    "je 9f",
    "test cl, 1",
    "je 2f",
    piece!("movzx eax, byte ptr", "al", "1"),
    "inc rcx",
    "dec rdx",
    "2: test cl, 2",
    "je 3f",
    "cmp rdx, 2",
    "jb 6f",
    piece!("movzx eax, word ptr", "ax", "2"),
    "add rcx, 2",
    "sub rdx, 2",
    "3: test cl, 4",
    "je 4f",
    "cmp rdx, 4",
    "jb 6f",
    piece!("mov eax,", "eax", "4"),
    "sub rdx, 4",
    "4: cmp rdx, 8",
    "jb 6f",
    "5:",
    piece!("mov rax,", "rax", "8"),
    "sub rdx, 8",
    "cmp rdx, 8",
    "jae 5b",
    "6: test dl, 4",
    "je 7f",
    piece!("mov eax,", "eax", "4"),
    "7: test dl, 2",
    "je 8f",
    piece!("movzx eax, word ptr", "ax", "2"),
    "8: test dl, 1",
    "je 9f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "9: xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size tidegate_copy_words, . - tidegate_copy_words",
    // load_word(rdi: at) -> rdx
    ".globl tidegate_load_word",
    ".hidden tidegate_load_word",
    ".type tidegate_load_word, @function",
    ".p2align 4",
    "tidegate_load_word:",
    ".cfi_startproc",
    "mov rdx, [rdi]",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size tidegate_load_word, . - tidegate_load_word",
    // store_word(rdi: at, rsi: word)
    ".globl tidegate_store_word",
    ".hidden tidegate_store_word",
    ".type tidegate_store_word, @function",
    ".p2align 4",
    "tidegate_store_word:",
    ".cfi_startproc",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size tidegate_store_word, . - tidegate_store_word",
    // exchange_word(rdi: at, rsi: old, rdx: new) -> rdx
    ".globl tidegate_exchange_word",
    ".hidden tidegate_exchange_word",
    ".type tidegate_exchange_word, @function",
    ".p2align 4",
    "tidegate_exchange_word:",
    ".cfi_startproc",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov rdx, rax",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size tidegate_exchange_word, . - tidegate_exchange_word",
    // stream_words(rdi: to, rsi: from, rdx: bytes)
    ".globl tidegate_stream_words",
    ".hidden tidegate_stream_words",
    ".type tidegate_stream_words, @function",
    ".p2align 4",
    "tidegate_stream_words:",
    ".cfi_startproc",
    "2:",
    "mov rax, [rsi]",
    "movnti [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jne 2b",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size tidegate_stream_words, . - tidegate_stream_words",
    // flush_*(rdi: first line, rsi: lines)
    flush_routine!("tidegate_flush_clwb", "clwb"),
    flush_routine!("tidegate_flush_clflushopt", "clflushopt"),
    flush_routine!("tidegate_flush_clflush", "clflush"),
    // *_lines_*(rdi: to, rsi: from, rdx: bytes)
    lines_routine!("tidegate_copy_lines_sse2", "movups", "movups", "xmm", "", "16", ""),
    lines_routine!("tidegate_stream_lines_sse2", "movups", "movntps", "xmm", "", "16", ""),
    lines_routine!("tidegate_copy_lines_avx512", "vmovdqu64", "vmovdqu64", "zmm", "1", "64", ""),
    lines_routine!("tidegate_stream_lines_avx512", "vmovdqu64", "vmovntdq", "zmm", "1", "64", ""),
    // copy_page_*(rdi: to, rsi: from)
    page_routine!("tidegate_copy_page_sse2", "movups", "movups", "xmm", "", "16", ""),
    page_routine!("tidegate_copy_page_avx512", "vmovdqu64", "vmovdqu64", "zmm", "1", "64", ""),
    ".globl tidegate_leaf_wide",
    ".hidden tidegate_leaf_wide",
    "tidegate_leaf_wide:",
    lines_routine!("tidegate_copy_lines_avx2", "vmovdqu", "vmovdqu", "ymm", "", "32", "vzeroupper\n"),
    lines_routine!("tidegate_stream_lines_avx2", "vmovdqu", "vmovntdq", "ymm", "", "32", "vzeroupper\n"),
    page_routine!("tidegate_copy_page_avx2", "vmovdqu", "vmovdqu", "ymm", "", "32", "vzeroupper\n"),
    ".globl tidegate_leaf_end",
    ".hidden tidegate_leaf_end",
    "tidegate_leaf_end:",
    // Where abandoned routines go on.
    ".globl tidegate_leaf_abandoned_wide",
    ".hidden tidegate_leaf_abandoned_wide",
    "tidegate_leaf_abandoned_wide:",
    "vzeroupper",
    ".globl tidegate_leaf_abandoned",
    ".hidden tidegate_leaf_abandoned",
    "tidegate_leaf_abandoned:",
    "mov eax, 1",
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
    fn tidegate_stream_words(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_flush_clwb(first: *const u8, lines: usize) -> LeafResult;
    fn tidegate_flush_clflushopt(first: *const u8, lines: usize) -> LeafResult;
    fn tidegate_flush_clflush(first: *const u8, lines: usize) -> LeafResult;
    fn tidegate_copy_lines_sse2(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_copy_lines_avx2(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_copy_lines_avx512(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_copy_page_sse2(to: *mut u8, from: *const u8) -> LeafResult;
    fn tidegate_copy_page_avx2(to: *mut u8, from: *const u8) -> LeafResult;
    fn tidegate_copy_page_avx512(to: *mut u8, from: *const u8) -> LeafResult;
    fn tidegate_stream_lines_sse2(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_stream_lines_avx2(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;
    fn tidegate_stream_lines_avx512(to: *mut u8, from: *const u8, bytes: usize) -> LeafResult;

    static tidegate_leaf_begin: u8;
    static tidegate_leaf_wide: u8;
    static tidegate_leaf_end: u8;
    static tidegate_leaf_abandoned: u8;
    static tidegate_leaf_abandoned_wide: u8;
}

/// Streams aligned words: any number of bytes that is a multiple of 8, and not 0.
pub(super) const STREAM_WORDS: Option<LinesRoutine> = Some(tidegate_stream_words);

/// The registers that carry bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bulk {
    Avx512,
    Avx2,
    Sse2,
}

impl Bulk {
    /// What this processor has, best first.
    pub(super) fn supported() -> impl Iterator<Item = Bulk> {
        let (avx512, avx2) = (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("avx2"));
        let all = [(Bulk::Avx512, avx512), (Bulk::Avx2, avx2), (Bulk::Sse2, true)];
        all.into_iter().filter(|(_, here)| *here).map(|(bulk, _)| bulk)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Bulk::Avx512 => "avx512 non-temporal",
            Bulk::Avx2 => "avx2 non-temporal",
            Bulk::Sse2 => "sse2 non-temporal",
        }
    }

    pub(super) fn copy_lines(self) -> LinesRoutine {
        match self {
            Bulk::Avx512 => tidegate_copy_lines_avx512,
            Bulk::Avx2 => tidegate_copy_lines_avx2,
            Bulk::Sse2 => tidegate_copy_lines_sse2,
        }
    }

    pub(super) fn copy_page(self) -> PageRoutine {
        match self {
            Bulk::Avx512 => tidegate_copy_page_avx512,
            Bulk::Avx2 => tidegate_copy_page_avx2,
            Bulk::Sse2 => tidegate_copy_page_sse2,
        }
    }

    pub(super) fn stream_lines(self) -> LinesRoutine {
        match self {
            Bulk::Avx512 => tidegate_stream_lines_avx512,
            Bulk::Avx2 => tidegate_stream_lines_avx2,
            Bulk::Sse2 => tidegate_stream_lines_sse2,
        }
    }
}

/// The instruction that begins the write-back of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushInstruction {
    Clwb,
    Clflushopt,
    Clflush,
}

impl FlushInstruction {
    /// What this processor has, best first.
    pub(super) fn supported() -> impl Iterator<Item = FlushInstruction> {
        // Register ebx: bit 24 is clwb, bit 23 clflushopt. clflush comes with SSE2.
        let features = leaf_seven().map_or(0, |features| features.ebx);
        let has = |bit: u32| features >> bit & 1 == 1;
        let all = [
            (FlushInstruction::Clwb, has(24)),
            (FlushInstruction::Clflushopt, has(23)),
            (FlushInstruction::Clflush, true),
        ];
        all.into_iter().filter(|(_, here)| *here).map(|(flush, _)| flush)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::Clflushopt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
        }
    }

    pub(super) fn routine(self) -> FlushRoutine {
        match self {
            FlushInstruction::Clwb => tidegate_flush_clwb,
            FlushInstruction::Clflushopt => tidegate_flush_clflushopt,
            FlushInstruction::Clflush => tidegate_flush_clflush,
        }
    }
}

/// What the processor says of itself in leaf 7. One without it answers zeroes or its highest leaf,
/// so that the highest leaf is asked for first.
fn leaf_seven() -> Option<CpuidResult> {
    (__cpuid(0).eax >= 7).then(|| __cpuid_count(7, 0))
}

/// Whether the processor has protection keys and the system has switched them on.
pub(super) fn has_protection_keys() -> bool {
    // Register ecx: bit 4 is what the system has done.
    leaf_seven().is_some_and(|features| features.ecx >> 4 & 1 == 1)
}

/// Waits until what this thread flushed or streamed has reached the persistence domain.
pub(super) fn fence() {
    // SAFETY: sfence touches no memory and no register; as inline assembly it also keeps the
    // compiler from moving stores over it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Begins to bring the line at `address` here, to be stored to.
pub(super) fn prefetch_for_store(address: *const u8) {
    // SAFETY: a hint: it faults at no address and changes neither memory nor registers. Processors
    // without prefetchw do nothing.
    unsafe { asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}

/// The processor's time stamp: ticks at a constant rate since it started.
pub(super) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor that Linux runs on has rdtsc, and it touches no memory.
    unsafe { _rdtsc() }
}

/// If the interrupted thread stands in a leaf routine, makes it go on at the landing pad; else
/// answers false.
///
/// # Safety
/// `context` is what the kernel handed to a signal handler that is still running.
pub(super) unsafe fn abandon(context: *mut libc::ucontext_t, fault: usize) -> bool {
    let (begin, wide, end) =
        (&raw const tidegate_leaf_begin, &raw const tidegate_leaf_wide, &raw const tidegate_leaf_end);
    // SAFETY: the caller's promise; nobody else uses the saved registers while the handler runs.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize].cast_unsigned();
    if at < begin.addr() as u64 || at >= end.addr() as u64 {
        return false;
    }
    let pad = if at < wide.addr() as u64 {
        &raw const tidegate_leaf_abandoned
    } else {
        &raw const tidegate_leaf_abandoned_wide
    };
    registers[libc::REG_RIP as usize] = pad.addr().cast_signed() as i64;
    registers[libc::REG_RDX as usize] = fault.cast_signed() as i64;
    true
}
