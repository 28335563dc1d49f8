//! Atomic groups of writes: what a handle writes between its `begin` and its `commit`.
//!
//! A group's bytes are here until they are committed, and nobody sees them. The kernel's page cache
//! must not have them either: a program that is killed loses its locks before the service hears of
//! its end, and the next owner of the locks would read half a group from these pages.
//!
//! - The kernel drops the pages of a group's writes, see [`DroppedPages`].
//! - It has a page again after a read. So a read of a page that the group has ends the group.
//! - It has the length that writes gave the file. So the length counts the group's bytes, and is
//!   asked for each time.
//!
//! So a group *ends* without a commit when somebody reads its pages or changes the file otherwise.
//! Its writes and its commit fail from then on.

use rustix::io::{Errno, Result};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidegate_file_cache::{GroupBytes, GroupWrite};
use tidegate_fuse::{DroppedPages, Handle, Write};

/// Most bytes of one group.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// The groups of one file: one at a time, and those that ended before they were committed.
#[derive(Default)]
pub(crate) struct FileGroups {
    /// Whether there is any: a file without a group asks for no lock.
    is_used: AtomicBool,
    state: Mutex<GroupState>,
}

#[derive(Default)]
struct GroupState {
    open: Option<OpenGroup>,
    /// Handles whose group ended, until they begin, commit or abort one.
    ended: BTreeSet<Handle>,
}

/// What a handle has written.
struct OpenGroup {
    holder: Handle,
    written: GroupBytes,
    bytes: usize,
    /// Pages with bytes of the group.
    pages: DroppedPages,
}

impl FileGroups {
    /// Begins a group of a handle. One that it has goes on; that of another handle ends.
    pub(crate) fn begin(&self, holder: Handle) {
        let mut state = self.state();
        state.ended.remove(&holder);
        if state.open.as_ref().is_none_or(|group| group.holder != holder) {
            state.end_open();
            let pages = DroppedPages::none(rustix::param::page_size());
            state.open = Some(OpenGroup { holder, written: GroupBytes::default(), bytes: 0, pages });
        }
        self.note(&state);
    }

    /// The handle had a group in a server that died.
    pub(crate) fn was_lost(&self, holder: Handle) {
        let mut state = self.state();
        state.ended.insert(holder);
        self.note(&state);
    }

    /// Takes a write, if the handle has a group: says how many bytes were taken, or that the
    /// program has to write them again (`EINTR`). Another handle's write ends the group.
    pub(crate) fn write(&self, write: &Write<'_>) -> Option<Result<usize>> {
        let mut state = self.used()?;
        if state.ended.contains(&write.handle) {
            return Some(Err(Errno::IO));
        }
        let group = state.open.as_mut()?;
        if group.holder != write.handle {
            state.end_open();
            return None;
        }
        let taken = group.write(write);
        if taken.is_err_and(|errno| errno != Errno::INTR) {
            state.end_open();
        }
        Some(taken)
    }

    /// Somebody reads: ends the group if the kernel would have pages of it then.
    pub(crate) fn read(&self, at: u64, len: usize) {
        let Some(mut state) = self.used() else { return };
        if state.open.as_ref().is_some_and(|group| group.pages.has_any(at, len)) {
            state.end_open();
        }
    }

    /// Somebody changes the file otherwise: ends the group.
    pub(crate) fn change(&self) {
        if let Some(mut state) = self.used() {
            state.end_open();
        }
    }

    /// Where the group's last byte ends; `None`: no group is open.
    pub(crate) fn end_of_open(&self) -> Option<u64> {
        let state = self.used()?;
        let group = state.open.as_ref()?;
        Some(group.written.end())
    }

    /// Whether the kernel may rely on the file's length.
    pub(crate) fn is_used(&self) -> bool {
        // Acquire, with the release of `note`: whoever sees it finds the group.
        self.is_used.load(Ordering::Acquire)
    }

    /// Ends the group of a handle by `commit`. Nobody reads its pages meanwhile.
    pub(crate) fn commit(&self, holder: Handle, commit: impl FnOnce(&[GroupWrite<'_>]) -> Result<()>) -> Result<()> {
        let mut state = self.state();
        let committed = match state.open.take_if(|group| group.holder == holder) {
            Some(group) => {
                let writes = group.written.writes();
                if writes.is_empty() { Ok(()) } else { commit(&writes) }
            }
            None if state.ended.remove(&holder) => Err(Errno::IO),
            None => Err(Errno::INVAL),
        };
        self.note(&state);
        committed
    }

    /// Forgets the group of a handle.
    pub(crate) fn abort(&self, holder: Handle) {
        let Some(mut state) = self.used() else { return };
        state.open.take_if(|group| group.holder == holder);
        state.ended.remove(&holder);
        self.note(&state);
    }

    fn note(&self, state: &GroupState) {
        self.is_used.store(state.open.is_some() || !state.ended.is_empty(), Ordering::Release);
    }

    fn used(&self) -> Option<MutexGuard<'_, GroupState>> {
        self.is_used().then(|| self.state())
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupState {
    fn end_open(&mut self) {
        self.ended.extend(self.open.take().map(|group| group.holder));
    }
}

impl OpenGroup {
    /// Takes as many bytes as leave no page whole that the kernel has.
    fn write(&mut self, write: &Write<'_>) -> Result<usize> {
        let taken = self.pages.take(write).ok_or(Errno::INTR)?;
        self.bytes += taken;
        if self.bytes > GROUP_BYTES_MAX {
            return Err(Errno::NOSPC);
        }
        self.written.put(write.offset, &write.data[..taken]);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::Rng;

    const HOLDER: Handle = Handle(1);
    const OTHER: Handle = Handle(2);

    /// A write through the kernel's page cache.
    fn by(handle: Handle, offset: u64, data: &[u8]) -> Write<'_> {
        Write { handle, offset, data, flags: 0, from_page_cache: false, past_page_cache: false, kill_privileges: false }
    }

    /// Writes as a program does that goes on behind a short write.
    fn write_all(groups: &FileGroups, mut at: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let taken = match groups.write(&by(HOLDER, at, data)).expect("a group is open") {
                Err(Errno::INTR) => continue,
                taken => taken?,
            };
            (at, data) = (at + taken as u64, &data[taken..]);
        }
        Ok(())
    }

    fn committed(groups: &FileGroups) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut all = Vec::new();
        groups.commit(HOLDER, |writes| {
            all.extend(writes.iter().map(|write| (write.at, write.data.to_vec())));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn a_group_has_each_byte_that_was_written_last_and_gaps_between_runs() {
        const LEN: usize = 40_000;
        for seed in 0..50 {
            let (mut rng, groups) = (Rng::new(seed), FileGroups::default());
            groups.begin(HOLDER);
            let mut dull = vec![None; LEN];
            for byte in 1..20 {
                let (at, len) = (rng.index(LEN / 2), 1 + rng.index(9_000) * rng.index(2));
                write_all(&groups, at as u64, &vec![byte; len]).unwrap();
                dull[at..at + len].fill(Some(byte));
            }
            let runs = committed(&groups).unwrap();
            let mut found = vec![None; LEN];
            for (at, run) in &runs {
                let at = usize::try_from(*at).unwrap();
                found[at..at + run.len()].iter_mut().zip(run).for_each(|(found, byte)| *found = Some(*byte));
            }
            assert!(found == dull, "seed {seed}");
            assert!(runs.is_sorted_by(|one, next| one.0 + (one.1.len() as u64) < next.0), "seed {seed}");
        }
    }

    #[test]
    fn a_byte_in_a_page_that_the_kernel_may_have_is_written_again_and_the_group_goes_on() {
        let groups = FileGroups::default();
        assert_eq!(groups.write(&by(HOLDER, 0, b"no group")), None);
        groups.begin(HOLDER);
        assert_eq!(groups.write(&by(HOLDER, 7, b"x")), Some(Err(Errno::INTR)));
        assert_eq!(groups.write(&by(HOLDER, 7, b"x")), Some(Ok(1)));
        assert_eq!(committed(&groups), Ok(vec![(7, b"x".to_vec())]));
    }

    #[test]
    fn a_group_ends_when_its_pages_are_read_or_the_file_is_changed() {
        let page = rustix::param::page_size();
        type End = fn(&FileGroups);
        let ends: [(&str, End); 4] = [
            ("read", |groups| groups.read(10, 1)),
            ("write", |groups| assert_eq!(groups.write(&by(OTHER, 1 << 20, b"other")), None)),
            ("change", FileGroups::change),
            ("begin", |groups| groups.begin(OTHER)),
        ];
        for (name, end) in ends {
            let groups = FileGroups::default();
            groups.begin(HOLDER);
            write_all(&groups, 0, b"some").unwrap();
            groups.read(page as u64, page);
            assert_eq!(groups.end_of_open(), Some(4));
            end(&groups);
            assert_eq!(groups.write(&by(HOLDER, 0, b"more")), Some(Err(Errno::IO)), "{name}");
            assert_eq!(committed(&groups), Err(Errno::IO), "{name}");
            assert_eq!(committed(&groups), Err(Errno::INVAL), "{name}: it is told once");
        }
    }

    #[test]
    fn an_aborted_group_leaves_nothing() {
        let groups = FileGroups::default();
        groups.begin(HOLDER);
        write_all(&groups, 0, b"some").unwrap();
        groups.abort(HOLDER);
        assert!(!groups.is_used() && groups.end_of_open().is_none());
        groups.was_lost(HOLDER);
        assert_eq!(groups.write(&by(HOLDER, 0, b"more")), Some(Err(Errno::IO)));
        groups.begin(HOLDER);
        write_all(&groups, 0, b"more").unwrap();
        assert_eq!(committed(&groups), Ok(vec![(0, b"more".to_vec())]));
    }
}
