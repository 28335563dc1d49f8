//! Limits of a process: open descriptors, bytes of a file and memory mappings.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Raises the limit on descriptors as far as it goes without privileges; where it is then.
pub fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => current.unwrap_or(u64::MAX),
    }
}

/// Has a write behind the limit of a file's bytes fail with `EFBIG`, instead of ending the process.
///
/// # Errors
/// What the system answered.
pub fn outlive_file_limit() -> std::io::Result<()> {
    let noticed = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noticed).map(drop)
}

/// Returns how many mappings the kernel lets a process have; no limit if it does not say.
pub fn mappings_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_raised_as_far_as_they_go() {
        raise_descriptors();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
