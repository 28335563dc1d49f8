//! What programs with leases do in a script, and what the model makes of it.

use crate::checker::Failure;
use crate::file_cache::checker::Process;
use crate::file_cache::leases::{Lent, SHARERS};
use crate::file_cache::machine::{FILES, backing};
use crate::file_cache::script::FileStep;
use tidegate_file_cache::{LeasedFile, Persistence, Sharer, Tier, Wrote};
use tidegate_layout::file_cache::Class;
use tidegate_sim::on_core;

/// Where files may be written by a lease.
const ROOM: u64 = 1 << 16;

/// The cores of these programs, by the numbers of their files.
const FIRST_CORE: u32 = 40;

impl Process {
    /// The model of each file of which the step is to adopt what was written by a lease has all of
    /// it durable. Says which files have a lease.
    pub(crate) fn begin_step(&mut self, step: FileStep) -> Result<[bool; FILES], Failure> {
        self.leases.between = Default::default();
        if matches!(step, FileStep::WriteBack | FileStep::Sync(_)) {
            self.follow_times()?;
        }
        let mut leased = [false; FILES];
        for (file, leased) in leased.iter_mut().enumerate() {
            *leased = self.leases.is_live(file)?;
            if *leased && (step.revokes(file) || step.adopts(file)) {
                self.has_adopted(file);
            }
        }
        Ok(leased)
    }

    /// Leases that the step was to end are revoked, and those that it was to let go on do.
    pub(crate) fn end_step(&mut self, step: FileStep, leased: [bool; FILES]) -> Result<(), Failure> {
        for (file, leased) in leased.into_iter().enumerate() {
            let live = self.leases.is_live(file)?;
            if leased && live == step.revokes(file) {
                return Err(Failure::new(format_args!("the lease of file {file} goes on: {live}")));
            }
            if !live {
                self.has_adopted(file);
            }
        }
        Ok(())
    }

    /// The pool takes over, write by write, what was written to a file by its lease.
    fn has_adopted(&mut self, file: usize) {
        let Some(lent) = &mut self.leases.lent[file] else { return };
        if !lent.states.is_empty() {
            self.leases.between[file].extend(lent.states.drain(..));
            self.models[file].sync();
        }
    }

    /// Does a step of a program with a lease.
    pub(crate) fn leased_step(&mut self, step: FileStep) -> Result<(), Failure> {
        match step {
            FileStep::LeasedWrite { file, at, len } => self.leased_write(file, at, len),
            FileStep::LeasedSync(file) => self.leased_sync(file),
            FileStep::LeasedRead(file) => self.read_written(file).and_then(|()| self.leased_read(file)),
            FileStep::Refill(file) => self.refill(file),
            FileStep::EndLease(file) => self.end_lease(file),
            _ => Ok(()),
        }
    }

    /// The process that has the pool open ends, and programs with leases go on.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        let leases = std::mem::take(&mut self.leases);
        let mappings = std::mem::take(&mut self.mappings);
        *self = Process::start(&self.machine, self.models.clone(), self.byte)?;
        self.leases = leases;
        self.map_again(mappings)
    }

    /// Has every unsynced write leave DRAM; what is written by leases is not there.
    pub(crate) fn write_dirty(&mut self) -> Result<(), Failure> {
        for lane in 0..self.pool.lanes() {
            while self.pool.write_dirty_step(lane, u64::MAX, u64::MAX).map_err(Failure::new)?.bytes > 0 {}
        }
        for file in 0..self.models.len() {
            if self.leases.is_live(file)? {
                continue;
            }
            let identity = backing(&self.machine, file).identity();
            let map = self.pool.tier_map(identity, 0..u64::MAX).map_err(Failure::new)?;
            let in_pool = map.is_some_and(|map| {
                map.extents.iter().any(|extent| matches!(extent.tier, Tier::OutOfSync | Tier::Mapped))
            });
            self.models[file].write_dirty(in_pool);
        }
        Ok(())
    }

    /// Writes by a lease, or as others do if there is none to be had.
    fn leased_write(&mut self, file: usize, at: u64, len: usize) -> Result<(), Failure> {
        let data = self.data(len);
        if !self.leases.is_live(file)? && !self.lend(file)? {
            self.note_time(file)?;
            return self.write_bytes(file, at, &data, Persistence::Asynchronous);
        }
        let time = self.time + 1;
        for _ in 0..2 {
            let Some(lent) = &mut self.leases.lent[file] else { break };
            let (sharer, leased) = lent.next();
            let written = on_core(core_of(file, sharer), || {
                let mut turn = leased.turn(&mut |_| {}, &mut |_| false)?.expect("no other program writes");
                turn.write(at, &data, time).map(|wrote| (wrote, turn.size()))
            });
            let (wrote, size) = written.map_err(Failure::new)?;
            match wrote {
                Wrote::Done => {
                    self.time = time;
                    self.machine.note(file, time);
                    self.models[file].time = time;
                    self.models[file].write(at, &data);
                    let now = self.models[file].now.clone();
                    if size != now.len() as u64 {
                        return Err(Failure::new(format_args!("a lease says {size} bytes")));
                    }
                    lent.states.push(now);
                    return Ok(());
                }
                Wrote::OutOfBlocks => {
                    let id = lent.id;
                    self.has_adopted(file);
                    self.pool.extend(id).map_err(Failure::new)?;
                }
                Wrote::OutOfRoom | Wrote::Revoked | Wrote::InDoubt => {
                    return Err(Failure::new(format_args!("a write by a lease is {wrote:?}")));
                }
            }
        }
        Err(Failure::new("a lease has no blocks after it was extended"))
    }

    /// Syncs what was written by a lease; as others do if there is none.
    fn leased_sync(&mut self, file: usize) -> Result<(), Failure> {
        if !self.leases.is_live(file)? {
            return self.sync(file);
        }
        let Some(lent) = &mut self.leases.lent[file] else { return Ok(()) };
        let (sharer, leased) = lent.next();
        on_core(core_of(file, sharer), || leased.sync()).map_err(Failure::new)?;
        lent.states.clear();
        self.models[file].sync();
        Ok(())
    }

    /// Each program with the lease reads what it can without a request.
    fn read_written(&mut self, file: usize) -> Result<(), Failure> {
        let now = &self.models[file].now;
        let Some(lent) = &mut self.leases.lent[file] else { return Ok(()) };
        for leased in &mut lent.files {
            leased.look(&mut |_| {}).map_err(Failure::new)?;
            for (at, mut bytes) in [(40, vec![0; 60]), (60, vec![0; 30]), (90, vec![0; 4096]), (100, vec![0; 70])] {
                let end = at + bytes.len();
                let is_read = leased.read_written(at as u64, &mut bytes).map_err(Failure::new)?;
                if is_read && now.get(at..end) != Some(&bytes[..]) {
                    return Err(Failure::new(format_args!("a program reads {bytes:?} at {at} of file {file}")));
                }
            }
        }
        Ok(())
    }

    /// Reads for the program with the lease; as others do if there is none.
    fn leased_read(&self, file: usize) -> Result<(), Failure> {
        let (id, now) = (self.ids[file], &self.models[file].now);
        let size = self.pool.size(id).map_err(Failure::new)?;
        let mut bytes = vec![0xcc; now.len() + 1];
        let (read, _) = self.pool.read_leased(id, 0, &mut bytes).map_err(Failure::new)?;
        if size != now.len() as u64 || bytes[..read] != now[..] {
            return Err(Failure::new(format_args!("file {file} of {size} bytes is read as {:?}", &bytes[..read])));
        }
        Ok(())
    }

    /// Takes over what was written by a lease, and lends new blocks for it.
    fn refill(&mut self, file: usize) -> Result<(), Failure> {
        let Some(lent) = &self.leases.lent[file] else { return Ok(()) };
        let id = lent.id;
        if self.leases.is_live(file)? {
            self.has_adopted(file);
        }
        self.pool.refill(id).map(drop).map_err(Failure::new)
    }

    /// The program with the lease ends.
    fn end_lease(&mut self, file: usize) -> Result<(), Failure> {
        match self.leases.lent[file].take() {
            Some(Lent { id, .. }) => self.pool.release(id).map_err(Failure::new),
            None => Ok(()),
        }
    }

    /// Gets a lease of a file, if there is room for one.
    fn lend(&mut self, file: usize) -> Result<bool, Failure> {
        self.end_lease(file)?;
        // Room is reserved below.
        self.note_time(file)?;
        let granted = self.pool.lend(self.ids[file], 0..ROOM, Class::ALL[0]).map_err(Failure::new)?;
        self.models[file].sync();
        let Some((id, grant)) = granted else { return Ok(false) };
        self.models[file].known = true;
        let joined = self.pool.join(self.ids[file], &(0..1), Sharer::Another).map_err(Failure::new)?;
        let grants = [Some(grant), joined].map(|grant| grant.ok_or_else(|| Failure::new("no share in a new lease")));
        let [one, other] = grants.map(|grant| grant.map(|grant| LeasedFile::new(self.machine.memory(), grant)));
        self.leases.lent[file] = Some(Lent { id, files: [one?, other?], acts: 0, states: Vec::new() });
        Ok(true)
    }
}

fn core_of(file: usize, sharer: usize) -> u32 {
    FIRST_CORE + u32::try_from(file * SHARERS + sharer).expect("few files")
}
