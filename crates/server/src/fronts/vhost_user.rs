//! Volumes as disks of virtual machines.

use crate::log_ratelimit::LogRatelimit;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tidegate_block_export::{Export, PollBudget};
use tidegate_vhost_user_blk::{BrokenQueue, VirtualDisk, serve};

/// How long a monitor waits for the end of the one before: that one may have been killed a moment
/// ago.
const SUCCESSION_MAX: Duration = Duration::from_secs(2);

/// Volumes that virtual machines have now. One that can be written is had by one machine at a time:
/// file systems expect that.
#[derive(Default)]
pub(crate) struct Attached {
    volumes: Mutex<BTreeSet<usize>>,
    one_left: Condvar,
    broken: LogRatelimit,
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
    /// Serves the monitor behind `stream`, client `number`, until it goes. How that ended.
    pub(crate) fn serve(
        &self,
        number: u64,
        (volume, export): (usize, &Export),
        poll_budget: &PollBudget,
        stream: UnixStream,
    ) -> String {
        let shares = export.refuses_changes();
        let place = if shares { None } else { self.take(volume, SUCCESSION_MAX) };
        if place.is_none() && !shares {
            return format!("rejected: another virtual machine has the volume {:?}", export.name());
        }
        let on_broken_queue = |queue: usize, why: &BrokenQueue| {
            if let Some(more) = self.broken.ask() {
                tracing::warn!("client {number}: queue {queue} stands still until the driver resets it: {why}{more}");
            }
        };
        match serve(&VirtualDisk { export, poll_budget, on_broken_queue: &on_broken_queue }, stream) {
            Ok(()) => "its monitor closed the connection".to_owned(),
            Err(failure) => failure.to_string(),
        }
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
