//! Every cut and kill of short scripts over an append-only log; what is judged stands in
//! `tidegate_crashcheck::append_log`.

use tidegate_crashcheck::append_log::{LogBug, LogStart, LogStep, LogTally, judge_log_scripts, judge_mistaken_log};
use tidegate_crashcheck::checker::Seen;
use tidegate_crashcheck::mutants::shown_by;

fn every_script(name: &str, start: &LogStart) {
    let seen = Seen::default();
    let mut total = LogTally::default();
    for steps in 1..=3 {
        let began = std::time::Instant::now();
        total = judge_log_scripts(start, steps, &seen).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, scripts of {steps}: {total}; {:.1} s", began.elapsed().as_secs_f64());
    }
    assert!(total.scripts == 1000 && total.opened > 0 && total.killed > 0 && total.second_cuts > 0, "{total}");
    assert!(total.ahead > 0, "no sync under way was found: {total}");
}

#[test]
fn a_fresh_log_loses_nothing_in_three_steps() {
    every_script("a fresh log", &LogStart::fresh());
}

#[test]
fn a_used_log_loses_nothing_in_three_steps() {
    every_script("a used log", &LogStart::used());
}

#[test]
fn a_log_with_a_full_window_loses_nothing_in_three_steps() {
    every_script("a full window", &LogStart::full());
}

/// The campaign over a log with `bug` fails on `script`, and says `words`.
fn caught(bug: LogBug, start: &LogStart, script: &[LogStep], words: &str) {
    let shown = shown_by(|| judge_mistaken_log(start, script, bug)).expect_err("the mistake is not caught");
    println!("{bug:?}: {shown}");
    assert!(shown.contains(words), "{bug:?} is shown otherwise: {shown}");
}

const APPEND: LogStep = LogStep::Append(20);
const LONG: LogStep = LogStep::Append(600);

#[test]
fn a_fence_left_out_behind_the_bytes_is_caught() {
    caught(LogBug::DataFenceLeftOut, &LogStart::fresh(), &[APPEND, LogStep::Sync], "are damaged");
}

#[test]
fn a_length_stored_before_its_bytes_is_caught() {
    caught(LogBug::LengthBeforeBytes, &LogStart::fresh(), &[APPEND, LogStep::Sync], "are damaged");
}

#[test]
fn an_answer_before_the_word_is_durable_is_caught() {
    caught(LogBug::WordFenceLeftOut, &LogStart::fresh(), &[APPEND, LogStep::Sync], "not from");
}

#[test]
fn words_of_several_chunks_that_become_durable_together_are_caught() {
    caught(LogBug::WordsTogether, &LogStart::used(), &[LONG, LogStep::Sync], "not from");
}

#[test]
fn a_slot_used_again_with_its_former_word_is_caught() {
    caught(LogBug::NotCleared, &LogStart::used(), &[LogStep::Prepare, LogStep::Prepare], "damaged");
}

#[test]
fn words_behind_the_end_that_recovery_leaves_are_caught() {
    caught(LogBug::NotCleared, &LogStart::used(), &[LONG, LogStep::Sync], "the log going on");
}

#[test]
fn a_number_that_overtakes_the_cleared_word_is_caught() {
    caught(LogBug::ClearFenceLeftOut, &LogStart::used(), &[LogStep::Prepare, LogStep::Prepare], "damaged");
}

#[test]
fn a_chunk_freed_before_the_disk_was_synced_is_caught() {
    caught(LogBug::FreedBeforeSynced, &LogStart::full(), &[LogStep::WriteBack], "not the one appended");
}

#[test]
fn copies_of_the_superblock_that_tear_together_are_caught() {
    caught(LogBug::CopiesTogether, &LogStart::used(), &[LogStep::Drop], "superblock");
}
