//! Keys of calls, and their contexts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that are known at a time.
const PLACES: usize = 2048;

/// In place of a context: the key leads to more than one.
const SEVERAL: u64 = u64::MAX;

/// A table in which a key has one place, which the last one that came has.
pub(crate) struct Remembered([RememberedCall; PLACES]);

/// A key and its context: each word alone may be of another call, both together may not.
struct RememberedCall {
    /// The key, changed by the context.
    mixed: AtomicU64,
    /// 0: nothing is here.
    context: AtomicU64,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextOfKey {
    /// Nothing.
    Nothing,
    /// That it has this context.
    Context(u64),
    /// That it has several contexts.
    NotToBelieve,
}

impl Remembered {
    #[expect(clippy::large_stack_arrays, reason = "it is the initial value of a static")]
    pub(crate) const fn new() -> Remembered {
        Remembered([const { RememberedCall { mixed: AtomicU64::new(0), context: AtomicU64::new(0) } }; PLACES])
    }

    pub(crate) fn find(&self, key: u64) -> ContextOfKey {
        let RememberedCall { mixed, context } = self.place(key);
        let context = context.load(Ordering::Relaxed);
        match context {
            0 => ContextOfKey::Nothing,
            _ if mixed.load(Ordering::Relaxed) ^ context != key => ContextOfKey::Nothing,
            SEVERAL => ContextOfKey::NotToBelieve,
            _ => ContextOfKey::Context(context),
        }
    }

    pub(crate) fn keep(&self, key: u64, found: u64) {
        let RememberedCall { mixed, context } = self.place(key);
        mixed.store(key ^ found, Ordering::Relaxed);
        context.store(found, Ordering::Relaxed);
    }

    pub(crate) fn distrust(&self, key: u64) {
        self.keep(key, SEVERAL);
    }

    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.context.store(0, Ordering::Relaxed));
    }

    /// Gives every key that is known another context.
    #[cfg(test)]
    pub(crate) fn lie(&self, lie: u64) {
        for RememberedCall { mixed, context } in
            self.0.iter().filter(|place| place.context.load(Ordering::Relaxed) != 0)
        {
            let truth = context.swap(lie, Ordering::Relaxed);
            mixed.fetch_xor(truth ^ lie, Ordering::Relaxed);
        }
    }

    fn place(&self, key: u64) -> &RememberedCall {
        // The high bits are the best mixed ones.
        &self.0[usize::try_from(key >> 40).unwrap_or(0) % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_until_another_takes_its_place() {
        let remembered = Box::new(Remembered::new());
        let (key, other) = (7 << 40 | 1, (7 + PLACES as u64) << 40 | 2);
        assert_eq!(remembered.find(key), ContextOfKey::Nothing);
        remembered.keep(key, 5);
        assert_eq!((remembered.find(key), remembered.find(other)), (ContextOfKey::Context(5), ContextOfKey::Nothing));
        remembered.keep(other, 6);
        assert_eq!((remembered.find(key), remembered.find(other)), (ContextOfKey::Nothing, ContextOfKey::Context(6)));
        remembered.distrust(other);
        assert_eq!(remembered.find(other), ContextOfKey::NotToBelieve);
        remembered.forget();
        assert_eq!(remembered.find(other), ContextOfKey::Nothing);
    }
}
