//! The sandbox of a server, as it was asked for and as the kernel has it.

use crate::{SandboxFailure, SandboxWish, Served, enter};
use std::fmt;

/// What came of a wish for a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// The process has given up calls.
    Entered,
    /// It was to keep them.
    Unwanted,
    /// The kernel cannot do it: why.
    Impossible(String),
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Confinement::Entered => f.write_str("on: no program is started, no process looked into, nothing mounted"),
            Confinement::Unwanted => f.write_str("off, as asked for"),
            Confinement::Impossible(why) => write!(f, "off: {why}"),
        }
    }
}

/// Gives up system calls in all threads of this process, as `wish` says.
///
/// # Errors
/// The kernel cannot do it, and `wish` insists on it.
pub fn confine(wish: SandboxWish, served: Served) -> Result<Confinement, SandboxFailure> {
    confine_by(wish, || enter(served))
}

fn confine_by(
    wish: SandboxWish,
    enter: impl FnOnce() -> Result<(), SandboxFailure>,
) -> Result<Confinement, SandboxFailure> {
    match wish {
        SandboxWish::Off => return Ok(Confinement::Unwanted),
        SandboxWish::On => enter()?,
        SandboxWish::Auto => {
            if let Err(failure) = enter() {
                tracing::warn!("the server keeps all its system calls: {failure}");
                return Ok(Confinement::Impossible(failure.to_string()));
            }
        }
    }
    Ok(Confinement::Entered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterRefused;
    use std::io;

    #[test]
    fn a_kernel_without_filters_is_told_of_and_ends_only_a_server_that_insists() {
        let lacks = || Err(SandboxFailure::Kernel(FilterRefused::Seccomp(io::ErrorKind::InvalidInput.into())));
        assert!(confine_by(SandboxWish::On, lacks).is_err());
        let told = confine_by(SandboxWish::Auto, lacks).expect("it serves").to_string();
        assert_eq!(told, "off: the kernel takes no filter of system calls");
        let off = confine_by(SandboxWish::Off, || unreachable!("it is off")).expect("it serves");
        assert_eq!(off.to_string(), "off, as asked for");
        for wish in [SandboxWish::On, SandboxWish::Auto] {
            assert_eq!(confine_by(wish, || Ok(())).expect("it serves"), Confinement::Entered);
        }
    }
}
