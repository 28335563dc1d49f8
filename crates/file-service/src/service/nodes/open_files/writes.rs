//! Writes to open files, and when programs changed them last.

use super::{OpenFile, OpenFiles, OpenState, ServedFrom, errno_of};
use rustix::fs::Timespec;
use rustix::io::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering;
use tidegate_file_cache::{FileError, GroupWrite, Persistence, PoolFile};
use tidegate_layout::file_cache::{LoggedTime, modified_time, modified_word};

/// Where a write goes.
#[derive(Clone, Copy)]
pub(crate) enum WriteAt<'a> {
    /// At this offset.
    At(u64),
    /// At the end of the file, which this is told.
    End(&'a dyn Fn(FileEnd)),
}

/// The end of a file that is about to be appended to.
#[derive(Clone, Copy)]
pub(crate) struct FileEnd {
    pub(crate) at: u64,
    /// Whether the kernel may have had pages of the file before.
    pub(crate) had_pages: bool,
}

impl From<u64> for WriteAt<'_> {
    fn from(at: u64) -> Self {
        WriteAt::At(at)
    }
}

impl OpenFiles {
    /// Writes bytes.
    pub(crate) fn write<'p>(
        &self,
        file: &OpenFile,
        place: impl Into<WriteAt<'p>>,
        data: &[u8],
        persistence: Persistence,
    ) -> Result<()> {
        let place = place.into();
        match self.write_where_room_is(file, place, data, persistence) {
            // Files that nobody has open may hold room for more than they have.
            Err(Errno::NOSPC | Errno::DQUOT) if self.give_back_room().is_ok() => {
                self.write_where_room_is(file, place, data, persistence)
            }
            written => written,
        }
    }

    /// Writes bytes past the pool where that has none of them. Programs that sync such writes are
    /// better served by the pool: from that sync on, it gets them.
    pub(crate) fn write_direct(&self, file: &OpenFile, place: WriteAt<'_>, data: &[u8]) -> Result<()> {
        let state = self.changing(file)?;
        // Relaxed: either way is right.
        let number = match state.served_from {
            ServedFrom::Pool(number) if !file.syncs_direct.load(Ordering::Relaxed) => number,
            _ => {
                drop(state);
                return self.write(file, place, data, Persistence::Asynchronous);
            }
        };
        let at = self.placed((file, &state), place)?;
        self.note_change(&state)?;
        let below = self.pool.write_direct(number, at, data).map_err(|error| errno_of(&error))?;
        if below > 0 {
            file.owes_direct.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the files that nobody has open leave the pool, with the room that is reserved for them.
    fn give_back_room(&self) -> std::result::Result<(), FileError> {
        for lane in 0..self.pool.lanes() {
            // As often as there are files: others go on writing.
            for _ in 0..self.len() {
                let left = self.pool.write_dirty_step(lane, u64::MAX, u64::MAX)?;
                if self.pool.write_back_step(lane, u64::MAX)?.bytes + left.bytes == 0 {
                    break;
                }
            }
        }
        self.let_go()
    }

    fn write_where_room_is(
        &self,
        file: &OpenFile,
        place: WriteAt<'_>,
        data: &[u8],
        persistence: Persistence,
    ) -> Result<()> {
        let state = self.changing(file)?;
        let at = self.placed((file, &state), place)?;
        self.note_change(&state)?;
        if persistence == Persistence::Synchronous {
            self.names.commit()?;
        }
        let written = match state.served_from {
            ServedFrom::Pool(number) => self.pool.write(number, at, data, persistence),
            ServedFrom::File | ServedFrom::BesidePool => {
                state.below().write(at, data).map_err(FileError::from).and_then(|()| match persistence {
                    Persistence::Asynchronous => Ok(()),
                    Persistence::Synchronous => Ok(state.below().sync_with_times()?),
                })
            }
        };
        written.map_err(|error| errno_of(&error))
    }

    /// Makes a group of writes durable, all or nothing. A file without a place in the pool has no
    /// groups.
    pub(crate) fn write_group(&self, file: &OpenFile, writes: &[GroupWrite<'_>]) -> Result<()> {
        let state = self.changing(file)?;
        self.end_lease(file, &state)?;
        self.names.commit()?;
        let ServedFrom::Pool(number) = state.served_from else { return Err(Errno::NOSPC) };
        self.note_change(&state)?;
        self.pool.write_group(number, writes).map_err(|error| errno_of(&error))?;
        // Relaxed: it is read for people.
        self.groups.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that the contents are about to change, if the pool has the file: any other file has
    /// the time of its last change itself.
    pub(super) fn note_change(&self, state: &OpenState) -> Result<()> {
        match state.served_from {
            ServedFrom::Pool(number) => self.note_modified(state, number, word_of_now()),
            ServedFrom::File | ServedFrom::BesidePool => Ok(()),
        }
    }

    /// The backing has the time first: the pool takes it for written below when the backing was
    /// synced.
    fn note_modified(&self, state: &OpenState, number: PoolFile, word: u64) -> Result<()> {
        state.backing.change_modified(|modified| {
            *modified = modified_time(word).map(point_of);
            self.pool.note_modified(number, word).map_err(|error| errno_of(&error))
        })
    }

    /// Sets when the contents were changed last. False: the file below has to be told, as nothing
    /// of the file is in the pool.
    pub(crate) fn set_modified(&self, file: &OpenFile, at: Timespec) -> Result<bool> {
        let state = file.read_state();
        self.end_lease(file, &state)?;
        let ServedFrom::Pool(number) = state.served_from else { return Ok(false) };
        self.note_modified(&state, number, word_of(at))?;
        Ok(true)
    }

    /// Where a write goes; it ends the file's lease.
    fn placed(&self, (file, state): (&OpenFile, &OpenState), place: WriteAt<'_>) -> Result<u64> {
        self.end_lease(file, state)?;
        let had_pages = file.lease.may_have_pages();
        let at = match (place, state.served_from) {
            (WriteAt::At(at), _) => return Ok(at),
            (WriteAt::End(_), ServedFrom::Pool(number)) => self.pool.size(number).map_err(|error| errno_of(&error))?,
            (WriteAt::End(_), _) => tidegate_source_files::about(state.backing.descriptor())?.stx_size,
        };
        if let WriteAt::End(tell) = place {
            tell(FileEnd { at, had_pages });
        }
        Ok(at)
    }

    /// Notes that the contents are about to change.
    pub(crate) fn touch(&self, file: &OpenFile) -> Result<()> {
        let state = file.read_state();
        self.end_lease(file, &state)?;
        self.note_change(&state)
    }
}

/// The pool's word for this time.
pub(crate) fn word_of_now() -> u64 {
    word_of(clock_gettime(ClockId::RealtimeCoarse))
}

/// The pool's word for a time.
fn word_of(time: Timespec) -> u64 {
    modified_word(LoggedTime { seconds: time.tv_sec, nanos: u32::try_from(time.tv_nsec).unwrap_or(0) })
}

pub(super) fn point_of(time: LoggedTime) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
}
