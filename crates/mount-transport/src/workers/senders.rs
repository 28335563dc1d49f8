//! Whether one program's requests keep another one's waiting.
//!
//! One worker waits for requests. While it takes one of 1 MiB and answers it, a short request of
//! another program waits for as long. So while one of several senders sends long requests, two
//! workers wait. A thread that is alone waits for nobody but itself, and is spared what waking
//! workers on different cores costs.

use tidegate_fuse::{Operation, Request};

/// From how many bytes on a request is long: copying them takes longer than waking a worker.
const LONG_BYTES: u64 = 128 << 10;

/// For how many looks of the clock what was seen counts.
const LATELY: u64 = 100;

/// How long a request takes, as far as its message tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Few microseconds.
    Short,
    /// As long as copying many bytes.
    Long,
}

impl Length {
    /// Judges a request.
    pub(crate) fn of(request: &Request<'_>) -> Length {
        let bytes = match &request.operation {
            Operation::Write(write) => write.data.len() as u64,
            Operation::Read { len, .. } => u64::from(*len),
            Operation::CopyFileRange(copy) => copy.len,
            _ => 0,
        };
        if bytes < LONG_BYTES { Length::Short } else { Length::Long }
    }
}

/// Who sent requests lately.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    /// The thread that sent the last request.
    last: u32,
    /// The look before which two senders followed each other.
    mixed_at: Option<u64>,
    /// The look before which a long request came.
    long_at: Option<u64>,
}

impl Senders {
    /// Notes a request of the thread `sender` after so many looks of the clock. The kernel's own
    /// requests, whose sender is 0, are nobody's.
    pub(crate) fn note(&mut self, sender: u32, length: Length, looks: u64) {
        if sender != 0 && std::mem::replace(&mut self.last, sender) != sender {
            self.mixed_at = Some(looks);
        }
        if length == Length::Long {
            self.long_at = Some(looks);
        }
    }

    /// Whether a long request of one may keep another one's waiting.
    pub(crate) fn are_in_each_others_way(&self, looks: u64) -> bool {
        let is_lately = |at: Option<u64>| at.is_some_and(|at| looks - at < LATELY);
        is_lately(self.mixed_at) && is_lately(self.long_at)
    }
}

#[cfg(test)]
mod tests {
    use super::Length::{Long, Short};
    use super::*;

    #[test]
    fn a_lone_sender_of_long_requests_is_in_nobodys_way() {
        let mut senders = Senders::default();
        for look in 0..1000 {
            senders.note(7, Long, look);
            senders.note(0, Long, look);
            assert!(look < LATELY || !senders.are_in_each_others_way(look));
        }
    }

    #[test]
    fn senders_are_in_each_others_way_while_both_send_and_one_sends_long_requests() {
        let mut senders = Senders::default();
        let mut after = |sender, length, look| {
            senders.note(sender, length, look);
            senders.are_in_each_others_way(look)
        };
        assert!(!after(7, Short, 0) && !after(8, Short, 1), "short ones");
        assert!(after(7, Long, 2) && after(8, Short, 3) && after(7, Short, 4));
        assert!(!after(8, Short, 2 + LATELY), "no long one lately");
        assert!(after(8, Long, 3 + LATELY));
        assert!(!after(8, Long, 2 + LATELY + LATELY), "no other one lately");
    }
}
