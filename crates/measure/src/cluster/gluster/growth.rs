//! Volumes that get more bricks, and whose files are spread over all of them.

use super::{Gluster, NodeStorage};
use crate::waiting::succeeds;
use anyhow::ensure;

/// What moving files to the bricks that they belong on came to, on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebalanced {
    /// Files that were moved to another brick.
    pub moved: u64,
    /// Files that were looked at.
    pub scanned: u64,
    /// Files that could not be moved, mostly as programs wrote them meanwhile.
    pub failed: u64,
    /// Files that were left where they are.
    pub skipped: u64,
}

impl Gluster {
    /// Adds a brick on each spare node to a volume. Files stay where they are.
    pub fn grow(&mut self, storage: NodeStorage) -> anyhow::Result<()> {
        let all = self.new_bricks(self.bricks(storage)..self.nodes.count(), storage)?;
        let (volume, replicas) = (storage.name(), self.replication.replicas);
        self.gluster_until(&format!("volume add-brick {volume} replica {replicas}{all} force"), |_| true)?;
        self.grown.push(storage);
        self.await_bricks(storage)
    }

    /// Begins to move files to the bricks that they belong on.
    pub fn start_rebalance(&self, storage: NodeStorage) -> anyhow::Result<()> {
        // Bricks that share a disk have the same free space. Without `force`, a file is not moved
        // to a brick that has no more of it.
        self.gluster_until(&format!("volume rebalance {} start force", storage.name()), |_| true)
    }

    /// Waits until all nodes say that they have moved what they had to.
    pub fn await_rebalance(&self, storage: NodeStorage) -> anyhow::Result<Rebalanced> {
        let line = format!("volume rebalance {} status", storage.name());
        let states = succeeds(&line, || {
            let said = self.gluster(&line)?;
            let states = said.lines().filter_map(NodeState::of).collect::<Vec<_>>();
            ensure!(states.len() == self.nodes.count(), "{} nodes answer: {said}", states.len());
            ensure!(states.iter().all(|state| !state.is_under_way()), "{said}");
            Ok(states)
        })?;
        let ended = states.iter().all(|state| state.status == "completed");
        ensure!(ended, "files were not all moved: {states:?}");
        Ok(states.iter().fold(Rebalanced::default(), |sum, state| sum.and(state.done)))
    }
}

impl Rebalanced {
    fn and(self, other: Rebalanced) -> Rebalanced {
        Rebalanced {
            moved: self.moved + other.moved,
            scanned: self.scanned + other.scanned,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// A row of a rebalance's status.
#[derive(Debug, PartialEq, Eq)]
struct NodeState {
    done: Rebalanced,
    /// A word or two.
    status: String,
}

impl NodeState {
    /// Reads node, moved files, their size, scanned files, failures, skipped files, status, and
    /// time. None: the line is no row.
    fn of(line: &str) -> Option<NodeState> {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let [_, moved, _, scanned, failed, skipped, status @ .., _] = words.as_slice() else { return None };
        let number = |word: &str| word.parse().ok();
        let (moved, scanned) = (number(moved)?, number(scanned)?);
        let done = Rebalanced { moved, scanned, failed: number(failed)?, skipped: number(skipped)? };
        Some(NodeState { done, status: status.join(" ") })
    }

    fn is_under_way(&self) -> bool {
        ["in progress", "not started", "fix-layout in progress"].contains(&self.status.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_status_are_read_and_other_lines_are_not() {
        let status = "\
            Node Rebalanced-files          size       scanned      failures       skipped               status  run time in h:m:s
       ---------      -----------   -----------   -----------   -----------   -----------         ------------     --------------
        10.7.0.2               17       1.1MB            64             1             3          in progress        0:00:01
       localhost                0        0Bytes             5             0             0            completed        0:00:00
volume rebalance: mounts: success";
        let states = status.lines().filter_map(NodeState::of).collect::<Vec<_>>();
        let done = Rebalanced { moved: 17, scanned: 64, failed: 1, skipped: 3 };
        assert_eq!(states.len(), 2);
        assert_eq!((states[0].done, states[0].is_under_way()), (done, true));
        assert_eq!((states[1].done.scanned, states[1].status.as_str()), (5, "completed"));
    }
}
