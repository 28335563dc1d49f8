//! Capabilities of root that the server of a mount has no use for.

use crate::{SandboxFailure, SandboxWish};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What the server of a mount needs of root's rights: files of all users, with their owners, modes,
/// devices and attributes (`security.capability` takes SETFCAP, other `security.*` and `trusted.*`
/// SYS_ADMIN), and the blocks that a file system reserves for root (SYS_RESOURCE).
pub const OF_MOUNT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up all capabilities of this thread, and of those that it begins, but `kept`, as `wish`
/// says.
///
/// # Errors
/// The kernel refuses it, and `wish` insists on it; nothing is given up then.
pub fn give_up_capabilities(wish: SandboxWish, kept: CapabilitySet) -> Result<(), SandboxFailure> {
    let given_up = if wish == SandboxWish::Off { Ok(()) } else { give_up(kept) };
    match given_up {
        Err(failure) if wish == SandboxWish::On => return Err(failure),
        Err(failure) => tracing::warn!("the server keeps all its capabilities: {failure}"),
        Ok(()) => {}
    }
    Ok(())
}

fn give_up(kept: CapabilitySet) -> Result<(), SandboxFailure> {
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let left = |of: CapabilitySet| of.intersection(kept);
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: left(effective), permitted: left(permitted), inheritable };
    Ok(set_capabilities(None, sets)?)
}
