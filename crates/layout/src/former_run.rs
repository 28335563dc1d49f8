//! How a pool of the former `tidegate run-log` is recognised: a cache whose disk was files. This
//! version reads none, and overwrites none.

/// What the cache of such a pool says that its disk is, before the version's digit.
const POOL_DISK: [u8; 31] = *b"files of programs below run, v ";

/// Whether a cache says with `disk` that it is such a pool's.
pub fn is_pool_disk(disk: &[u8; 32]) -> bool {
    disk.starts_with(&POOL_DISK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_all_versions_are_known_and_disks_are_none() {
        let of_version = |version: u8| [POOL_DISK.as_slice(), &[b'0' + version]].concat().try_into().expect("32 bytes");
        assert!((2..=5).all(|version| is_pool_disk(&of_version(version))));
        assert!(!is_pool_disk(&[0; 32]));
    }
}
