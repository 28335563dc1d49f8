//! Runs a script: recovery, then clients and drains on the volume until its power or its process
//! ends, one time after another.

use crate::client::Client;
use crate::drains::{Bell, destages, drains_cache};
use crate::fault::{self, Fault};
use crate::files::FileScene;
use crate::marks;
use crate::scene::{Scene, Stack, Tier};
use crate::script::{Failure, Script, Verdict, text_of};
use crate::seen::Drain;
use crate::stack_base::Base;
use crate::staged::End;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidegate_media::Lba;
use tidegate_sim::SharedMemory;
use tidegate_virtual_cores::Machine;

impl Script {
    /// Runs it.
    pub fn run(&self) -> Verdict {
        if !cfg!(virtual_cores) {
            panic!("storms need `--cfg virtual_cores`; the program `storm` sees to it");
        }
        if self.base == Base::Files {
            return self.run_with_files();
        }
        let mut scene = Scene::new(self.clone());
        // What is broken may break an assertion of an engine in a recovery's verdict too.
        let played = catch_unwind(AssertUnwindSafe(|| scene.play()));
        let failure = played.unwrap_or_else(|panic| Err(text_of(&*panic))).err();
        let failure = failure.map(|what| Failure { what: what + &scene.after_what(), script: self.clone() });
        scene.verdict(failure)
    }

    fn run_with_files(&self) -> Verdict {
        let mut scene = FileScene::new(self.clone());
        let played = catch_unwind(AssertUnwindSafe(|| scene.play()));
        let failure = played.unwrap_or_else(|panic| Err(text_of(&*panic))).err();
        scene.verdict(failure.map(|what| Failure { what, script: self.clone() }))
    }
}

impl Scene {
    /// All lives, and a recovery after the last.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        loop {
            let stack = self.recover()?;
            if self.seen().done.iter().all(|done| *done == self.script.acts) {
                return Ok(());
            }
            self.live(stack)?;
        }
    }

    /// Clients and drains use the stack until a random access, or until the clients are through;
    /// then power or process end.
    fn live(&mut self, stack: Stack) -> Result<(), String> {
        let machine = self.crew(&stack);
        // With few operations left out, ends come as early as without them.
        let all = self.script.only.as_ref().map_or(0, |only| only.0.len() as u64);
        let all = if all == 0 { u64::from(self.script.acts) * u64::from(self.script.clients) } else { all };
        self.plan_faults(all);
        // A life takes some ten accesses for each operation, a fourth of them fences.
        let end = match self.rng.below(6) {
            0 => End::BeforeAccess(1 + self.rng.below(4 * all)),
            1..4 => End::BeforeFence(1 + self.rng.below(all)),
            // In the first few operations, when much of what recovery did is still all there is.
            4 => End::BeforeAccess(1 + self.rng.below(60)),
            _ => End::BeforeFence(1 + self.rng.below(12)),
        };
        let end = self.end_after_fault().unwrap_or(end);
        self.stage.end(end);
        let rests = self.rng.one_in(3).then(|| 1 + self.rng.below(all / 2 + 1));
        self.seen().until_rest = rests;
        let ran = self.ran_in(machine);
        self.stage.end(End::None);
        self.stage.fault(None);
        if let (Some(cache), Ok(_)) = (&stack.cache, &ran) {
            let cache = cache.clone();
            let counters = self.alone(move || cache.counters())?;
            if counters.stalled_ns > 1 << 60 {
                return Err(format!("stalls of {} ns by a clock that was set back", counters.stalled_ns));
            }
            self.marks.count(&counters);
        }
        if let (Some(cache), Ok(_)) = (&stack.disk_cache, &ran) {
            let cache = cache.clone();
            let counters = self.alone(move || cache.counters())?;
            self.marks.count_tier(&counters);
        }
        if let (Some(cache), Ok(false)) = (&stack.disk_cache, &ran) {
            self.audit(cache)?;
        }
        drop(stack);
        ran?;
        self.seen().history.judge().map_err(|wrong| wrong.to_string())?;
        self.end()
    }

    /// Of an ordered disk, some lives end soon after a flush that fails: nobody repeats then what
    /// it covered.
    fn end_after_fault(&mut self) -> Option<End> {
        let (Some((Fault::Flush, access)), Base::OrderedDisk) = (&self.planned, self.setting.base) else {
            return None;
        };
        let access = *access;
        self.fate.one_in(2).then(|| End::BeforeAccess(access + 1 + self.fate.below(40)))
    }

    /// A machine with every client and drain on it.
    fn crew(&mut self, stack: &Stack) -> Machine {
        let Script { clients, drains, acts, .. } = *self.script;
        let drains = if stack.cache.is_some() || stack.disk_cache.is_some() { drains } else { 0 };
        let mut machine = self.machine(clients + drains, 20 * u64::from(acts) * u64::from(clients) / 4);
        let (blocks, block_bytes, mode) = (self.setting.blocks, self.setting.block_bytes, self.setting.mode);
        let in_order = self.setting.base == Base::OrderedDisk;
        {
            let mut seen = self.seen();
            (seen.busy, seen.acting.0) = (clients, 0);
            seen.begins_in(mode, in_order);
            seen.drains = vec![Drain::Awake; drains as usize];
        }
        for number in 0..clients {
            let (stack, seen) = (stack.clone(), self.seen.clone());
            let (script, region) = (self.script.clone(), self.region.clone());
            let conflicts = self.setting.conflicts;
            let client = Client { stack, seen, script, number, blocks, block_bytes, drains, region, conflicts };
            machine.spawn(number, move || client.work());
        }
        for drain in 0..drains {
            let (stack, seen) = (stack.clone(), self.seen.clone());
            machine.spawn(clients + drain, move || match &stack.disk_cache {
                Some(cache) => destages(cache, &seen, drain as usize),
                None => drains_cache(&stack, &seen, block_bytes),
            });
        }
        if let Some(cache) = &stack.disk_cache {
            cache.set_doorbell(Arc::new(Bell { first: clients, drains, seen: self.seen.clone() }));
        }
        if let Some(cache) = &stack.cache {
            cache.set_doorbell(Box::new(Bell { first: clients, drains, seen: self.seen.clone() }));
            fault::set_clock(self.fate.next_u64());
            cache.set_clock(fault::jumping_ns);
        }
        machine
    }

    /// Nobody is at work: what a disk cache says of itself adds up.
    fn audit(&mut self, cache: &Arc<Tier>) -> Result<(), String> {
        let asked = cache.clone();
        let (fill, counted, lbas) = self.alone(move || (asked.fill(), asked.dirty_blocks(), asked.dirty_lbas()))?;
        let dirty = lbas.len() as u64;
        if counted != dirty || u64::from(fill.dirty) != dirty {
            return Err(format!("{dirty} blocks are dirty, and {counted} are counted: {fill:?}"));
        }
        // Blocks that were to be free after a fence that failed are nobody's.
        if fill.clean + fill.dirty + fill.free + fill.kept != fill.blocks && !self.region.has_lost() {
            return Err(format!("blocks are neither free nor cached: {fill:?}"));
        }
        self.assert_clean_is_durable(lbas)?;
        self.marks.reach(marks::RESTED);
        Ok(())
    }

    /// Whatever is not `dirty` in the cache, the disk holds for good; unless it lied, or what went
    /// past the cache was refused.
    fn assert_clean_is_durable(&self, dirty: Vec<Lba>) -> Result<(), String> {
        let cut = self.disk.disk().cut();
        let (visible, size) = (self.disk.disk().visible(), self.setting.block_bytes);
        let mut doubtful: BTreeSet<Lba> = dirty.into_iter().collect();
        doubtful.extend(cut.lied_about().map(|at| Lba(at / size as u64)));
        doubtful.extend(self.seen().under_way_past());
        let (mut shown, mut kept) = (vec![0; size], vec![0; size]);
        for lba in (0..self.setting.blocks).map(Lba).filter(|lba| !doubtful.contains(lba)) {
            visible.read(lba.0 * size as u64, &mut shown);
            cut.least().read(lba.0 * size as u64, &mut kept);
            if shown != kept {
                return Err(format!("{lba} is not dirty, and a cut would lose it"));
            }
        }
        Ok(())
    }

    /// What goes wrong in a life of about `all` operations.
    fn plan_faults(&mut self, all: u64) {
        let lost_slots = self.slots.as_ref().filter(|_| self.rng.one_in(16));
        if let Some(slots) = lost_slots {
            slots.lose_stores_from(self.rng.below(4 * all + 1));
        }
        {
            let mut seen = self.seen();
            (seen.refusals, seen.refused, seen.losses_told, seen.destaging_failed) = (0, false, 0, 0);
            seen.faulted = fault_planned(&self.slots);
        }
        (self.fault, self.planned) = (None, None);
        if self.setting.base != Base::Table && self.fate.one_in(2) {
            self.disk.stall().at(1 + self.fate.below(all), 1 + self.fate.below(400));
        }
        let certain = Fault::of_bent(self.script.bent(), &mut self.fate, &self.setting);
        if certain.is_some() || self.fate.one_in(5) {
            let fault = certain.unwrap_or_else(|| Fault::any(&mut self.fate, &self.setting));
            let within = if self.fate.one_in(2) { 2 * all } else { 60 };
            let access = 1 + self.fate.below(within);
            self.planned = Some((fault.clone(), access));
            self.befalls(fault, access);
        }
    }

    /// A life is over: counts what it met, and ends it by a cut or a kill.
    fn end(&mut self) -> Result<(), String> {
        let (refusals, losses_told, destaging_failed) = {
            let seen = self.seen();
            (seen.refusals, seen.losses_told, seen.destaging_failed)
        };
        let past = self.seen().under_way_past();
        let writes_past = !past.is_empty();
        self.seen().tearable.extend(past);
        self.marks.add_to(marks::DESTAGING_FAILED, destaging_failed);
        if self.slots.as_ref().is_some_and(|slots| slots.has_lost()) && refusals > 0 {
            self.marks.reach(marks::SLOTS_SEALED);
        } else if let Some(fault) = self.fault.as_ref().filter(|_| refusals > 0) {
            self.marks.reach(fault.mark());
        }
        self.marks.add_to(marks::LOSS_TOLD, losses_told);
        self.marks.add_to(marks::STALLED, self.disk.stall().take_overtaken());
        self.marks.add_to(marks::CLOCK_WENT_BACK, fault::clock_went_back());
        // Slots that lost a store are worth nothing to another process. What a failed flush of a
        // disk covered is written anew by nobody after a kill: whoever asked for the flush was
        // told.
        let nobody_repeats = match self.setting.base {
            Base::Table => false,
            Base::Disk | Base::Files => true,
            // A disk cache keeps what the disk may have lost, but for writes past it that its
            // process did not live to end.
            Base::DiskCache | Base::OrderedDisk => writes_past,
        };
        let flush_failed = nobody_repeats && matches!(self.fault, Some(Fault::Flush));
        let doubtful = fault_planned(&self.slots) || flush_failed;
        if doubtful || self.rng.below(5) < 3 {
            self.tally.cuts += 1;
            self.power_fails()?;
        } else {
            self.tally.kills += 1;
            self.is_killed()?;
        }
        self.fault = None;
        Ok(())
    }

    fn ran_in(&mut self, machine: Machine) -> Result<bool, String> {
        let ended = machine.run();
        self.ran(ended)
    }
}

fn fault_planned(slots: &Option<Arc<SharedMemory>>) -> bool {
    slots.as_ref().is_some_and(|slots| slots.may_lose_stores())
}
