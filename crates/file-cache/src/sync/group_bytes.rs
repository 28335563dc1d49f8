//! The bytes of a group that is not committed yet.

use crate::sync::group::GroupWrite;
use std::collections::BTreeMap;

/// Bytes by their offsets, with a gap between each run and the next.
#[derive(Clone, Debug, Default)]
pub struct GroupBytes(BTreeMap<u64, Vec<u8>>);

impl GroupBytes {
    /// Where the last byte ends.
    pub fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(start, run)| start + run.len() as u64)
    }

    /// The writes that a commit takes.
    pub fn writes(&self) -> Vec<GroupWrite<'_>> {
        self.0.iter().map(|(at, data)| GroupWrite { at: *at, data }).collect()
    }

    /// Puts bytes over what is there.
    pub fn put(&mut self, at: u64, data: &[u8]) {
        let before = self.0.range(..=at).next_back();
        let touches = before.filter(|(start, run)| *start + run.len() as u64 >= at).map(|(start, _)| *start);
        let (start, mut run) = touches.and_then(|start| self.0.remove_entry(&start)).unwrap_or((at, Vec::new()));
        let from = usize::try_from(at - start).expect("inside a group");
        run.resize(run.len().max(from + data.len()), 0);
        run[from..from + data.len()].copy_from_slice(data);
        while let Some(next) = self.0.range(start..=start + run.len() as u64).next().map(|(next, _)| *next) {
            let later = self.0.remove(&next).unwrap_or_default();
            let covered = usize::try_from(start + run.len() as u64 - next).expect("inside a group");
            run.extend(later.get(covered..).unwrap_or_default());
        }
        self.0.insert(start, run);
    }
}
