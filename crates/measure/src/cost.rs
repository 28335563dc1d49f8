//! What a measurement costs beside its time: processor time, and energy where the machine counts
//! it.

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Where Linux shows counters of energy.
const COUNTERS: &str = "/sys/class/powercap";
/// The unit of times in `/proc`, the same on all machines with Tidegate.
const NANOSECONDS_A_TICK: u64 = 10_000_000;

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

/// Processor time of the kernel's own threads: journals, requests to disks, writing back. None has
/// interrupts that come while a core is idle.
pub struct KernelThreads(BTreeMap<u32, u64>);

impl KernelThreads {
    /// What each has used so far.
    pub fn now() -> anyhow::Result<KernelThreads> {
        let mut threads = BTreeMap::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            if is_kernel_thread(&read("stat")) {
                threads.insert(pid, nanoseconds_on_core(&read("schedstat")).unwrap_or(0));
            }
        }
        Ok(KernelThreads(threads))
    }

    /// What they have used since `before`; of those that ended: nothing.
    pub fn since(&self, before: &KernelThreads) -> Duration {
        let used = |(pid, now): (&u32, &u64)| now.saturating_sub(before.0.get(pid).copied().unwrap_or(0));
        Duration::from_nanos(self.0.iter().map(used).sum())
    }
}

/// Numbers of `/proc/PID/stat` behind the name of the program, which may have any characters.
fn numbers_of(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, numbers)| numbers).split_ascii_whitespace()
}

/// Whether `stat` is that of a thread of the kernel: its flags say so.
fn is_kernel_thread(stat: &str) -> bool {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    numbers_of(stat).nth(6).and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

/// Processor time of programs that this process has started and waited for.
pub fn ended_children_time() -> anyhow::Result<Duration> {
    children_time(&std::fs::read_to_string("/proc/self/stat")?).context("no times in /proc/self/stat")
}

/// The times of ended children in `stat`, by the user's program and by the kernel for it.
fn children_time(stat: &str) -> Option<Duration> {
    let mut ticks = numbers_of(stat).skip(13).take(2).map(str::parse::<u64>);
    let [by_program, by_kernel] = [ticks.next()?.ok()?, ticks.next()?.ok()?];
    Some(Duration::from_nanos((by_program + by_kernel) * NANOSECONDS_A_TICK))
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
    fn threads_of_the_kernel_and_ended_children_are_told_by_their_numbers() {
        let thread = "58 (kworker/1:1H-kblockd) I 2 0 0 0 -1 69238880 0 0 0 0 0 17957 0 0 0 -20 1 0 7 0 0";
        let program = "7 (a) b) S 1 7 7 0 -1 4194560 0 0 0 0 5 6 70 8 20 0 1 0 9 0 0";
        assert_eq!([thread, program, ""].map(is_kernel_thread), [true, false, false]);
        assert_eq!((children_time(program), children_time("")), (Some(Duration::from_millis(780)), None));
        let [before, after] =
            [vec![(1, 5), (2, 9)], vec![(1, 7), (3, 4)]].map(|all| KernelThreads(all.into_iter().collect()));
        assert_eq!(after.since(&before), Duration::from_nanos(6));
        // A container may show none of the kernel's threads.
        KernelThreads::now().unwrap();
        ended_children_time().unwrap();
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
