//! Waiting for what the kernel tells no one of: looking again and again, with a limit.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until `look` finds something, for so long at most.
pub(crate) fn repeat<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_end_with_what_is_found_or_with_their_time() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some("found")
        };
        assert_eq!(repeat(Duration::from_secs(3600), third), Some("found"));
        assert_eq!(repeat(Duration::ZERO, || None::<()>), None);
    }
}
