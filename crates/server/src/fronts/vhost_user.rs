//! Volumes as disks of virtual machines.

use crate::log_ratelimit::LogRatelimit;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tidegate_block_export::{Export, PollBudget};
use tidegate_vhost_user_blk::{BrokenQueue, ConnectionFailure, MachineAccess, QueueBudget, VirtualDisk, serve};

/// How long a monitor waits for the end of the one before: that one may have been killed a moment
/// ago.
const SUCCESSION_MAX: Duration = Duration::from_secs(2);

/// Queues of all machines that work at once: each has a thread.
pub(crate) const QUEUES_MAX: u64 = 1024;

/// Volumes that virtual machines have now. One that can be written is had by one machine at a time:
/// file systems expect that.
pub(crate) struct Attached {
    volumes: Mutex<BTreeSet<usize>>,
    one_left: Condvar,
    queues: QueueBudget,
    broken: LogRatelimit,
    rejected: LogRatelimit,
}

impl Default for Attached {
    fn default() -> Attached {
        Attached {
            volumes: Mutex::default(),
            one_left: Condvar::new(),
            queues: QueueBudget::new(QUEUES_MAX),
            broken: LogRatelimit::default(),
            rejected: LogRatelimit::default(),
        }
    }
}

/// Why a monitor was not served to the end of its machine.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    /// The volume has a machine.
    #[error("another virtual machine has the volume {name:?}")]
    Taken {
        /// Which volume.
        name: String,
    },
    /// The monitor is at fault.
    #[error(transparent)]
    Failed(#[from] ConnectionFailure),
}

/// A machine's place; given up when dropped.
struct Attachment<'a> {
    attached: &'a Attached,
    volume: usize,
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        self.attached.volumes.lock().expect(HOLDER_PANICKED).remove(&self.volume);
        self.attached.one_left.notify_all();
    }
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

impl Attached {
    /// Serves the monitor behind `stream`, client `number`, until it goes, or the server
    /// `is_ending`. How that ended.
    pub(crate) fn serve(
        &self,
        number: u64,
        volume: (usize, &Export),
        poll_budget: &PollBudget,
        stream: UnixStream,
        is_ending: impl Fn() -> bool,
    ) -> &'static str {
        let served = self.serve_to_its_end(number, volume, poll_budget, stream);
        match served {
            _ if is_ending() => "the server ends",
            Ok(()) => "its monitor closed the connection",
            Err(why) => {
                if let Some(more) = self.rejected.ask() {
                    tracing::warn!("rejected the monitor of a virtual machine, client {number}: {why}{more}");
                }
                "it was rejected"
            }
        }
    }

    fn serve_to_its_end(
        &self,
        number: u64,
        (volume, export): (usize, &Export),
        poll_budget: &PollBudget,
        stream: UnixStream,
    ) -> Result<(), NotServed> {
        let access = if export.refuses_changes() { MachineAccess::ReadOnly } else { MachineAccess::ReadWrite };
        let taken = || NotServed::Taken { name: export.name().to_owned() };
        let _place = match access {
            MachineAccess::ReadOnly => None,
            MachineAccess::ReadWrite => Some(self.take(volume, SUCCESSION_MAX).ok_or_else(taken)?),
        };
        let on_broken_queue = |queue: usize, why: &BrokenQueue| {
            if let Some(more) = self.broken.ask() {
                tracing::warn!("client {number}: queue {queue} stands still until the driver resets it: {why}{more}");
            }
        };
        let disk =
            VirtualDisk { export, poll_budget, queue_budget: &self.queues, access, on_broken_queue: &on_broken_queue };
        Ok(serve(&disk, stream)?)
    }

    fn take(&self, volume: usize, limit: Duration) -> Option<Attachment<'_>> {
        let volumes = self.volumes.lock().expect(HOLDER_PANICKED);
        let is_taken = |volumes: &mut BTreeSet<usize>| volumes.contains(&volume);
        let (mut volumes, waited) = self.one_left.wait_timeout_while(volumes, limit, is_taken).expect(HOLDER_PANICKED);
        if waited.timed_out() && volumes.contains(&volume) {
            return None;
        }
        volumes.insert(volume);
        Some(Attachment { attached: self, volume })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_volume_is_had_by_one_machine_at_a_time() {
        let attached = Attached::default();
        let first = attached.take(0, Duration::ZERO).expect("nobody has it");
        assert!(attached.take(0, Duration::ZERO).is_none());
        assert!(attached.take(1, Duration::ZERO).is_some(), "another volume");
        thread::scope(|scope| {
            let second = scope.spawn(|| attached.take(0, Duration::from_secs(3600)).is_some());
            drop(first);
            assert!(second.join().expect("the second"), "it waits for the end of the first");
        });
        assert!(attached.take(0, Duration::ZERO).is_some(), "both are gone");
    }
}
