//! The judge of images: recovers, checks, reads, writes on, and cuts again.

use crate::btt::linux::{LinuxArena, Order};
use crate::btt::script::{Act, Step, Written};
use crate::btt::volume::SmallVolume;
use crate::checker::{Failure, Seen};
use crate::cuts::described;
use crate::parallel::on_two_threads;
use crate::script::scripts;
use std::fmt;
use std::sync::Arc;
use tidegate_btt::{Btt, Repair, check};
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::{Content, Cut, Image, Oracle, Promise, Reduction, Region, Rng, mix, on_core};

/// Cuts inside the writes that follow a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondCuts {
    /// Every image of every cut.
    All,
    /// So many random images of random cuts.
    Sampled(u32),
}

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Cuts of those steps, and in formats.
    pub cuts: u64,
    /// Images those cuts may leave, before any reduction.
    pub images_all: f64,
    /// Images after the reduction.
    pub images: u64,
    /// Cuts of which only samples were taken.
    pub cuts_sampled: u64,
    /// Images that no earlier cut had left with the same contents allowed: each is recovered and
    /// judged.
    pub distinct: u64,
    /// Cuts inside recoveries that stored something.
    pub recovery_cuts: u64,
    /// Distinct images of those, and of the cuts in the recovery after.
    pub recovery_images: u64,
    /// Images of cuts inside the writes after a recovery, distinct ones.
    pub second_images: u64,
    /// Process deaths without a power cut, followed by a power cut in the next process.
    pub kills: u64,
}

impl Tally {
    /// Adds what another campaign has done.
    pub fn add(&mut self, other: &Tally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.images_all += other.images_all;
        self.images += other.images;
        self.cuts_sampled += other.cuts_sampled;
        self.distinct += other.distinct;
        self.recovery_cuts += other.recovery_cuts;
        self.recovery_images += other.recovery_images;
        self.second_images += other.second_images;
        self.kills += other.kills;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scripts, {} cuts, 2^{:.1} images before the reduction, {} after it ({} cuts sampled), {} distinct; \
             in recoveries {} cuts, {} distinct images; in the writes after, {} distinct images; {} kills",
            self.scripts,
            self.cuts,
            self.images_all.log2(),
            self.images,
            self.cuts_sampled,
            self.distinct,
            self.recovery_cuts,
            self.recovery_images,
            self.second_images,
            self.kills
        )
    }
}

/// Where an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A cut in a script.
    Script,
    /// A cut in the recovery after such a cut, or in the recovery after that.
    Recovery(u32),
    /// A cut in the writes that follow a recovery.
    Second,
}

/// A device under test: the engine on a simulated region, or on one with a planted bug.
pub struct Campaign<'a, R, W> {
    volume: &'a SmallVolume,
    /// Puts the engine's region around a simulated one.
    wrap: W,
    start: Image,
    seen: &'a Seen,
    second_cuts: SecondCuts,
    reduction: Reduction,
    tally: Tally,
    written: Vec<Written>,
    /// Whether a second info block may be missing: of an old volume, while a new one is laid out.
    twin_lost: bool,
    region: std::marker::PhantomData<fn() -> R>,
}

/// Tags of the writes after a recovery, and after a second one, count from here.
const LATER: usize = 8;

impl<'a, R: tidegate_media::Region, W: Fn(Arc<Region>) -> R> Campaign<'a, R, W> {
    /// A campaign over scripts on a freshly formatted `volume`.
    pub fn new(volume: &'a SmallVolume, wrap: W, seen: &'a Seen, second_cuts: SecondCuts) -> Campaign<'a, R, W> {
        let later = volume.geometry.nfree as usize + 2;
        Campaign {
            volume,
            wrap,
            start: volume.formatted(),
            seen,
            second_cuts,
            reduction: volume.reduction(),
            tally: Tally::default(),
            written: (1..=LATER + 2 * later).map(|tag| Written::new(tag as u64, volume.block_bytes)).collect(),
            twin_lost: false,
            region: std::marker::PhantomData,
        }
    }

    /// What was done so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Runs `script` with cuts in its last step, and judges every image.
    pub fn run(&mut self, script: &[Step]) -> Result<(), Failure> {
        self.tally.scripts += 1;
        let name = || script.iter().map(Step::to_string).collect::<Vec<_>>().join(", ");
        self.run_script(script).map_err(|failure| failure.within(format_args!("the script: {}", name())))
    }

    fn run_script(&mut self, script: &[Step]) -> Result<(), Failure> {
        let region = Arc::new(Region::from_image(self.start.clone()));
        let mut oracle = Oracle::zeroed(self.volume.sectors(), self.volume.block_bytes, Promise::OnCompletion);
        let mut device = Some(self.open(&region, 0)?);
        let last = script.len() - 1;
        for (number, step) in script.iter().enumerate() {
            if number == last {
                region.record_cuts();
            }
            let pending = step.began(&mut oracle, &self.written[number]);
            let before = oracle.after_cut();
            if step.act == Act::Reopen {
                drop(device.take());
                device = Some(self.open(&region, step.core)?);
            }
            let open = device.as_ref().expect("it is open but while it is reopened");
            step.run(open, &self.written[number]).map_err(Failure::new)?;
            if let Some(pending) = pending {
                oracle.acknowledged(pending);
            }
            if number == last {
                for cut in region.take_cuts() {
                    self.judge_cut(&cut, &before)?;
                    self.judge_kill(&cut, &before)?;
                }
                self.judge_cut(&region.cut(), &oracle.after_cut())?;
                self.judge_kill(&region.cut(), &oracle.after_cut())?;
            }
        }
        Ok(())
    }

    /// Judges every image of the cuts of a format over `start`: it holds no volume, the old one
    /// whole, or a new one of zeroes.
    pub fn run_format(&mut self, start: &Image, contents: tidegate_btt::Contents, old: &Oracle) -> Result<(), Failure> {
        self.tally.scripts += 1;
        let region = Arc::new(Region::from_image(start.clone()));
        region.record_cuts();
        self.volume.format(&(self.wrap)(region.clone()), 2, contents);
        let new = Oracle::zeroed(self.volume.sectors(), self.volume.block_bytes, Promise::OnCompletion);
        let mut cuts = region.take_cuts();
        cuts.push(region.cut());
        let last = cuts.len() - 1;
        for (number, cut) in cuts.iter().enumerate() {
            self.count(cut);
            for image in cut.images(&self.reduction) {
                if !self.seen.insert(image.hash() ^ mix(77 + u64::from(number == last))) {
                    continue;
                }
                self.tally.distinct += 1;
                let found = check(&Region::from_image(image.clone()), Repair::No).map(|report| report.summary.uuid[0]);
                self.twin_lost = found == Ok(1);
                let origin = if number == last { Origin::Script } else { Origin::Second };
                match found {
                    Err(_) if number < last => Ok(()),
                    Ok(1) if number < last => self.judge_image(&image, old, origin),
                    Ok(2) => self.judge_image(&image, &new, origin),
                    other => Err(Failure::new(format_args!("a volume that should not be there: {other:?}"))),
                }
                .map_err(|failure| failure.within(format_args!("cut {number} of {last} of a format")))?;
            }
        }
        Ok(())
    }

    fn open(&self, region: &Arc<Region>, core: u32) -> Result<Btt<R>, Failure> {
        on_core(core, || Btt::open((self.wrap)(region.clone()), &self.volume.options())).map_err(Failure::new)
    }

    fn count(&mut self, cut: &Cut) {
        let counts = cut.images(&self.reduction).counts();
        self.tally.cuts += 1;
        self.tally.images_all += counts.all_log2.exp2();
        self.tally.images += counts.given;
        self.tally.cuts_sampled += u64::from(counts.sampled);
    }

    fn judge_cut(&mut self, cut: &Cut, oracle: &Oracle) -> Result<(), Failure> {
        self.count(cut);
        self.judge_images(cut, oracle, Origin::Script)
    }

    fn judge_images(&mut self, cut: &Cut, oracle: &Oracle, origin: Origin) -> Result<(), Failure> {
        let reduction = self.reduction.clone();
        let mut images = cut.images(&reduction);
        while let Some(image) = images.advance() {
            self.judge_if_new(cut, image, oracle, origin)?;
        }
        Ok(())
    }

    fn judge_if_new(&mut self, cut: &Cut, image: &Image, oracle: &Oracle, origin: Origin) -> Result<(), Failure> {
        if !self.seen.insert(mix(image.hash()) ^ oracle.hash()) {
            return Ok(());
        }
        match origin {
            Origin::Script => self.tally.distinct += 1,
            Origin::Recovery(_) => self.tally.recovery_images += 1,
            Origin::Second => self.tally.second_images += 1,
        }
        self.judge_image(image, oracle, origin)
            .map_err(|failure| failure.within(format_args!("{origin:?}, {}", described(cut, image))))
    }

    fn judge_image(&mut self, image: &Image, oracle: &Oracle, origin: Origin) -> Result<(), Failure> {
        let linux = self.judge_by_linux(image, oracle).map_err(Failure::new)?;
        let region = Arc::new(Region::from_image(image.clone()));
        region.record_cuts();
        let device = self.open(&region, 0)?;
        self.judge_recovery(&region, oracle, origin)?;
        let mut oracle = oracle.clone();
        self.read_all(&device, &mut oracle, Some(&linux))?;
        if matches!(origin, Origin::Script | Origin::Recovery(1)) {
            let cuts = if origin == Origin::Script { self.second_cuts } else { SecondCuts::Sampled(1) };
            self.write_on(&region, &device, &mut oracle, cuts)?;
        }
        Ok(())
    }

    /// Linux's recovery, lanes in three orders: each owns every block once and shows what is
    /// allowed. Returns what it shows.
    fn judge_by_linux(&self, image: &Image, oracle: &Oracle) -> Result<Vec<Content>, String> {
        let mut shown = Vec::new();
        for order in [Order::Descending, Order::Shuffled(image.hash()), Order::Ascending] {
            let wrong = |why: String| format!("recovered like Linux, {order:?}: {why}");
            let linux = LinuxArena::attach(image, 0, &self.volume.geometry, order).map_err(wrong)?;
            linux.owners().map_err(wrong)?;
            let content = |lba| linux.content(lba, self.volume.block_bytes);
            shown =
                (0..self.volume.geometry.external_nlba).map(content).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
            for (lba, content) in (0..).map(Lba).zip(&shown) {
                if !oracle.allows(lba, *content) {
                    return Err(wrong(format!("{lba} shows {content:x?}, allowed {:x?}", oracle.allowed(lba))));
                }
            }
        }
        Ok(shown)
    }

    /// The recovery that just ended, cut before each of its fences.
    fn judge_recovery(&mut self, region: &Region, oracle: &Oracle, origin: Origin) -> Result<(), Failure> {
        let depth = match origin {
            Origin::Recovery(depth) => depth + 1,
            Origin::Script | Origin::Second => 1,
        };
        let mut cuts = region.take_cuts();
        cuts.push(region.cut());
        for cut in cuts {
            if !cut.is_settled() && depth <= 3 {
                self.tally.recovery_cuts += 1;
                self.judge_images(&cut, oracle, Origin::Recovery(depth))?;
            }
        }
        Ok(())
    }

    /// Checks the structures and reads every sector, with nothing else running.
    fn read_all(&self, device: &Btt<R>, oracle: &mut Oracle, linux: Option<&[Content]>) -> Result<(), Failure> {
        let report = check(device.region(), Repair::No).map_err(Failure::new)?;
        let twin_at = self.volume.geometry.info2off;
        if let Some(finding) = report.findings.iter().find(|found| !(self.twin_lost && found.corrupt.at == twin_at)) {
            return Err(Failure::new(format_args!("check: {}", finding.corrupt)));
        }
        let mut bytes = vec![0; self.volume.block_bytes];
        for lba in (0..self.volume.sectors()).map(Lba) {
            device.read(lba, &mut bytes).map_err(Failure::new)?;
            let content = Content::of(&bytes);
            oracle.observe(lba, content).map_err(Failure::new)?;
            if let Some(linux) = linux.map(|linux| linux[usize::try_from(lba.0).expect("small")])
                && linux != content
            {
                return Err(Failure::new(format_args!("{lba} shows {content:x?} here and {linux:x?} on Linux")));
            }
        }
        Ok(())
    }

    /// More writes than there are free blocks, on two cores, cut inside.
    fn write_on(
        &mut self,
        region: &Region,
        device: &Btt<R>,
        oracle: &mut Oracle,
        second_cuts: SecondCuts,
    ) -> Result<(), Failure> {
        let mut rng = Rng::new(region.visible().hash());
        let writes = self.volume.geometry.nfree as usize + 2;
        let (cut_at, first, core) = (rng.index(writes), rng.next_u64(), rng.index(2));
        for number in 0..writes {
            let lba = Lba((first + number as u64 / 2) % self.volume.sectors());
            let core = if (number + core).is_multiple_of(2) { 0 } else { 1 };
            let cut_here = second_cuts == SecondCuts::All || number == cut_at;
            if cut_here {
                region.record_cuts();
            }
            let written = &self.written[LATER + number];
            let pending = oracle.write_began(lba, written.content, Durability::Volatile);
            let before = cut_here.then(|| oracle.after_cut());
            on_core(core, || device.write(lba, &written.bytes, Durability::Volatile)).map_err(Failure::new)?;
            oracle.acknowledged(pending);
            if let Some(before) = before {
                self.judge_second(region, &before, &oracle.after_cut(), second_cuts, &mut rng)?;
            }
        }
        self.read_all(device, oracle, None)
    }

    /// The cuts of the write that just ended; `before` is what they allow, `after` what one at its
    /// end does.
    fn judge_second(
        &mut self,
        region: &Region,
        before: &Oracle,
        after: &Oracle,
        second_cuts: SecondCuts,
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let cuts = region.take_cuts();
        match second_cuts {
            SecondCuts::All => {
                cuts.iter().try_for_each(|cut| self.judge_images(cut, before, Origin::Second))?;
                self.judge_images(&region.cut(), after, Origin::Second)
            }
            SecondCuts::Sampled(count) => (0..count).try_for_each(|_| {
                let cut = &cuts[rng.index(cuts.len())];
                self.judge_if_new(cut, &cut.sample(rng), before, Origin::Second)
            }),
        }
    }

    /// The process dies at the instant of `cut` and the power does not; the next one opens the
    /// volume and writes on, cut inside.
    fn judge_kill(&mut self, cut: &Cut, oracle: &Oracle) -> Result<(), Failure> {
        let key = mix(cut.most().hash()) ^ cut.least().hash() ^ oracle.hash();
        if !self.seen.insert(mix(key ^ 0x6b69_6c6c)) {
            return Ok(());
        }
        self.tally.kills += 1;
        let region = Arc::new(Region::after_kill(cut));
        region.record_cuts();
        let killed = |failure: Failure| failure.within(format_args!("the process killed, then {cut}"));
        let device = self.open(&region, 2)?;
        self.judge_recovery(&region, oracle, Origin::Script).map_err(killed)?;
        // What is seen now may be of a write that never ended, and go with the power: nothing is
        // held against it.
        self.read_all(&device, &mut oracle.clone(), None).map_err(killed)?;
        let mut oracle = oracle.clone();
        self.write_on(&region, &device, &mut oracle, self.second_cuts).map_err(killed)
    }
}

/// Judges every script of `steps` operations out of `alphabet`, on two threads. Stops at the first
/// failure.
pub fn judge_scripts<R, W>(
    volume: &SmallVolume,
    wrap: W,
    alphabet: &[Step],
    steps: u32,
    seen: &Seen,
    second_cuts: SecondCuts,
) -> Result<Tally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Arc<Region>) -> R + Sync,
{
    let tallies = on_two_threads(scripts(alphabet, steps), |dealt| {
        let mut campaign = Campaign::new(volume, &wrap, seen, second_cuts);
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally())
    })?;
    let mut total = Tally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}
