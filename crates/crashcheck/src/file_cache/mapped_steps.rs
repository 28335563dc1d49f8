//! Programs that have pages of files mapped: what they do in a script, and what the model makes of
//! it.

use crate::checker::Failure;
use crate::file_cache::checker::Process;
use crate::file_cache::leases::{Mapping, Mappings, PAGE};
use crate::file_cache::machine::FILES;
use crate::file_cache::mutants::FilesBug;
use crate::file_cache::script::FileStep;
use tidegate_file_cache::{FileError, Persistence};
use tidegate_layout::file_cache::{MappedRun, StoreTimes};
use tidegate_media::Region as _;
use tidegate_sim::on_core;

/// The cores of these programs, by the numbers of their files.
const FIRST_CORE: u32 = 60;

impl Process {
    /// Whether any program has anything mapped: its stores come in parts.
    pub(crate) fn has_mappings(&self) -> bool {
        self.mappings.iter().any(Option::is_some)
    }

    /// Up to where a file is mapped.
    pub(crate) fn mapped_end(&self, file: usize) -> u64 {
        self.mappings[file].as_ref().map_or(0, Mapping::end)
    }

    /// Does a step of a program with a mapping. True: no promise of wholeness holds meanwhile.
    pub(crate) fn mapped_step(&mut self, step: FileStep) -> Result<bool, Failure> {
        match step {
            FileStep::Map(file) => self.map(file)?,
            FileStep::MappedStore { file, at, len } => self.store(file, at, len)?,
            FileStep::Msync(file) => self.msync(file)?,
            FileStep::GiveBack(file) => self.give_back(file)?,
            FileStep::Unmap(file) => {
                self.mappings[file] = None;
                self.pool.unmap(self.ids[file], 0, |_| false).map_err(Failure::new)?;
                self.follow_time(file)?;
            }
            _ => {}
        }
        Ok(matches!(step, FileStep::MappedStore { .. } | FileStep::Msync(_) | FileStep::GiveBack(_)))
    }

    /// A write of a program without a mapping. True: some of it goes to mapped pages, in parts.
    pub(crate) fn write_step(&mut self, step: FileStep) -> Result<bool, Failure> {
        let (file, at, len, persistence) = match step {
            FileStep::Write { file, at, len } => (file, at, len, Persistence::Asynchronous),
            FileStep::WriteSync { file, at, len } => (file, at, len, Persistence::Synchronous),
            _ => return Ok(false),
        };
        let data = self.data(len);
        self.write_bytes(file, at, &data, persistence)?;
        Ok(at < self.mapped_end(file))
    }

    fn map(&mut self, file: usize) -> Result<(), Failure> {
        self.note_time(file)?;
        let end = self.models[file].now.len() as u64 / PAGE.bytes() * PAGE.bytes();
        // All that this pool has counts as mapped before.
        self.pool.renew_by(PAGE, &Some(self.machine.renewal()));
        let runs = self.pool.map(self.ids[file], 0..end, PAGE).map_err(Failure::new)?;
        // What was stored by an earlier mapping is not synced thereby.
        let dirty = self.mappings[file].take().map(|earlier| earlier.dirty).unwrap_or_default();
        self.models[file].map(!dirty.is_empty());
        let time_page = self.pool.time_page(self.ids[file]);
        let Some(time_page) = time_page else { return Err(Failure::new("a mapping has no time page")) };
        let mapping = Mapping { runs, time_at: time_page.pool_at, memory: self.machine.memory(), dirty };
        let lies_whole = mapping.places(&(0..end)).iter().map(|place| place.end - place.start).sum::<u64>() == end;
        self.mappings[file] = Some(mapping);
        if lies_whole { Ok(()) } else { Err(Failure::new("a mapping lacks pages")) }
    }

    fn store(&mut self, file: usize, at: u64, len: usize) -> Result<(), Failure> {
        let data = self.data(len);
        let Some(mapping) = &mut self.mappings[file] else { return Err(Failure::new("nothing is mapped")) };
        let places = mapping.places(&(at..at + len as u64));
        on_core(core_of(file), || {
            for place in &places {
                let bytes = usize::try_from(place.end - place.start).expect("small");
                mapping.memory.write(place.start, &data[..bytes]);
            }
        });
        mapping.dirty.extend(places);
        self.models[file].store_mapped(at, &data);
        Ok(())
    }

    /// The file below gets the time that the pool knows by now.
    pub(crate) fn follow_time(&self, file: usize) -> Result<(), Failure> {
        let modified = self.pool.modified(self.ids[file]).map_err(Failure::new)?;
        self.machine.note(file, modified);
        Ok(())
    }

    /// As [`Process::follow_time`], of every file that is mapped.
    pub(crate) fn follow_times(&self) -> Result<(), Failure> {
        (0..FILES).filter(|file| self.mappings[*file].is_some()).try_for_each(|file| self.follow_time(file))
    }

    fn msync(&mut self, file: usize) -> Result<(), Failure> {
        self.time += 1;
        self.models[file].time = self.time;
        let (end, time) = (self.mapped_end(file), self.time);
        let Some(mapping) = &mut self.mappings[file] else { return Err(Failure::new("nothing is mapped")) };
        let dirty = std::mem::take(&mut mapping.dirty);
        let sync = || {
            dirty.iter().for_each(|place| mapping.memory.flush(place.start, place.end - place.start));
            mapping.memory.store_u64(mapping.time_at + StoreTimes::STORED_AT, time);
            mapping.memory.flush(mapping.time_at + StoreTimes::STORED_AT, 8);
            mapping.memory.fence()
        };
        on_core(core_of(file), sync).map_err(Failure::new)?;
        self.models[file].sync_to(end);
        self.models[file].durable_time = time;
        // Nobody asks the pool before the next step that brings the file below.
        self.machine.note(file, time);
        Ok(())
    }

    fn give_back(&mut self, file: usize) -> Result<(), Failure> {
        self.msync(file)?;
        let time_page = self.pool.time_page(self.ids[file]);
        let left = self.pool.unmap(self.ids[file], 0, |run| time_page == Some(*run)).map_err(Failure::new)?;
        if let Some(mapping) = &mut self.mappings[file] {
            mapping.runs.clear();
        }
        if left == 1 { Ok(()) } else { Err(Failure::new("the place of the times is gone, or a page is not")) }
    }

    /// A file with a mapping is not cut into that.
    pub(crate) fn truncate(&mut self, file: usize, size: u64) -> Result<(), Failure> {
        let cut = self.pool.truncate(self.ids[file], size);
        if size < self.mapped_end(file) {
            let refused = cut == Err(FileError::Mapped);
            return if refused { Ok(()) } else { Err(Failure::new(format_args!("a mapped file is cut: {cut:?}"))) };
        }
        cut.map_err(Failure::new)?;
        self.models[file].truncate(size);
        Ok(())
    }

    /// What programs have mapped is theirs in the next process too.
    pub(crate) fn map_again(&mut self, mappings: Mappings) -> Result<(), Failure> {
        let is_forgotten = self.machine.has_bug(FilesBug::MappingForgotten);
        let of_time = |mapping: &Mapping| MappedRun { at: 0, pool_at: mapping.time_at, bytes: PAGE.bytes() };
        let of = |mapping: &Mapping| [mapping.runs.clone(), vec![of_time(mapping)]].concat();
        let runs: Vec<MappedRun> = mappings.iter().flatten().flat_map(of).collect();
        let found = self.pool.map_again(PAGE, 0, &mut |range| {
            let overlaps = |run: &MappedRun| run.pool_at < range.end && range.start < run.pool_at + run.bytes;
            !is_forgotten && runs.iter().any(overlaps)
        });
        self.mappings = mappings;
        found.map_err(Failure::new)
    }
}

fn core_of(file: usize) -> u32 {
    FIRST_CORE + u32::try_from(file).expect("few files")
}
