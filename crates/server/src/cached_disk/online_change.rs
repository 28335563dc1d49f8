//! A change of a served disk that somebody waits for: region and disk part, or the region becomes
//! larger or smaller.
//!
//! A region whose cache has room for as many blocks as before needs no more than another length of
//! its file. Else the cache is first emptied of what the disk lacks, beside the clients, in a mode
//! in which little turns dirty anew. That mode is the change's and ends with it, however it ends:
//! by what was asked for, by a block that the disk refuses, or because nobody waits any more. A
//! client that is killed closes its connection, which is looked at before each step until the last:
//! from then on the change is carried out. Only one is under way at a time, so none takes another's
//! mode for the lasting one. A mode that somebody sets meanwhile is the lasting one from then on,
//! and counts when the change is over; read-only counts at once, since nothing turns dirty in it.

use crate::cached_disk::online::OnlineDisk;
use crate::cached_disk::resize::Resizing;
use crate::failure::{Failure, Obstacle};
use serde::{Deserialize, Serialize};
use tidegate_disk_cache::Mode;

/// What is to be changed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheChange {
    /// Region and disk part, and the server goes on with the disk alone.
    Detach,
    /// Region and cache become larger or smaller.
    Resize {
        /// Bytes of the region.
        bytes: u64,
    },
}

impl CacheChange {
    /// What is done with reads and writes while the cache is emptied: little that is written is
    /// dirty then.
    fn meanwhile(self) -> Mode {
        match self {
            CacheChange::Detach => Mode::PassThrough,
            CacheChange::Resize { .. } => Mode::WriteThrough,
        }
    }
}

/// How a change ended.
#[derive(Debug)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// The region has the size that was asked for, and this became of it.
    Resized(Resizing),
    /// Some blocks do not reach the disk, which is why it was not.
    Undestaged(Obstacle),
    /// Nobody waits for it any more, and it was not.
    GivenUp,
}

/// A change under way. Dropped, it gives the lasting mode back.
pub struct Changing<'a> {
    disk: &'a OnlineDisk,
    change: CacheChange,
    /// What becomes of a region whose cache keeps what it holds. None: the cache is emptied.
    keeps: Option<Resizing>,
}

impl<'a> Changing<'a> {
    /// Begins `change`: from now on the cache is emptied, if it has to be.
    ///
    /// # Errors
    /// Another is under way, there is no cache, nothing may be changed, or the region cannot have
    /// that size. Nothing has changed then.
    pub fn begin(disk: &'a OnlineDisk, change: CacheChange) -> Result<Changing<'a>, Failure> {
        disk.begin_change()?;
        let mut changing = Changing { disk, change, keeps: None };
        if let CacheChange::Resize { bytes } = change {
            changing.keeps = Some(disk.foresee_resize(bytes)?).filter(|foreseen| *foreseen != Resizing::Cache);
        }
        if changing.keeps.is_none() {
            disk.set_mode_during_change(change.meanwhile())?;
        }
        Ok(changing)
    }

    /// What is being changed.
    pub fn disk(&self) -> &'a OnlineDisk {
        self.disk
    }

    /// Brings everything that is dirty now to the disk, beside the clients, and then makes the
    /// change. Before that `is_waited_for` is asked over and over, which takes a moment each time.
    ///
    /// # Errors The obstacle that kept it from being made. Everything stays as it was, as far as
    /// `detach` and `resize` of [`OnlineDisk`] say.
    pub fn carry_out(&self, is_waited_for: impl Fn() -> bool) -> Result<Outcome, Failure> {
        if let (CacheChange::Resize { bytes }, Some(keeps)) = (self.change, self.keeps) {
            self.disk.resize_file(bytes)?;
            return Ok(Outcome::Resized(keeps));
        }
        let ticket = self.disk.flush()?;
        loop {
            if !is_waited_for() {
                return Ok(Outcome::GivenUp);
            }
            match self.disk.flushed(ticket) {
                None => {}
                Some((_, Some(obstacle))) => return Ok(Outcome::Undestaged(obstacle)),
                Some((_, None)) => break,
            }
        }
        match self.change {
            CacheChange::Detach => self.disk.detach().map(|()| Outcome::Done),
            CacheChange::Resize { bytes } => self.disk.resize(bytes).map(|()| Outcome::Resized(Resizing::Cache)),
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.disk.end_change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached_disk::online::tests::{MIB, live_in};
    use crate::cached_disk::owner::IfClaimed;
    use crate::cached_disk::volatile::Volatile;
    use crate::failure::DiskFailure;
    use tidegate_media::{BlockDevice, Durability, Lba};

    #[test]
    fn a_change_that_nobody_waits_for_is_not_made_and_the_lasting_mode_is_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = live_in(folder.path());
        for change in [CacheChange::Detach, CacheChange::Resize { bytes: 2 * MIB }] {
            disk.write(Lba(7), &[1; 4096], Durability::Volatile).expect("it is taken");
            let changing = Changing::begin(&disk, change).expect("no other is under way");
            assert_eq!(disk.state().mode, change.meanwhile().to_string());
            let second = Changing::begin(&disk, CacheChange::Detach);
            assert!(matches!(second, Err(Failure::Disk(DiskFailure::Changing { .. }))));
            assert_eq!(disk.state().mode, change.meanwhile().to_string(), "the second one changes nothing");
            assert!(matches!(changing.carry_out(|| false), Ok(Outcome::GivenUp)));
            drop(changing);
            assert_eq!((disk.state().mode.as_str(), disk.state().attached), ("write-back", true));
        }
        let length = || folder.path().join("v").metadata().expect("the region").len();
        assert_eq!(length(), 4 * MIB);
        let changing = Changing::begin(&disk, CacheChange::Resize { bytes: 2 * MIB }).expect("no other is under way");
        assert!(matches!(changing.carry_out(|| true), Ok(Outcome::Resized(Resizing::Cache))));
        assert_eq!(length(), 2 * MIB);
    }

    #[test]
    fn a_mode_set_meanwhile_counts_afterwards_and_read_only_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = live_in(folder.path());
        let changing = Changing::begin(&disk, CacheChange::Resize { bytes: 3 * MIB }).expect("no other is under way");
        let set = |mode| {
            disk.set_mode(mode, Volatile::Refused).expect("there is a cache");
            disk.state().mode
        };
        assert_eq!([Mode::ReadOnly, Mode::WriteAround].map(set), ["read-only", "write-through"]);
        assert!(matches!(changing.carry_out(|| true), Ok(Outcome::Resized(Resizing::Cache))));
        drop(changing);
        assert_eq!(disk.state().mode, "write-around");
        let changing = Changing::begin(&disk, CacheChange::Detach).expect("no other is under way");
        assert!(matches!(changing.carry_out(|| true), Ok(Outcome::Done)));
        drop(changing);
        assert!(!disk.state().attached && Changing::begin(&disk, CacheChange::Detach).is_err());
        disk.attach(&folder.path().join("disk"), Volatile::Refused, IfClaimed::Refuse).expect("its own disk");
        assert_eq!(disk.state().mode, "write-around");
    }
}
