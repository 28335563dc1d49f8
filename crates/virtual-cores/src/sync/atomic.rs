//! Atomics: each access is a point at which another thread may go on.

use crate::machine;
use std::sync::atomic;
pub use std::sync::atomic::Ordering;

/// A fence between accesses to atomics. Accesses keep their order on virtual cores anyway.
pub fn fence(order: Ordering) {
    machine::point(machine::FENCE);
    atomic::fence(order);
}

macro_rules! atomic {
    ($name:ident, $value:ty, $what:literal) => {
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
            pub fn load(&self, order: Ordering) -> $value {
                machine::point(machine::LOAD);
                self.0.load(order)
            }

            /// Sets it to `value`.
            pub fn store(&self, value: $value, order: Ordering) {
                machine::point(machine::STORE);
                self.0.store(value, order);
            }

            /// Sets it to `value` and gives back what it was.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.0.swap(value, order)
            }

            /// Sets it to `new` if it is `current`; either way gives back what it was.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                machine::point(machine::CHANGE);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As `compare_exchange`. It never fails without a reason.
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
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.0.fetch_and(value, order)
            }

            /// Adds the bits of `value`; gives back what it was.
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                machine::point(machine::CHANGE);
                self.0.fetch_or(value, order)
            }

            /// Sets it to what `update` makes of its value, as long as that is something.
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
    ($name:ident, $value:ty, $($verb:ident)*) => {
        impl $name {
            $(
                #[doc = concat!("`", stringify!($verb), "` with `value`; gives back what it was.")]
                pub fn $verb(&self, value: $value, order: Ordering) -> $value {
                    machine::point(machine::CHANGE);
                    self.0.$verb(value, order)
                }
            )*
        }
    };
}

atomic!(AtomicBool, bool, "truth value");
atomic!(AtomicU32, u32, "number of 32 bits");
atomic!(AtomicU64, u64, "number of 64 bits");
arithmetic!(AtomicU32, u32, fetch_add fetch_sub fetch_max fetch_min);
arithmetic!(AtomicU64, u64, fetch_add fetch_sub fetch_max fetch_min);
