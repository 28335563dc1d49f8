//! Atomics: each access is a point at which another thread may go on.

use crate::flaw::FlawKind;
use crate::machine;
use std::panic::Location;
use std::sync::atomic;
pub use std::sync::atomic::Ordering;

/// A fence between accesses to atomics. Accesses keep their order on virtual cores anyway.
pub fn fence(order: Ordering) {
    machine::point(machine::FENCE);
    atomic::fence(order);
}

macro_rules! atomic {
    ($name:ident, $value:ty, $of_word:expr, $what:literal) => {
        #[doc = concat!("An atomic ", $what, ".")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// One that holds `value`.
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            /// Its value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                machine::point(machine::LOAD);
                $of_word(machine::loaded(Location::caller(), self.key(), u64::from(self.0.load(order))))
            }

            /// Tells atomics apart; its value decides nothing.
            fn key(&self) -> u64 {
                std::ptr::from_ref(self).addr() as u64
            }

            /// The change made at `place` in two parts, if it is flawed: what the value was.
            fn torn(
                &self,
                place: &'static Location<'static>,
                change: impl FnOnce($value) -> Option<$value>,
            ) -> Option<$value> {
                machine::stored(self.key());
                if !machine::is_flawed(FlawKind::Change, place) {
                    return None;
                }
                let now = self.0.load(Ordering::SeqCst);
                machine::point(machine::CHANGE);
                change(now).into_iter().for_each(|next| self.0.store(next, Ordering::SeqCst));
                Some(now)
            }

            /// Sets it to `value`.
            pub fn store(&self, value: $value, order: Ordering) {
                machine::point(machine::STORE);
                machine::stored(self.key());
                self.0.store(value, order);
            }

            /// Sets it to `value` and gives back what it was.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.torn(Location::caller(), |_| Some(value)).unwrap_or_else(|| self.0.swap(value, order))
            }

            /// Sets it to `new` if it is `current`; either way gives back what it was.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                machine::point(machine::CHANGE);
                match self.torn(Location::caller(), |now| (now == current).then_some(new)) {
                    Some(now) if now == current => Ok(now),
                    Some(now) => Err(now),
                    None => self.0.compare_exchange(current, new, success, failure),
                }
            }

            /// As `compare_exchange`. It never fails without a reason.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Sets its bits to those that are in `value` too; gives back what it was.
            #[track_caller]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.torn(Location::caller(), |now| Some(now & value)).unwrap_or_else(|| self.0.fetch_and(value, order))
            }

            /// Adds the bits of `value`; gives back what it was.
            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.torn(Location::caller(), |now| Some(now | value)).unwrap_or_else(|| self.0.fetch_or(value, order))
            }

            /// Sets it to what `update` makes of its value, as long as that is something.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(fetch);
                while let Some(next) = update(now) {
                    match self.compare_exchange(now, next, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }

            /// Its value, for the only owner.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Its value, for the last owner.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($verb:ident $change:expr;)*) => {
        impl $name {
            $(
                #[doc = concat!("`", stringify!($verb), "` with `value`; gives back what it was.")]
                #[track_caller]
                pub fn $verb(&self, value: $value, order: Ordering) -> $value {
                    machine::point(machine::CHANGE);
                    let change: fn($value, $value) -> $value = $change;
                    let torn = self.torn(Location::caller(), |now| Some(change(now, value)));
                    torn.unwrap_or_else(|| self.0.$verb(value, order))
                }
            )*
        }
    };
}

/// Words that were made of numbers of 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the word was a number of 32 bits")]
const fn low(word: u64) -> u32 {
    word as u32
}

atomic!(AtomicBool, bool, |word| word != 0, "truth value");
atomic!(AtomicU32, u32, low, "number of 32 bits");
atomic!(AtomicU64, u64, std::convert::identity, "number of 64 bits");
arithmetic!(AtomicU32, u32, fetch_add u32::wrapping_add; fetch_sub u32::wrapping_sub; fetch_max u32::max; fetch_min u32::min;);
arithmetic!(AtomicU64, u64, fetch_add u64::wrapping_add; fetch_sub u64::wrapping_sub; fetch_max u64::max; fetch_min u64::min;);
