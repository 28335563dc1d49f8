//! Programs that write in a folder of a cluster's volume while something happens to the cluster:
//! none of their acts may fail, and all that was acknowledged is there afterwards.

use crate::acts::{Done, filled, number_of};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 16;
const SMALL_BYTES: usize = PAGE_BYTES * 3;
const FILES: u64 = 16;

/// The permissions of a file by which a brick points to another brick: the sticky bit alone.
const POINTER_MODE: u32 = 0o1000;

/// Acts of all writers before and after each event.
const ACTS: usize = 40;

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// They append to a file, write pages of another one, and rename new files over former ones.
    Everything,
    /// They write pages of a file that stays open, and small files that they open for each act.
    /// Names and lengths stay as they are.
    InPlace,
}

/// A protocol of a writer, and how it is checked afterwards.
#[derive(Clone, Copy)]
struct Protocol {
    write: fn(&Path, &Writer<'_>) -> io::Result<Done>,
    check: fn(&Path, Done),
}

impl Writing {
    fn protocols(self) -> &'static [Protocol] {
        const APPEND: Protocol = Protocol { write: append, check: check_log };
        const OVERWRITE: Protocol = Protocol { write: overwrite, check: check_pages };
        const REPLACE: Protocol = Protocol { write: replace, check: check_small };
        const REWRITE: Protocol = Protocol { write: rewrite, check: check_small };
        match self {
            Writing::Everything => &[APPEND, OVERWRITE, REPLACE],
            Writing::InPlace => &[OVERWRITE, REWRITE],
        }
    }
}

/// What writers did in a folder until they were ended.
pub struct Written {
    folder: PathBuf,
    done: Vec<(Protocol, Done)>,
}

/// Has writers work in a new folder while something happens.
pub fn written_amid(folder: &Path, writing: Writing, events: impl FnOnce(&Receiver<()>)) -> Written {
    make_files(folder, writing);
    let (tell, heard) = channel();
    let ending = Ending(AtomicBool::new(false));
    let ending = &ending;
    let done = std::thread::scope(|scope| {
        let begin = |protocol: &Protocol| {
            let (tell, protocol) = (tell.clone(), *protocol);
            scope.spawn(move || (protocol, (protocol.write)(folder, &Writer { tell, ending }).expect("no act fails")))
        };
        let writers: Vec<_> = writing.protocols().iter().map(begin).collect();
        drop(tell);
        let ends = EndsWriters(ending);
        events(&heard);
        drop(ends);
        writers.into_iter().map(|writer| writer.join().expect("no writer fails")).collect()
    });
    Written { folder: folder.to_owned(), done }
}

/// Makes what writers do not make themselves.
fn make_files(folder: &Path, writing: Writing) {
    let make = |name: &str, bytes| fs::write(folder.join(name), vec![0; bytes]).expect("a new file");
    fs::create_dir(folder).expect("a new folder");
    match writing {
        Writing::Everything => ["log", "pages"].map(|name| make(name, 0)).into_iter().collect(),
        Writing::InPlace => {
            make("pages", PAGE_BYTES * usize::try_from(PAGES).expect("few"));
            (0..FILES).for_each(|number| make(&small_name(number), SMALL_BYTES));
        }
    }
}

/// Waits until the writers have done more.
pub fn go_on(heard: &Receiver<()>) {
    while heard.try_recv().is_ok() {}
    for _ in 0..ACTS {
        heard.recv().expect("writers go on whatever happens to one node");
    }
}

impl Written {
    /// Fails unless all that was acknowledged is there.
    pub fn check(&self) {
        self.done.iter().for_each(|(protocol, done)| (protocol.check)(&self.folder, *done));
    }

    /// Acts of all writers.
    pub fn acts(&self) -> u64 {
        self.done.iter().map(|(_, done)| done).sum()
    }
}

/// Whether writers end after the act under way.
struct Ending(AtomicBool);

/// Ends them, also if the test failed meanwhile.
struct EndsWriters<'a>(&'a Ending);

impl Drop for EndsWriters<'_> {
    fn drop(&mut self) {
        // With each writer's load.
        self.0.0.store(true, Ordering::Relaxed);
    }
}

struct Writer<'a> {
    tell: Sender<()>,
    ending: &'a Ending,
}

impl Writer<'_> {
    /// Does act after act until the end. No act may fail.
    fn acts(&self, mut act: impl FnMut(u64) -> io::Result<()>) -> io::Result<Done> {
        let mut done = 0;
        // The end brings nothing else with it.
        while !self.ending.0.load(Ordering::Relaxed) {
            act(done + 1)?;
            done += 1;
            // Nobody listens any more after the end.
            let _ = self.tell.send(());
        }
        Ok(done)
    }
}

fn line(number: u64) -> String {
    format!("{number:08}\n")
}

fn append(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    let mut log = OpenOptions::new().append(true).open(folder.join("log"))?;
    writer.acts(|act| {
        log.write_all(line(act).as_bytes())?;
        log.sync_data()
    })
}

fn check_log(folder: &Path, done: Done) {
    let expected: String = (1..=done).map(line).collect();
    let found = fs::read(folder.join("log")).expect("the log");
    let alike = found.iter().zip(expected.as_bytes()).take_while(|(found, expected)| found == expected).count();
    assert_eq!((alike, found.len()), (expected.len(), expected.len()), "bytes as written, and bytes");
}

fn overwrite(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    let pages = OpenOptions::new().write(true).open(folder.join("pages"))?;
    writer.acts(|act| {
        pages.write_all_at(&filled(act, PAGE_BYTES), act % PAGES * PAGE_BYTES as u64)?;
        pages.sync_data()
    })
}

fn check_pages(folder: &Path, done: Done) {
    let pages = fs::read(folder.join("pages")).expect("the pages");
    for act in done.saturating_sub(PAGES - 1).max(1)..=done {
        let at = usize::try_from(act % PAGES).expect("a small number") * PAGE_BYTES;
        assert_eq!(number_of(&pages[at..at + PAGE_BYTES]), Some(act), "of {done}");
    }
}

fn replace(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    writer.acts(|act| {
        // A name that no file had before. A brick that comes back may still have an earlier file by
        // the name; GlusterFS renames that one, or answers with its state, until it has healed.
        let fresh = folder.join(format!("fresh-{act}"));
        let mut file = File::create(&fresh)?;
        file.write_all(&filled(act, SMALL_BYTES))?;
        file.sync_all()?;
        fs::rename(&fresh, folder.join(small_name(act)))
    })
}

fn rewrite(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    writer.acts(|act| {
        let path = folder.join(small_name(act));
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&filled(act, SMALL_BYTES))?;
        file.sync_all()
    })
}

fn small_name(act: u64) -> String {
    format!("small-{}", act % FILES)
}

fn check_small(folder: &Path, done: Done) {
    for act in done.saturating_sub(FILES - 1).max(1)..=done {
        let found = fs::read(folder.join(small_name(act))).expect("a small file");
        assert_eq!((found.len(), number_of(&found)), (SMALL_BYTES, Some(act)), "of {done}");
    }
}

/// Files below a root, and the SHA-256 of each.
pub type Digests = BTreeMap<PathBuf, [u8; 32]>;

/// The digest of each file of each folder, but of the cluster's own ones.
pub fn digests(root: &Path) -> Digests {
    let entries =
        |folder: PathBuf| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    // GlusterFS's own: .glusterfs, and .glusterfs-anonymous-inode-* for files that it is to delete.
    let is_own =
        |folder: &Path| folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".glusterfs"));
    let folders = entries(root.to_owned()).filter(|folder| !is_own(folder) && folder.is_dir());
    let digest = |path: PathBuf| {
        let found = Sha256::digest(fs::read(&path).expect("a file"));
        (path.strip_prefix(root).expect("below it").to_owned(), found.into())
    };
    folders.flat_map(entries).filter(|path| !is_pointer(path)).map(digest).collect()
}

/// Whether a brick's file only says that the file by this name is on another brick. After a move
/// that failed it may still have what was copied.
fn is_pointer(path: &Path) -> bool {
    fs::metadata(path).expect("a file").mode() & 0o7777 == POINTER_MODE
}
