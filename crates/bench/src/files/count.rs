//! What an append by lease and its sync cost the memory: lines and fences, exactly.

use crate::target::Outcome;
use anyhow::Context;
use std::sync::Arc;
use tidegate_file_cache::{LeasedFile, Wrote};
use tidegate_layout::file_cache::{Class, LEASE_CLASS, LeaseElement, LeaseGrant, LeaseHead, LeasePlan};
use tidegate_measure::subject::Block;
use tidegate_measure::workload::Effort;
use tidegate_media::{Counters, MappedRegion, Region};
use zerocopy::IntoBytes;

/// Bytes of an append.
const APPEND_BYTES: usize = 100;

/// Where blocks lie behind the log.
const BLOCKS_AT: u64 = 1 << 20;

/// Lines that an append and its sync flush or stream.
pub(super) fn append_lines(_: Effort) -> anyhow::Result<Outcome> {
    counted(|counters| counters.lines_flushed)
}

/// Fences of an append and its sync.
pub(super) fn append_fences(_: Effort) -> anyhow::Result<Outcome> {
    counted(|counters| counters.fences)
}

fn counted(of: impl Fn(&Counters) -> u64) -> anyhow::Result<Outcome> {
    let (memory, log) = (Arc::new(MappedRegion::anonymous(8 << 20)?), LeasePlan::of(0, Class::ALL[3]));
    let appends = u64::from(log.elements);
    memory.write(log.at, LeaseHead::new(1, appends, 0).as_bytes());
    for number in 0..appends {
        let unit = u32::try_from(number)? * LEASE_CLASS.units();
        memory.write(log.element_at(number), LeaseElement::lent(unit, number).as_bytes());
    }
    let room = [0, appends * APPEND_BYTES as u64];
    let mut file =
        LeasedFile::new(Arc::clone(&memory), LeaseGrant { lease: 1, log, blocks_at: BLOCKS_AT, size: 0, room });
    let (block, before) = (Block::filled(7), of(&memory.counters()));
    for _ in 0..appends {
        let mut turn = file.turn(&mut |_| {}, &mut |_| false)?.context("nobody else writes")?;
        let wrote = turn.write(turn.size(), &block.bytes()[..APPEND_BYTES], 1)?;
        drop(turn);
        anyhow::ensure!(wrote == Wrote::Done, "an append ended as {wrote:?}");
        file.sync()?;
    }
    Ok(Outcome::count(of(&memory.counters()) - before, appends))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn an_append_has_its_bytes_its_element_and_the_head() {
        let effort = Effort { pairs: 1, steps: 1 };
        let per_append = |outcome| match outcome {
            Outcome::Count { per_operation, .. } => per_operation,
            other => panic!("{other:?}"),
        };
        let counts = [append_lines(effort), append_fences(effort)].map(|outcome| per_append(outcome.unwrap()));
        assert_eq!(counts, [4.0, 2.0]);
    }
}
