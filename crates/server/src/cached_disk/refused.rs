//! Blocks that do not reach their disk, told in the log: once for each kind of error, and once when
//! it is over. Whoever asks `info` hears more.
//!
//! A block may be postponed, by [`POSTPONED_MAX`] sweeps at most: so one that meets no refusal does
//! not mean that none is left.

use crate::failure::{AtFault, Obstacle};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_background::{Step, SweepFailures};
use tidegate_disk_cache::POSTPONED_MAX;
use tidegate_host::units::Human;
use tidegate_media::{Error, Misuse};

/// What the disk of one region refuses.
#[derive(Debug)]
pub struct RefusedBlocks {
    pmem: PathBuf,
    disk: PathBuf,
    history: Mutex<SweepHistory>,
}

/// Errors that were told, and what sweeps left behind.
#[derive(Debug, Default)]
struct SweepHistory {
    /// Kinds of errors that were told since everything was well.
    told: Vec<Kind>,
    /// What the sweep under way left behind so far, and then what the last ones did.
    left: [Behind; POSTPONED_MAX + 2],
}

/// What a sweep left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Behind {
    /// Whether it left anything.
    any: bool,
    /// Blocks.
    blocks: u64,
}

/// What tells one error from others: what is at fault, and what was refused, by the system's
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What is at fault.
    pub by: AtFault,
    /// What the disk refused to do, and the error's number.
    pub refused: Option<(&'static str, i32)>,
}

/// What a step left behind, but for what it left for a moment.
fn left_by(step: &Step) -> SweepFailures {
    let stays = |(_, error): &&(_, Error)| *error != Error::Misuse(Misuse::NotNow);
    let refused = step.refused.iter().filter(stays).cloned().collect();
    let mut left = SweepFailures::default();
    left.add(Step { refused, ..step.clone() });
    left
}

impl RefusedBlocks {
    /// None so far, of the blocks in `pmem` on their way to `disk`.
    pub fn of(pmem: &Path, disk: &Path) -> Arc<RefusedBlocks> {
        Arc::new(RefusedBlocks { pmem: pmem.to_owned(), disk: disk.to_owned(), history: Mutex::default() })
    }

    fn history(&self) -> MutexGuard<'_, SweepHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks that do not reach the disk now.
    pub fn blocks(&self) -> u64 {
        self.history().left.iter().map(|behind| behind.blocks).max().unwrap_or(0)
    }

    /// Hears of `step`. What it left is of the kind and for the reasons that `why` knows, and
    /// `dirty_bytes` stay in the region.
    pub fn hear(
        &self,
        step: &Step,
        why: impl FnOnce(&SweepFailures) -> Option<(Kind, Obstacle)>,
        dirty_bytes: impl Fn() -> u64,
    ) {
        let left = left_by(step);
        let mut history = self.history();
        if !left.is_nothing() {
            history.left[0] = Behind { any: true, blocks: history.left[0].blocks + left.refused };
            if let Some((kind, obstacle)) = why(&left).filter(|(kind, _)| !history.told.contains(kind)) {
                history.told.push(kind);
                self.warn(&obstacle, dirty_bytes());
            }
        }
        if !step.more {
            self.sweep_ended(&mut history, dirty_bytes);
        }
    }

    fn sweep_ended(&self, history: &mut SweepHistory, dirty_bytes: impl Fn() -> u64) {
        if history.told.is_empty() {
            history.left = Default::default();
            return;
        }
        let [this, earlier @ ..] = &history.left;
        let is_over = !this.any && (earlier.iter().take(POSTPONED_MAX).all(|behind| !behind.any) || dirty_bytes() == 0);
        if is_over {
            *history = SweepHistory::default();
            tracing::warn!(
                "the disk {} takes everything again that is dirty in {}",
                self.disk.display(),
                self.pmem.display()
            );
            return;
        }
        history.left.rotate_right(1);
        history.left[0] = Behind::default();
    }

    fn warn(&self, obstacle: &Obstacle, dirty_bytes: u64) {
        let (pmem, bytes) = (self.pmem.display(), Human(dirty_bytes));
        tracing::warn!(
            "{}; {bytes} ({dirty_bytes} bytes) are dirty in {pmem}, and requests go on; {}",
            obstacle.why,
            obstacle.by.next(&self.pmem)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use tidegate_media::{Lba, Poison, Sealed};
    use tracing::subscriber::with_default;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A step of one sweep that left `blocks` blocks, for now or for longer.
    fn step(blocks: u64, error: &Error, more: bool) -> Step {
        Step { refused: (0..blocks).map(|lba| (Lba(lba), error.clone())).collect(), more, ..Step::default() }
    }

    /// The lines that `steps` lead to, each by an error of this number, while so many bytes are
    /// dirty.
    fn lines(refused_blocks: &RefusedBlocks, dirty_bytes: u64, steps: &[(Step, i32)]) -> Vec<String> {
        let log = Log::default();
        let its = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || its.clone()).with_ansi(false).finish();
        with_default(subscriber, || {
            for (step, errno) in steps {
                let kind = Kind { by: AtFault::Disk, refused: Some(("write", *errno)) };
                let obstacle = Obstacle { by: AtFault::Disk, why: format!("error {errno}") };
                refused_blocks.hear(step, |_| Some((kind, obstacle)), || dirty_bytes);
            }
        });
        let text = String::from_utf8(log.0.lock().expect("nobody panics").clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_kind_is_told_once_and_so_is_the_end() {
        let refused_blocks = RefusedBlocks::of(Path::new("/v"), Path::new("/disk"));
        let poison = Error::from(Poison { at: 0, len: 4096 });
        let not_now = Error::from(Misuse::NotNow);
        let (bad, worse, good) = (|more| step(3, &poison, more), step(5, &poison, false), step(0, &poison, false));
        assert_eq!(lines(&refused_blocks, 4096, &[(good.clone(), 0), (step(9, &not_now, false), 0)]), [""; 0]);
        assert_eq!(refused_blocks.blocks(), 0);
        let told = lines(&refused_blocks, 4096, &[(bad(true), 28), (bad(false), 28), (bad(false), 28), (worse, 5)]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("error 28; 4 KiB (4096 bytes) are dirty in /v") && told[1].contains("error 5"),
            "{told:?}"
        );
        assert_eq!(refused_blocks.blocks(), 6, "the most that one of the last sweeps left");
        // A sweep that goes on says nothing yet.
        assert_eq!(lines(&refused_blocks, 4096, &[(step(0, &poison, true), 0)]), [""; 0]);
        // Two sweeps may have left out what the disk refuses, and something is dirty.
        assert_eq!(lines(&refused_blocks, 4096, &[(good.clone(), 0), (good.clone(), 0)]), [""; 0]);
        assert_eq!(refused_blocks.blocks(), 5);
        let told = lines(&refused_blocks, 4096, &[(good.clone(), 0), (good.clone(), 0)]);
        assert!(told.len() == 1 && told[0].contains("the disk /disk takes everything again"), "{told:?}");
        assert_eq!(refused_blocks.blocks(), 0);
        assert_eq!(lines(&refused_blocks, 4096, &[(bad(false), 28)]).len(), 1, "it begins anew");
        assert_eq!(lines(&refused_blocks, 0, &[(good, 0)]).len(), 1, "nothing is dirty: it is over at once");
    }

    #[test]
    fn a_flush_that_fails_is_told_although_no_block_was_refused() {
        let refused_blocks = RefusedBlocks::of(Path::new("/v"), Path::new("/disk"));
        let not_durable = Some(Error::from(Sealed::SyncFailed { errno: 5 }));
        let failed = Step { not_durable, ..Step::default() };
        assert_eq!(lines(&refused_blocks, 4096, &[(failed.clone(), 5), (failed, 5)]).len(), 1);
        assert_eq!(lines(&refused_blocks, 0, &[(Step::default(), 0)]).len(), 1);
    }
}
