//! What `std::thread` offers and engines use.

/// Lets another thread go on, if one can.
#[track_caller]
pub fn yield_now() {
    crate::machine::give_way();
}
