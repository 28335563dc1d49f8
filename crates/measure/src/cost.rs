//! What a measurement costs beside its time: processor time, and energy where the machine counts
//! it.

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

/// Where Linux shows counters of energy.
const COUNTERS: &str = "/sys/class/powercap";

/// Processor time that this process has used, of threads that ended too.
pub fn own_processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Processor time that the threads of the process `pid` have used; of those that ended: nothing.
pub fn processor_time_of(pid: u32) -> anyhow::Result<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("no process {pid}"))?;
    let mut nanoseconds = 0;
    for thread in threads {
        // One that ends meanwhile has no file any more.
        let counted = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanoseconds += nanoseconds_on_core(&counted).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The first number of a thread's `schedstat`: nanoseconds on a core.
pub fn nanoseconds_on_core(counted: &str) -> Option<u64> {
    counted.split_ascii_whitespace().next()?.parse().ok()
}

/// Joules that all processors of this machine have used since some moment; None without counters.
pub fn joules() -> Option<f64> {
    joules_in(Path::new(COUNTERS))
}

/// Joules used since [`joules`] said `before`.
pub fn joules_since(before: Option<f64>) -> Option<f64> {
    joules().zip(before).map(|(now, before)| now - before)
}

/// The sum over whole packages. A counter starts over now and then, so that a difference may be
/// negative.
fn joules_in(folder: &Path) -> Option<f64> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let is_package = |name: &str| name.strip_prefix("intel-rapl:").is_some_and(|number| !number.contains(':'));
    let packages = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_package));
    let microjoules = packages.filter_map(|package| {
        let counted = std::fs::read_to_string(package.path().join("energy_uj")).ok()?;
        counted.trim().parse::<f64>().ok()
    });
    microjoules.reduce(|sum, more| sum + more).map(|sum| sum / 1e6)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_of_its_process() {
        let before = (own_processor_time(), processor_time_of(std::process::id()).unwrap());
        // As much as the kernel's counter of other processes needs to move.
        let mut sum = 0_u64;
        while processor_time_of(std::process::id()).unwrap() == before.1 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(own_processor_time() > before.0);
        assert!(processor_time_of(u32::MAX).is_err());
        assert_eq!((nanoseconds_on_core("48763 10 1\n"), nanoseconds_on_core("")), (Some(48_763), None));
    }

    #[test]
    fn joules_are_those_of_whole_packages() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(joules_in(folder.path()), None);
        for (name, microjoules) in [
            ("intel-rapl:0", "1500000\n"),
            ("intel-rapl:1", "500000\n"),
            ("intel-rapl:0:0", "900000\n"),
            ("dtpm", "7\n"),
        ] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("energy_uj"), microjoules).unwrap();
        }
        assert_eq!(joules_in(folder.path()), Some(2.0));
        assert_eq!(joules_in(Path::new("/nowhere")), None);
    }
}
