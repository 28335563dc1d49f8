//! Power cuts under a mirror, and the loss of either side after each of them.
//!
//! An engine runs on the mirror that ships, over two simulated regions. Before each fence of either
//! side of a script's last step, and at its end, the power fails for both at once. Of each such
//! joint cut
//! 1. side 1 is lost: every distinct image of side 0 is opened alone, and shows what the oracle
//!    allows; and the other way round;
//! 2. both are there: every image of side 0 is opened with the least and the most that side 1 may
//!    keep. What is then read is what must stay. In this opening the power fails again before each
//!    fence, the copy among it, and either side is lost again, or neither;
//! 3. where the sides refuse each other, the one that went on alone has every write;
//! 4. where they do not, a server of either side alone that is refused before a client came leaves
//!    them so: both are opened together then, and show what the oracle allows.
//!
//! A step of a script may lose a side under the engine's hands: its memory takes no more stores.

mod mutants;
mod subject;

pub use mutants::{CutSide, MirrorBug};
pub use subject::{MirroredCache, MirroredVolume, Subject};

use crate::checker::{Failure, Seen};
use crate::parallel::on_two_threads;
use crate::script::{block_of, scripts};
use mutants::Power;
use std::fmt;
use std::sync::Arc;
use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, OpeningId};
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_mirror::{Mirror, MirrorError};
use tidegate_sim::{Content, Cut, Image, Oracle, PoisonedStore, Reduction, Region, Rng, mix, on_core};

/// One operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorStep {
    /// A core writes a block.
    Write(u32, u64),
    /// The process ends, and the next one opens the mirror; the power stays.
    Reopen,
    /// The memory of that side takes no more stores, and gives no bytes back.
    Lose(usize),
    /// The process ends. The next one opens that side alone, and ends before a client came; the one
    /// after it opens both.
    StartAlone(usize),
    /// The process ends, and the next one opens that side alone for clients.
    GoAlone(usize),
}

impl MirrorStep {
    /// Writes of two blocks by two cores, an opening, the loss of either side, and openings of
    /// either alone.
    pub fn alphabet() -> Vec<MirrorStep> {
        let writes = [(0, 0), (0, 1), (1, 0)].map(|(core, lba)| MirrorStep::Write(core, lba));
        let sides = [0, 1].into_iter();
        let of_sides =
            sides.flat_map(|side| [MirrorStep::Lose(side), MirrorStep::StartAlone(side), MirrorStep::GoAlone(side)]);
        writes.into_iter().chain([MirrorStep::Reopen]).chain(of_sides).collect()
    }
}

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct MirrorTally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Joint cuts of both sides.
    pub cuts: u64,
    /// Distinct images that one side was opened alone with.
    pub alone: u64,
    /// Distinct pairs of images that were opened together.
    pub together: u64,
    /// Joint cuts inside those openings.
    pub second_cuts: u64,
    /// Pairs that refused each other.
    pub refused: u64,
    /// Pairs of which one was opened alone and left, before both were opened.
    pub left: u64,
}

impl MirrorTally {
    fn add(&mut self, other: &MirrorTally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.alone += other.alone;
        self.together += other.together;
        self.second_cuts += other.second_cuts;
        self.refused += other.refused;
        self.left += other.left;
    }
}

impl fmt::Display for MirrorTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MirrorTally { scripts, cuts, alone, together, second_cuts, refused, left } = self;
        write!(
            f,
            "{scripts} scripts, {cuts} joint cuts; {alone} images of one side opened alone, {together} pairs opened \
             together, with {second_cuts} cuts in that, and {left} after one of them was opened alone; {refused} pairs \
             refused"
        )
    }
}

/// Whether an opening is cut again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    First,
    Second,
}

/// A mirror and its engine under test.
struct Campaign<'a, S> {
    subject: &'a S,
    bug: Option<MirrorBug>,
    seen: &'a Seen,
    start: [Image; 2],
    tally: MirrorTally,
}

impl<'a, S: Subject> Campaign<'a, S> {
    fn new(subject: &'a S, bug: Option<MirrorBug>, seen: &'a Seen) -> Campaign<'a, S> {
        let start = formatted(subject);
        Campaign { subject, bug, seen, start, tally: MirrorTally::default() }
    }

    fn run(&mut self, script: &[MirrorStep]) -> Result<(), Failure> {
        self.tally.scripts += 1;
        self.run_script(script).map_err(|failure| failure.within(format_args!("the script {script:?}")))
    }

    fn run_script(&mut self, script: &[MirrorStep]) -> Result<(), Failure> {
        let power = Power::new(self.start.clone().map(|image| Arc::new(Region::from_image(image))), self.bug);
        let mut oracle = self.subject.oracle();
        let mut device = Some(self.engine(self.together(&power)?)?);
        let mut is_lost = false;
        for (number, step) in script.iter().enumerate() {
            let is_last = number + 1 == script.len();
            if is_last {
                power.record();
            }
            let mut before = oracle.after_cut();
            match *step {
                // The loss of both sides is a loss, and a lost side is refused.
                _ if is_lost && !matches!(step, MirrorStep::Write(..)) => return Ok(()),
                MirrorStep::Lose(side) => {
                    is_lost = true;
                    power.sides[side].poison(0, self.volume_bytes(), PoisonedStore::Lost);
                }
                MirrorStep::Reopen => {
                    drop(device.take());
                    device = Some(self.engine(self.together(&power)?)?);
                }
                MirrorStep::StartAlone(side) => {
                    drop(device.take());
                    drop(self.alone(power.side(side))?);
                    device = Some(self.engine(self.together(&power)?)?);
                }
                MirrorStep::GoAlone(side) => {
                    is_lost = true;
                    drop(device.take());
                    device = Some(self.alone(power.side(side))?);
                }
                MirrorStep::Write(core, lba) => {
                    let block = block_of(number as u64 + 1, self.subject.block_bytes());
                    let pending = oracle.write_began(Lba(lba), Content::of(&block), Durability::Volatile);
                    before = oracle.after_cut();
                    let open = device.as_ref().expect("it is open but while it is reopened");
                    on_core(core, || open.write(Lba(lba), &block, Durability::Volatile)).map_err(Failure::new)?;
                    oracle.acknowledged(pending);
                    self.read_all(open, &mut oracle).map_err(|failure| failure.within("the running engine"))?;
                }
            }
            if is_last {
                for cut in power.take() {
                    self.judge_cut(&cut, &before, Depth::First)?;
                }
                self.judge_cut(&power.cut(), &oracle.after_cut(), Depth::First)?;
            }
        }
        Ok(())
    }

    /// Judges every image of the cut of both sides.
    fn judge_cut(&mut self, cuts: &[Cut; 2], oracle: &Oracle, depth: Depth) -> Result<(), Failure> {
        match depth {
            Depth::First => self.tally.cuts += 1,
            Depth::Second => self.tally.second_cuts += 1,
        }
        let reduction = match depth {
            Depth::First => self.subject.reduction(),
            // The images of the copy and of recovery: corners and samples.
            Depth::Second => Reduction { images_max: 8, samples: 2, ..self.subject.reduction() },
        };
        let others = [cuts[1].least().clone(), cuts[1].most()];
        for image in cuts[0].images(&reduction) {
            for other in &others {
                self.judge_pair([&image, other], oracle, depth)?;
            }
        }
        for image in cuts[1].images(&reduction) {
            self.judge_pair([cuts[0].least(), &image], oracle, depth)?;
        }
        Ok(())
    }

    /// Judges the two images: opened together, or, if they refuse each other, the one that went on
    /// alone. Sides that do not refuse each other have every write each.
    fn judge_pair(&mut self, images: [&Image; 2], oracle: &Oracle, depth: Depth) -> Result<(), Failure> {
        let hash = mix(images[0].hash()) ^ mix(images[1].hash() ^ 1) ^ oracle.hash() ^ mix(depth as u64 + 7);
        if !self.seen.insert(hash) {
            return Ok(());
        }
        let power = Power::new(images.map(|image| Arc::new(Region::from_image(image.clone()))), self.bug);
        power.record();
        match self.together(&power) {
            Ok(mirror) => {
                self.tally.together += 1;
                let told = |failure: Failure| failure.within("both sides opened together");
                let mut seen = oracle.clone();
                let device = self.engine(mirror).map_err(told)?;
                self.read_all(&device, &mut seen).map_err(told)?;
                drop(device);
                for (side, image) in images.into_iter().enumerate() {
                    self.judge_alone(image, side, oracle)?;
                }
                // Since something was read, it stays, whichever side is lost.
                for side in [0, 1] {
                    self.judge_alone(power.cut()[side].least(), side, &seen).map_err(told)?;
                }
                if depth == Depth::First {
                    self.judge_starts_alone(images, oracle)?;
                    for cut in power.take() {
                        self.judge_cut(&cut, oracle, Depth::Second).map_err(told)?;
                    }
                }
                Ok(())
            }
            Err(Refused::Stale(stale)) => {
                self.tally.refused += 1;
                self.judge_alone(images[1 - stale], 1 - stale, oracle)
            }
            Err(Refused::Otherwise(error)) => Err(Failure::new(error)),
        }
    }

    /// Opens either of `images` alone, as a server that ends before a client came, and then both.
    fn judge_starts_alone(&mut self, images: [&Image; 2], oracle: &Oracle) -> Result<(), Failure> {
        for side in [0, 1] {
            self.tally.left += 1;
            let told = |failure: Failure| failure.within(format_args!("side {side} opened alone before"));
            let power = Power::new(images.map(|image| Arc::new(Region::from_image(image.clone()))), self.bug);
            drop(self.alone(power.side(side)).map_err(told)?);
            let device = self.together(&power).map_err(Failure::from).and_then(|mirror| self.engine(mirror));
            self.read_all(&device.map_err(told)?, &mut oracle.clone()).map_err(told)?;
        }
        Ok(())
    }

    /// The engine on `side` alone, open for clients.
    fn alone(&self, side: CutSide) -> Result<S::Device<Arc<Mirror<CutSide>>>, Failure> {
        let mirror = on_core(0, || tidegate_mirror::open_alone(side, |_| Ok(())));
        let mirror = Arc::new(mirror.map_err(Failure::new)?);
        if self.bug == Some(MirrorBug::AloneEarly) {
            mirror.go_alone().map_err(Failure::new)?;
        }
        let device = self.engine(Arc::clone(&mirror))?;
        mirror.engine_is_open();
        Ok(device)
    }

    /// Opens `image`, that of `side`, without the other one, and reads what is allowed.
    fn judge_alone(&mut self, image: &Image, side: usize, oracle: &Oracle) -> Result<(), Failure> {
        if !self.seen.insert(mix(image.hash() ^ 0x5eed) ^ oracle.hash() ^ mix(side as u64)) {
            return Ok(());
        }
        self.tally.alone += 1;
        let lost = |failure: Failure| failure.within(format_args!("side {} lost", 1 - side));
        let region = Arc::new(Region::from_image(image.clone()));
        let alone = Power::new([Arc::clone(&region), region], self.bug).side(side);
        let device = self.alone(alone).map_err(lost)?;
        self.read_all(&device, &mut oracle.clone()).map_err(lost)
    }

    fn together(&self, power: &Power) -> Result<Arc<Mirror<CutSide>>, Refused> {
        let sides = [power.side(0), power.side(1)];
        let opening = opening_after(&sides[0]);
        on_core(0, || tidegate_mirror::open(sides, opening, |_| Ok(()), &mut |_, _| {}))
            .map(|(mirror, _)| Arc::new(mirror))
            .map_err(|error| match error {
                MirrorError::Stale { region } => Refused::Stale(region),
                error => Refused::Otherwise(error),
            })
    }

    fn engine(&self, mirror: Arc<Mirror<CutSide>>) -> Result<S::Device<Arc<Mirror<CutSide>>>, Failure> {
        on_core(0, || self.subject.open(mirror)).map_err(Failure::new)
    }

    fn read_all<D: BlockDevice>(&self, device: &D, oracle: &mut Oracle) -> Result<(), Failure> {
        let mut block = vec![0; self.subject.block_bytes()];
        for lba in (0..self.subject.blocks()).map(Lba) {
            on_core(0, || device.read(lba, &mut block)).map_err(Failure::new)?;
            let found = oracle.observe(lba, Content::of(&block));
            found.map_err(|wrong| Failure::new(format_args!("{wrong:?}")))?;
        }
        Ok(())
    }

    fn volume_bytes(&self) -> u64 {
        self.start[0].len() - MIRROR_PAGE_BYTES
    }
}

/// Why two sides are not opened together.
enum Refused {
    /// That one lacks writes.
    Stale(usize),
    /// Another reason, which no script gives.
    Otherwise(MirrorError),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        match refused {
            Refused::Stale(side) => Failure::new(format_args!("side {side} is stale")),
            Refused::Otherwise(error) => Failure::new(error),
        }
    }
}

/// The number of the opening after what `side` says, as if it were drawn: equal sides draw one, so
/// that equal scripts leave equal images.
fn opening_after(side: &CutSide) -> OpeningId {
    let said = tidegate_mirror::side_of(side, 0).map_or(0, |said| said.generation ^ u64::from(said.former[0]));
    let [one, two, three, four, five, six, ..] = mix(said ^ 0x09e4).to_le_bytes();
    OpeningId([one, two, three, four, five, six])
}

/// Both sides of a new mirror with the subject's volume, durable.
fn formatted<S: Subject>(subject: &S) -> [Image; 2] {
    let volume = subject.formatted();
    let bytes = volume.len().next_multiple_of(64) + MIRROR_PAGE_BYTES;
    let regions = [0, 1].map(|_| {
        let mut image = Image::zeroed(bytes);
        image.write(0, &volume.to_vec());
        Arc::new(Region::from_image(image))
    });
    tidegate_mirror::create(regions.clone(), [3; 16], |_| Ok(())).expect("two regions of one length");
    regions.map(|region| region.cut().least().clone())
}

/// Judges every script of `steps` operations on `subject`, on two threads. Stops at the first
/// failure.
pub fn judge_mirror_scripts<S: Subject>(subject: &S, steps: u32, seen: &Seen) -> Result<MirrorTally, Failure> {
    judge_all(subject, scripts(&MirrorStep::alphabet(), steps), seen)
}

/// Judges `count` scripts of `steps` operations on `subject`, drawn from `seed` without repetition,
/// as [`judge_mirror_scripts`] does.
pub fn judge_sampled_mirror_scripts<S: Subject>(
    subject: &S,
    steps: u32,
    (seed, count): (u64, usize),
    seen: &Seen,
) -> Result<MirrorTally, Failure> {
    let mut all: Vec<_> = scripts(&MirrorStep::alphabet(), steps).collect();
    let mut random = Rng::new(seed);
    for place in (1..all.len()).rev() {
        all.swap(place, random.index(place + 1));
    }
    judge_all(subject, all.into_iter().take(count), seen)
}

/// Judges `scripts` on `subject`, as [`judge_mirror_scripts`] does.
pub fn judge_these_mirror_scripts<S: Subject>(
    subject: &S,
    scripts: impl IntoIterator<Item = Vec<MirrorStep>, IntoIter: Send>,
    seen: &Seen,
) -> Result<MirrorTally, Failure> {
    judge_all(subject, scripts.into_iter(), seen)
}

fn judge_all<S: Subject>(
    subject: &S,
    scripts: impl Iterator<Item = Vec<MirrorStep>> + Send,
    seen: &Seen,
) -> Result<MirrorTally, Failure> {
    let tallies = on_two_threads(scripts, |dealt| {
        let mut campaign = Campaign::new(subject, None, seen);
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally)
    })?;
    let mut total = MirrorTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}

/// Judges one script on `subject`, whose mirror has a mistake.
pub fn judge_mistaken_mirror<S: Subject>(
    subject: &S,
    script: &[MirrorStep],
    bug: MirrorBug,
) -> Result<MirrorTally, Failure> {
    let seen = Seen::default();
    let mut campaign = Campaign::new(subject, Some(bug), &seen);
    campaign.run(script)?;
    Ok(campaign.tally)
}
