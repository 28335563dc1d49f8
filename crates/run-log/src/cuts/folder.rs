//! A name of a folder: the files that have it one after the other, as programs see them, and as
//! their disk may have them.

use super::world::{SimFile, World};
use crate::ground::{Below, Brought, Target, Unlike};
use crate::journal::{Kind, Named};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidegate_layout::kept::StripAttributes;
use tidegate_preload_wire::FileId;

/// The folder, and the name.
pub(super) const FOLDER: FileId = FileId { device: 1, inode: 12 };
pub(super) const PATH: &str = "/root/name";
/// The same when the folder was renamed.
pub(super) const MOVED: &str = "/root/moved/name";

/// The name's history. Files are told apart by when they were born.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct SimFolder {
    /// Which file had the name when the folder was synced last, and which have had it since.
    history: Vec<Option<u64>>,
    files: BTreeMap<u64, SimFile>,
    /// When the last file was born.
    last_born: u64,
    /// Whether a file was made or removed since the system came up.
    written: bool,
    /// Whether the folder has its other name, now and on the disk.
    is_moved: bool,
    was_moved: bool,
}

impl SimFolder {
    /// With the file that was born as this one, if there is one.
    fn with(file: Option<(u64, Vec<u8>)>, last_born: u64) -> SimFolder {
        let history = vec![file.as_ref().map(|(born, _)| *born)];
        let files = file.into_iter().map(|(born, bytes)| (born, SimFile::new(PATH.into(), bytes))).collect();
        SimFolder { history, files, last_born, written: false, is_moved: false, was_moved: false }
    }

    /// Where the name is.
    pub(super) fn path(&self) -> &'static str {
        if self.is_moved { MOVED } else { PATH }
    }

    /// The folder gets its other name.
    pub(super) fn rename(&mut self) {
        self.is_moved = !self.is_moved;
    }

    /// Makes durable what the folder is called.
    pub(super) fn sync_path(&mut self) {
        self.was_moved = self.is_moved;
    }

    /// When the file was born.
    pub(super) fn born(&self) -> Option<u64> {
        self.number()
    }

    fn number(&self) -> Option<u64> {
        self.history.last().copied().flatten()
    }

    fn now(&mut self) -> Option<&mut SimFile> {
        self.number().and_then(|number| self.files.get_mut(&number))
    }

    /// The file's bytes, if there is one.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        Some(&self.files[&self.number()?].bytes)
    }

    /// A new file gets the name.
    pub(super) fn make(&mut self) {
        self.last_born += 1;
        let number = self.last_born;
        self.files.insert(number, SimFile::new(PATH.into(), Vec::new()));
        self.history.push(Some(number));
        self.written = true;
    }

    /// Nothing has it.
    pub(super) fn remove(&mut self) {
        self.history.push(None);
        self.written = true;
    }

    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        self.now().into_iter().for_each(|file| file.write(at, data));
    }

    pub(super) fn sync_file(&mut self) {
        self.now().into_iter().for_each(SimFile::sync);
    }

    pub(super) fn sync_folder(&mut self) {
        self.history.drain(..self.history.len().saturating_sub(1));
    }

    /// What a power cut may leave: a file system makes the changes of a folder durable in their
    /// order, and bytes and the folder's own name when it likes.
    pub(super) fn images(&self) -> Vec<SimFolder> {
        let names: &[bool] = if self.is_moved == self.was_moved { &[self.is_moved] } else { &[false, true] };
        let named = |is_moved: &bool| {
            let (is_moved, was_moved) = (*is_moved, *is_moved);
            self.with_contents().into_iter().map(move |folder| SimFolder { is_moved, was_moved, ..folder })
        };
        names.iter().flat_map(named).collect()
    }

    fn with_contents(&self) -> Vec<SimFolder> {
        let each = |number: &Option<u64>| match number {
            None => vec![SimFolder::with(None, self.last_born)],
            Some(number) => self.files[number]
                .images()
                .into_iter()
                .map(|file| SimFolder::with(Some((*number, file.bytes)), self.last_born))
                .collect(),
        };
        if self.history.is_empty() {
            return vec![SimFolder::with(None, self.last_born)];
        }
        self.history.iter().flat_map(each).collect()
    }
}

/// The name as the supervisor has it.
pub(super) struct OpenName {
    pub(super) world: Arc<World>,
    pub(super) path: &'static str,
}

impl std::fmt::Debug for OpenName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path)
    }
}

impl Below for OpenName {
    fn id(&self) -> FileId {
        FOLDER.name(b"name")
    }
    fn path(&self) -> &Path {
        Path::new(self.path)
    }
    fn named(&self, family: u32) -> Named {
        Named {
            family,
            path: self.path.into(),
            inode: FOLDER.inode,
            born_ns: 1,
            strip: None,
            kind: Kind::Name,
            changed: None,
            file_system: None,
        }
    }
    fn is_removed(&self) -> bool {
        false
    }
    fn size(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> io::Result<()> {
        self.world.sync_name();
        Ok(())
    }
    fn sync_in_place(&self) -> io::Result<bool> {
        self.sync()?;
        if !self.world.leaves_paths {
            self.world.instant();
            self.world.disks().folder.sync_path();
        }
        Ok(self.world.disks().folder.path() == self.path)
    }
}

impl World {
    /// The kernel syncs the file that has the name, and then the folder.
    pub(super) fn sync_name(&self) {
        self.instant();
        self.disks().folder.sync_file();
        self.sync_folder();
    }

    /// The kernel syncs the folder.
    pub(super) fn sync_folder(&self) {
        self.instant();
        self.disks().folder.sync_folder();
    }

    /// What recovery leaves alone at `path`: another folder, a file that was made since the system
    /// came up, or was born later than `born_ns`.
    pub(super) fn unlike(&self, path: &Path, born_ns: u64) -> Option<Unlike> {
        let disks = self.disks();
        if path != Path::new(disks.folder.path()) {
            return Some(Unlike::Missing);
        }
        let younger = disks.folder.born().is_some_and(|born| born > born_ns);
        // Of what was removed nothing tells when that was.
        let changed = disks.folder.written && disks.folder.born().is_some();
        if changed { Some(Unlike::Changed) } else { younger.then_some(Unlike::Replaced) }
    }

    /// Removes what has the name, durably; what has become of it.
    pub(super) fn remove_name(&self) -> Brought {
        if self.disks().folder.bytes().is_none() {
            return Brought::Gone;
        }
        self.instant();
        self.disks().folder.remove();
        self.sync_folder();
        Brought::Removed(PATH.into())
    }
}

/// A file of that name that recovery makes.
pub(super) struct NewTarget(pub(super) Arc<World>);

impl NewTarget {
    fn with<T>(&self, act: impl FnOnce(&mut SimFolder) -> T) -> T {
        self.0.instant();
        act(&mut self.0.disks().folder)
    }
}

impl Target for NewTarget {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|folder| folder.bytes().map_or(0, <[u8]>::len)) as u64)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        assert_eq!(len, 0, "it is new");
        self.0.refuse_new()?;
        if self.0.disks().folder.bytes().is_some() {
            self.with(SimFolder::remove);
        }
        self.with(SimFolder::make);
        Ok(())
    }
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.with(|folder| folder.write(usize::try_from(at).expect("small"), data));
        Ok(())
    }
    fn set_attributes(&self, _: StripAttributes) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_name();
        Ok(())
    }
}
