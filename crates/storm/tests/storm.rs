//! Storms that must come out the same for ever, and those that once found something.
//!
//! Compiled with `--cfg virtual_cores` only. The digests hold for debug and release builds alike: a
//! difference means that something in a run depends on more than its seed, or that an engine does
//! its work in other steps than before. In the latter case take the new ones over.
#![cfg(virtual_cores)]

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::process::Command;
use std::thread;
use tidegate_crashcheck::announce;
use tidegate_storm::{Base, Killed, Mutant, Order, Script, mistakes, mistakes_with_files, test_mutants};
use tidegate_virtual_cores::FlawKind;

/// Digests of the usual script of seeds 0 to 5.
const DIGESTS: [u64; 6] = [
    0x392e7912949f9d7f,
    0x4a7cf81d33860c3a,
    0xbfe5058ab78c9372,
    0x31ab46fdd6e70e5d,
    0x1a66f997bbdc296a,
    0xa307521a00030efe,
];

/// Digests of seeds 2 and 3 on ordered disks.
const ORDERED_DIGESTS: [u64; 2] = [0x53362935987687e0, 0x686d5632b666f401];

#[test]
fn a_seed_has_one_digest() {
    let found: Vec<u64> = (0..).zip(DIGESTS).map(|(seed, _)| Script::of(seed).run().hash).collect();
    assert_eq!(found, DIGESTS, "now {found:#x?}");
}

#[test]
fn a_seed_on_an_ordered_disk_has_one_digest() {
    let found: Vec<u64> = (2..).zip(ORDERED_DIGESTS).map(|(seed, _)| ordered(seed).run().hash).collect();
    assert_eq!(found, ORDERED_DIGESTS, "now {found:#x?}");
}

/// The digests of the first seeds in processes that may use so many processors, as the program
/// prints them.
fn printed(processors: usize, seeds: usize) -> Vec<u64> {
    let allowed = sched_getaffinity(None).expect("a thread knows its processors");
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(processors).for_each(|cpu| some.set(cpu));
    // A child has the processors of the thread that began it.
    let began = thread::spawn(move || {
        sched_setaffinity(None, &some).expect("fewer processors are allowed");
        (0..seeds).map(digest_of_a_process).collect()
    });
    began.join().expect("the storms ran")
}

fn digest_of_a_process(seed: usize) -> u64 {
    let storm = Command::new(env!("CARGO_BIN_EXE_storm")).args(["--seed", &seed.to_string()]).output();
    let output = String::from_utf8(storm.expect("the program runs").stdout).expect("it prints text");
    let digest = output.lines().find_map(|line| line.strip_prefix("hash: ")).expect("it prints a digest");
    u64::from_str_radix(digest, 16).expect("a digest is a number")
}

#[test]
fn the_digest_of_a_seed_does_not_depend_on_the_process_or_its_processors() {
    let off =
        fs::read_to_string("/proc/sys/kernel/randomize_va_space").expect("Linux says whether addresses are random");
    assert_ne!(off.trim(), "0", "addresses are the same in each process: `sysctl kernel.randomize_va_space=2`");
    let personality = fs::read_to_string("/proc/self/personality").expect("Linux tells the personality");
    let personality = u32::from_str_radix(personality.trim(), 16).expect("it is a number");
    assert_eq!(personality & 0x0004_0000, 0, "this process and its children have fixed addresses (`setarch -R`)");
    for processors in [1, 2] {
        assert_eq!(printed(processors, 3), DIGESTS[..3], "with {processors} processors");
    }
}

#[test]
fn a_schedule_is_another_digest_of_the_same_seed() {
    let script = Script { acts: 100, ..Script::of(1) };
    assert_ne!(script.run().hash, Script { schedule: 1, ..script.clone() }.run().hash);
    assert_eq!(script.run().hash, script.run().hash);
}

/// Runs a script that failed, under this schedule and some others.
fn passes(script: Script) {
    for schedule in script.schedule..script.schedule + 20 {
        let verdict = Script { schedule, ..script.clone() }.run();
        assert!(verdict.failure.is_none(), "{}", verdict.failure.expect("it is some"));
    }
}

fn table(seed: u64) -> Script {
    Script { base: Base::Table, ..Script::of(seed) }
}

fn files(seed: u64) -> Script {
    Script { base: Base::Files, ..Script::of(seed) }
}

fn ordered(seed: u64) -> Script {
    Script { base: Base::OrderedDisk, ..Script::of(seed) }
}

/// A store of the map was lost, and a flog entry whose fence had failed became durable: the lane's
/// next data was found in its sector.
#[test]
fn nothing_is_written_after_a_flog_entry_that_was_not_fenced() {
    passes(Script { schedule: 12, acts: 5, drains: 0, ..table(32) });
    passes(table(32));
    passes(table(0));
}

/// An eviction had failed, so two slots held the same block; the newer was cleared for the next
/// cache, and then came a kill.
#[test]
fn a_cache_made_where_another_was_brings_nothing_back() {
    passes(table(49));
}

/// A writer waited for a slot; a thread that drains had just found nothing left and ended the
/// draining; nobody began it again.
#[test]
fn a_writer_that_waits_begins_the_draining_again() {
    passes(Script { schedule: 57, acts: 4, ..table(68) });
    passes(table(68));
}

/// A write that was cached while another went past the cache was evicted beside it, and replaced in
/// the device: it was read out of its slot once more, after both had ended, and then was gone.
#[test]
fn a_write_past_the_cache_and_an_eviction_come_one_after_the_other() {
    passes(Script { schedule: 21, acts: 273, drains: 0, ..table(449) });
    passes(table(449));
    passes(Script { acts: 363, ..table(577) });
}

/// The memory had lost the store that frees an entry: its block was written past the cache, and the
/// next process read the old one there.
#[test]
fn nothing_goes_past_a_disk_cache_whose_memory_has_lost_a_store() {
    passes(Script { acts: 200, base: Base::DiskCache, ..Script::of(526) });
    passes(Script { schedule: 18, clients: 3, acts: 75, drains: 1, base: Base::DiskCache, ..Script::of(526) });
}

/// A disk could not make zeroes durable, and with them lost a block evicted to the same place
/// before; the next flush, which it answered well, was taken for a promise about that block.
#[test]
fn no_flush_goes_well_after_a_write_that_could_not_be_made_durable() {
    passes(Script { base: Base::Disk, ..Script::of(1203) });
    passes(Script { schedule: 7, clients: 1, acts: 89, drains: 1, base: Base::Disk, ..Script::of(1203) });
}

/// A read was to take several blocks in, and the disk refused one that had been written meanwhile:
/// the room reserved for it and for those behind it was nobody's from then on.
#[test]
fn what_a_failed_read_had_reserved_is_free_again() {
    passes(Script { acts: 200, base: Base::DiskCache, ..Script::of(3325) });
}

/// The memory had lost the store that frees an entry: its block was cached anew by another entry,
/// and a cut left both.
#[test]
fn a_block_whose_entry_could_not_be_freed_is_not_cached_twice() {
    passes(Script { acts: 200, base: Base::DiskCache, ..Script::of(1453) });
}

/// A block that was read was to come in, and the fence of its entry failed: the block was given
/// back without an entry, and whoever took it looked for one for ever.
#[test]
fn a_block_that_is_given_back_has_an_entry() {
    passes(Script { acts: 200, base: Base::DiskCache, ..Script::of(2183) });
}

/// A disk could not flush what was written past the cache; it was committed to the cache after the
/// block's lock had been given up, and a read saw it, then a newer write, and then it again.
#[test]
fn what_the_disk_refuses_is_committed_before_anyone_else_writes_the_block() {
    passes(Script { clients: 8, acts: 200, base: Base::DiskCache, ..Script::of(1098) });
}

/// An end met the superblocks being written anew, and left one of them torn for good.
#[test]
fn a_torn_superblock_is_written_anew_by_the_next_opening() {
    passes(Script { clients: 8, acts: 200, base: Base::DiskCache, ..Script::of(1887) });
    passes(Script { clients: 12, acts: 100, drains: 3, base: Base::DiskCache, ..Script::of(302) });
}

/// A process was killed with one superblock written anew and not yet durable; the next began to
/// write the other one before that, and the power failed.
#[test]
fn the_superblock_that_counts_is_durable_before_the_other_one_is_written() {
    passes(Script { clients: 8, acts: 200, base: Base::DiskCache, ..Script::of(1955) });
}

/// The memory had lost the store of the cursors: the next transaction streamed its elements over
/// those of one that had been answered.
#[test]
fn no_element_is_stored_after_a_commit_that_failed() {
    passes(Script { clients: 8, acts: 200, base: Base::DiskCache, ..Script::of(7816) });
    passes(Script { schedule: 7, acts: 7, base: Base::DiskCache, ..Script::of(7816) });
}

/// A process was killed after the flush of a group's header had failed; the next read that header
/// and put the group in place by it, and the power failed: without the memory nothing told of the
/// group, half of which was there.
#[test]
fn a_group_is_put_in_place_by_a_header_that_is_durable() {
    passes(Script { clients: 8, acts: 200, ..ordered(4091) });
}

/// An entry was made ready for another commit and had version 0; the ring had an older element of
/// it, and brought it back with a block that another entry had by then.
#[test]
fn an_entry_that_is_made_ready_is_not_brought_back() {
    passes(Script { acts: 100, ..files(148) });
}

/// A step that wrote below for want of room held the lane's lock, and took it again.
#[test]
fn unsynced_writes_leave_dram_without_the_lock() {
    passes(Script { acts: 200, ..files(8) });
}

/// A process was killed that had cut a file below and not synced it. The next one took the cut for
/// durable, and lengthened the file; after a power cut, bytes from before the cut were there.
#[test]
fn a_cut_of_a_killed_process_is_durable_before_the_file_grows() {
    passes(Script { acts: 200, ..files(2597) });
}

/// A client asked for the length of a file that the kernel's path might have changed, while its
/// owner lengthened it: the length that was there before came back.
#[test]
fn a_length_that_was_looked_up_beside_a_change_is_not_taken_over() {
    passes(Script { acts: 200, ..files(14510) });
}

/// A sync that set the file's time below came between the look of a write-back at the file and its
/// note of what it saw, or the write-back itself set the time after the file had a new record.
#[test]
fn a_time_that_is_set_beside_a_write_back_is_no_change_by_others() {
    passes(Script { acts: 200, ..files(399) });
    passes(Script { acts: 200, ..files(1063) });
}

/// A process was killed amid an append that nobody had synced. The next one made the length before
/// it durable, the power failed, and the file ended in zeroes. A length that was given by a
/// truncation, with no byte written up to it, must not be lost by that.
#[test]
fn an_unsynced_length_is_not_made_durable_after_a_kill() {
    passes(Script { schedule: 0, clients: 4, acts: 200, drains: 2, ..files(26_422) });
    passes(Script { acts: 200, ..files(40_133) });
}

/// Digests of seeds 0 to 2 with files.
const FILE_DIGESTS: [u64; 3] = [0x30c356441b48a285, 0x79838e265d9608a4, 0xb599f02c33a6599c];

#[test]
fn a_seed_with_files_has_one_digest() {
    let run = |seed| Script { acts: 200, ..files(seed) }.run().hash;
    let found: Vec<u64> = (0..).zip(FILE_DIGESTS).map(|(seed, _)| run(seed)).collect();
    assert_eq!(found, FILE_DIGESTS, "now {found:#x?}");
}

/// Mistakes of the file cache that storms show, without the folder of its source and the line.
/// Others are left to the enumeration of cuts.
const SHOWN_WITH_FILES: [&str; 31] = [
    "left out: Fence at lanes/records.rs: self.medium.fence()?;",
    "left out: Fence at sync/append.rs: self.medium.fence()?;",
    "left out: Flush at open/load.rs: region.flush(plan.record_at(0), plan.chunks_at() - plan.record_at(0));",
    "left out: Flush at open/load.rs: medium.flush_entry(slot);",
    "left out: Flush at region_io.rs: Target::Entry(slot) => self.flush_entry(slot),",
    "left out: Flush at region_io.rs: self.region.flush(self.plan.record_at(file), FileRecord::CHANGING_BYTES);",
    "left out: Flush at region_io.rs: self.region.flush(at, size_of::<FileRecord>() as u64);",
    "left out: Flush at sync/append.rs: self.medium.flush_entry(tail);",
    "left out: Flush at sync/commit.rs: dead.iter().chain(&spoilt).for_each(|slot| medium.flush_entry(*slot));",
    "left out: Flush at tiers/clean.rs: self.medium.flush_entry(*number);",
    "late: Store at lanes/entries.rs: self.medium.store_state(loss.slot, version, 0);",
    "late: Store at lanes/records.rs: self.medium.store_stamp(file.0, 0);",
    "late: Store at lanes/records.rs: self.medium.store_record_state(file.0, 0);",
    "late: Store at open/load.rs: medium.store_state(slot, raw.version(), 0);",
    "late: Store at region_io.rs: self.store_extent(slot, &extent);",
    "late: Store at region_io.rs: self.store_state(slot, version, extent.length);",
    "late: Store at region_io.rs: self.store_extent(slot, extent);",
    "late: Store at region_io.rs: self.region.write(at, raw.as_bytes());",
    "late: Store at region_io.rs: self.store_record_state(file, 1);",
    "late: Store at sync/append.rs: self.medium.store_state(tail, version, length);",
    "late: Store at sync/commit.rs: self.medium.stream_block(extent.unit, within, &data[from..from + len]);",
    "late: Store at sync/commit.rs: self.medium.stream_block(extent.unit, within, &bytes);",
    "late: Store at tiers/clean.rs: self.medium.store_clean(number, &extent);",
    "late: Store at tiers/clean.rs: self.medium.store_state(number, version, 0);",
    "late: Store at tiers/clean.rs: self.medium.store_state(*number, version, 0);",
    "late: Store at tiers/write_back.rs: self.medium.store_stamp(batch.file.0, stamp);",
    "late: Store at truncate.rs: self.medium.store_state(number, slot.version, length);",
    "left out: Lock at cache.rs: self.lane.lock()",
    "left out: Lock at exclusive.rs: let entered = gate.lock();",
    "left out: Lock at tiers/write_back.rs: let _sweep = self.sweep.lock();",
    "mislaid: FileSyncs",
];

#[test]
fn every_mistake_with_files_that_storms_know_is_shown() {
    let name = |mutant: &Mutant| {
        let text = mutant.to_string().replace("crates/file-cache/src/", "");
        let Some((place, rest)) = text.split_once(".rs:") else { return text };
        let (_, code) = rest.split_once(": ").expect("a line, and what is there");
        format!("{place}.rs: {code}")
    };
    let known: Vec<Mutant> =
        mistakes_with_files().into_iter().filter(|mutant| SHOWN_WITH_FILES.contains(&name(mutant).as_str())).collect();
    let gone: Vec<&str> =
        SHOWN_WITH_FILES.into_iter().filter(|shown| !known.iter().any(|mutant| name(mutant) == *shown)).collect();
    assert!(gone.is_empty(), "the file cache has no such place: {gone:#?}");
    let outcomes = test_mutants(&known, Order::InTurn, 1000);
    let sound: Vec<String> = outcomes.iter().filter_map(|one| Some(one.sound.as_ref()?.to_string())).collect();
    assert!(sound.is_empty(), "fails without any mistake: {sound:#?}");
    let never = outcomes.iter().filter(|one| one.killed.is_none());
    let never: Vec<String> = never.map(|one| one.mutant.to_string()).collect();
    assert!(never.is_empty(), "no seed shows: {never:#?}");
}

/// Each of the four flushes of a group left out, and what the disk alone shows then.
#[test]
fn every_flush_of_a_group_is_missed_within_twenty_seeds() {
    let mistakes: Vec<Mutant> =
        mistakes().into_iter().filter(|mistake| mistake.to_string().contains("GroupFlush")).collect();
    assert_eq!(mistakes.len(), 4);
    for one in test_mutants(&mistakes, Order::InTurn, 20) {
        assert!(one.killed.is_some() && one.sound.is_none(), "{}", one.mutant);
    }
}

/// Each flush, fence, lock, second look and indivisible change of the engines is there for a
/// reason, and each known mistake is noticed.
#[test]
fn every_mistake_is_shown() {
    let outcomes = test_mutants(&mistakes(), Order::TellingFirst, 8000);
    let sound: Vec<String> = outcomes.iter().filter_map(|one| Some(one.sound.as_ref()?.to_string())).collect();
    assert!(sound.is_empty(), "fails without any mistake: {sound:#?}");
    let never: Vec<String> =
        outcomes.iter().filter(|one| one.killed.is_none()).map(|one| one.mutant.to_string()).collect();
    assert!(never.is_empty(), "no seed shows: {never:#?}");
    let shown: Vec<&Killed> = outcomes.iter().filter_map(|one| one.killed.as_ref()).collect();
    let tried: u64 = shown.iter().map(|killed| killed.tried).sum();
    let mut telling: Vec<u64> = shown.iter().map(|killed| killed.seed).collect();
    telling.sort_unstable();
    telling.dedup();
    announce(&format!("storm: {} mistakes shown by {tried} runs, in the end by the seeds {telling:?}", shown.len()));
    assert!(shown.iter().any(|killed| killed.failure.is_endless()), "no mistake keeps anybody from coming to an end");
    let kinds = |kind: FlawKind| {
        outcomes.iter().filter(|one| matches!(one.mutant, Mutant::Flawed(flaw) if flaw.kind == kind)).count()
    };
    let (locks, looks, changes) = (kinds(FlawKind::Lock), kinds(FlawKind::Recheck), kinds(FlawKind::Change));
    assert!(locks >= 12 && looks >= 8 && changes >= 5, "{locks} locks, {looks} second looks, {changes} changes");
    assert!(outcomes.len() - locks - looks - changes >= 41, "{} mistakes", outcomes.len());
}

/// A load and a store without a lock where one indivisible change belongs.
#[test]
fn a_race_is_shown_within_a_hundred_seeds() {
    let mistakes: Vec<Mutant> =
        mistakes().into_iter().filter(|mistake| mistake.to_string().contains("free_set.rs")).collect();
    assert!(!mistakes.is_empty());
    for one in test_mutants(&mistakes, Order::InTurn, 100) {
        assert!(one.killed.is_some(), "{}", one.mutant);
    }
}
