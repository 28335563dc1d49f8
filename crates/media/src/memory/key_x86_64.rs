//! A protection key of the processor: it closes memory to loads and stores of this process, but for
//! the threads that have opened it.
//!
//! Each thread has a register, PKRU, with two bits for each of the 16 keys: no access, no store.
//! The kernel begins every program, and every signal handler, with all keys but the first closed; a
//! thread begins with what the one that made it has, and a handler's end brings back what the
//! interrupted thread had. So memory with a key is open nowhere but between [`ProtectionKey::open`]
//! and the end of what that gives.

use super::leaf;
use std::arch::asm;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, Ordering};

/// A key of this process, for as long as it lives. Its children have it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionKey(i32);

/// The process's key, or [`UNASKED`], or [`NONE`].
static OWN: AtomicI32 = AtomicI32::new(UNASKED);
/// The key of all memory that has no other.
const UNASKED: i32 = 0;
const NONE: i32 = -1;

/// What a key is allocated with: no access by this thread, as by the others.
const PKEY_DISABLE_ACCESS: i32 = 1;
/// The bits of the first key in PKRU.
const CLOSED: u32 = 0b11;

impl ProtectionKey {
    /// The one key of this process, asked of the kernel at the first call. None: the processor or
    /// the system has no keys, or the program has taken all.
    pub fn of_process() -> Option<ProtectionKey> {
        // Relaxed: a number that stands for itself.
        let own = match OWN.load(Ordering::Relaxed) {
            UNASKED => publish(allocate()),
            own => own,
        };
        Some(ProtectionKey(own)).filter(|_| own != NONE)
    }

    /// Gives the key to `len` bytes at `base`, which can be loaded and stored to. False: the system
    /// refuses, and they are as open as they were.
    ///
    /// # Safety
    /// They are whole pages of one mapping that the caller made, and from now on they are touched
    /// only while the key is open.
    pub unsafe fn close(self, base: *mut c_void, len: usize) -> bool {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller's promise; no page loses what it has.
        unsafe { libc::syscall(libc::SYS_pkey_mprotect, base, len, access, self.0) == 0 }
    }

    /// Opens it for this thread until what is returned is dropped. That may happen within another
    /// opening.
    pub fn open(self) -> OpenKey {
        let all = pkru();
        let was = all & self.bits();
        if was != 0 {
            set_pkru(all & !was);
        }
        OpenKey { was, of_thread: PhantomData }
    }

    fn bits(self) -> u32 {
        CLOSED << (2 * self.0)
    }
}

/// An open key. Dropped, it is as it was before.
#[derive(Debug)]
#[must_use = "the key is closed when this is dropped"]
pub struct OpenKey {
    /// Those of its bits that were set.
    was: u32,
    /// It is the thread's that opened it.
    of_thread: PhantomData<*const ()>,
}

impl Drop for OpenKey {
    fn drop(&mut self) {
        if self.was != 0 {
            set_pkru(pkru() | self.was);
        }
    }
}

/// A new key, or [`NONE`].
fn allocate() -> i32 {
    // A processor without keys is not even asked for one: fewer calls that a program may have
    // forbidden itself.
    if !leaf::has_protection_keys() {
        return NONE;
    }
    // SAFETY: it changes nothing but the bits of a key that nobody had.
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, PKEY_DISABLE_ACCESS) };
    i32::try_from(key).ok().filter(|key| *key > UNASKED).unwrap_or(NONE)
}

/// Makes `key` the process's own, unless another thread was first, or a signal handler.
fn publish(key: i32) -> i32 {
    let Err(first) = OWN.compare_exchange(UNASKED, key, Ordering::Relaxed, Ordering::Relaxed) else { return key };
    if key != NONE {
        // SAFETY: no memory has it, and nobody else knows it.
        let _ = unsafe { libc::syscall(libc::SYS_pkey_free, key) };
    }
    first
}

/// The rights of this thread.
fn pkru() -> u32 {
    let rights;
    // SAFETY: law 6: there is a key, so that the processor has the instruction and the system lets
    // it be used; it touches no memory.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack, preserves_flags)) }
    rights
}

/// Changes them. Neither the compiler nor the processor moves an access to memory over it.
fn set_pkru(rights: u32) {
    // SAFETY: as above; what it takes away or gives is only ever what this file gave to memory of
    // the key.
    unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) }
}
