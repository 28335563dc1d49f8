//! Where each virtual thread finds the way back to the machine.
//!
//! A coroutine's yielder lives on its own stack. Each thread number has a place of its own to put a
//! reference to it, so that what one thread leaves there never meets another's.

use corosensei::Yielder;
use scoped_tls::{ScopedKey, scoped_thread_local};

macro_rules! places {
    ($($name:ident)*) => {
        $(scoped_thread_local!(static $name: Yielder<(), ()>);)*
        static PLACES: &[&ScopedKey<Yielder<(), ()>>] = &[$(&$name),*];
    };
}

places! {
    P00 P01 P02 P03 P04 P05 P06 P07 P08 P09 P10 P11 P12 P13 P14 P15 P16 P17 P18 P19 P20 P21 P22 P23 P24 P25 P26 P27 P28 P29 P30 P31
    P32 P33 P34 P35 P36 P37 P38 P39 P40 P41 P42 P43 P44 P45 P46 P47 P48 P49 P50 P51 P52 P53 P54 P55 P56 P57 P58 P59 P60 P61 P62 P63
    P64 P65 P66 P67 P68 P69 P70 P71 P72 P73 P74 P75 P76 P77 P78 P79 P80 P81 P82 P83 P84 P85 P86 P87 P88 P89 P90 P91 P92 P93 P94 P95
}

/// How many virtual threads a machine may have.
pub(crate) const THREADS_MAX: usize = 96;

/// Runs `work` as thread `number`, whose way back is `yielder`.
pub(crate) fn enter(number: usize, yielder: &Yielder<(), ()>, work: impl FnOnce()) {
    PLACES[number].set(yielder, work);
}

/// Leaves thread `number`, the calling one, until the machine goes on with it.
pub(crate) fn leave(number: usize) {
    PLACES[number].with(|yielder| yielder.suspend(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_places_as_promised() {
        assert_eq!(PLACES.len(), THREADS_MAX);
    }
}
