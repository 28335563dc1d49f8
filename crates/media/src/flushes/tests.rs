//! Which flush covers which caller, and which callers learn of a failure.

use super::*;
use crate::error::Sealed;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

const FAILED: Error = Error::Sealed(Sealed::SyncFailed { errno: 5 });

#[test]
fn one_flush_that_began_after_them_covers_all_who_wait() {
    let (flushes, count) = (Flushes::<Error>::default(), AtomicUsize::new(0));
    let (entered, release) = (Barrier::new(2), Barrier::new(2));
    let (arrive, arrived) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = flushes.cover(|| {
                entered.wait();
                release.wait();
                Ok(())
            });
            assert_eq!(first, Ok(()));
        });
        entered.wait();
        for _ in 0..4 {
            let (arrive, flushes, count) = (arrive.clone(), &flushes, &count);
            scope.spawn(move || {
                // All four have to have read the count before the first flush ends, or they may
                // need a flush more.
                arrive.send(()).expect("the test listens");
                let covered = flushes.cover(|| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                assert_eq!(covered, Ok(()));
            });
        }
        (0..4).for_each(|_| arrived.recv().expect("arrives"));
        release.wait();
    });
    let count = count.into_inner();
    assert!((1..=4).contains(&count), "the running flush covers none of them, {count} flushes followed");
}

#[test]
fn a_waiter_learns_of_the_failure_before_it() {
    let flushes = Flushes::<Error>::default();
    let failure = flushes.cover(|| Err(FAILED));
    let after = flushes.cover(|| panic!("no flush follows a failed one"));
    assert_eq!((failure, after), (Err(FAILED), Err(FAILED)));
}
