//! The checker of cuts: recovers, compares, and cuts again.

use crate::checker::Failure;
use crate::cuts::described;
use crate::namespace::machine::{JointCut, Machine, NamesPool, READ_ONLY, Takes, Watched, backing};
use crate::namespace::model::{Expected, NameState};
use crate::namespace::mutants::NamesBug;
use crate::namespace::script::NameStep;
use crate::namespace::served::{identity_of, recover, take_over};
use crate::namespace::service::Service;
use crate::namespace::tree::Tree;
use crate::parallel::on_two_threads;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use tidegate_file_cache::FilePool;
use tidegate_sim::{Image, Region, hash_of};

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamesTally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Cuts of those steps.
    pub cuts: u64,
    /// Distinct states of memory and directory that those cuts may leave: each was recovered and
    /// compared.
    pub states: u64,
    /// Distinct states that cuts in recoveries may leave.
    pub recovery_states: u64,
    /// Deaths of the process.
    pub kills: u64,
}

impl NamesTally {
    /// Adds what another campaign has done.
    pub fn add(&mut self, other: &NamesTally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.states += other.states;
        self.recovery_states += other.recovery_states;
        self.kills += other.kills;
    }
}

impl fmt::Display for NamesTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamesTally { scripts, cuts, states, recovery_states, kills } = self;
        write!(
            f,
            "{scripts} scripts, {cuts} cuts, {states} distinct states, in recoveries {recovery_states}; {kills} kills"
        )
    }
}

/// Judges every script, on two threads. Each is preceded by `before`. Stops at the first failure.
pub fn judge_name_scripts(
    pool: &NamesPool,
    before: &[NameStep],
    scripts: impl Iterator<Item = Vec<NameStep>> + Send,
    bug: Option<NamesBug>,
) -> Result<NamesTally, Failure> {
    let seen = Mutex::new(HashSet::new());
    let tallies = on_two_threads(scripts, |dealt| {
        let mut campaign = Campaign { pool, bug, seen: &seen, tally: NamesTally::default() };
        for script in dealt {
            campaign.tally.scripts += 1;
            campaign.run(before, &script).map_err(|failure| failure.within(format_args!("the script {script:?}")))?;
        }
        Ok(campaign.tally)
    })?;
    let mut total = NamesTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}

struct Campaign<'a> {
    pool: &'a NamesPool,
    bug: Option<NamesBug>,
    seen: &'a Mutex<HashSet<u64>>,
    tally: NamesTally,
}

/// Where a state came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Script,
    /// A cut in a recovery.
    Recovery,
}

impl Campaign<'_> {
    fn run(&mut self, before: &[NameStep], script: &[NameStep]) -> Result<(), Failure> {
        let machine = Machine::new(self.pool, self.pool.memory(), Tree::new(), None, self.bug);
        let mut service = Service::start(&machine, machine.open().map_err(Failure::new)?)?;
        let (last, earlier) = script.split_last().expect("a script has steps");
        for step in before.iter().chain(earlier) {
            service.step(*step)?;
        }
        let former = service.model.clone();
        machine.record();
        let mixed = service.step(*last)?;
        let (after_cut, after_kill) = (former.until(&service.model, mixed), former.killed_until(&service.model));
        let mut cuts = machine.take();
        let end = cuts.pop().expect("a cut of now");
        for cut in &cuts {
            self.judge_cut(cut, &after_cut, Origin::Script)?;
            self.judge_kill(cut, &after_kill, &after_cut)?;
        }
        let settled = service.model.until(&service.model, false);
        self.judge_cut(&end, &settled, Origin::Script)?;
        self.judge_kill(&end, &service.model.killed_until(&service.model), &settled)
    }

    fn judge_cut(&mut self, cut: &JointCut, expected: &Expected, origin: Origin) -> Result<(), Failure> {
        self.tally.cuts += u64::from(origin == Origin::Script);
        let trees = cut.tree.images();
        let mut images = cut.region.images(&self.pool.reduction());
        while let Some(region) = images.advance() {
            for tree in &trees {
                self.judge_if_new(region, tree, expected, origin).map_err(|failure| {
                    let place = described(&cut.region, region);
                    failure.within(format_args!("{origin:?}, {place}, SOURCE {:?}", tree.key()))
                })?;
            }
        }
        Ok(())
    }

    fn judge_if_new(
        &mut self,
        region: &Image,
        tree: &Tree,
        expected: &Expected,
        origin: Origin,
    ) -> Result<(), Failure> {
        let key = hash_of(&(region.hash(), tree.key(), expected));
        if !self.seen.lock().expect("no holder panics").insert(key) {
            return Ok(());
        }
        match origin {
            Origin::Script => self.tally.states += 1,
            Origin::Recovery => self.tally.recovery_states += 1,
        }
        let machine = Machine::new(self.pool, self.pool.memory_of(region), tree.clone(), None, self.bug);
        machine.record();
        let pool = recover(&machine)?;
        let cuts = machine.take();
        compare(&machine, &pool, expected)?;
        if origin == Origin::Script {
            for cut in &cuts {
                self.judge_cut(cut, expected, Origin::Recovery)?;
            }
        }
        Ok(())
    }

    /// The process dies at the instant of `cut`, and the next one recovers. The power fails in that
    /// recovery too.
    fn judge_kill(&mut self, cut: &JointCut, expected: &Expected, after_cut: &Expected) -> Result<(), Failure> {
        self.tally.kills += 1;
        let region = Region::after_kill(&cut.region);
        let machine = Machine::new(self.pool, region, cut.tree.clone(), Some(cut.dram.clone()), self.bug);
        machine.record();
        let recovered = recover(&machine).and_then(|pool| {
            let cuts = machine.take();
            compare(&machine, &pool, expected)?;
            cuts.iter().try_for_each(|cut| self.judge_cut(cut, after_cut, Origin::Recovery))
        });
        recovered.map_err(|failure| failure.within("after a kill"))?;
        let taken_over = self.judge_take_over(cut, expected, after_cut);
        taken_over.map_err(|failure| failure.within("after a kill, where SOURCE can only be read"))
    }

    /// The process dies at the instant of `cut`, and the next one takes over while SOURCE can only
    /// be read. SOURCE can be written again later. The power fails before that, or in between.
    fn judge_take_over(&mut self, cut: &JointCut, expected: &Expected, after_cut: &Expected) -> Result<(), Failure> {
        let region = Region::after_kill(&cut.region);
        let machine = Machine::new(self.pool, region, cut.tree.clone(), Some(cut.dram.clone()), self.bug);
        machine.set_takes(Takes::ReadsOnly);
        machine.record();
        let (pool, log) = take_over(&machine)?;
        compare(&machine, &pool, expected)?;
        log.commit().map_err(Failure::new)?;
        let refused = log.begin().map(drop);
        if refused != Err(READ_ONLY.into()) {
            return Err(Failure::new(format_args!("an operation may begin: {refused:?}")));
        }
        machine.set_takes(Takes::Changes);
        log.settle().map_err(Failure::new)?;
        log.begin().map(drop).map_err(Failure::new)?;
        machine.take().iter().try_for_each(|cut| self.judge_cut(cut, after_cut, Origin::Recovery))?;
        compare(&machine, &pool, expected)
    }
}

/// Names are as the directory has them, contents as the cache shows them.
fn compare(machine: &Arc<Machine>, pool: &FilePool<Watched>, expected: &Expected) -> Result<(), Failure> {
    let found = machine.tree(|tree| NameState::of(tree.names()));
    let mut contents = BTreeMap::new();
    for path in found.files.keys() {
        let node = machine.tree(|tree| tree.look_up(path)).expect("the name is there").node;
        let file = pool.open_file(&backing(machine, identity_of(node)), path).map_err(Failure::new)?;
        let mut bytes = vec![0xcc; 1000];
        let len = pool.read(file, 0, &mut bytes).map_err(Failure::new)?;
        pool.close(file).map_err(Failure::new)?;
        contents.insert(path.clone(), bytes[..len].to_vec());
    }
    expected.allows(&found, &contents).map_err(Failure::new)
}
