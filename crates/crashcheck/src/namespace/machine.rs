//! A machine with persistent memory, memory that outlives processes, and a served directory, and
//! all of them cut at the same instant.

use crate::namespace::mutants::{Faults, NamesBug};
use crate::namespace::tree::{DEVICE, ENODATA, Tree};
use std::sync::{Arc, Mutex};
use tidegate_file_cache::{
    BackingFile, BackingStatus, Below, Displaced, Disposition, Fallocate, FileIdentity, FilePool, PoolOpenError,
    PoolSpec, Refused, Sought, Stamp, dram_bytes, format, identify,
};
use tidegate_layout::file_cache::{NAMESPACE_LINES_MIN, NameChange, PoolPlan};
use tidegate_media::{LineOrder, Region as Medium, Sealed};
use tidegate_namespace_log::{FoundNode, NamespaceSource, Witness};
use tidegate_sim::{Cut, Image, InterceptMemory, InterceptedMemory, Recorded, Reduction, Region, SharedMemory};

/// A pool to be tried.
#[derive(Clone, Debug)]
pub struct NamesPool {
    image: Image,
    plan: PoolPlan,
    order: LineOrder,
}

impl Default for NamesPool {
    fn default() -> NamesPool {
        NamesPool::new()
    }
}

impl NamesPool {
    /// A pool with the smallest log and one lane.
    pub fn new() -> NamesPool {
        NamesPool::of(
            4 << 20,
            PoolSpec { files: 4, ring_slots: 8, bytes_per_entry: 1 << 16, ..PoolSpec::usual([7; 16]) },
        )
    }

    /// One with room for the files of an application.
    pub(crate) fn roomy() -> NamesPool {
        NamesPool::of(
            8 << 20,
            PoolSpec { files: 64, ring_slots: 64, bytes_per_entry: 1 << 13, ..PoolSpec::usual([7; 16]) },
        )
    }

    fn of(bytes: u64, spec: PoolSpec) -> NamesPool {
        let region = Region::new((u64::from(NAMESPACE_LINES_MIN) << 6) + bytes + (1 << 16));
        let spec = PoolSpec { lanes: 1, namespace_lines: NAMESPACE_LINES_MIN, ..spec };
        format(&region, &spec).expect("the region takes a pool");
        let plan = identify(&region).expect("it was just laid out").plan;
        NamesPool { image: region.visible(), plan, order: LineOrder::NATIVE }
    }

    /// This pool where words of a line arrive in any order.
    pub fn in_any_order(self) -> NamesPool {
        NamesPool { order: LineOrder::Any, ..self }
    }

    /// Fresh memory.
    pub(crate) fn memory(&self) -> Region {
        self.memory_of(&self.image)
    }

    pub(crate) fn memory_of(&self, image: &Image) -> Region {
        Region::with_line_order(image.clone(), self.order)
    }

    fn dram(region: &Region) -> Arc<SharedMemory> {
        Arc::new(SharedMemory::new(dram_bytes(region, 8 * 4096).expect("there is a pool")))
    }

    /// Records that no cursor and no witness lets in, and contents of blocks, are never read by
    /// recovery.
    pub(crate) fn reduction(&self) -> Reduction {
        let log = self.plan.namespace().expect("it has one");
        let lane = self.plan.lane(0);
        let unread = [log.ring_at..log.end(), lane.ring_at..lane.record_at(0), lane.chunks_at()..u64::MAX];
        Reduction { images_max: 1 << 8, samples: 32, ..Reduction::of(unread) }
    }
}

/// The power fails, or the process is killed: everything at that instant.
pub(crate) struct JointCut {
    pub(crate) region: Cut,
    pub(crate) tree: Tree,
    pub(crate) dram: Image,
}

/// What the file system of the served directory takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Changes.
    Changes,
    /// Reads only, as after an error of its disk.
    ReadsOnly,
}

/// `EROFS`.
pub(crate) const READ_ONLY: Refused = Refused { errno: 30 };

/// Memory and directory of one machine, and the cuts recorded of them.
pub(crate) struct Machine {
    region: Arc<Region>,
    tree: Mutex<Tree>,
    dram: Mutex<Arc<SharedMemory>>,
    cuts: Recorded<JointCut>,
    faults: Mutex<Faults>,
    takes: Mutex<Takes>,
}

/// The persistent memory of a machine.
pub(crate) type Watched = InterceptedMemory<Region, InMachine>;

/// What happens at the memory of a machine: each fence is an instant, and faults.
pub(crate) struct InMachine(Arc<Machine>);

impl Machine {
    pub(crate) fn new(
        pool: &NamesPool,
        region: Region,
        tree: Tree,
        dram: Option<Image>,
        bug: Option<NamesBug>,
    ) -> Arc<Machine> {
        let dram = dram.map_or_else(|| NamesPool::dram(&region), |bytes| Arc::new(SharedMemory::of(bytes)));
        let plan = pool.plan.namespace().expect("it has one");
        Arc::new(Machine {
            region: Arc::new(region),
            tree: Mutex::new(tree),
            dram: Mutex::new(dram),
            cuts: Recorded::default(),
            faults: Mutex::new(Faults::new(bug, plan)),
            takes: Mutex::new(Takes::Changes),
        })
    }

    /// Its persistent memory.
    pub(crate) fn memory(self: &Arc<Machine>) -> Arc<Watched> {
        Arc::new(Watched { memory: self.region.clone(), by: InMachine(self.clone()) })
    }

    /// Opens the pool, with what the last process left in its memory.
    pub(crate) fn open(self: &Arc<Machine>) -> Result<FilePool<Watched>, PoolOpenError> {
        let dram = self.dram.lock().expect("no holder panics").clone();
        FilePool::open(&self.memory(), |_| Ok(dram.clone()))
    }

    pub(crate) fn tree<T>(&self, act: impl FnOnce(&mut Tree) -> T) -> T {
        act(&mut self.tree.lock().expect("no holder panics"))
    }

    pub(crate) fn has(&self, bug: NamesBug) -> bool {
        self.faults(|faults| faults.has(bug))
    }

    pub(crate) fn record(&self) {
        self.cuts.begin();
    }

    /// The cuts kept since, and one of now.
    pub(crate) fn take(&self) -> Vec<JointCut> {
        self.cuts.take(self.cut())
    }

    fn cut(&self) -> JointCut {
        let dram = self.dram.lock().expect("no holder panics").left();
        JointCut { region: self.region.cut(), tree: self.tree(|tree| tree.clone()), dram }
    }

    /// What the file system of the directory takes from now on.
    pub(crate) fn set_takes(&self, takes: Takes) {
        *self.takes.lock().expect("no holder panics") = takes;
    }

    /// The directory is about to be changed, which is refused if it can only be read.
    fn changes(&self) -> Result<(), Refused> {
        if *self.takes.lock().expect("no holder panics") == Takes::ReadsOnly {
            return Err(READ_ONLY);
        }
        self.instant();
        Ok(())
    }

    /// An instant that matters: something durable is about to change.
    pub(crate) fn instant(&self) {
        self.cuts.instant(|| self.cut());
    }

    fn faults<T>(&self, act: impl FnOnce(&mut Faults) -> T) -> T {
        act(&mut self.faults.lock().expect("no holder panics"))
    }
}

impl InterceptMemory for InMachine {
    fn stream<R: Medium + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        let bytes = self.0.faults(|faults| faults.streamed(at, bytes));
        memory.stream(at, &bytes);
    }

    fn flush<R: Medium + ?Sized>(&self, memory: &R, at: u64, len: u64) {
        if !self.0.faults(|faults| faults.drops_flush(at)) {
            memory.flush(at, len);
        }
    }

    fn fence<R: Medium + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        if self.0.faults(Faults::drops_fence) {
            return Ok(());
        }
        self.0.instant();
        memory.fence()
    }
}

/// The served directory of a machine.
pub(crate) struct SimSource(pub(crate) Arc<Machine>);

impl NamespaceSource for SimSource {
    fn witness(&self) -> Result<Option<Witness>, Refused> {
        Ok(self.0.tree(|tree| tree.witness()))
    }

    fn set_witness(&self, witness: &Witness) -> Result<(), Refused> {
        self.0.changes()?;
        let there = self.0.tree(|tree| tree.witness().is_some());
        if there && self.0.has(NamesBug::WitnessMissing) {
            return Ok(());
        }
        if there && self.0.has(NamesBug::WitnessTooEarly) {
            self.0.tree(|tree| tree.set_witness_too_early(witness));
            return Ok(());
        }
        self.0.tree(|tree| tree.set_witness(witness))
    }

    fn look_up(&self, path: &[u8]) -> Result<Option<FoundNode>, Refused> {
        Ok(self.0.tree(|tree| tree.look_up(path)))
    }

    fn carry_out(&self, change: &NameChange<'_>) -> Result<(), Refused> {
        self.0.changes()?;
        if let NameChange::Made { path, mode, .. } = *change {
            self.0.tree(|tree| tree.make(path, mode))?;
            self.0.instant();
        }
        match (change, self.0.tree(|tree| tree.change(change))) {
            // It is not there, as a later operation says.
            (NameChange::XattrRemoved { .. }, Err(Refused { errno: ENODATA })) => Ok(()),
            (_, done) => done,
        }
    }

    fn sync(&self) -> Result<(), Refused> {
        self.0.changes()?;
        if !self.0.has(NamesBug::SourceSyncMissing) {
            self.0.tree(Tree::sync_all);
        }
        Ok(())
    }
}

/// A file of a machine.
struct SimBacking {
    machine: Arc<Machine>,
    identity: FileIdentity,
}

/// The file of an identity.
pub(crate) fn backing(machine: &Arc<Machine>, identity: FileIdentity) -> Arc<dyn BackingFile> {
    Arc::new(SimBacking { machine: machine.clone(), identity })
}

impl BackingFile for SimBacking {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        Ok(self.machine.tree(|tree| {
            let contents = tree.contents(self.identity);
            BackingStatus {
                len: contents.visible.len() as u64,
                stamp: Stamp::of(contents.stamp, contents.stamp),
                is_removed: false,
            }
        }))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        Ok(self.machine.tree(|tree| {
            let visible = &tree.contents(self.identity).visible;
            let left = visible.get(usize::try_from(at).expect("small")..).unwrap_or_default();
            let bytes = left.len().min(out.len());
            out[..bytes].copy_from_slice(&left[..bytes]);
            bytes
        }))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        self.machine.changes()?;
        let at = usize::try_from(at).expect("small");
        let write = |bytes: &mut Vec<u8>| {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        };
        self.machine.tree(|tree| tree.write(self.identity, write));
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.machine.changes()?;
        let len = usize::try_from(len).expect("small");
        self.machine.tree(|tree| tree.write(self.identity, |bytes| bytes.resize(len, 0)));
        Ok(())
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        if how == Fallocate::Reserve {
            self.machine.tree(|tree| tree.reserve(self.identity));
            return Ok(());
        }
        self.machine.changes()?;
        self.machine.tree(|tree| {
            tree.write(self.identity, |bytes| {
                let [at, end] = [at, at + len].map(|place| usize::try_from(place).expect("small").min(bytes.len()));
                bytes[at..end].fill(0);
            });
        });
        Ok(())
    }

    /// Which zeroes are holes is not modelled.
    fn seek(&self, _at: u64, _sought: Sought) -> Result<Option<u64>, Refused> {
        Err(Refused { errno: 95 })
    }

    fn sync(&self) -> Result<(), Refused> {
        self.machine.changes()?;
        if !self.machine.has(NamesBug::FileSyncMissing) {
            self.machine.tree(|tree| tree.sync_file(self.identity));
        }
        Ok(())
    }
}

/// The files of a machine, for recovery: found by their identity alone.
pub(crate) struct SimBelow(pub(crate) Arc<Machine>);

impl Below for SimBelow {
    fn find(&self, identity: FileIdentity, _hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        let there = identity.device == DEVICE && self.0.tree(|tree| tree.has(identity));
        Ok(there.then(|| backing(&self.0, identity)))
    }

    fn displaced(&self, _: FileIdentity, _: &[u8], _: Displaced) -> Result<Disposition, Refused> {
        Ok(Disposition::Retain)
    }
}
