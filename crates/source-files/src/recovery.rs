//! How recovery finds the files of a pool in SOURCE again.
//!
//! A file is sought by the path it had when it was cached, and then among all files of SOURCE by
//! its inode, as it may have been renamed since. The search reads each directory once, when it is
//! needed first.
//!
//! What has no file, or a file that others changed, stays in the pool; if the user says so, it is
//! saved to files beside the pool.

use crate::backing::{OpenedFile, refused};
use crate::nameless::KeptFile;
use crate::route::Route;
use crate::{SourceDirectory, about};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidegate_file_cache::{BackingFile, Below, Displaced, Disposition, FileIdentity, Refused};
use tidegate_host::files::directory::for_each_name;
use tidegate_layout::file_cache::PATH_HINT_BYTES_MAX;

/// Names from SOURCE's root to a file.
type Names = Vec<Box<[u8]>>;

/// A file that was found, and where it was when it was cached.
pub type FoundFile = (Arc<OpenedFile>, Vec<u8>);

/// The files of SOURCE, as recovery asks for them.
pub struct SourceFiles<'a> {
    source: &'a SourceDirectory,
    /// Where what cannot go to its file is saved; None: it stays in the pool.
    salvage: Option<PathBuf>,
    /// What an earlier server of the same mount knew.
    known: Option<&'a KnownFiles<'a>>,
    /// Files that lost their last name, as far as this was noted.
    gone: HashSet<FileIdentity>,
    by_inode: OnceLock<HashMap<u64, Vec<Names>>>,
    found: Mutex<Vec<FoundFile>>,
}

/// What an earlier server of the same mount knew of files.
pub struct KnownFiles<'a> {
    /// How a file is reached that has a node.
    pub route: &'a (dyn Fn(FileIdentity) -> Option<Route> + Sync),
    /// Descriptors of files without a name.
    pub kept: HashMap<FileIdentity, Arc<KeptFile>>,
}

impl KnownFiles<'_> {
    fn route(&self, identity: FileIdentity) -> Option<Route> {
        let kept = self.kept.get(&identity).map(|kept| Route::Kept(Arc::clone(kept)));
        kept.or_else(|| (self.route)(identity))
    }
}

impl<'a> SourceFiles<'a> {
    /// The files of SOURCE as the mount knew them before its server died.
    pub fn known(source: &'a SourceDirectory, known: &'a KnownFiles<'a>) -> SourceFiles<'a> {
        SourceFiles { known: Some(known), ..SourceFiles::new(source, None) }
    }

    /// The files of SOURCE. With the folder `salvage`, what cannot go to its file is saved there.
    pub fn new(source: &'a SourceDirectory, salvage: Option<PathBuf>) -> SourceFiles<'a> {
        let (gone, by_inode, found) = (HashSet::new(), OnceLock::new(), Mutex::default());
        SourceFiles { source, salvage, known: None, gone, by_inode, found }
    }

    /// Takes files as removed that are missing and in `gone`: they lost their last name.
    pub fn without(self, gone: HashSet<FileIdentity>) -> SourceFiles<'a> {
        SourceFiles { gone, ..self }
    }

    /// The directory that they are in.
    pub fn source(&self) -> &'a SourceDirectory {
        self.source
    }

    /// The file with `identity`, if an earlier server of the same mount knew it.
    pub fn find_known(
        &self,
        identity: FileIdentity,
        path_hint: &[u8],
    ) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        let found = self.search_known(identity)?;
        Ok(found.map(|found| self.noted(found, path_hint)))
    }

    fn search_known(&self, identity: FileIdentity) -> Result<Option<Arc<OpenedFile>>, Refused> {
        match self.known.and_then(|known| known.route(identity)) {
            Some(route) => self.at(&route, identity),
            None => Ok(None),
        }
    }

    fn noted(&self, found: Arc<OpenedFile>, path_hint: &[u8]) -> Arc<dyn BackingFile> {
        let mut noted = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // A path of the log of names may be longer than a record takes.
        noted.push((Arc::clone(&found), shortened(path_hint.to_vec())));
        found
    }

    /// The files that were found.
    pub fn into_found(self) -> Vec<FoundFile> {
        self.found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that `route` leads to, if it is the one with `identity`.
    fn at(&self, route: &Route, identity: FileIdentity) -> Result<Option<Arc<OpenedFile>>, Refused> {
        let located = match self.source.locate(route) {
            Ok(located) => located,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::INVAL) => {
                return Ok(None);
            }
            Err(errno) => return Err(refused(errno)),
        };
        if self.source.identity(&about(&located).map_err(refused)?) != identity {
            return Ok(None);
        }
        let open = |flags| OpenedFile::new(self.source, crate::reopen(&located, flags)?);
        let opened = match (OpenedFile::opened_for_writing(open), route) {
            // It was opened when this user might open it.
            (Err(Errno::ACCESS | Errno::PERM), Route::Kept(kept)) if kept.can_write() => {
                OpenedFile::new(self.source, located)
            }
            (opened, _) => opened,
        };
        Ok(Some(Arc::new(opened.map_err(refused)?)))
    }

    /// Every regular file of SOURCE by its inode.
    fn by_inode(&self) -> &HashMap<u64, Vec<Names>> {
        self.by_inode.get_or_init(|| {
            let mut found: HashMap<u64, Vec<Names>> = HashMap::new();
            let mut waiting: Vec<Names> = vec![Vec::new()];
            while let Some(folder) = waiting.pop() {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let Ok(opened) = self.source.open_at(&Route::Names(folder.clone()), flags) else { continue };
                // What cannot be read is not found: its data stays in the pool or is salvaged.
                let _ = for_each_name(&opened, |name, inode, kind| {
                    let mut names = folder.clone();
                    names.push(name.into());
                    match kind {
                        FileType::Directory => waiting.push(names),
                        FileType::RegularFile | FileType::Unknown => found.entry(inode).or_default().push(names),
                        _ => {}
                    }
                });
            }
            found
        })
    }
}

impl Below for SourceFiles<'_> {
    fn find(&self, identity: FileIdentity, path_hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        let found = self.search(identity, path_hint)?;
        Ok(found.map(|found| self.noted(found, path_hint)))
    }

    fn displaced(&self, identity: FileIdentity, path_hint: &[u8], why: Displaced) -> Result<Disposition, Refused> {
        if why == Displaced::Missing && self.gone.contains(&identity) {
            return Ok(Disposition::Discard);
        }
        match (&self.salvage, why) {
            (None, _) | (_, Displaced::Refused(_)) => Ok(Disposition::Retain),
            (Some(folder), Displaced::Missing | Displaced::Changed) => {
                Ok(Disposition::Salvage(Arc::new(self.salvage_file(folder, identity, path_hint)?)))
            }
        }
    }
}

impl SourceFiles<'_> {
    fn search(&self, identity: FileIdentity, path_hint: &[u8]) -> Result<Option<Arc<OpenedFile>>, Refused> {
        if let Some(found) = self.search_known(identity)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.at(&Route::Names(names_of(path_hint)), identity)? {
            return Ok(Some(found));
        }
        for names in self.by_inode().get(&identity.inode).into_iter().flatten() {
            if let Some(found) = self.at(&Route::Names(names.clone()), identity)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A fresh file for what has no place in SOURCE.
    fn salvage_file(&self, folder: &Path, identity: FileIdentity, path_hint: &[u8]) -> Result<OpenedFile, Refused> {
        let failed = |error: std::io::Error| Refused { errno: error.raw_os_error().unwrap_or(EIO) };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(OsString::from_vec(salvage_name(identity, path_hint)));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        OpenedFile::new(self.source, file).map_err(refused)
    }
}

/// The kernel's number for an error that has none.
const EIO: i32 = 5;

/// Names the file that takes what has no place: by the inode, and its last name.
fn salvage_name(identity: FileIdentity, path_hint: &[u8]) -> Vec<u8> {
    let mut name = format!("{}-", identity.inode).into_bytes();
    name.extend_from_slice(path_hint.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
    name.truncate(NAME_BYTES_MAX);
    name
}

/// Most bytes of a name on any file system of Linux.
const NAME_BYTES_MAX: usize = 255;

/// The names in a path hint, which is relative to SOURCE.
pub(crate) fn names_of(hint: &[u8]) -> Names {
    hint.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(Into::into).collect()
}

/// The path hint of a file at these names. Of a path that is longer than a record takes the end
/// stays, behind a name that no file is sought by: recovery finds such a file by its inode.
pub fn hint_of(route: &Route) -> Vec<u8> {
    shortened(route.path().unwrap_or_default())
}

fn shortened(path: Vec<u8>) -> Vec<u8> {
    if path.len() <= PATH_HINT_BYTES_MAX {
        return path;
    }
    let end = &path[path.len() + LEFT_OUT.len() - PATH_HINT_BYTES_MAX..];
    [LEFT_OUT, end].concat()
}

/// Stands for the beginning of a path.
const LEFT_OUT: &[u8] = "…/".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    struct Testbed {
        folder: tempfile::TempDir,
        source: SourceDirectory,
    }

    impl Testbed {
        fn new() -> Testbed {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::create_dir_all(folder.path().join("source/d")).expect("made");
            std::fs::write(folder.path().join("source/d/f"), b"abc").expect("made");
            let source = SourceDirectory::open(&folder.path().join("source")).expect("a directory");
            Testbed { folder, source }
        }

        fn files(&self) -> SourceFiles<'_> {
            SourceFiles::new(&self.source, None)
        }

        fn identity(&self, path: &str) -> FileIdentity {
            let located = self.source.locate(&Route::Names(names_of(path.as_bytes()))).expect("it is there");
            self.source.identity(&about(located).expect("readable"))
        }
    }

    #[test]
    fn a_file_is_found_by_its_hint_and_after_a_rename_by_its_inode() {
        let bed = Testbed::new();
        let identity = bed.identity("d/f");
        let is_found = |hint: &[u8]| bed.files().find(identity, hint).expect("readable").is_some();
        assert!(is_found(b"d/f"));
        std::fs::rename(bed.folder.path().join("source/d/f"), bed.folder.path().join("source/moved")).expect("moved");
        assert!(is_found(b"d/f") && is_found(b"") && is_found(b"../../etc/passwd"));
    }

    #[test]
    fn a_file_whose_path_is_longer_than_a_record_takes_is_found_and_named_by_its_end() {
        let bed = Testbed::new();
        let names: Names = vec![vec![b'x'; 100].into(), vec![b'y'; 100].into(), b"file".as_slice().into()];
        let folder = names[..2].iter().fold(bed.folder.path().join("source"), |path, name| {
            path.join(std::str::from_utf8(name).expect("letters"))
        });
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("file"), b"abc").expect("made");
        let route = Route::Names(names);
        let hint = hint_of(&route);
        assert_eq!(hint.len(), PATH_HINT_BYTES_MAX);
        assert!(hint.starts_with("…/x".as_bytes()) && hint.ends_with(b"y/file"));
        let identity = bed.source.identity(&about(bed.source.locate(&route).expect("it is there")).expect("readable"));
        let files = bed.files();
        for known in [hint.clone(), route.path().expect("it has names")] {
            assert!(files.find(identity, &known).expect("readable").is_some());
        }
        assert!(files.into_found().into_iter().all(|(_, noted)| noted == hint), "hints that a record takes");
    }

    #[test]
    fn another_file_in_the_place_is_not_it() {
        let bed = Testbed::new();
        let identity = bed.identity("d/f");
        let path = bed.folder.path().join("source/d/f");
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, b"other").expect("made");
        assert!(bed.files().find(identity, b"d/f").expect("readable").is_none());
    }

    #[test]
    fn what_has_no_file_stays_in_the_pool_unless_the_user_says_where_it_goes() {
        let bed = Testbed::new();
        let lost = FileIdentity { device: 0, inode: 7, generation: 1 };
        let kept = bed.files().displaced(lost, b"d/gone.db", Displaced::Missing).expect("decided");
        assert!(matches!(kept, Disposition::Retain));
        let files = SourceFiles::new(&bed.source, Some(bed.folder.path().join("salvaged")));
        let Ok(Disposition::Salvage(file)) = files.displaced(lost, b"d/gone.db", Displaced::Missing) else {
            panic!("it is saved")
        };
        file.write(0, b"kept").expect("written");
        let saved = std::fs::read(bed.folder.path().join("salvaged/7-gone.db")).expect("readable");
        assert_eq!(saved, b"kept");
    }
}
