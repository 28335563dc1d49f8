//! Virtual cores: which core's fence a store is waiting for.

use tidegate_media::sync::{set_thread_token, thread_token};

/// Runs `work` as core `core`: its flushes wait for a fence of that core and no other.
///
/// The calling thread answers [`thread_token`] with `core` meanwhile, and with its former token
/// after, also when `work` panics.
pub fn on_core<T>(core: u32, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(thread_token());
    set_thread_token(core);
    work()
}

struct Restore(u32);

impl Drop for Restore {
    fn drop(&mut self) {
        set_thread_token(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_lasts_as_long_as_its_work() {
        let own = thread_token();
        assert_eq!(on_core(70, || on_core(71, thread_token) + thread_token()), 141);
        assert_eq!(thread_token(), own);
    }
}
