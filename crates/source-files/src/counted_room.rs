//! Room for short files, which is not reserved while the file system of SOURCE has plenty.
//!
//! A reservation costs several times as much as the write that it is for, and most short files are
//! removed or written back a moment later. So the beginning of a file is only counted, as long as
//! what was counted is a small part of what is free: then write-back finds its room unless others
//! take all of that meanwhile. In that case what the program wrote waits in the pool.

use rustix::fd::AsFd;
use rustix::fs::{StatVfs, StatVfsMountFlags, fstatvfs};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_host::files::mount_table::{self, MountedFileSystem};

/// So much of the beginning of a file is only counted.
pub(crate) const COUNTED_BYTES: u64 = 64 << 10;

/// Least bytes that are free below while anything is only counted.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// What is only counted is at most this part of what is free.
const PART: u64 = 8;

/// How long what the file system said about its room is believed.
const BELIEVED: Duration = Duration::from_millis(100);

/// File systems on which what is free can be written to.
const HONEST: [&str; 2] = ["ext4", "xfs"];

/// The room of one file system.
#[derive(Debug, Default)]
pub(crate) struct CountedRoom {
    /// Whether what it says is free can be written to.
    is_honest: bool,
    files: AtomicU64,
    free: Mutex<Option<(Instant, u64)>>,
}

/// Whether the beginning of one file is counted.
#[derive(Debug, Default)]
pub(crate) struct CountedBeginning(AtomicBool);

impl CountedRoom {
    /// The room of the file system of this device, as a process has it that may exceed the quotas
    /// of users, or may not.
    pub(crate) fn of(device: u64, exceeds_quotas: bool) -> CountedRoom {
        let is_it = |mounted: &MountedFileSystem| mounted.device() == Some(device);
        let mounted = mount_table::all().into_iter().map(|(_, mounted)| mounted).find(is_it);
        let is_honest = |mounted| says_what_is_free(mounted, exceeds_quotas);
        CountedRoom { is_honest: mounted.as_ref().is_some_and(is_honest), ..CountedRoom::default() }
    }

    /// Counts the beginning of `file`, if it is not, and there is plenty of room. False: it has to
    /// be reserved.
    pub(crate) fn count(&self, counted: &CountedBeginning, file: impl AsFd) -> bool {
        if counted.is_counted() {
            return true;
        }
        if !self.is_honest || !self.has_plenty(file) {
            return false;
        }
        if !counted.0.swap(true, Ordering::Relaxed) {
            self.files.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// The file needs no room any more, or has it.
    pub(crate) fn end(&self, counted: &CountedBeginning) {
        if counted.0.swap(false, Ordering::Relaxed) {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn has_plenty(&self, file: impl AsFd) -> bool {
        let mut said = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = match *said {
            Some((at, free)) if at.elapsed() < BELIEVED => free,
            _ => {
                let free = fstatvfs(file).map_or(0, |room| bytes_free(&room));
                *said = Some((Instant::now(), free));
                free
            }
        };
        let counted = (self.files.load(Ordering::Relaxed) + 1) * COUNTED_BYTES;
        free >= FREE_BYTES_MIN && counted <= free / PART
    }
}

fn bytes_free(room: &StatVfs) -> u64 {
    let is_writable = !room.f_flag.contains(StatVfsMountFlags::RDONLY);
    if is_writable { room.f_bavail.saturating_mul(room.f_frsize) } else { 0 }
}

fn says_what_is_free(mounted: &MountedFileSystem, exceeds_quotas: bool) -> bool {
    let is_quota = |option: &str| option.contains("quota") && !option.starts_with("no");
    HONEST.contains(&mounted.kind.as_str()) && (exceeds_quotas || !mounted.options.split(',').any(is_quota))
}

impl CountedBeginning {
    /// Whether room for the file's beginning is only counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CountedRoom {
        /// As of an ext4 that has just said that so much is free.
        fn with(free: u64) -> CountedRoom {
            let free = Mutex::new(Some((Instant::now() + Duration::from_secs(3600), free)));
            CountedRoom { is_honest: true, free, files: AtomicU64::new(0) }
        }

        pub(crate) fn with_plenty() -> CountedRoom {
            CountedRoom::with(1 << 40)
        }

        /// Files whose beginning is counted.
        pub(crate) fn files(&self) -> u64 {
            self.files.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_file_is_counted_once_and_only_while_there_is_plenty_for_all_of_them() {
        let file = tempfile::tempfile().expect("a file");
        let room = CountedRoom::with(FREE_BYTES_MIN);
        let most = FREE_BYTES_MIN / PART / COUNTED_BYTES;
        let counted: Vec<CountedBeginning> = (0..most).map(|_| CountedBeginning::default()).collect();
        for _ in 0..2 {
            assert!(counted.iter().all(|counted| room.count(counted, &file)));
        }
        let one_more = CountedBeginning::default();
        assert!(!room.count(&one_more, &file) && !one_more.is_counted());
        room.end(&counted[0]);
        room.end(&counted[0]);
        assert!(room.count(&one_more, &file) && !room.count(&counted[0], &file));
    }

    #[test]
    fn nothing_is_counted_where_room_is_short_or_what_is_free_says_little() {
        let file = tempfile::tempfile().expect("a file");
        assert!(!CountedRoom::with(FREE_BYTES_MIN - 1).count(&CountedBeginning::default(), &file));
        let other = CountedRoom { is_honest: false, ..CountedRoom::with_plenty() };
        assert!(!other.count(&CountedBeginning::default(), &file));
        assert!(!CountedRoom::of(u64::MAX, true).is_honest, "no such device");
    }

    #[test]
    fn a_user_may_meet_a_quota_before_the_file_system_is_full() {
        let mounted = |kind: &str, options: &str| MountedFileSystem {
            id: "1".into(),
            number: "8:1".into(),
            root: "/".into(),
            kind: kind.into(),
            source_name: "/dev/sda1".into(),
            options: options.into(),
        };
        for (kind, options, as_root, as_user) in [
            ("ext4", "rw", true, true),
            ("xfs", "rw,attr2,inode64,noquota", true, true),
            ("xfs", "rw,prjquota", true, false),
            ("ext4", "rw,quota,usrquota", true, false),
            ("ext4", "rw,usrjquota=aquota.user,jqfmt=vfsv0", true, false),
            ("btrfs", "rw", false, false),
        ] {
            let says = |exceeds_quotas| says_what_is_free(&mounted(kind, options), exceeds_quotas);
            assert_eq!((says(true), says(false)), (as_root, as_user), "{kind} {options}");
        }
    }
}
