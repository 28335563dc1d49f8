//! The judge of cuts: recovers, compares, opens, reads, writes on, and cuts again.

use crate::checker::Failure;
use crate::file_cache::leases::{Leases, Mappings, PAGE};
use crate::file_cache::machine::{
    BY_THE_CACHE, FILES, JointCut, Machine, SimBelow, SimFile, SmallPool, Watched, backing,
};
use crate::file_cache::model::{Allowed, FileModel, Made};
use crate::file_cache::mutants::FilesBug;
use crate::file_cache::script::FileStep;
use crate::parallel::on_two_threads;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use tidegate_file_cache::{
    Displaced, Fallocate, FileError, FileLength, FilePool, GroupWrite, Outcome, Persistence, PoolFile, Synced,
};
use tidegate_sim::{Image, Region, Rng, hash_of};

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesTally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Cuts of those steps.
    pub cuts: u64,
    /// Cuts whose images were only sampled.
    pub cuts_sampled: u64,
    /// Distinct states of memory and files that those cuts may leave: each was recovered and
    /// judged.
    pub states: u64,
    /// Distinct states that cuts in recoveries may leave, each recovered and checked.
    pub recovery_states: u64,
    /// Distinct states that cuts in writes after a recovery may leave, each recovered and checked.
    pub second_states: u64,
    /// Deaths of the process, each followed by power cuts in the recovery after it.
    pub kills: u64,
}

impl FilesTally {
    /// Adds what another campaign has done.
    pub fn add(&mut self, other: &FilesTally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.cuts_sampled += other.cuts_sampled;
        self.states += other.states;
        self.recovery_states += other.recovery_states;
        self.second_states += other.second_states;
        self.kills += other.kills;
    }
}

impl fmt::Display for FilesTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scripts, {} cuts ({} sampled), {} distinct states of memory and files; in recoveries {}, in what was written after {}; {} kills",
            self.scripts,
            self.cuts,
            self.cuts_sampled,
            self.states,
            self.recovery_states,
            self.second_states,
            self.kills
        )
    }
}

/// Judges every script, on two threads. Each is preceded by `before`. Stops at the first failure.
pub fn judge_file_scripts(
    pool: &SmallPool,
    before: &[FileStep],
    scripts: impl Iterator<Item = Vec<FileStep>> + Send,
    bug: Option<FilesBug>,
) -> Result<FilesTally, Failure> {
    let seen = Mutex::new(HashSet::new());
    let tallies = on_two_threads(scripts, |dealt| {
        let mut campaign = Campaign { pool, bug, seen: &seen, tally: FilesTally::default() };
        for script in dealt {
            campaign.tally.scripts += 1;
            campaign.run(before, &script).map_err(|failure| failure.within(format_args!("the script {script:?}")))?;
        }
        Ok(campaign.tally)
    })?;
    let mut total = FilesTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}

struct Campaign<'a> {
    pool: &'a SmallPool,
    bug: Option<FilesBug>,
    seen: &'a Mutex<HashSet<u64>>,
    tally: FilesTally,
}

/// Where a state came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Script,
    /// A cut in a recovery.
    Recovery,
    /// A cut in what was written after a recovery.
    Second,
}

/// What may be found of each file after a cut, and after a kill.
pub(crate) struct Expected {
    after_cut: Vec<Allowed>,
    after_kill: Vec<Allowed>,
    /// Which files have unsynced changes below.
    torn: Vec<bool>,
}

/// A process at work on a machine, and the model beside it.
pub(crate) struct Process {
    pub(crate) machine: Arc<Machine>,
    pub(crate) pool: FilePool<Watched>,
    pub(crate) ids: Vec<PoolFile>,
    pub(crate) models: Vec<FileModel>,
    /// Programs that write files by leases.
    pub(crate) leases: Leases,
    /// Programs that have files mapped.
    pub(crate) mappings: Mappings,
    /// What the next write writes.
    pub(crate) byte: u8,
    /// When the program changed a file last.
    pub(crate) time: u64,
}

impl Process {
    pub(crate) fn start(machine: &Arc<Machine>, models: Vec<FileModel>, byte: u8) -> Result<Process, Failure> {
        let pool = machine.open().map_err(Failure::new)?;
        let open = |number| open(machine, &pool, number);
        let ids = (0..FILES).map(open).collect::<Result<_, _>>()?;
        let time = models.iter().map(|model| model.time).fold(0, u64::max);
        let (machine, leases, mappings) = (machine.clone(), Leases::default(), Mappings::default());
        Ok(Process { machine, pool, ids, models, leases, mappings, byte, time })
    }

    /// Takes the times over that the files have.
    pub(crate) fn take_times(&mut self) -> Result<(), Failure> {
        let times = self.machine.times();
        for (model, time) in self.models.iter_mut().zip(&times) {
            model.time = *time;
        }
        self.time = times.iter().copied().fold(self.time, u64::max);
        if self.time == BY_THE_CACHE { Err(Failure::new("a file has no program's time")) } else { Ok(()) }
    }

    /// Does one step, and says what may be found if it is interrupted.
    pub(crate) fn step(&mut self, small: &SmallPool, step: FileStep) -> Result<Expected, Failure> {
        let former = self.models.clone();
        let leased = self.begin_step(step)?;
        let below = self.pool.counters().below;
        let mixed = self.act(small, step)?;
        self.end_step(step, leased)?;
        let mixed =
            mixed || self.pool.counters().below != below && !matches!(step, FileStep::Reopen | FileStep::Restart);
        self.compare()?;
        let both = || former.iter().zip(&self.models);
        let taken_over = &self.leases.between;
        // A group syncs its file first, and is a commit of its own.
        let seen_whole = mixed || matches!(step, FileStep::Group { .. });
        let cut = both().zip(taken_over).map(|((old, new), between)| {
            let seen = [&old.now, &new.now].into_iter().filter(|_| seen_whole).chain(between);
            let is_mixed = mixed || old.is_mixed() || new.is_mixed();
            let allowed = Allowed::of(old.may.iter().chain(&new.may).chain(seen).cloned(), is_mixed);
            allowed.changed(old.durable_time, new.time)
        });
        // A synchronous write overwrites unsynced bytes before it is committed, and a hole comes in
        // parts.
        let partly = matches!(
            step,
            FileStep::WriteSync { .. } | FileStep::WriteDirect { .. } | FileStep::Punch { .. } | FileStep::Zero { .. }
        ) || self.has_mappings();
        let kill = both()
            .map(|(old, new)| Allowed::of([old.now.clone(), new.now.clone()], partly).changed(old.time, new.time));
        let torn = both().map(|(old, new)| old.is_mixed() || new.is_mixed());
        Ok(Expected { after_cut: cut.collect(), after_kill: kill.collect(), torn: torn.collect() })
    }

    /// True if no promise of wholeness holds while it is done.
    fn act(&mut self, small: &SmallPool, step: FileStep) -> Result<bool, Failure> {
        self.note_time_of(step)?;
        match step {
            FileStep::SetTime(_) => {}
            FileStep::Write { .. } | FileStep::WriteSync { .. } => return self.write_step(step),
            FileStep::WriteDirect { file, at, len } => self.write_direct(file, at, len)?,
            FileStep::Group { file, at, len } => self.write_group(file, at, len)?,
            FileStep::Append { file, len } => {
                let data = self.data(len);
                let before = self.pool.counters();
                let at = self.pool.append(self.ids[file], &data, Persistence::Asynchronous).map_err(Failure::new)?;
                if at != self.models[file].now.len() as u64 {
                    return Err(Failure::new(format_args!("appended at {at}")));
                }
                let made = Made::between(before, self.pool.counters());
                self.models[file].write_with_room(at, &data, made);
            }
            FileStep::Sync(file) => self.sync(file)?,
            FileStep::LeasedWrite { .. }
            | FileStep::LeasedSync(_)
            | FileStep::LeasedRead(_)
            | FileStep::Refill(_)
            | FileStep::EndLease(_) => self.leased_step(step)?,
            FileStep::Truncate { file, size } => self.truncate(file, size)?,
            FileStep::Map(_) | FileStep::MappedStore { .. } | FileStep::Msync(_) => return self.mapped_step(step),
            FileStep::GiveBack(_) | FileStep::Unmap(_) => return self.mapped_step(step),
            FileStep::Punch { file, at, len } => self.zero(file, at..at + len, Fallocate::Punch, FileLength::Keep)?,
            FileStep::Zero { file, at, len } => self.zero(file, at..at + len, Fallocate::Zero, FileLength::Extend)?,
            FileStep::WriteBack => {
                for lane in 0..self.pool.lanes() {
                    self.pool.write_back_step(lane, u64::MAX).map_err(Failure::new)?;
                }
            }
            FileStep::WriteDirty => self.write_dirty()?,
            FileStep::Admit(_) | FileStep::Unwanted(_) | FileStep::WriteDirtyOne => self.placed_step(step)?,
            FileStep::Strange(file) => self.change_between(file)?,
            FileStep::Close(file) => {
                self.close(file)?;
                self.ids[file] = open(&self.machine, &self.pool, file)?;
                // The pool may have forgotten it.
                self.models[file].known = false;
            }
            FileStep::Restart => self.restart()?,
            FileStep::Drain(file) => {
                self.pool.drain(self.ids[file]).map_err(Failure::new)?;
                self.models[file].drain();
                return Ok(true);
            }
            FileStep::Reopen => {
                self.reopen(small)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Syncs and writes back everything, closes the files, and has somebody else change one of
    /// them.
    fn change_between(&mut self, file: usize) -> Result<(), Failure> {
        for id in &self.ids {
            self.pool.sync(*id).map_err(Failure::new)?;
        }
        for lane in 0..self.pool.lanes() {
            while self.pool.write_back_step(lane, u64::MAX).map_err(Failure::new)?.bytes > 0 {}
        }
        (0..FILES).try_for_each(|file| self.close(file))?;
        self.models.iter_mut().for_each(FileModel::drain);
        let data = self.data(self.models[file].now.len().min(20));
        self.machine.change(file, 0, &data);
        self.models[file].write(0, &data);
        self.models[file].drain();
        *self = Process::start(&self.machine, self.models.clone(), self.byte)?;
        Ok(())
    }

    pub(crate) fn sync(&mut self, file: usize) -> Result<(), Failure> {
        let synced = self.pool.sync(self.ids[file]).map_err(Failure::new)?;
        self.models[file].sync();
        self.models[file].known &= synced == Synced::Atomically;
        Ok(())
    }

    /// Closes a file as its owner does.
    fn close(&self, file: usize) -> Result<(), Failure> {
        let settle = || {
            self.machine.settle(file);
            Ok(())
        };
        let is_closed = self.pool.close_if_done(self.ids[file], settle).map_err(Failure::new)?;
        if is_closed { Ok(()) } else { self.pool.close(self.ids[file]).map_err(Failure::new) }
    }

    /// The program is about to change a file.
    fn note_time_of(&mut self, step: FileStep) -> Result<(), Failure> {
        let (FileStep::Write { file, .. }
        | FileStep::WriteSync { file, .. }
        | FileStep::WriteDirect { file, .. }
        | FileStep::Group { file, .. }
        | FileStep::Append { file, .. }
        | FileStep::SetTime(file)
        | FileStep::Truncate { file, .. }
        | FileStep::Punch { file, .. }
        | FileStep::Zero { file, .. }) = step
        else {
            return Ok(());
        };
        self.note_time(file)
    }

    pub(crate) fn note_time(&mut self, file: usize) -> Result<(), Failure> {
        self.time += 1;
        self.machine.note(file, self.time);
        self.models[file].time = self.time;
        self.pool.note_modified(self.ids[file], self.time).map_err(Failure::new)
    }

    pub(crate) fn write_bytes(
        &mut self,
        file: usize,
        at: u64,
        data: &[u8],
        persistence: Persistence,
    ) -> Result<(), Failure> {
        let before = self.pool.counters();
        self.pool.write(self.ids[file], at, data, persistence).map_err(Failure::new)?;
        let after = self.pool.counters();
        let mapped_end = self.mapped_end(file);
        let model = &mut self.models[file];
        match persistence {
            _ if at + data.len() as u64 <= mapped_end => model.write_sync(at, data),
            _ if at < mapped_end => model.write_direct(at, data, before.commits != after.commits),
            Persistence::Asynchronous => model.write_with_room(at, data, Made::between(before, after)),
            Persistence::Synchronous => model.write_sync(at, data),
        }
        if after.below != before.below {
            model.drain();
        }
        Ok(())
    }

    fn write_direct(&mut self, file: usize, at: u64, len: usize) -> Result<(), Failure> {
        let data = self.data(len);
        let commits = self.pool.counters().commits;
        self.pool.write_direct(self.ids[file], at, &data).map_err(Failure::new)?;
        let committed = self.pool.counters().commits != commits;
        self.models[file].write_direct(at, &data, committed);
        Ok(())
    }

    /// All of the group, or nothing if it finds no room; the file is synced in both cases.
    fn write_group(&mut self, file: usize, at: [u64; 2], len: usize) -> Result<(), Failure> {
        let data = self.data(len);
        let written = self.pool.write_group(self.ids[file], &at.map(|at| GroupWrite { at, data: &data }));
        let model = &mut self.models[file];
        model.sync();
        model.known = true;
        match written {
            Ok(()) => at.into_iter().for_each(|at| model.write(at, &data)),
            Err(FileError::NoRoomForGroup) => {}
            Err(error) => return Err(Failure::new(error)),
        }
        model.sync();
        Ok(())
    }

    fn zero(&mut self, file: usize, range: Range<u64>, how: Fallocate, length: FileLength) -> Result<(), Failure> {
        let Range { start, end } = range;
        let commits = self.pool.counters().commits;
        self.pool.fallocate(self.ids[file], start, end - start, how, length).map_err(Failure::new)?;
        let model = &mut self.models[file];
        model.zero(start, end - start, self.pool.counters().commits != commits);
        if length == FileLength::Extend && end > model.now.len() as u64 {
            model.truncate(end);
        }
        Ok(())
    }

    pub(crate) fn data(&mut self, len: usize) -> Vec<u8> {
        self.byte += 1;
        vec![self.byte; len]
    }

    fn reopen(&mut self, small: &SmallPool) -> Result<(), Failure> {
        if let Err(failure) = recover_on(&self.machine) {
            // The process before has ended all the same.
            *self = Process::start(&self.machine, self.models.clone(), self.byte)?;
            return Err(failure);
        }
        self.machine.renew_dram(small.dram(&self.machine.region));
        // A file that was never synced and has nothing to complete may lose its cuts still.
        // Nor is one brought below of which nothing is here any more.
        let left = |model: &&mut FileModel| model.known || model.now != model.base && !model.is_mixed();
        self.models.iter_mut().filter(left).for_each(FileModel::drain);
        *self = Process::start(&self.machine, self.models.clone(), self.byte)?;
        Ok(())
    }

    /// All files, as the program sees them.
    pub(crate) fn read_all(&self) -> Result<Vec<Vec<u8>>, Failure> {
        self.ids.iter().map(|id| contents(&self.pool, *id)).collect()
    }

    /// The program sees what the model sees.
    fn compare(&self) -> Result<(), Failure> {
        let times: Vec<u64> = self.models.iter().map(|model| model.time).collect();
        let found = self.machine.times();
        if found != times {
            return Err(Failure::new(format_args!("the files were changed at {found:?}, not {times:?}")));
        }
        for (number, (id, model)) in self.ids.iter().zip(&self.models).enumerate() {
            // To read it would end its lease.
            if self.leases.is_live(number)? {
                continue;
            }
            let found = contents(&self.pool, *id)?;
            let bytes = found.len();
            if found != model.now {
                let (found, now) = (Bytes(&found), Bytes(&model.now));
                return Err(Failure::new(format_args!("file {number} reads {found}, not {now}")));
            }
            let (half, mut part) = (bytes / 2, vec![0; bytes - bytes / 2]);
            self.pool.read(*id, half as u64, &mut part).map_err(Failure::new)?;
            if part != model.now[half..] {
                return Err(Failure::new(format_args!("file {number} reads otherwise from its middle on")));
            }
        }
        Ok(())
    }

    fn settled(&self) -> Expected {
        let cut = self.models.iter().map(|model| {
            let allowed = Allowed::of(model.may.iter().cloned(), model.is_mixed());
            allowed.changed(model.durable_time, model.time)
        });
        let kill = self.models.iter().map(|model| {
            let allowed = Allowed::of([model.now.clone()], false);
            allowed.changed(model.time, model.time)
        });
        let torn = self.models.iter().map(FileModel::is_mixed).collect();
        Expected { after_cut: cut.collect(), after_kill: kill.collect(), torn }
    }
}

impl Campaign<'_> {
    fn machine(&self, region: Region, files: Vec<SimFile>, dram: Option<Vec<Image>>) -> Arc<Machine> {
        Machine::new(self.pool, region, files, dram, self.bug)
    }

    /// The machine after a power cut.
    fn restarted(&self, region: &Image, files: &[SimFile]) -> Arc<Machine> {
        self.machine(Region::with_line_order(region.clone(), self.pool.order), files.to_vec(), None)
    }

    fn run(&mut self, before: &[FileStep], script: &[FileStep]) -> Result<(), Failure> {
        let old = vec![0xee; 70];
        let region = Region::with_line_order(self.pool.image.clone(), self.pool.order);
        let machine = self.machine(region, vec![SimFile::new(&old), SimFile::new(&[])], None);
        let mut process = Process::start(&machine, vec![FileModel::new(&old), FileModel::new(&[])], 0)?;
        let (last, earlier) = script.split_last().expect("a script has steps");
        for step in before.iter().chain(earlier) {
            process.step(self.pool, *step)?;
        }
        machine.record();
        let during = process.step(self.pool, *last)?;
        let mut cuts = machine.take();
        let end = cuts.pop().expect("a cut of now");
        for cut in &cuts {
            self.judge_cut(cut, &during.after_cut, Origin::Script)?;
            self.judge_kill(cut, &during)?;
        }
        self.judge_cut(&end, &process.settled().after_cut, Origin::Script)?;
        self.judge_kill(&end, &process.settled())
    }

    fn judge_cut(&mut self, cut: &JointCut, allowed: &[Allowed], origin: Origin) -> Result<(), Failure> {
        let reduction = self.pool.reduction();
        if origin == Origin::Script {
            self.tally.cuts += 1;
            self.tally.cuts_sampled += u64::from(cut.region.images(&reduction).counts().sampled);
        }
        let files_images = cut.files_images();
        let mut images = cut.region.images(&reduction);
        while let Some(region) = images.advance() {
            for files in &files_images {
                self.judge_if_new(region, files, allowed, origin).map_err(|failure| {
                    let arrived = cut.region.difference(region);
                    let words: Vec<String> =
                        arrived.iter().take(6).map(|(at, _, word)| format!("{at:#x}: {word:#x}")).collect();
                    failure.within(format_args!("{origin:?}, {}, arrived {}", cut.region, words.join(", ")))
                })?;
            }
        }
        Ok(())
    }

    fn judge_if_new(
        &mut self,
        region: &Image,
        files: &[SimFile],
        allowed: &[Allowed],
        origin: Origin,
    ) -> Result<(), Failure> {
        let contents: Vec<&[u8]> = files.iter().map(SimFile::contents).collect();
        let times: Vec<u64> = files.iter().map(SimFile::durable_time).collect();
        let marks: Vec<u64> = files.iter().map(SimFile::stamp).collect();
        let key = hash_of(&(region.hash(), allowed, contents, times, marks));
        if !self.seen.lock().expect("no holder panics").insert(key) {
            return Ok(());
        }
        match origin {
            Origin::Script => self.tally.states += 1,
            Origin::Recovery => self.tally.recovery_states += 1,
            Origin::Second => self.tally.second_states += 1,
        }
        let machine = self.restarted(region, files);
        machine.record();
        recover_on(&machine)?;
        let mut cuts = machine.take();
        cuts.pop();
        let found = compare(&machine, allowed)?;
        if origin == Origin::Script {
            self.without_a_file(&self.restarted(region, files), &found)
                .map_err(|failure| failure.within("with a file missing"))?;
        }
        if origin == Origin::Script {
            for cut in &cuts {
                self.judge_cut(cut, allowed, Origin::Recovery)?;
            }
        }
        match origin {
            Origin::Second => Ok(()),
            _ if region.hash().is_multiple_of(2) => self.write_on(&machine, &found, region.hash()),
            // The next process goes on with what it finds in the pool.
            _ => self.write_on(&self.restarted(region, files), &found, region.hash()),
        }
    }

    /// A recovery that does not find one of the files leaves that one's data in the pool, and a
    /// later one finds it there.
    fn without_a_file(&self, machine: &Arc<Machine>, found: &[Vec<u8>]) -> Result<(), Failure> {
        for missing in [Some(0), Some(1), None] {
            let pool = machine.open().map_err(Failure::new)?;
            let below = SimBelow { machine: machine.clone(), missing };
            for recovered in pool.recover(&below).map_err(Failure::new)? {
                let number = usize::try_from(recovered.identity.inode).expect("small");
                let retained = recovered.outcome == Outcome::Retained(Displaced::Missing);
                if retained != (Some(number) == missing) {
                    return Err(Failure::new(format_args!("file {number} is {:?}", recovered.outcome)));
                }
            }
            let there = pool
                .files()
                .into_iter()
                .filter(|(_, identity)| Some(identity.inode) != missing.map(|file| file as u64));
            for (file, _) in there {
                pool.drain(file).map_err(Failure::new)?;
            }
        }
        let after = machine.contents();
        if after == found { Ok(()) } else { Err(Failure::new(format_args!("the files hold {after:?}, not {found:?}"))) }
    }

    /// The next process writes, and the power fails once more.
    fn write_on(&mut self, machine: &Arc<Machine>, found: &[Vec<u8>], seed: u64) -> Result<(), Failure> {
        const STEPS: [FileStep; 8] = [
            FileStep::Write { file: 0, at: 10, len: 280 },
            FileStep::Sync(0),
            FileStep::WriteSync { file: 1, at: 5, len: 20 },
            FileStep::Append { file: 0, len: 30 },
            FileStep::Sync(0),
            FileStep::WriteBack,
            FileStep::Truncate { file: 0, size: 100 },
            FileStep::Truncate { file: 0, size: 500 },
        ];
        let mut rng = Rng::new(seed);
        let cut_at = rng.index(STEPS.len());
        machine.renew_dram(self.pool.dram(&machine.region));
        let mut process = Process::start(machine, found.iter().map(|bytes| FileModel::new(bytes)).collect(), 100)?;
        process.take_times()?;
        for (number, step) in STEPS.into_iter().enumerate() {
            if number == cut_at {
                machine.record();
            }
            let during = process.step(self.pool, step)?;
            if number == cut_at {
                let cuts = machine.take();
                let chosen = rng.index(cuts.len());
                let expected = if chosen + 1 == cuts.len() { process.settled() } else { during };
                let region = cuts[chosen].region.sample(&mut rng);
                let files = cuts[chosen].files_images();
                let files = &files[rng.index(files.len())];
                let judged = self.judge_if_new(&region, files, &expected.after_cut, Origin::Second);
                judged.map_err(|failure| failure.within(format_args!("{step:?} after a recovery")))?;
            }
        }
        Ok(())
    }

    /// The process dies at the instant of `cut`; the next one completes what it left, and the power
    /// fails meanwhile or afterwards.
    fn judge_kill(&mut self, cut: &JointCut, expected: &Expected) -> Result<(), Failure> {
        self.tally.kills += 1;
        let machine = self.machine(Region::after_kill(&cut.region), cut.files.clone(), Some(cut.dram.clone()));
        machine.record();
        recover_on(&machine).map_err(|failure| failure.within("after a kill"))?;
        let cuts = machine.take();
        compare(&machine, &expected.after_kill).map_err(|failure| failure.within("after a kill"))?;
        let mixed: Vec<Allowed> = expected
            .after_cut
            .iter()
            .zip(&expected.after_kill)
            .map(|(cut, kill)| {
                // Unsynced bytes are completed as the kernel writes its page cache: in no promised
                // order.
                let wholly = cut.contents == kill.contents && !cut.mixed && !kill.mixed;
                let contents = cut.contents.union(&kill.contents).cloned().collect();
                Allowed { contents, mixed: !wholly, times: [cut.times[0], kill.times[1]] }
            })
            .collect();
        let (end, during) = cuts.split_last().expect("a cut of now");
        for cut in during {
            self.judge_cut(cut, &mixed, Origin::Recovery).map_err(|failure| failure.within("after a kill"))?;
        }
        // A file that was never synced may lose its cuts still.
        let whole: Vec<Allowed> = mixed
            .into_iter()
            .zip(expected.after_kill.iter().zip(&expected.torn))
            .map(|(allowed, (kill, torn))| Allowed { mixed: kill.mixed || *torn, ..allowed })
            .collect();
        self.judge_cut(end, &whole, Origin::Recovery).map_err(|failure| failure.within("after a kill"))
    }
}

/// Opens a file, and takes the time over that the pool has of it.
fn open(machine: &Arc<Machine>, pool: &FilePool<Watched>, number: usize) -> Result<PoolFile, Failure> {
    let file = pool.open_file(&backing(machine, number), b"a path").map_err(Failure::new)?;
    machine.note(number, pool.modified(file).map_err(Failure::new)?);
    Ok(file)
}

/// Finds every file, reads it through the pool, and brings it below: it has to be the same there.
pub(crate) fn recover_on(machine: &Arc<Machine>) -> Result<(), Failure> {
    let pool = machine.open().map_err(Failure::new)?;
    // The programs have ended too.
    pool.map_again(PAGE, 0, &mut |_| false).map_err(Failure::new)?;
    let below = SimBelow { machine: machine.clone(), missing: None };
    for recovered in pool.recover(&below).map_err(Failure::new)? {
        if recovered.outcome != Outcome::Attached {
            return Err(Failure::new(format_args!("{recovered:?}")));
        }
    }
    for (file, identity) in pool.files() {
        let number = usize::try_from(identity.inode).expect("small");
        machine.note(number, pool.modified(file).map_err(Failure::new)?);
        let read = contents(&pool, file)?;
        pool.drain(file).map_err(Failure::new)?;
        machine.note(number, 0);
        let below = &machine.contents()[number];
        if read != *below {
            let (read, below) = (Bytes(&read), Bytes(below));
            return Err(Failure::new(format_args!("file {number} was read as {read}, and below is {below}")));
        }
    }
    let left = pool.files();
    if left.is_empty() { Ok(()) } else { Err(Failure::new(format_args!("{left:?} are left in the pool"))) }
}

/// All of a file, as programs read it.
pub(crate) fn contents(pool: &FilePool<Watched>, file: PoolFile) -> Result<Vec<u8>, Failure> {
    let size = pool.size(file).map_err(Failure::new)?;
    let mut out = vec![0xcc; usize::try_from(size).expect("small") + 7];
    let bytes = pool.read(file, 0, &mut out).map_err(Failure::new)?;
    if bytes as u64 != size {
        return Err(Failure::new(format_args!("{bytes} bytes are read of a file of {size}")));
    }
    out.truncate(bytes);
    Ok(out)
}

pub(crate) fn compare(machine: &Arc<Machine>, allowed: &[Allowed]) -> Result<Vec<Vec<u8>>, Failure> {
    let found = machine.contents();
    check(&found, allowed)?;
    for (number, (time, allowed)) in machine.times().into_iter().zip(allowed).enumerate() {
        let [first, last] = allowed.times;
        if !(first..=last).contains(&time) {
            return Err(Failure::new(format_args!("file {number} was changed at {time}, not from {first} to {last}")));
        }
    }
    Ok(found)
}

/// Whether each file may be as it was found.
pub(crate) fn check(found: &[Vec<u8>], allowed: &[Allowed]) -> Result<(), Failure> {
    for (number, (found, allowed)) in found.iter().zip(allowed).enumerate() {
        if !allowed.allows(found) {
            let allowed: Vec<String> = allowed.contents.iter().map(|one| Bytes(one).to_string()).collect();
            let found = Bytes(found);
            return Err(Failure::new(format_args!("file {number} holds {found}, allowed {}", allowed.join(" or "))));
        }
    }
    Ok(())
}

/// Bytes as runs of equal ones.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        self.0.chunk_by(|one, next| one == next).try_for_each(|run| write!(f, " {}×{:02x}", run.len(), run[0]))?;
        write!(f, " ]")
    }
}
