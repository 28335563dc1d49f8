//! Where the mapped pages of a file lie in the pool.

use std::ops::Range;

/// Pages of a file that lie one after the other in the pool too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedRun {
    /// Offset in the file.
    pub at: u64,
    /// Offset in the pool's memory.
    pub pool_at: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl MappedRun {
    /// Where the pages lie in the file.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.bytes
    }

    /// The part of it that lies in `range` of the file.
    pub fn within(self, range: &Range<u64>) -> Option<MappedRun> {
        let (start, end) = (self.at.max(range.start), (self.at + self.bytes).min(range.end));
        (start < end).then(|| MappedRun { at: start, pool_at: self.pool_at + (start - self.at), bytes: end - start })
    }

    /// Runs that follow each other in the file and in the pool as one.
    pub fn joined(runs: impl IntoIterator<Item = MappedRun>) -> Vec<MappedRun> {
        let mut all: Vec<MappedRun> = Vec::new();
        for run in runs {
            match all.last_mut() {
                Some(last) if last.at + last.bytes == run.at && last.pool_at + last.bytes == run.pool_at => {
                    last.bytes += run.bytes;
                }
                _ => all.push(run),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_where_both_places_follow() {
        let run = |at, pool_at, bytes| MappedRun { at, pool_at, bytes };
        let runs = [run(0, 100, 10), run(10, 110, 5), run(15, 200, 5), run(30, 205, 5)];
        assert_eq!(MappedRun::joined(runs), [run(0, 100, 15), run(15, 200, 5), run(30, 205, 5)]);
        assert_eq!(run(10, 110, 5).within(&(12..40)), Some(run(12, 112, 3)));
        assert_eq!(run(10, 110, 5).within(&(15..40)), None);
    }
}
