//! Whether a file may run with privileges of its own, which writes take away: set-user-ID,
//! set-group-ID, capabilities. A program without the right to keep them has every write ask.

use crate::service::Privileges;
use std::sync::atomic::{AtomicBool, Ordering};

/// The privileges that a file may have. Whoever gives it some says so before the kernel hears that
/// it has them, so before the next write: all accesses are relaxed.
#[derive(Debug)]
pub(crate) struct PossiblePrivileges {
    capabilities: AtomicBool,
    set_ids: AtomicBool,
}

impl PossiblePrivileges {
    /// Of a file that was not looked at.
    pub(crate) fn unknown() -> PossiblePrivileges {
        PossiblePrivileges { capabilities: AtomicBool::new(true), set_ids: AtomicBool::new(true) }
    }

    /// Notes that the file may have any again.
    pub(crate) fn suspect(&self) {
        self.capabilities.store(true, Ordering::Relaxed);
        self.set_ids.store(true, Ordering::Relaxed);
    }

    /// Notes, before a look at the file, that it will have none but those found.
    pub(crate) fn begin_look(&self) {
        self.capabilities.store(false, Ordering::Relaxed);
        self.set_ids.store(false, Ordering::Relaxed);
    }

    /// Notes that set-user-ID or set-group-ID was found, and stays.
    pub(crate) fn found_set_ids(&self) {
        self.set_ids.store(true, Ordering::Relaxed);
    }

    /// Whether the file may have capabilities.
    pub(crate) fn may_have_capabilities(&self) -> bool {
        self.capabilities.load(Ordering::Relaxed)
    }

    /// Whether a change of the contents has to look at the file, to take privileges away.
    pub(crate) fn need_look(&self, asked: Privileges) -> bool {
        self.may_have_capabilities() || asked == Privileges::Clear && self.set_ids.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_at_once_until_it_may_have_privileges_again() {
        let possible = PossiblePrivileges::unknown();
        assert!(possible.need_look(Privileges::Keep) && possible.need_look(Privileges::Clear));
        possible.begin_look();
        assert!(!possible.need_look(Privileges::Keep) && !possible.need_look(Privileges::Clear));
        possible.found_set_ids();
        assert!(!possible.need_look(Privileges::Keep) && possible.need_look(Privileges::Clear));
        possible.suspect();
        assert!(possible.need_look(Privileges::Keep) && possible.may_have_capabilities());
    }
}
