//! A power cut under a run that held names: what their strips tell is all that there is of them,
//! and what the disk has under a name is whatever it ever had.

use super::loss::FAMILY_SLOTS;
use crate::run::Testbed;
use crate::sectors::Dice;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tidegate_wal::name::Told;

/// What a power cut took, or brought back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// Files with a held name that are missing, or not as they were synced.
    pub files: u64,
    /// Removed files that are there.
    pub removed: u64,
    /// Ranges of held files that are as they were before, or never were.
    pub ranges: u64,
    /// Held files that are shorter.
    pub shorter: u64,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Lost) {
        self.files += other.files;
        self.removed += other.removed;
        self.ranges += other.ranges;
        self.shorter += other.shorter;
    }
}

impl Testbed {
    /// As if the power had failed while the pool was what it is: names of which it tells have what
    /// `dice` choose of all that they ever had, and of held files it has spoilt what only the pool
    /// had, or put back to what it was in `before`. The journal of holds is of another boot.
    /// [`Testbed::recover_after_boot`] comes next.
    pub fn cut_the_power_by(&self, dice: &mut Dice, ever: &[Vec<u8>], before: &[u8]) -> Lost {
        let (only, paths) = (self.only_in_the_pool(), self.names_of_families());
        let mut lost = Lost::default();
        for (_, slot, told) in &only.names {
            let path = &paths[&(slot / FAMILY_SLOTS)];
            match told {
                Told::Unknown => {}
                Told::Gone(_) => lost.removed += u64::from(self.put_any(dice, path, ever)),
                Told::File { .. } => lost.files += u64::from(self.put_any(dice, path, ever)),
            }
        }
        for (slot, from, end) in &only.ranges {
            let Ok(file) = File::options().write(true).open(&paths[&(slot / FAMILY_SLOTS)]) else { continue };
            let len = file.metadata().expect("a file has a size").len();
            if *from >= len {
                continue;
            }
            if *end >= len && dice.below(4) == 0 {
                file.set_len(*from).expect("the file can be cut");
                lost.shorter += 1;
                continue;
            }
            let bytes: Vec<_> = match dice.below(2) {
                0 => (*from..(*end).min(len)).map(|_| 0xee).collect(),
                _ => before.iter().copied().skip(place(*from)).take(place(*end - *from)).collect(),
            };
            file.write_all_at(&bytes, *from).expect("the file can be written");
            lost.ranges += 1;
        }
        self.change_boot();
        lost
    }

    /// Makes the file that a cut may leave in the place of a younger one.
    pub fn make_older_file(&self) {
        File::create(self.older_file()).expect("a file can be made");
    }

    fn older_file(&self) -> PathBuf {
        self.folder().join("older file")
    }

    /// Puts to `path` something that it had, as far as that came to the disk; or leaves what it
    /// has. Whether anything changed.
    fn put_any(&self, dice: &mut Dice, path: &Path, ever: &[Vec<u8>]) -> bool {
        let now = fs::read(path).ok();
        let older = (!ever.is_empty()).then(|| &ever[place(dice.below(ever.len() as u64))]);
        let left = match (dice.below(8), older, &now) {
            (0, ..) => Left::Nothing,
            (1, _, Some(now)) => Left::Same(now[..place(dice.below(now.len() as u64 + 1))].to_owned()),
            (2, _, Some(now)) => Left::Same(vec![0; now.len()]),
            (3, ..) | (_, None, _) => return false,
            (4, Some(older), _) => Left::Older(older[..place(dice.below(older.len() as u64 + 1))].to_owned()),
            (_, Some(older), _) => Left::Older(older.clone()),
        };
        match &left {
            Left::Nothing if now.is_some() => fs::remove_file(path).expect("the file can be removed"),
            Left::Nothing => {}
            Left::Same(bytes) => fs::write(path, bytes).expect("the file can be written"),
            Left::Older(bytes) => {
                fs::write(self.older_file(), bytes).expect("the file can be written");
                fs::rename(self.older_file(), path).expect("it can get the name");
            }
        }
        fs::read(path).ok() != now
    }

    /// The numbers under which names were held, and files at names that strips tell of: recovery
    /// puts nothing of those aside.
    pub fn families_of_names(&self) -> Vec<u64> {
        let journal = fs::read_to_string(self.journal()).expect("a run was left");
        let names = journal.lines().filter(|line| line.contains("\"kind\":\"Name\""));
        let names = names.filter_map(|line| line.split_once("\"family\":")?.1.split(',').next()?.parse().ok());
        let paths = self.names_of_families();
        let told: Vec<_> =
            self.only_in_the_pool().names.iter().map(|(_, slot, _)| &paths[&(slot / FAMILY_SLOTS)]).collect();
        let files = paths.iter().filter(|(_, path)| told.contains(path)).map(|(family, _)| *family);
        names.chain(files).collect()
    }

    /// As if no strip told anything of a name.
    pub fn forget_names(&self) {
        let pool = File::options().write(true).open(self.pool()).expect("there is a pool");
        for (strip_at, ..) in self.only_in_the_pool().names {
            pool.write_all_at(&[0; 8], strip_at as u64).expect("the pool can be written");
        }
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("small files")
}

/// What a name may have after a power cut.
enum Left {
    Nothing,
    /// The file that has it now, with these bytes.
    Same(Vec<u8>),
    /// An older one.
    Older(Vec<u8>),
}
