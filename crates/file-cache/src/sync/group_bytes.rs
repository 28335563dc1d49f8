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

    /// How many bytes there are.
    pub fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Copies the bytes of the range at `at` over those in `buffer`, and leaves its others.
    pub fn copy_over(&self, at: u64, buffer: &mut [u8]) {
        let end = at + buffer.len() as u64;
        let before = self.0.range(..at).next_back();
        for (start, run) in before.into_iter().chain(self.0.range(at..end)) {
            let (from, to) = (at.max(*start), end.min(start + run.len() as u64));
            if from < to {
                let place = |of: u64, origin: u64| usize::try_from(of - origin).expect("inside a group");
                buffer[place(from, at)..place(to, at)].copy_from_slice(&run[place(from, *start)..place(to, *start)]);
            }
        }
    }

    /// Drops the bytes from `len` on.
    pub fn truncate(&mut self, len: u64) {
        self.0.split_off(&len);
        if let Some((start, run)) = self.0.last_key_value().map(|(start, run)| (*start, run.len())) {
            let left = usize::try_from(len - start).unwrap_or(usize::MAX).min(run);
            self.0.entry(start).and_modify(|run| run.truncate(left));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_a_plain_file_would_have() {
        let (mut group, mut model) = (GroupBytes::default(), vec![None; 64]);
        for step in 0_usize..500 {
            let (at, len) = (step * 29 % 50, 1 + step * 7 % 14);
            let byte = u8::try_from(step % 251).expect("small");
            if step % 9 == 0 {
                group.truncate(at as u64);
                model[at..].fill(None);
            }
            group.put(at as u64, &vec![byte; len]);
            model[at..at + len].fill(Some(byte));
            for from in [0, at, at / 2] {
                let mut seen = vec![255; 64 - from];
                group.copy_over(from as u64, &mut seen);
                let expected: Vec<_> = model[from..].iter().map(|byte| byte.unwrap_or(255)).collect();
                assert_eq!(seen, expected, "step {step} from {from}");
            }
            assert_eq!(group.count(), model.iter().flatten().count());
        }
    }
}
