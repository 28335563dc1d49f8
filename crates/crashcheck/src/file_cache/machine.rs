//! A machine with persistent memory, shared memory and files below, and all of them cut at the same
//! instant.

use crate::file_cache::mutants::{Faults, FilesBug};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_file_cache::{
    BackingFile, BackingStatus, Below, Displaced, Disposition, Fallocate, FileIdentity, FilePool, PoolOpenError,
    PoolSpec, Refused, Renewal, Sought, Stamp, dram_bytes, format, identify,
};
use tidegate_layout::file_cache::LanePlan;
use tidegate_media::{LineOrder, Region as Medium, Sealed};
use tidegate_sim::{Cut, Image, InterceptMemory, InterceptedMemory, Recorded, Reduction, Region, Rng, SharedMemory};

/// The kernel's errors.
const IO_ERROR: Refused = Refused { errno: 5 };
const NO_SPACE: Refused = Refused { errno: 28 };

/// Files below, in every trial.
pub(crate) const FILES: usize = 2;

/// A pool to be tried, and the steps that come before each script.
#[derive(Clone, Debug)]
pub struct SmallPool {
    /// The memory, laid out.
    pub image: Image,
    /// Where its lanes lie.
    pub lanes: Vec<LanePlan>,
    /// Blocks of shared memory of a lane.
    pub dram_blocks: u64,
    /// In which order words of a line arrive.
    pub order: LineOrder,
}

impl SmallPool {
    /// A pool of one lane with so many chunks, and a ring of eight elements.
    pub fn of(chunks: u64) -> SmallPool {
        SmallPool::with_lanes(1, chunks)
    }

    /// A pool of several lanes.
    pub fn with_lanes(lanes: u32, chunks: u64) -> SmallPool {
        let region = Region::new(16384 + u64::from(lanes) * chunks * ((1 << 20) + 16 * 32 + 4096));
        let spec =
            PoolSpec { uuid: [7; 16], lanes, files: 2, ring_slots: 8, bytes_per_entry: 1 << 16, namespace_lines: 0 };
        format(&region, &spec).expect("the region takes a pool");
        let plan = identify(&region).expect("it was just laid out").plan;
        let lanes = (0..lanes).map(|lane| plan.lane(lane)).collect();
        SmallPool { image: region.visible(), lanes, dram_blocks: 8, order: LineOrder::NATIVE }
    }

    /// This pool on a processor whose words to one line arrive in any order.
    pub fn in_any_order(self) -> SmallPool {
        SmallPool { order: LineOrder::Any, ..self }
    }

    /// Shared memory for a process, a piece for each lane.
    pub(crate) fn dram(&self, region: &Region) -> Vec<Arc<SharedMemory>> {
        let bytes = dram_bytes(region, self.lanes.len() as u64 * self.dram_blocks * 4096).expect("there is a pool");
        self.lanes.iter().map(|_| Arc::new(SharedMemory::new(bytes))).collect()
    }

    /// Elements that no head has let in and the contents of blocks are never read by recovery.
    pub(crate) fn reduction(&self) -> Reduction {
        let rings = self.lanes.iter().map(|lane| lane.ring_at..lane.record_at(0));
        let blocks = self.lanes.iter().map(|lane| lane.chunks_at()..lane.chunks_at() + lane.data_bytes());
        Reduction { images_max: 1 << 12, samples: 64, ..Reduction::of(rings.chain(blocks)) }
    }
}

/// A file below: what is visible, what is durable, and what was done in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimFile {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    stamp: u64,
    durable_stamp: u64,
    /// When the contents were changed last, as the file system says.
    time: u64,
    durable_time: u64,
    /// The time that whoever has the file open gives it with each sync, unless it is 0.
    noted: u64,
    /// The mark that it had while its room was changed, since the last sync. The file system's
    /// journal may have that mark and not yet the one that was put back.
    passing: Option<u64>,
}

/// What a file system stores as a whole.
const PAGE_BYTES: u64 = 4096;

/// How far marks are from others that pass, or that a power cut leaves.
pub(crate) const MARK_OF_ROOM: u64 = 2000;
pub(crate) const MARK_OF_CUT: u64 = 1000;

/// The time of a change that no program made.
pub(crate) const BY_THE_CACHE: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Bytes(u64, Vec<u8>),
    Zeroes(u64, u64),
    Length(u64),
}

impl SimFile {
    /// A file with these bytes, durably.
    pub fn new(bytes: &[u8]) -> SimFile {
        let (visible, durable) = (bytes.to_vec(), bytes.to_vec());
        SimFile { visible, durable, stamp: 1, durable_stamp: 1, ..SimFile::default() }
    }

    /// When its contents were changed last, durably.
    pub(crate) fn durable_time(&self) -> u64 {
        self.durable_time
    }

    /// When its contents were changed last, as a program sees it.
    fn seen_time(&self) -> u64 {
        if self.noted == 0 { self.time } else { self.noted }
    }

    /// Its visible contents.
    pub fn contents(&self) -> &[u8] {
        &self.visible
    }

    /// A mark that changes with contents and length.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Copies bytes from offset `at`; says how many.
    pub fn read(&self, at: u64, out: &mut [u8]) -> usize {
        let left = self.visible.get(usize::try_from(at).expect("small")..).unwrap_or_default();
        let bytes = left.len().min(out.len());
        out[..bytes].copy_from_slice(&left[..bytes]);
        bytes
    }

    fn change(&mut self, change: Change) {
        carry_out(&mut self.visible, &change);
        self.pending.push(change);
        self.stamp += 1;
        self.time = BY_THE_CACHE;
    }

    /// Stores bytes, visibly. A power cut may leave any pages of them.
    pub fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        if end > self.visible.len() as u64 {
            self.change(Change::Length(end));
        }
        let mut from = at;
        while from < end {
            let until = end.min((from / PAGE_BYTES + 1) * PAGE_BYTES);
            let [first, last] = [from, until].map(|place| usize::try_from(place - at).expect("inside the data"));
            self.change(Change::Bytes(from, data[first..last].to_vec()));
            from = until;
        }
    }

    /// The file has this length, visibly.
    pub fn set_len(&mut self, len: u64) {
        self.change(Change::Length(len));
    }

    /// Makes a range zeroes, visibly.
    pub fn zero(&mut self, at: u64, len: u64) {
        self.change(Change::Zeroes(at, len));
    }

    /// Reserves room, or gives it back: the file's time changes, and is put back.
    pub fn change_room(&mut self) {
        self.passing = Some(self.stamp + MARK_OF_ROOM);
    }

    /// Makes durable what is visible.
    pub fn sync(&mut self) {
        self.passing = None;
        for change in std::mem::take(&mut self.pending) {
            carry_out(&mut self.durable, &change);
        }
        self.durable_stamp = self.stamp;
        self.durable_time = self.time;
    }

    /// Whoever has it open gives it this time with each sync; 0: none.
    pub fn note(&mut self, time: u64) {
        self.noted = time;
    }

    /// Gives it the time that was noted, which its mark tells of too.
    pub fn set_noted(&mut self) {
        self.stamp += u64::from(self.time != self.seen_time());
        self.time = self.seen_time();
    }

    /// A sync that fails loses the bytes that it was to make durable, as a kernel does: they are
    /// visible, and no later sync covers them. Lengths and holes go the way of the file system's
    /// journal.
    fn fail_to_sync(&mut self) {
        self.pending.retain(|change| matches!(change, Change::Length(_) | Change::Zeroes(..)));
    }

    /// What a power cut may leave: any changes, as long as there are few, otherwise none, all, the
    /// first ones, and all but one.
    fn images(&self) -> Vec<SimFile> {
        let count = self.pending.len();
        let subsets: Vec<Vec<bool>> = if count <= 4 {
            (0..1_u32 << count).map(|bits| (0..count).map(|bit| bits >> bit & 1 == 1).collect()).collect()
        } else {
            let firsts = (0..=count).map(|first| (0..count).map(|change| change < first).collect());
            firsts.chain((0..count).map(|lost| (0..count).map(|change| change != lost).collect())).collect()
        };
        let mut images: Vec<SimFile> = subsets.iter().map(|arrived| self.image(arrived)).collect();
        images.extend(self.passing.map(|mark| self.image_marked(mark)));
        images.dedup_by(|one, other| one == other);
        images
    }

    /// One of the states that a power cut may leave: any changes may have arrived.
    pub fn sample(&self, rng: &mut Rng) -> SimFile {
        if let Some(mark) = self.passing.filter(|_| rng.one_in(4)) {
            return self.image_marked(mark);
        }
        let arrived: Vec<bool> = match rng.below(4) {
            0 => vec![false; self.pending.len()],
            1 => vec![true; self.pending.len()],
            _ => self.pending.iter().map(|_| rng.one_in(2)).collect(),
        };
        self.image(&arrived)
    }

    fn image(&self, arrived: &[bool]) -> SimFile {
        let mut bytes = self.durable.clone();
        for (change, _) in self.pending.iter().zip(arrived).filter(|(_, arrived)| **arrived) {
            carry_out(&mut bytes, change);
        }
        let changed = arrived.contains(&true);
        let stamp = if changed { self.stamp + MARK_OF_CUT } else { self.durable_stamp };
        let time = self.durable_time;
        let (visible, durable) = (bytes.clone(), bytes);
        SimFile { visible, durable, stamp, durable_stamp: stamp, time, durable_time: time, ..SimFile::default() }
    }

    /// Nothing has arrived but this mark.
    fn image_marked(&self, mark: u64) -> SimFile {
        SimFile { stamp: mark, durable_stamp: mark, ..self.image(&[]) }
    }
}

/// Bytes past the end are lost with the length that did not arrive.
fn carry_out(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(len) => bytes.resize(usize::try_from(*len).expect("small"), 0),
        Change::Bytes(at, data) => {
            let at = usize::try_from(*at).expect("small").min(bytes.len());
            let end = (at + data.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&data[..end - at]);
        }
        Change::Zeroes(at, len) => {
            let [at, end] = [*at, at + len].map(|place| usize::try_from(place).expect("small").min(bytes.len()));
            bytes[at..end].fill(0);
        }
    }
}

/// The power fails, or the process is killed: everything at that instant.
pub(crate) struct JointCut {
    pub(crate) region: Cut,
    pub(crate) files: Vec<SimFile>,
    pub(crate) dram: Vec<Image>,
}

impl JointCut {
    /// The states that the files below may be left in.
    pub(crate) fn files_images(&self) -> Vec<Vec<SimFile>> {
        let mut all = vec![Vec::new()];
        for file in &self.files {
            let images = file.images();
            let with = |image: &SimFile, before: &Vec<SimFile>| before.iter().chain([image]).cloned().collect();
            all = all.iter().flat_map(|before| images.iter().map(move |image| with(image, before))).collect();
        }
        all
    }
}

/// Memory and files of one machine, and the cuts recorded of them.
pub struct Machine {
    pub(crate) region: Arc<Region>,
    files: Mutex<Vec<SimFile>>,
    dram: Mutex<Vec<Arc<SharedMemory>>>,
    cuts: Recorded<JointCut>,
    kills: Recorded<JointCut>,
    faults: Mutex<Faults>,
    /// Which change of a file below is refused, counted from now on.
    refusal: Mutex<Option<(u32, Refusal)>>,
    refused: AtomicBool,
}

/// How a change of a file below is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not happen. A sync loses what it was to make durable.
    Nothing,
    /// A write is made by half. Other changes happen.
    Half,
}

impl Machine {
    pub(crate) fn new(
        pool: &SmallPool,
        region: Region,
        mut files: Vec<SimFile>,
        dram: Option<Vec<Image>>,
        bug: Option<FilesBug>,
    ) -> Arc<Machine> {
        // Nobody has them open.
        files.iter_mut().for_each(|file| file.noted = 0);
        let of_lane = |bytes| Arc::new(SharedMemory::of(bytes));
        let dram = dram.map_or_else(|| pool.dram(&region), |dram| dram.into_iter().map(of_lane).collect());
        Arc::new(Machine {
            region: Arc::new(region),
            files: Mutex::new(files),
            dram: Mutex::new(dram),
            cuts: Recorded::default(),
            kills: Recorded::default(),
            faults: Mutex::new(Faults::new(bug, pool.lanes[0])),
            refusal: Mutex::new(None),
            refused: AtomicBool::new(false),
        })
    }

    /// The next process has memory of its own.
    pub(crate) fn renew_dram(&self, dram: Vec<Arc<SharedMemory>>) {
        *self.dram.lock().expect("no holder panics") = dram;
    }

    /// Opens the pool, with what the last process left in its memory.
    pub(crate) fn open(self: &Arc<Machine>) -> Result<FilePool<Watched>, PoolOpenError> {
        let dram = self.dram.lock().expect("no holder panics").clone();
        let of_lane = |lane: u32| -> Arc<dyn Medium> {
            Arc::new(InterceptedMemory { memory: dram[lane as usize].clone(), by: InDram(self.clone()) })
        };
        FilePool::open(&Arc::new(self.memory()), |lane| Ok(of_lane(lane)))
    }

    /// Somebody else writes to a file, and leaves its time.
    pub(crate) fn change(&self, number: usize, at: u64, data: &[u8]) {
        let mut files = self.files.lock().expect("no holder panics");
        let time = files[number].seen_time();
        files[number].write(at, data);
        (files[number].time, files[number].noted) = (time, 0);
        files[number].sync();
    }

    /// Whoever has a file open gives it this time with each sync; 0: none.
    pub(crate) fn note(&self, number: usize, time: u64) {
        self.files.lock().expect("no holder panics")[number].note(time);
    }

    /// Gives back a file's reserved room, and gives it the time that was noted, visibly.
    pub(crate) fn settle(&self, number: usize) {
        let mut files = self.files.lock().expect("no holder panics");
        files[number].change_room();
        files[number].set_noted();
    }

    /// When the files below were changed last, as programs see it.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.files.lock().expect("no holder panics").iter().map(SimFile::seen_time).collect()
    }

    /// The visible contents of the files below.
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        self.files.lock().expect("no holder panics").iter().map(|file| file.visible.clone()).collect()
    }

    pub(crate) fn record(&self) {
        self.cuts.begin();
    }

    /// From now on, keeps what a kill leaves after each store to shared memory, and amid it.
    pub(crate) fn record_kills(&self) {
        self.kills.begin();
    }

    /// What kills leave that came since.
    pub(crate) fn take_kills(&self) -> Vec<JointCut> {
        self.kills.take(self.cut())
    }

    /// From now on the change of this number of a file below is refused, or none is.
    pub(crate) fn refuse(&self, refusal: Option<(u32, Refusal)>) {
        *self.refusal.lock().expect("no holder panics") = refusal;
    }

    /// Whether a change was refused.
    pub(crate) fn has_refused(&self) -> bool {
        // Relaxed: whoever asks has joined the threads that changed files.
        self.refused.load(Ordering::Relaxed)
    }

    /// A file below is about to be changed: how that is refused, if it is.
    fn refusal(&self) -> Option<Refusal> {
        let mut next = self.refusal.lock().expect("no holder panics");
        match *next {
            Some((0, refusal)) => {
                *next = None;
                self.refused.store(true, Ordering::Relaxed);
                Some(refusal)
            }
            Some((left, refusal)) => {
                *next = Some((left - 1, refusal));
                None
            }
            None => None,
        }
    }

    /// The cuts kept since, and one of now.
    pub(crate) fn take(&self) -> Vec<JointCut> {
        self.cuts.take(self.cut())
    }

    /// A cut of now.
    pub(crate) fn cut(&self) -> JointCut {
        // Held to the end: the memory may know of no change that the files do not have yet.
        let files = self.files.lock().expect("no holder panics");
        let dram = self.dram.lock().expect("no holder panics").iter().map(|lane| lane.left()).collect();
        JointCut { region: self.region.cut(), files: files.clone(), dram }
    }

    fn instant(&self) {
        self.cuts.instant(|| self.cut());
    }

    /// Whether this mistake is in it.
    pub(crate) fn has_bug(&self, bug: FilesBug) -> bool {
        self.faults(|faults| faults.has(bug))
    }

    fn faults<T>(&self, act: impl FnOnce(&mut Faults) -> T) -> T {
        act(&mut self.faults.lock().expect("no holder panics"))
    }
}

/// What happens at the shared memory of a machine: after each store, and amid it, comes an instant
/// for kills.
struct InDram(Arc<Machine>);

impl InterceptMemory for InDram {
    fn write<R: Medium + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        let (first, last) = bytes.split_at(bytes.len() / 2);
        for (at, part) in [(at, first), (at + first.len() as u64, last)] {
            memory.write(at, part);
            self.0.kills.instant(|| self.0.cut());
        }
    }

    fn store_u64<R: Medium + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        if self.0.faults(|faults| faults.is_dropped_from_dram(at)) {
            return;
        }
        memory.store_u64(at, word);
        self.0.kills.instant(|| self.0.cut());
    }
}

/// The persistent memory of a machine.
pub(crate) type Watched = InterceptedMemory<Region, InMachine>;

/// What happens at the memory of a machine: each fence is an instant, and faults.
pub(crate) struct InMachine(Arc<Machine>);

impl Machine {
    /// Its persistent memory.
    /// Puts other memory behind blocks of the pool, which nobody may have counted on.
    pub(crate) fn renewal(self: &Arc<Machine>) -> Renewal {
        let memory = self.memory();
        Arc::new(move |range| {
            let bytes = vec![0xdb; usize::try_from(range.end - range.start).expect("a block")];
            memory.write(range.start, &bytes);
            true
        })
    }

    pub(crate) fn memory(self: &Arc<Machine>) -> Watched {
        Watched { memory: self.region.clone(), by: InMachine(self.clone()) }
    }
}

impl InterceptMemory for InMachine {
    fn stream<R: Medium + ?Sized>(&self, memory: &R, at: u64, bytes: &[u8]) {
        let bytes = self.0.faults(|faults| faults.streamed(at, bytes));
        memory.stream(at, &bytes);
    }

    fn store_u64<R: Medium + ?Sized>(&self, memory: &R, at: u64, word: u64) {
        let before = memory.load_u64(at).expect("the region is sound");
        let word = self.0.faults(|faults| faults.stored_instead(at, word));
        for between in self.0.faults(|faults| faults.stored(at, word, before)) {
            memory.store_u64(at, between);
            memory.flush(at, 8);
            self.fence(memory).expect("the region is sound");
        }
        memory.store_u64(at, word);
    }

    fn flush<R: Medium + ?Sized>(&self, memory: &R, at: u64, len: u64) {
        if !self.0.faults(|faults| faults.drops_flush(at, len)) {
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

/// A file of a machine.
struct SimBacking {
    machine: Arc<Machine>,
    number: usize,
}

impl SimBacking {
    fn file<T>(&self, act: impl FnOnce(&mut SimFile) -> T) -> T {
        act(&mut self.machine.files.lock().expect("no holder panics")[self.number])
    }
}

/// The file of this number.
pub(crate) fn backing(machine: &Arc<Machine>, number: usize) -> Arc<dyn BackingFile> {
    Arc::new(SimBacking { machine: machine.clone(), number })
}

impl BackingFile for SimBacking {
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: self.number as u64, generation: 0 }
    }

    fn status(&self) -> Result<BackingStatus, Refused> {
        let stamp = |file: &SimFile| match self.machine.faults(|faults| faults.has_one_stamp()) {
            true => Stamp::of(1, 1),
            false => Stamp::of(file.stamp, file.stamp),
        };
        Ok(self.file(|file| BackingStatus { len: file.visible.len() as u64, stamp: stamp(file), is_removed: false }))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize, Refused> {
        Ok(self.file(|file| file.read(at, out)))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), Refused> {
        self.machine.instant();
        let (made, answer) = match self.machine.refusal() {
            None => (data.len(), Ok(())),
            Some(Refusal::Nothing) => (0, Err(NO_SPACE)),
            Some(Refusal::Half) => (data.len() / 2, Err(NO_SPACE)),
        };
        if made > 0 {
            self.file(|file| file.write(at, &data[..made]));
        }
        answer
    }

    fn set_len(&self, len: u64) -> Result<(), Refused> {
        self.machine.instant();
        let refusal = self.machine.refusal();
        if refusal != Some(Refusal::Nothing) {
            self.file(|file| file.set_len(len));
        }
        refusal.map_or(Ok(()), |_| Err(IO_ERROR))
    }

    fn fallocate(&self, at: u64, len: u64, how: Fallocate) -> Result<(), Refused> {
        if how == Fallocate::Reserve {
            self.file(|file| {
                file.time = BY_THE_CACHE;
                file.change_room();
            });
            return self.machine.refusal().map_or(Ok(()), |_| Err(NO_SPACE));
        }
        self.machine.instant();
        let (made, answer) = match self.machine.refusal() {
            None => (len, Ok(())),
            Some(Refusal::Nothing) => (0, Err(IO_ERROR)),
            Some(Refusal::Half) => (len / 2, Err(IO_ERROR)),
        };
        if made > 0 {
            self.file(|file| file.zero(at, made));
        }
        answer
    }

    /// Holes are not kept apart from zeroes.
    fn seek(&self, at: u64, sought: Sought) -> Result<Option<u64>, Refused> {
        let ends = self.file(|file| file.visible.len() as u64);
        let found = match sought {
            Sought::Data => at,
            Sought::Hole => ends,
        };
        Ok((at < ends).then_some(found))
    }

    fn set_times(&self) -> Result<(), Refused> {
        if !self.machine.faults(|faults| faults.forgets_times()) {
            self.file(SimFile::set_noted);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Refused> {
        self.machine.instant();
        if self.machine.refusal().is_some() {
            self.file(SimFile::fail_to_sync);
            return Err(IO_ERROR);
        }
        if !self.machine.faults(|faults| faults.lies_about_syncs()) {
            self.file(SimFile::sync);
        }
        Ok(())
    }
}

/// The files of a machine, for recovery.
pub(crate) struct SimBelow {
    pub(crate) machine: Arc<Machine>,
    /// A file that is not there.
    pub(crate) missing: Option<usize>,
}

impl Below for SimBelow {
    fn find(&self, identity: FileIdentity, _hint: &[u8]) -> Result<Option<Arc<dyn BackingFile>>, Refused> {
        let number = usize::try_from(identity.inode).expect("small");
        Ok((number < FILES && self.missing != Some(number)).then(|| backing(&self.machine, number)))
    }

    fn displaced(&self, _identity: FileIdentity, _hint: &[u8], _why: Displaced) -> Result<Disposition, Refused> {
        Ok(Disposition::Retain)
    }
}
