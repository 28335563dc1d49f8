//! Cuts of a machine of several parts, taken at instants that somebody names, so that all parts
//! lose their power together.

use std::sync::Mutex;

/// The cuts kept since a recording began, if one runs.
#[derive(Debug)]
pub struct Recorded<C>(Mutex<Option<Vec<C>>>);

impl<C> Default for Recorded<C> {
    fn default() -> Recorded<C> {
        Recorded(Mutex::new(None))
    }
}

impl<C> Recorded<C> {
    /// From now on, keeps a cut of each instant.
    pub fn begin(&self) {
        self.0.lock().expect("no cut panics").get_or_insert_default();
    }

    /// This is an instant that matters: keeps a `cut` of it, if a recording runs.
    pub fn instant(&self, cut: impl FnOnce() -> C) {
        if let Some(cuts) = &mut *self.0.lock().expect("no cut panics") {
            cuts.push(cut());
        }
    }

    /// The cuts kept, and one of `now`. No more are kept.
    pub fn take(&self, now: C) -> Vec<C> {
        let mut cuts = self.0.lock().expect("no cut panics").take().unwrap_or_default();
        cuts.push(now);
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_while_a_recording_runs_is_kept_in_order() {
        let recorded = Recorded::default();
        recorded.instant(|| unreachable!("nobody records"));
        recorded.begin();
        (1..3).for_each(|cut| recorded.instant(|| cut));
        assert_eq!(recorded.take(3), [1, 2, 3]);
        recorded.instant(|| unreachable!("the recording is over"));
        assert_eq!(recorded.take(4), [4]);
    }
}
