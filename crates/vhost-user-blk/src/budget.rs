//! What machines may do and have, as far as it does not depend on what they say.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a machine may do with a volume, from the beginning to the end of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineAccess {
    /// It reads and writes.
    ReadWrite,
    /// It reads, as others may do beside it.
    ReadOnly,
}

/// Counts the queues that work, of all machines: each has a thread, with its memory and its
/// descriptors.
#[derive(Debug)]
pub struct QueueBudget {
    /// How many more may begin.
    left: AtomicU64,
}

impl QueueBudget {
    /// Room for `most` queues.
    pub fn new(most: u64) -> QueueBudget {
        QueueBudget { left: AtomicU64::new(most) }
    }

    /// Takes the place of one queue. Relaxed: only the number counts.
    pub(crate) fn take(&self) -> Option<QueuePermit<'_>> {
        let one_less = |left: u64| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        taken.is_ok().then_some(QueuePermit(self))
    }
}

/// The place of a queue; given up when dropped.
pub(crate) struct QueuePermit<'b>(&'b QueueBudget);

impl Drop for QueuePermit<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_get_places_as_long_as_there_are_some() {
        let budget = QueueBudget::new(2);
        let (first, second) = (budget.take(), budget.take());
        assert!(first.is_some() && second.is_some());
        assert!(budget.take().is_none());
        drop(first);
        assert!(budget.take().is_some());
    }
}
