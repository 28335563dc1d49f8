//! The same work on several things at once.

use std::panic::resume_unwind;
use std::thread;

/// What `act` gives for each of so many numbers from 0 on, each on a thread of its own; the first
/// failure, if there is one. A panic goes on in the caller.
pub fn side_by_side<T: Send, E: Send>(count: u32, act: impl Fn(u32) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || act(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_run_at_once_and_answer_in_order() {
        let barrier = Barrier::new(3);
        let met = side_by_side(3, |number| {
            barrier.wait();
            Ok::<_, ()>(number * 2)
        });
        assert_eq!(met, Ok(vec![0, 2, 4]));
    }

    #[test]
    fn the_first_failure_counts() {
        let failed = side_by_side(4, |number| if number % 2 == 1 { Err(number) } else { Ok(number) });
        assert_eq!(failed, Err(1));
    }
}
