//! Power cuts and kills under the append-only log: a window of three chunks in front of a disk.
//!
//! A script's last step is run with a cut before each fence of the memory, before each access of
//! the disk, and at its end. Each distinct pair of images that a cut may leave of both is opened,
//! and so is what a kill leaves at that instant.
//! 1. The log ends with the last sync that was answered, or with the one under way, and it begins
//!    where the last drop said, or the one under way. Every byte in between is the one appended.
//! 2. The opening is cut in the same way. Before it has ended, the same is allowed; after it, only
//!    what it showed.
//! 3. The log goes on: bytes are appended up to the next chunk and beyond, synced, and found by the
//!    next process after one more cut.
//!
//! Word stores to one line arrive in any order, which is more than the processors do that this runs
//! on.

mod model;
mod mutants;
mod threads;

pub use model::{LogStart, LogStep};
pub use mutants::LogBug;
pub use threads::judge_log_threads;

use crate::checker::{Failure, Seen};
use crate::disk_cache::{JointCut, Watched, WatchedDisk, Watcher};
use crate::parallel::on_two_threads;
use crate::script::scripts;
use model::{CHUNK_BYTES, Expected, Model, WINDOW};
use mutants::Mistaken;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_append_log::{AppendLog, OnDamage};
use tidegate_media::LineOrder;
use tidegate_sim::{Image, InterceptedMemory, Reduction, Region, mix};

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogTally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Cuts of the last steps.
    pub cuts: u64,
    /// Distinct pairs of images that were opened after a power cut.
    pub opened: u64,
    /// Distinct states that were opened after a kill.
    pub killed: u64,
    /// Cuts inside those openings.
    pub second_cuts: u64,
    /// Openings at which the log ended with a sync that had not been answered.
    pub ahead: u64,
}

impl LogTally {
    fn add(&mut self, other: &LogTally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.opened += other.opened;
        self.killed += other.killed;
        self.second_cuts += other.second_cuts;
        self.ahead += other.ahead;
    }
}

impl fmt::Display for LogTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogTally { scripts, cuts, opened, killed, second_cuts, ahead } = self;
        write!(
            f,
            "{scripts} scripts, {cuts} cuts; {opened} pairs of images opened and {killed} states after a kill, with \
             {second_cuts} cuts in that; {ahead} ended with a sync under way"
        )
    }
}

/// Whether an opening is cut again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    First,
    Second,
}

/// The memory of the machine, as the log sees it.
type Memory = InterceptedMemory<Watched, Mistaken>;

/// A log under test.
struct Campaign<'a> {
    start: &'a LogStart,
    bug: Option<LogBug>,
    seen: &'a Seen,
    tally: LogTally,
}

impl Campaign<'_> {
    fn run(&mut self, script: &[LogStep]) -> Result<(), Failure> {
        self.tally.scripts += 1;
        self.run_script(script).map_err(|failure| failure.within(format_args!("the script {script:?}")))
    }

    fn run_script(&mut self, script: &[LogStep]) -> Result<(), Failure> {
        let machine =
            self.machine(Region::with_line_order(self.start.region.clone(), LineOrder::Any), &self.start.disk);
        // The last step has the mistake: it alone is judged.
        let is_mistaken = Arc::new(AtomicBool::new(false));
        let mut log = self.open(&machine, &is_mistaken)?;
        let mut model = self.start.model.clone();
        for (number, step) in script.iter().enumerate() {
            let before = model.expected();
            let is_last = number + 1 == script.len();
            if is_last {
                is_mistaken.store(true, Ordering::Relaxed);
                machine.record();
            }
            match step {
                LogStep::Reopen => {
                    drop(log);
                    log = self.open(&machine, &is_mistaken)?;
                    model.reopened();
                }
                step => model.take(*step, &log, &machine.disk)?,
            }
            model.compare(&log)?;
            if is_last {
                let mut cuts = machine.take();
                let end = cuts.pop();
                for cut in cuts {
                    self.judge_cut(&cut, &before.or(&model.expected()), Depth::First)?;
                }
                end.iter().try_for_each(|cut| self.judge_cut(cut, &model.expected(), Depth::First))?;
            }
        }
        Ok(())
    }

    fn machine(&self, region: Region, disk: &Image) -> Arc<Watcher> {
        let machine = Watcher::new(region, disk);
        machine.lie_about_flushes(self.bug == Some(LogBug::FreedBeforeSynced));
        machine
    }

    fn open(&self, machine: &Arc<Watcher>, is_mistaken: &Arc<AtomicBool>) -> Result<AppendLog<Memory>, Failure> {
        let by = Mistaken::new(self.bug, Arc::clone(is_mistaken));
        let memory = Memory { memory: Arc::new(machine.memory()), by };
        let below = Arc::new(WatchedDisk(Arc::clone(machine)));
        AppendLog::open(memory, below, OnDamage::Refuse).map_err(Failure::new)
    }

    /// Judges what the cut may leave, and what a kill leaves at that instant.
    fn judge_cut(&mut self, cut: &JointCut, expected: &Expected, depth: Depth) -> Result<(), Failure> {
        let images_max = match depth {
            Depth::First => {
                self.tally.cuts += 1;
                1 << 14
            }
            Depth::Second => {
                self.tally.second_cuts += 1;
                64
            }
        };
        let reduction = Reduction { images_max, samples: 64, ..Reduction::of([WINDOW]) };
        let disks = cut.disk_images();
        for image in cut.region.images(&reduction) {
            for disk in &disks {
                let key = mix(image.hash()) ^ mix(disk.hash() ^ 1);
                let region = || Region::with_line_order(image.clone(), LineOrder::Any);
                if self.judge(key, region, disk, expected, depth)? {
                    self.tally.opened += 1;
                }
            }
        }
        for disk in disks.first().into_iter().chain(disks.last()) {
            let key = mix(cut.region.least().hash() ^ 2) ^ mix(cut.region.most().hash() ^ 3) ^ mix(disk.hash());
            if self.judge(key, || Region::after_kill(&cut.region), disk, expected, depth)? {
                self.tally.killed += 1;
            }
        }
        Ok(())
    }

    /// Opens the log on what a cut or a kill has left; whether that is new.
    fn judge(
        &mut self,
        key: u64,
        region: impl Fn() -> Region,
        disk: &Image,
        expected: &Expected,
        depth: Depth,
    ) -> Result<bool, Failure> {
        if !self.seen.insert(key ^ expected.hash() ^ mix(depth as u64 + 9) ^ self.start.region.hash()) {
            return Ok(false);
        }
        let machine = self.machine(region(), disk);
        machine.record();
        let log = self
            .open(&machine, &Arc::new(AtomicBool::new(true)))
            .map_err(|failure| failure.within("the opening after a cut"))?;
        let found = expected.check(&log).map_err(|failure| failure.within("what is found after a cut"))?;
        self.tally.ahead += u64::from(found.is_ahead_of(expected));
        if depth == Depth::Second {
            return Ok(true);
        }
        let again = |failure: Failure| failure.within("a cut of the opening");
        let mut cuts = machine.take();
        let end = cuts.pop();
        for cut in cuts {
            self.judge_cut(&cut, expected, Depth::Second).map_err(again)?;
        }
        end.iter().try_for_each(|cut| self.judge_cut(cut, &found, Depth::Second)).map_err(again)?;
        self.goes_on(&machine, log, Model::of(&found)).map_err(|failure| failure.within("the log going on"))?;
        Ok(true)
    }

    /// Fills the chunk in which the log ends, then the next one in part; each time the next process
    /// finds it all.
    fn goes_on(&mut self, machine: &Arc<Watcher>, log: AppendLog<Memory>, mut model: Model) -> Result<(), Failure> {
        let rest = CHUNK_BYTES - usize::try_from(model.durable()).unwrap_or(0) % CHUNK_BYTES;
        for len in [rest, 9] {
            for step in [LogStep::WriteBack, LogStep::Append(len), LogStep::Sync] {
                model.take(step, &log, &machine.disk)?;
            }
            model.compare(&log)?;
            machine.record();
            let cuts = machine.take();
            cuts.iter().try_for_each(|cut| self.judge_cut(cut, &model.expected(), Depth::Second))?;
        }
        Ok(())
    }
}

/// Judges every script of `steps` steps from `start`, on two threads. Stops at the first failure.
pub fn judge_log_scripts(start: &LogStart, steps: u32, seen: &Seen) -> Result<LogTally, Failure> {
    let tallies = on_two_threads(scripts(&LogStep::ALL, steps), |dealt| {
        let mut campaign = Campaign { start, bug: None, seen, tally: LogTally::default() };
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally)
    })?;
    let mut total = LogTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}

/// Judges one script from `start` of a log with a mistake.
pub fn judge_mistaken_log(start: &LogStart, script: &[LogStep], bug: LogBug) -> Result<LogTally, Failure> {
    let seen = Seen::default();
    let mut campaign = Campaign { start, bug: Some(bug), seen: &seen, tally: LogTally::default() };
    campaign.run(script)?;
    Ok(campaign.tally)
}
