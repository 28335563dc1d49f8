//! Limits of what the directories of a volume may have.

use super::{Gluster, NodeStorage};
use crate::waiting::succeeds;
use anyhow::{Context, ensure};

/// Bricks ask for what a directory has in all bricks only once in this time, and until then go on
/// with what they were told: 60 s, and 5 s near the limit, unless it is set.
const ASKED_EACH_TIME: [&str; 2] = ["soft-timeout 0", "hard-timeout 0"];

impl Gluster {
    /// Begins to count what each directory has. Each write is then checked against all of it.
    pub fn enable_quotas(&self, storage: NodeStorage) -> anyhow::Result<()> {
        self.gluster_until(&format!("volume quota {} enable", storage.name()), |_| true)?;
        for setting in ASKED_EACH_TIME {
            self.gluster_until(&format!("volume quota {} {setting}", storage.name()), |_| true)?;
        }
        let daemons = |said: &str| said.matches("Quota Daemon").count() == self.nodes.count();
        self.gluster_until(&format!("volume status {} quotad", storage.name()), daemons)
    }

    /// Limits a directory to so many bytes. It begins with a slash, the volume's root.
    pub fn limit_usage(&self, storage: NodeStorage, directory: &str, bytes: u64) -> anyhow::Result<()> {
        self.gluster_until(&format!("volume quota {} limit-usage {directory} {bytes}", storage.name()), |_| true)
    }

    /// Waits until the cluster tells that a limited directory has so many bytes. What was there
    /// before is counted in the background, and each write once it was answered.
    pub fn await_quota_use(&self, storage: NodeStorage, directory: &str, bytes: u64) -> anyhow::Result<()> {
        let line = format!("volume quota {} list {directory} --xml", storage.name());
        succeeds(&line, || {
            let used = used_in(&self.gluster(&line)?)?;
            ensure!(used == bytes, "{directory} has {used} bytes, and not {bytes}");
            Ok(())
        })
    }
}

/// The bytes in use of the one directory of a list.
fn used_in(list: &str) -> anyhow::Result<u64> {
    let after = list.split_once("<used_space>").with_context(|| format!("no use in {list}"))?.1;
    let number = after.split('<').next().unwrap_or_default().trim();
    number.parse().with_context(|| format!("a use of {number:?}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_directory_is_read() {
        let list =
            "<cliOutput><volQuota><limit><path>/a</path><used_space>65536</used_space></limit></volQuota></cliOutput>";
        assert_eq!(used_in(list).unwrap(), 65536);
        assert!(used_in("<cliOutput/>").is_err() && used_in("<used_space>N/A</used_space>").is_err());
    }
}
