//! The program context of a call: which functions of the program led to it, as a number.
//!
//! As UHNVM has it, a context is the sum of the return addresses of the innermost frames of the
//! program, five unless said otherwise. Each address counts from where its module was loaded, plus
//! a number of the module itself: so a context is the same in every run of the program.
//!
//! To unwind a stack takes a microsecond and more. So the stack is scanned first: of the words next
//! to its top, the first eight that point into code are a key, under which the context of an
//! earlier call is found (`remembered.rs`). A word that was left by a function which has
//! returned makes a key differ, at the price of one more unwinding. Two ways to a call could have
//! one key only if they differ beyond what is scanned; so one hit in [`VERIFY_EVERY`] is unwound
//! all the same, and a key that was wrong is not believed again while it is remembered.
//!
//! # The law of the unsafe code
//!
//! - **S1** A [`StackTop`] is an address of this thread's own stack, which is mapped up to the end
//!   of its page at least, while the function that took it runs.
//! - **S2** What is in a page above is copied by the kernel, which refuses what cannot be read.
//! - **S3** What the unwinder and the loader call gets what it was given by this crate, for the
//!   time of that call.
//!
//! Nothing here allocates. A signal handler may call it.

mod modules;
mod remembered;
mod stack;
mod unwind;

pub use stack::StackTop;

use modules::Modules;
use remembered::{ContextOfKey, Remembered};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Of so many calls whose key is known, one is unwound all the same.
pub const VERIFY_EVERY: u32 = 1000;

/// What is known of the contexts of this process.
pub struct ProgramContexts {
    frames: AtomicU32,
    verify_every: AtomicU32,
    modules: Modules,
    remembered: Remembered,
    counts: [AtomicU64; 3],
}

/// How often something happened since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextCounts {
    /// Stacks that were unwound because no key was known.
    pub unwound: u64,
    /// Known keys whose stacks were unwound all the same.
    pub verified: u64,
    /// Those that had another context.
    pub wrong: u64,
}

thread_local! {
    /// Known keys that this thread found since it verified one.
    static FOUND: Cell<u32> = const { Cell::new(0) };
}

impl Default for ProgramContexts {
    fn default() -> ProgramContexts {
        ProgramContexts::new()
    }
}

impl ProgramContexts {
    /// Of a process of which nothing is known yet.
    pub const fn new() -> ProgramContexts {
        ProgramContexts {
            frames: AtomicU32::new(5),
            verify_every: AtomicU32::new(VERIFY_EVERY),
            modules: Modules::new(),
            remembered: Remembered::new(),
            counts: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// Says how many frames a context is of, and of how many known keys one is verified. Before the
    /// first context.
    pub fn configure(&self, frames: u32, verify_every: u32) {
        self.frames.store(frames.max(1), Ordering::Relaxed);
        self.verify_every.store(verify_every.max(1), Ordering::Relaxed);
    }

    /// The context of the call that this thread is in; `top` was taken in it. Never 0.
    pub fn of_call(&self, top: StackTop) -> u64 {
        let Some(key) = stack::key(top, &self.modules) else { return self.unwound() };
        match self.remembered.find(key) {
            ContextOfKey::Context(context) if self.is_to_verify() => self.verified(key, context),
            ContextOfKey::Context(context) => context,
            ContextOfKey::NotToBelieve => self.unwound(),
            ContextOfKey::Nothing => {
                let before = self.modules.generation();
                let context = self.unwound();
                let is_settled = before.is_multiple_of(2) && self.modules.generation() == before;
                if is_settled {
                    self.remembered.keep(key, context);
                }
                context
            }
        }
    }

    /// The context of the call that this thread is in, however it was found before. Never 0.
    pub fn unwound(&self) -> u64 {
        self.count(0);
        self.unwind()
    }

    /// In a child that was forked, whose parent may have had other threads at it.
    pub fn forget(&self) {
        self.modules.forget();
        self.remembered.forget();
    }

    /// Reads the counts.
    pub fn counts(&self) -> ContextCounts {
        let [unwound, verified, wrong] = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        ContextCounts { unwound, verified, wrong }
    }

    fn unwind(&self) -> u64 {
        // What was found in code that is not there any more says nothing.
        if self.modules.refresh() {
            self.remembered.forget();
        }
        unwind::context(&self.modules, self.frames.load(Ordering::Relaxed))
    }

    fn verified(&self, key: u64, found: u64) -> u64 {
        self.count(1);
        let context = self.unwind();
        if context != found {
            self.count(2);
            self.remembered.distrust(key);
        }
        context
    }

    fn is_to_verify(&self) -> bool {
        let every = self.verify_every.load(Ordering::Relaxed);
        let found = FOUND.get() + 1;
        FOUND.set(if found >= every { 0 } else { found });
        found >= every
    }

    fn count(&self, which: usize) {
        self.counts[which].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The module of these tests counts as this crate's own. So the frames are those of libc around
    // the test's thread, and keys are of stacks that the tests make up.

    /// Words that point into code.
    fn stack(of: u8) -> [usize; 96] {
        let function: unsafe extern "C" fn() -> libc::pid_t = libc::getpid;
        [function as usize + usize::from(of); 96]
    }

    fn top(of: &[usize; 96]) -> StackTop {
        StackTop(of.as_ptr().expose_provenance())
    }

    #[test]
    fn a_stack_is_unwound_when_its_key_is_not_known() {
        let (contexts, stacks) = (Box::new(ProgramContexts::new()), [stack(0), stack(1)]);
        let unwound = contexts.unwound();
        assert_ne!(unwound, 0);
        let look = |stack| assert_eq!(contexts.of_call(top(stack)), unwound);
        (0..100).for_each(|_| stacks.iter().for_each(look));
        let counts = contexts.counts();
        // The first look of all found nothing, as it was not known where code is.
        assert!((3..=5).contains(&counts.unwound) && (counts.verified, counts.wrong) == (0, 0), "{counts:?}");
    }

    #[test]
    fn some_known_keys_are_verified_and_a_wrong_one_is_not_believed_again() {
        let (contexts, stack) = (Box::new(ProgramContexts::new()), stack(0));
        contexts.configure(5, 10);
        let look = || (0..100).map(|_| contexts.of_call(top(&stack))).collect::<Vec<u64>>();
        let truth = look()[0];
        let counts = contexts.counts();
        assert!((9..=10).contains(&counts.verified) && counts.wrong == 0, "{counts:?}");
        let lie = truth.wrapping_add(1);
        contexts.remembered.lie(lie);
        assert!(look().contains(&lie), "a lie that nobody looked into is believed");
        assert_eq!(contexts.counts().wrong, 1);
        assert!(look().iter().all(|found| *found == truth), "it was found out");
    }

    #[test]
    fn threads_that_begin_alike_have_one_context_and_fewer_frames_another() {
        let contexts = std::sync::Arc::new(ProgramContexts::new());
        let unwound = |contexts: &std::sync::Arc<ProgramContexts>| {
            let contexts = std::sync::Arc::clone(contexts);
            std::thread::spawn(move || contexts.unwound()).join().expect("it does not panic")
        };
        let found = unwound(&contexts);
        assert_eq!(unwound(&contexts), found);
        contexts.configure(1, VERIFY_EVERY);
        assert_ne!(unwound(&contexts), found);
    }
}
