//! Persistent memory, a file and a journal, all cut at the same instant.

use super::folder::{NewTarget, SimFolder};
use crate::file_system::FileSystem;
use crate::ground::{Below, Brought, Found, Ground, Log, Target, Unlike};
use crate::journal::{Kind, Named};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_layout::kept::StripAttributes;
use tidegate_media::{Region as Medium, Sealed};
use tidegate_preload_wire::FileId;
use tidegate_sim::{Cut, InterceptMemory, InterceptedMemory, Recorded, Region};

const PAGE: usize = 4096;

/// What a kernel did to a file that no sync has made durable.
#[derive(Clone, Debug, Hash)]
enum Change {
    Bytes(usize, Vec<u8>),
    Length(usize),
    Path(PathBuf),
}

/// The file: as programs see it, as its disk has it, and what was done in between.
#[derive(Clone, Debug, Hash)]
pub(super) struct SimFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    durable: (PathBuf, Vec<u8>),
    pending: Vec<Change>,
    /// Whether it was written since the system came up.
    written: bool,
}

impl SimFile {
    pub(super) fn new(path: PathBuf, bytes: Vec<u8>) -> SimFile {
        SimFile {
            path: path.clone(),
            bytes: bytes.clone(),
            durable: (path, bytes),
            pending: Vec::new(),
            written: false,
        }
    }

    fn change(&mut self, change: Change) {
        carry_out(&mut self.path, &mut self.bytes, &change);
        self.pending.push(change);
        self.written = true;
    }

    /// The kernel writes whole pages back, in any order.
    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        if at + data.len() > self.bytes.len() {
            self.change(Change::Length(at + data.len()));
        }
        let mut done = 0;
        while done < data.len() {
            let len = (PAGE - (at + done) % PAGE).min(data.len() - done);
            self.change(Change::Bytes(at + done, data[done..done + len].to_vec()));
            done += len;
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.change(Change::Length(len));
    }

    pub(super) fn rename(&mut self, path: &str) {
        self.change(Change::Path(path.into()));
    }

    /// Makes the bytes durable. What the file is called is not: a file system may leave that to
    /// another sync.
    pub(super) fn sync(&mut self) {
        self.durable.1.clone_from(&self.bytes);
        self.pending.retain(|change| matches!(change, Change::Path(_)));
    }

    /// Makes durable what the file is called.
    pub(super) fn sync_path(&mut self) {
        self.durable.0.clone_from(&self.path);
        self.pending.retain(|change| !matches!(change, Change::Path(_)));
    }

    /// What a power cut may leave: any changes, as long as there are few, otherwise the first ones,
    /// and all but one.
    pub(super) fn images(&self) -> Vec<SimFile> {
        let count = self.pending.len();
        let subsets: Vec<Vec<bool>> = if count <= 3 {
            (0..1_u32 << count).map(|bits| (0..count).map(|bit| bits >> bit & 1 == 1).collect()).collect()
        } else {
            let firsts = (0..=count).map(|first| (0..count).map(|change| change < first).collect());
            firsts.chain((0..count).map(|lost| (0..count).map(|change| change != lost).collect())).collect()
        };
        subsets.iter().map(|arrived| self.image(arrived)).collect()
    }

    fn image(&self, arrived: &[bool]) -> SimFile {
        let (mut path, mut bytes) = self.durable.clone();
        let arrived = self.pending.iter().zip(arrived).filter(|(_, arrived)| **arrived);
        arrived.for_each(|(change, _)| carry_out(&mut path, &mut bytes, change));
        SimFile::new(path, bytes)
    }
}

/// Bytes past the end are lost with the length that did not arrive.
fn carry_out(path: &mut PathBuf, bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(len) => bytes.resize(*len, 0),
        Change::Bytes(at, data) => {
            let at = (*at).min(bytes.len());
            let end = (at + data.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&data[..end - at]);
        }
        Change::Path(to) => path.clone_from(to),
    }
}

/// What somebody does with a name that a recovery has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Remove,
    Replace,
}

/// What lies on disks.
#[derive(Clone, Debug, Hash)]
pub(super) struct Disks {
    pub(super) file: SimFile,
    /// A name beside it.
    pub(super) folder: SimFolder,
    /// None: it was removed.
    pub(super) journal: Option<Vec<u8>>,
    /// What is being appended to it.
    tail: Vec<u8>,
    /// What was put aside.
    pub(super) aside: Option<SimFile>,
    /// Whether the next sync of the file by the supervisor fails, once, and the kernel forgets what
    /// it could not write.
    pub(super) failing: bool,
    /// Whether there is no room for new files.
    pub(super) full: bool,
}

/// The power fails.
pub(super) struct JointCut {
    pub(super) region: Cut,
    pub(super) disks: Disks,
    /// Whether a recovery had brought everything.
    pub(super) is_brought: bool,
}

impl JointCut {
    /// The states that the disks may be left in.
    pub(super) fn disks_images(&self) -> Vec<Disks> {
        self.disks.images()
    }
}

impl Disks {
    /// The states that a power cut may leave.
    fn images(&self) -> Vec<Disks> {
        let whole = self.tail.len();
        let tails: BTreeSet<_> = [0, whole / 2, whole].into();
        let journal = |tail: &usize| {
            let journal = self.journal.clone();
            journal.map(|journal| [&journal, &self.tail[..*tail]].concat())
        };
        let journals: Vec<_> = tails.iter().map(journal).collect();
        let image = |file: &SimFile, folder: &SimFolder, journal: &Option<Vec<u8>>| Disks {
            file: file.clone(),
            folder: folder.clone(),
            journal: journal.clone(),
            tail: Vec::new(),
            aside: None,
            failing: false,
            full: false,
        };
        let (files, folders) = (self.file.images(), self.folder.images());
        let beside = || folders.iter().flat_map(|folder| journals.iter().map(move |journal| (folder, journal)));
        files.iter().flat_map(|file| beside().map(|(folder, journal)| image(file, folder, journal))).collect()
    }
}

/// A machine, and the cuts recorded of it.
pub(super) struct World {
    pub(super) region: Arc<Region>,
    disks: Mutex<Disks>,
    /// Bytes of each of its strips.
    pub(super) strip_bytes: u64,
    cuts: Recorded<JointCut>,
    /// Stores from here on are lost: what a judge has to notice.
    pub(super) loses_from: u64,
    /// Heads of strips: who clears one of them clears the other.
    pub(super) clears: Option<[u64; 2]>,
    /// The journal takes no line of what was recovered.
    pub(super) forgets: bool,
    /// Nobody makes a path durable.
    pub(super) leaves_paths: bool,
    /// Whether a recovery has brought everything.
    is_brought: AtomicBool,
    /// What a program does once the supervisor has read a block of its file.
    beside: Mutex<Option<Beside>>,
}

/// What happens beside something else.
pub(super) type Beside = Box<dyn FnOnce() + Send>;

/// The file's inode.
pub(super) const INODE: u64 = 11;

impl World {
    pub(super) fn new(region: Region, disks: Disks, strip_bytes: u64) -> Arc<World> {
        Arc::new(World {
            region: Arc::new(region),
            disks: Mutex::new(disks),
            strip_bytes,
            cuts: Recorded::default(),
            loses_from: u64::MAX,
            clears: None,
            forgets: false,
            leaves_paths: false,
            is_brought: AtomicBool::new(false),
            beside: Mutex::default(),
        })
    }

    pub(super) fn disks(&self) -> MutexGuard<'_, Disks> {
        self.disks.lock().expect("no holder panics")
    }

    /// What a program does once the supervisor has read a block of its file.
    pub(super) fn beside(&self) -> MutexGuard<'_, Option<Beside>> {
        self.beside.lock().expect("no holder panics")
    }

    pub(super) fn record(&self) {
        self.cuts.begin();
    }

    /// The cuts kept since, and one of now.
    pub(super) fn take(&self) -> Vec<JointCut> {
        self.cuts.take(self.cut())
    }

    fn cut(&self) -> JointCut {
        let is_brought = self.is_brought.load(Ordering::Relaxed);
        JointCut { region: self.region.cut(), disks: self.disks().clone(), is_brought }
    }

    /// A recovery has brought everything.
    pub(super) fn set_brought(&self) {
        self.is_brought.store(true, Ordering::Relaxed);
    }

    pub(super) fn instant(&self) {
        self.cuts.instant(|| self.cut());
    }

    /// Refuses to make a new file, if there is no room for one.
    pub(super) fn refuse_new(&self) -> io::Result<()> {
        if self.disks().full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// The kernel syncs the file for a program.
    pub(super) fn sync_file(&self) {
        self.instant();
        self.disks().file.sync();
    }

    /// The kernel syncs the folders above the file.
    pub(super) fn sync_path(&self) {
        self.instant();
        self.disks().file.sync_path();
    }
}

impl Disks {
    /// A file with these bytes, and a journal with its first line.
    pub(super) fn new(bytes: Vec<u8>, journal: String) -> Disks {
        let file = SimFile::new("/root/a".into(), bytes);
        let folder = SimFolder::default();
        let (journal, tail) = (Some(journal.into()), Vec::new());
        Disks { file, folder, journal, tail, aside: None, failing: false, full: false }
    }

    /// Somebody uses the file, and the name: he removes what has it, or has made another one in its
    /// place. All of that is durable.
    pub(super) fn be_used(&mut self, how: Use) {
        let inside = 4000.min(self.file.bytes.len());
        [0, inside].into_iter().for_each(|at| self.file.write(at, b"used"));
        self.file.sync();
        if self.folder.bytes().is_some() {
            self.folder.remove();
        }
        if how == Use::Replace {
            self.folder.make();
            self.folder.write(0, b"used");
        }
        self.folder.sync_file();
        self.folder.sync_folder();
    }

    /// As a power cut leaves them if everything is durable.
    pub(super) fn at_the_next_boot(&self) -> Disks {
        let mut left = self.images();
        assert_eq!(left.len(), 1, "everything is durable");
        left.remove(0)
    }

    /// What a user finds.
    pub(super) fn found(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (self.file.bytes.clone(), self.folder.bytes().map(<[u8]>::to_vec))
    }
}

/// The persistent memory of a world.
pub(super) type Watched = InterceptedMemory<Region, InWorld>;

/// What happens at the memory of a world: each fence is an instant, and stores may be lost.
pub(super) struct InWorld(Arc<World>);

impl World {
    /// Its persistent memory.
    pub(super) fn memory(self: &Arc<World>) -> Watched {
        Watched { memory: self.region.clone(), by: InWorld(self.clone()) }
    }
}

impl InterceptMemory for InWorld {
    fn store_u64<R: Medium + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        if at < self.0.loses_from {
            memory.store_u64(at, word);
        }
    }

    fn stream<R: Medium + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        let other = self.0.clears.filter(|_| bytes == [0; 8]).and_then(|heads| match heads {
            [first, second] if first == at => Some(second),
            [first, second] if second == at => Some(first),
            _ => None,
        });
        memory.stream(other.unwrap_or(at), bytes);
    }

    fn fence<R: Medium + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        self.0.instant();
        memory.fence()
    }
}

/// The file as the supervisor has it open.
pub(super) struct Open {
    pub(super) world: Arc<World>,
    pub(super) path: PathBuf,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl Below for Open {
    fn id(&self) -> FileId {
        FileId { device: 1, inode: INODE }
    }
    fn path(&self) -> &Path {
        &self.path
    }
    fn named(&self, family: u32) -> Named {
        Named {
            family,
            path: self.path.clone(),
            inode: INODE,
            born_ns: 1,
            strip: None,
            kind: Kind::File,
            changed: None,
            file_system: None,
        }
    }
    fn is_removed(&self) -> bool {
        false
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.world.disks().file.bytes.len() as u64)
    }
    fn read(&self, at: u64, block: &mut [u8]) -> io::Result<()> {
        let disks = self.world.disks();
        let left = disks.file.bytes.get(usize::try_from(at).expect("small")..).unwrap_or_default();
        let len = left.len().min(block.len());
        block[..len].copy_from_slice(&left[..len]);
        block[len..].fill(0);
        drop(disks);
        let beside = self.world.beside().take();
        beside.into_iter().for_each(|act| act());
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        if std::mem::take(&mut self.world.disks().failing) {
            self.world.disks().file.pending.clear();
            return Err(io::Error::other("the disk refuses"));
        }
        self.world.sync_file();
        Ok(())
    }
    fn sync_in_place(&self) -> io::Result<bool> {
        self.sync()?;
        if !self.world.leaves_paths {
            self.world.sync_path();
        }
        Ok(self.world.disks().file.path == self.path)
    }
}

/// The journal of a world.
#[derive(Clone)]
pub(super) struct SimLog(pub(super) Arc<World>);

impl std::fmt::Debug for SimLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a journal")
    }
}

impl Log for SimLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.0.forgets && bytes.starts_with(b"\nrecovered ") {
            return Ok(());
        }
        self.0.disks().tail = bytes.to_vec();
        self.0.instant();
        let mut disks = self.0.disks();
        let tail = std::mem::take(&mut disks.tail);
        disks.journal.get_or_insert_default().extend(tail);
        Ok(())
    }
    fn since(&self, at: u64) -> io::Result<Vec<u8>> {
        let journal = self.0.disks().journal.clone().unwrap_or_default();
        Ok(journal[usize::try_from(at).expect("small")..].to_vec())
    }
    fn remove(&mut self) -> io::Result<()> {
        self.0.instant();
        self.0.disks().journal = None;
        Ok(())
    }
}

/// The files of a world as recovery finds them.
pub(super) struct SimGround(pub(super) Arc<World>);

impl Ground for SimGround {
    fn missing(&self, _: &Named) -> io::Result<Option<FileSystem>> {
        Ok(None)
    }
    fn find(&self, named: &Named, resumed: bool) -> io::Result<Found> {
        let disks = self.0.disks();
        Ok(if disks.file.path != named.path {
            Found::Unlike(Unlike::Missing)
        } else if disks.file.written && !resumed {
            Found::Unlike(Unlike::Changed)
        } else {
            Found::Same(Box::new(SimTarget { world: self.0.clone(), aside: false }))
        })
    }
    fn find_name(&self, named: &Named, resumed: bool, born_ns: u64) -> io::Result<Found> {
        let unlike = self.0.unlike(&named.path, born_ns).filter(|_| !resumed);
        let target = || Found::Same(Box::new(NewTarget(self.0.clone())));
        Ok(unlike.map_or_else(target, Found::Unlike))
    }
    fn has_name(&self, named: &Named) -> bool {
        let disks = self.0.disks();
        disks.folder.bytes().is_some() && named.path == Path::new(disks.folder.path())
    }
    fn remove_name(&self, named: &Named, born_ns: u64) -> io::Result<Brought> {
        let left = |unlike| if self.has_name(named) { Brought::Left(unlike) } else { Brought::Gone };
        Ok(self.0.unlike(&named.path, born_ns).map_or_else(|| self.0.remove_name(), left))
    }
    fn sync(&self, named: &Named) -> io::Result<()> {
        if named.kind == Kind::Name {
            self.0.sync_name();
            return Ok(());
        }
        let mut disks = self.0.disks();
        if std::mem::take(&mut disks.failing) {
            disks.file.pending.clear();
            return Err(io::Error::other("the disk refuses"));
        }
        drop(disks);
        self.0.sync_file();
        Ok(())
    }
    fn salvage(&self, named: &Named) -> io::Result<(Box<dyn Target>, PathBuf)> {
        self.0.refuse_new()?;
        let aside = SimFile::new("/aside".into(), Vec::new());
        self.0.disks().aside.get_or_insert(aside);
        Ok((Box::new(SimTarget { world: self.0.clone(), aside: true }), named.path.clone()))
    }
}

struct SimTarget {
    world: Arc<World>,
    aside: bool,
}

impl SimTarget {
    fn with<T>(&self, act: impl FnOnce(&mut SimFile) -> T) -> T {
        self.world.instant();
        let mut disks = self.world.disks();
        act(if self.aside { disks.aside.as_mut().expect("it was made") } else { &mut disks.file })
    }
}

impl Target for SimTarget {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|file| file.bytes.len() as u64))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.set_len(usize::try_from(len).expect("small")));
        Ok(())
    }
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.with(|file| file.write(usize::try_from(at).expect("small"), data));
        Ok(())
    }
    fn set_attributes(&self, _: StripAttributes) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.with(SimFile::sync);
        Ok(())
    }
}
