//! Versions of Linux, as releases begin with them.

/// A version of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// The version with which `release` begins, such as `6.12.117+deb12-amd64`; None: with none.
    pub fn of_release(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
        Some(KernelVersion(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// The version of the kernel that runs, if it tells.
    pub fn running() -> Option<KernelVersion> {
        KernelVersion::of_release(&std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_two_numbers_and_one_that_tells_none_is_old() {
        let of = KernelVersion::of_release;
        assert_eq!(of("6.12.117+deb12-cloud-amd64\n"), Some(KernelVersion(6, 12)));
        let since = Some(KernelVersion(6, 16));
        assert!(of("6.16-rc1") >= since && of("7.0") > since);
        assert!(of("") < since && of("6.x") < since);
        assert!(KernelVersion::running() > Some(KernelVersion(5, 0)));
    }
}
