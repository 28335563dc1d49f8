//! Long scripts over volumes of full size: too many cuts to enumerate, so each step is cut at
//! random and each cut gives a random image. A seed names the whole run.

use crate::btt::linux::{LinuxArena, Order};
use crate::checker::Failure;
use crate::cuts::described;
use crate::script::block_of;
use std::fmt;
use std::sync::Arc;
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions, PlannedArena, Repair, check, format, plan};
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange};
use tidegate_sim::{Content, Cut, Image, Oracle, Pending, Promise, Region, Rng, mix, on_core};

/// A freshly formatted volume and the few of its sectors that a script uses, so that they meet
/// often.
pub struct LongVolume {
    arenas: Vec<PlannedArena>,
    start: Image,
    block_bytes: usize,
    sectors: Vec<u64>,
    /// Threads: those that are equal modulo the number of lanes share one.
    cores: Vec<u32>,
    /// Whether every map entry is checked after each cut.
    checked: bool,
}

/// What a run has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongTally {
    /// Operations.
    pub steps: u64,
    /// Cuts in them, each with one image.
    pub cuts: u64,
    /// Cuts in the recoveries after those, and in the writes after the recoveries.
    pub later_cuts: u64,
}

impl LongTally {
    /// Adds what another run has done.
    pub fn add(&mut self, other: LongTally) {
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.later_cuts += other.later_cuts;
    }
}

impl fmt::Display for LongTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LongTally { steps, cuts, later_cuts } = self;
        write!(f, "{steps} steps, {cuts} cuts in them, {later_cuts} in the recoveries and writes after")
    }
}

/// A run over a volume.
struct Run<'a> {
    volume: &'a LongVolume,
    rng: Rng,
    tally: LongTally,
    next_tag: u64,
}

/// An operation on one of the volume's sectors, by its index.
struct Operation {
    kind: Kind,
    sector: usize,
    core: u32,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Zeroes,
    Discard,
}

impl LongVolume {
    /// The smallest volume the format has, with sectors of 512 bytes and 256 lanes. The sectors
    /// used share map lines and words with each other in part.
    pub fn smallest() -> LongVolume {
        let bytes = (16 << 20) + 4096;
        let sectors = vec![0, 1, 2, 3, 15, 16, 17, 31, 32, 1024, 16384, 16385, 30000, 31000];
        LongVolume::new(bytes, 512, sectors, true)
    }

    /// The smallest volume with sectors of 4096 bytes, where zeroes are a state of the map.
    pub fn smallest_of_pages() -> LongVolume {
        LongVolume::new((16 << 20) + 4096, 4096, vec![0, 1, 2, 15, 16, 1024, 3000, 3827, 3828], true)
    }

    /// Two arenas, and sectors on both sides of the boundary.
    pub fn two_arenas() -> LongVolume {
        let bytes = (1 << 39) + (32 << 20);
        let arenas = plan(bytes, Version::V1_1, 4096).expect("two arenas");
        let boundary = u64::from(arenas[0].geometry.external_nlba);
        let sectors = vec![0, 1, boundary - 2, boundary - 1, boundary, boundary + 1, boundary + 17];
        LongVolume::new(bytes, 4096, sectors, false)
    }

    fn new(bytes: u64, sector_size: u32, sectors: Vec<u64>, checked: bool) -> LongVolume {
        let spec = FormatSpec { version: Version::V1_1, sector_size, uuid: [3; 16], parent_uuid: [0; 16] };
        let region = Region::new(bytes);
        format(&region, &spec, Contents::Zeroed).expect("the region is sound");
        LongVolume {
            arenas: plan(bytes, spec.version, sector_size).expect("it was just formatted"),
            start: region.cut().least().clone(),
            block_bytes: sector_size as usize,
            sectors,
            cores: vec![0, 1, 2, 256, 257, 512],
            checked,
        }
    }

    /// Runs `steps` operations, each cut `cuts_each` times.
    pub fn run(&self, seed: u64, steps: u64, cuts_each: u32) -> Result<LongTally, Failure> {
        let mut run = Run { volume: self, rng: Rng::new(seed), tally: LongTally::default(), next_tag: mix(seed) >> 16 };
        run.run(steps, cuts_each).map_err(|failure| failure.within(format_args!("the run of seed {seed:#x}")))?;
        Ok(run.tally)
    }

    /// The arena of the device's block `lba`, and the sector's number in it.
    fn place(&self, mut lba: u64) -> (usize, u32) {
        for (index, arena) in self.arenas.iter().enumerate() {
            if let Ok(sector) = u32::try_from(lba)
                && sector < arena.geometry.external_nlba
            {
                return (index, sector);
            }
            lba -= u64::from(arena.geometry.external_nlba);
        }
        panic!("no arena has the sector")
    }
}

impl Run<'_> {
    fn run(&mut self, steps: u64, cuts_each: u32) -> Result<(), Failure> {
        let mut region = Arc::new(Region::from_image(self.volume.start.clone()));
        let mut oracle =
            Oracle::zeroed(self.volume.sectors.len() as u64, self.volume.block_bytes, Promise::OnCompletion);
        let mut device = open(&region, 0)?;
        for step in 0..steps {
            self.tally.steps += 1;
            if self.rng.one_in(64) {
                // The process is killed, or the power fails, and the script goes on.
                let cut = region.cut();
                let kill = self.rng.one_in(2);
                region = Arc::new(if kill {
                    Region::after_kill(&cut)
                } else {
                    Region::from_image(cut.sample(&mut self.rng))
                });
                oracle = oracle.after_cut();
                device = open(&region, self.core())?;
            }
            region.record_cuts();
            let operation = self.operation();
            let pending = self.began(&operation, &mut oracle);
            let before = oracle.after_cut();
            self.act(&device, &operation)?;
            oracle.acknowledged(pending);
            let mut cuts: Vec<(Cut, &Oracle)> = region.take_cuts().into_iter().map(|cut| (cut, &before)).collect();
            let after = oracle.after_cut();
            cuts.push((region.cut(), &after));
            for _ in 0..cuts_each {
                let (cut, oracle) = &cuts[self.rng.index(cuts.len())];
                self.tally.cuts += 1;
                self.judge(cut, oracle, 2).map_err(|failure| failure.within(format_args!("step {step}")))?;
            }
        }
        Ok(())
    }

    fn core(&mut self) -> u32 {
        self.volume.cores[self.rng.index(self.volume.cores.len())]
    }

    fn operation(&mut self) -> Operation {
        self.next_tag += 1;
        let kind = match self.rng.below(8) {
            0 => Kind::Zeroes,
            1 => Kind::Discard,
            _ => Kind::Write,
        };
        let sector = self.rng.index(self.volume.sectors.len());
        Operation { kind, sector, core: self.core(), bytes: block_of(self.next_tag, self.volume.block_bytes) }
    }

    fn began(&self, operation: &Operation, oracle: &mut Oracle) -> Pending {
        let lba = Lba(operation.sector as u64);
        let range = LbaRange { first: lba, blocks: 1 };
        match operation.kind {
            Kind::Write => oracle.write_began(lba, Content::of(&operation.bytes), Durability::Volatile),
            Kind::Zeroes => oracle.write_zeroes_began(range, Durability::Volatile),
            Kind::Discard => oracle.discard_began(range),
        }
    }

    fn act(&self, device: &Btt<Arc<Region>>, operation: &Operation) -> Result<(), Failure> {
        let lba = Lba(self.volume.sectors[operation.sector]);
        let range = LbaRange { first: lba, blocks: 1 };
        on_core(operation.core, || match operation.kind {
            Kind::Write => device.write(lba, &operation.bytes, Durability::Volatile),
            Kind::Zeroes => device.write_zeroes(range, Durability::Volatile),
            Kind::Discard => device.discard(range),
        })
        .map_err(Failure::new)
    }

    /// One image of `cut`: recovered twice over, read, written on; with cuts inside while `deeper`
    /// is not 0.
    fn judge(&mut self, cut: &Cut, oracle: &Oracle, deeper: u32) -> Result<(), Failure> {
        let image = cut.sample(&mut self.rng);
        self.judge_image(&image, oracle, deeper).map_err(|failure| failure.within(described(cut, &image)))
    }

    fn judge_image(&mut self, image: &Image, oracle: &Oracle, deeper: u32) -> Result<(), Failure> {
        let order = if self.rng.one_in(2) { Order::Ascending } else { Order::Shuffled(self.rng.next_u64()) };
        let linux = self.read_by_linux(image, order).map_err(Failure::new)?;
        let region = Arc::new(Region::from_image(image.clone()));
        region.record_cuts();
        let device = open(&region, self.core())?;
        let cuts = region.take_cuts();
        let mut oracle = oracle.clone();
        if deeper > 0 && self.rng.one_in(4) {
            let cut = &cuts[self.rng.index(cuts.len())];
            self.tally.later_cuts += 1;
            self.judge(cut, &oracle, deeper - 1).map_err(|failure| failure.within("a cut in the recovery"))?;
        }
        self.read_all(&device, &mut oracle, &linux)?;
        if deeper > 0 && self.rng.one_in(4) {
            self.write_on(&region, &device, &mut oracle, deeper - 1)?;
        }
        Ok(())
    }

    fn read_by_linux(&self, image: &Image, order: Order) -> Result<Vec<Content>, String> {
        let attach = |arena: &PlannedArena| LinuxArena::attach(image, arena.start, &arena.geometry, order);
        let arenas = self.volume.arenas.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
        let content = |lba: &u64| {
            let (arena, sector) = self.volume.place(*lba);
            arenas[arena].content(sector, self.volume.block_bytes)
        };
        self.volume.sectors.iter().map(content).collect()
    }

    fn read_all(&self, device: &Btt<Arc<Region>>, oracle: &mut Oracle, linux: &[Content]) -> Result<(), Failure> {
        if self.volume.checked {
            let report = check(device.region(), Repair::No).map_err(Failure::new)?;
            if let Some(finding) = report.findings.first() {
                return Err(Failure::new(format_args!("check: {}", finding.corrupt)));
            }
        }
        let mut bytes = vec![0; self.volume.block_bytes];
        for (index, (lba, linux)) in self.volume.sectors.iter().zip(linux).enumerate() {
            device.read(Lba(*lba), &mut bytes).map_err(Failure::new)?;
            let content = Content::of(&bytes);
            oracle.observe(Lba(index as u64), content).map_err(Failure::new)?;
            if content != *linux {
                return Err(Failure::new(format_args!("sector {lba} shows {content:x?} here and {linux:x?} on Linux")));
            }
        }
        Ok(())
    }

    fn write_on(
        &mut self,
        region: &Arc<Region>,
        device: &Btt<Arc<Region>>,
        oracle: &mut Oracle,
        deeper: u32,
    ) -> Result<(), Failure> {
        let writes = 1 + self.rng.below(6);
        for number in 0..writes {
            region.record_cuts();
            let operation = self.operation();
            let pending = self.began(&operation, oracle);
            let before = oracle.after_cut();
            self.act(device, &operation)?;
            oracle.acknowledged(pending);
            let cuts = region.take_cuts();
            if number + 1 == writes && !cuts.is_empty() {
                let cut = &cuts[self.rng.index(cuts.len())];
                self.tally.later_cuts += 1;
                self.judge(cut, &before, deeper).map_err(|failure| failure.within("a cut in a write after it"))?;
            }
        }
        Ok(())
    }
}

fn open(region: &Arc<Region>, core: u32) -> Result<Btt<Arc<Region>>, Failure> {
    on_core(core, || Btt::open(region.clone(), &OpenOptions::default())).map_err(Failure::new)
}
