//! The sandbox of a server, as it was asked for and as the kernel has it.

use tidegate_sandbox::{SandboxFailure, SandboxWish, enter};

/// Gives up system calls in all threads of this process, as `wish` says. Returns what came of it,
/// in words.
///
/// # Errors
/// The kernel cannot do it, and `wish` insists on it.
pub fn confine(wish: SandboxWish) -> Result<String, SandboxFailure> {
    confine_by(wish, enter)
}

fn confine_by(wish: SandboxWish, enter: impl FnOnce() -> Result<(), SandboxFailure>) -> Result<String, SandboxFailure> {
    match wish {
        SandboxWish::Off => return Ok("off, as asked for".to_owned()),
        SandboxWish::On => enter()?,
        SandboxWish::Auto => {
            if let Err(failure) = enter() {
                tracing::warn!("the server keeps all its system calls: {failure}");
                return Ok(format!("off: {failure}"));
            }
        }
    }
    Ok("on: no program is started, no process looked into, nothing mounted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use tidegate_sandbox::FilterRefused;

    #[test]
    fn a_kernel_without_filters_is_told_of_and_ends_only_a_server_that_insists() {
        let lacks = || Err(SandboxFailure::Kernel(FilterRefused::Seccomp(io::ErrorKind::InvalidInput.into())));
        assert!(confine_by(SandboxWish::On, lacks).is_err());
        let told = confine_by(SandboxWish::Auto, lacks).expect("it serves");
        assert_eq!(told, "off: the kernel takes no filter of system calls");
        assert_eq!(confine_by(SandboxWish::Off, || unreachable!("it is off")).expect("it serves"), "off, as asked for");
        for wish in [SandboxWish::On, SandboxWish::Auto] {
            assert!(confine_by(wish, || Ok(())).expect("it serves").starts_with("on: "));
        }
    }
}
