//! What a volume remembers of a store that the medium lost: the first error, for every later write.
//!
//! A fence that fails after a flog entry was stored leaves that entry, which may become durable,
//! naming a block that is still the lane's free one and replacing a block that the map still names.
//! Were the lane used again, its next data would be found under that entry's sector; were the
//! sector written through another lane, two entries would free one block. So nobody writes any
//! more.

use tidegate_media::Sealed;
use tidegate_media::sync::{AtomicBool, Mutex, Ordering};

/// Whether a store was lost.
#[derive(Debug, Default)]
pub(crate) struct StoreLoss {
    any: AtomicBool,
    first: Mutex<Option<Sealed>>,
}

impl StoreLoss {
    /// Answers the loss, if there was one.
    pub(crate) fn check(&self) -> Result<(), Sealed> {
        // Acquire pairs with the Release of `remember`. Whoever takes a lane or a stripe of the map
        // after the loss has taken its lock after.
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        (*self.first.lock()).map_or(Ok(()), Err)
    }

    /// Remembers the first loss, and answers `loss`. The caller still holds the lane and the stripe
    /// of the map.
    pub(crate) fn remember(&self, loss: Sealed) -> Sealed {
        self.first.lock().get_or_insert(loss);
        self.any.store(true, Ordering::Release);
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_told_for_ever() {
        let loss = StoreLoss::default();
        assert_eq!(loss.check(), Ok(()));
        let [first, second] = [7, 8].map(|at| Sealed::StoreLost { at });
        assert_eq!((loss.remember(first), loss.remember(second)), (first, second));
        assert_eq!(loss.check(), Err(first));
    }
}
