//! Limits of a process: open descriptors, memory mappings, and the size of files; and what lifts
//! one that an error tells of.

use crate::threads::is_ignored;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;
use std::io;
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

/// Returns how many mappings the kernel lets a process have; no limit if it does not say.
pub fn mappings_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}

/// Has a write past this process's limit on the size of files answer `EFBIG` from now on, in place
/// of the signal that ends the process. Programs that it starts get the signal as before: a caught
/// signal has its default again in them, and one that was ignored from the start stays so.
pub fn refuse_writes_past_the_limit() -> io::Result<()> {
    if !is_ignored(SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// The largest file that this process may write, if there is a limit.
pub fn file_bytes_max() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

const MORE_FILES: &str = "let this process have more open files: ulimit -n 65536";
const MORE_ADDRESSES: &str = "let this process have more address space: ulimit -v unlimited";
const MORE_THREADS: &str = "let this user have more threads (ulimit -u unlimited, or pids.max of the cgroup)";

/// What lifts the limit of this process that `error` tells of, if it tells of one.
pub fn lifting(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(MORE_FILES),
        Errno::NOMEM if are_addresses_limited() => Some(MORE_ADDRESSES),
        _ => None,
    }
}

/// What lifts the limit that `error` tells of, which may have kept a thread from being started.
pub fn lifting_for_threads(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        // A thread whose stack finds no place is refused like one too many.
        Errno::AGAIN if are_addresses_limited() => Some(MORE_ADDRESSES),
        Errno::AGAIN => Some(MORE_THREADS),
        _ => lifting(error),
    }
}

fn are_addresses_limited() -> bool {
    getrlimit(Resource::As).current.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn descriptors_are_raised_as_far_as_they_go() {
        raise_descriptors();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }

    #[test]
    fn the_signal_of_a_write_past_the_limit_ends_programs_but_not_this_process() {
        refuse_writes_past_the_limit().expect("a signal that can be caught");
        let signal = Signal::XFSZ;
        kill_process(getpid(), signal).expect("this process");
        let program = Command::new("sh").args(["-c", "kill -XFSZ $$"]).status().expect("a shell");
        assert_eq!(program.signal(), Some(signal.as_raw()));
    }

    #[test]
    fn a_limit_is_named_only_by_the_errors_that_tell_of_it() {
        let [files, threads, absent] = [Errno::MFILE, Errno::AGAIN, Errno::NOENT].map(io::Error::from);
        assert!(lifting(&files).is_some_and(|lift| lift.contains("ulimit -n")));
        assert_eq!([lifting(&threads), lifting(&absent), lifting_for_threads(&absent)], [None; 3]);
        assert_eq!(lifting_for_threads(&files), lifting(&files));
        let words = lifting_for_threads(&threads).unwrap_or_default();
        assert!(words.contains(if are_addresses_limited() { "ulimit -v" } else { "ulimit -u" }), "{words}");
    }
}
