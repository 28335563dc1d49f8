//! Protocols of applications under power cuts and kills; what is judged stands in
//! `tidegate_crashcheck::applications`. `TIDEGATE_PROTOCOL_SEEDS` gives more seeds than CI
//! runs.

use std::time::Instant;
use tidegate_crashcheck::announce;
use tidegate_crashcheck::applications::{PROTOCOLS, Protocol, ProtocolTally, Step, judge_protocol};
use tidegate_crashcheck::mutants::shown_by;
use tidegate_crashcheck::namespace::NamesBug;

/// Seeds in which a mistake has to show.
const SEEDS: u64 = 96;

#[test]
fn every_promise_is_kept_after_every_cut() {
    let seeds = std::env::var("TIDEGATE_PROTOCOL_SEEDS").map_or(2, |seeds| seeds.parse().expect("a number of seeds"));
    let start = Instant::now();
    let mut total = ProtocolTally::default();
    for protocol in PROTOCOLS.concat() {
        for seed in 0..seeds {
            let tally = judge_protocol(&protocol, seed, None).unwrap_or_else(|failure| panic!("{failure}"));
            total.add(&tally);
        }
    }
    let (protocols, seconds) = (PROTOCOLS.concat().len(), start.elapsed().as_secs_f64());
    announce(&format!("applications: {protocols} protocols, {total}; {seconds:.1} s"));
    assert!(total.ends() >= 500 && total.early_cuts >= 100 && total.recovery_cuts >= 100 && total.kills > 0);
}

/// The first failure of a protocol, if there is one.
fn failure(protocol: &Protocol, bug: Option<NamesBug>) -> Option<String> {
    (0..SEEDS).find_map(|seed| shown_by(|| judge_protocol(protocol, seed, bug)).err())
}

/// Keeps its promise without a sync: the service syncs a file that is about to take the place of
/// another one.
const NEEDS_NO_SYNC: [&str; 1] = ["a file renamed over another one, the directory not synced"];

#[test]
fn a_protocol_that_does_not_sync_breaks_its_promise() {
    let mut kept = Vec::new();
    for protocol in PROTOCOLS.concat() {
        let act: Vec<Step> = protocol.act.iter().copied().filter(|step| !step.is_sync()).collect();
        if act.len() < protocol.act.len() && failure(&Protocol { act: act.leak(), ..protocol }, None).is_none() {
            kept.push(protocol.name);
        }
    }
    assert_eq!(kept, NEEDS_NO_SYNC);
}

/// Mistakes, and what the first failure that shows one may say.
const SYMPTOMS: [(NamesBug, &[&str]); 10] = [
    (NamesBug::RecordFenceMissing, &[OLDER, "a record carries its own place"]),
    (NamesBug::CursorsFlushMissing, &[BROKEN, CONFLICT]),
    (NamesBug::CommitMissing, &[BROKEN]),
    (NamesBug::WitnessTooEarly, &[BROKEN, CONFLICT]),
    (NamesBug::WitnessMissing, &[OLDER, CONFLICT]),
    (NamesBug::SourceSyncMissing, &[OLDER]),
    (NamesBug::FileSyncMissing, &[BROKEN, "outside of the protocol's folder"]),
    (NamesBug::MadeAnewMissing, &[BROKEN, CONFLICT]),
    (NamesBug::DiscardBeforeCommit, &[BROKEN]),
    (NamesBug::ReplayBegunMissing, &[BROKEN, CONFLICT]),
];
const BROKEN: &str = "is broken after";
const CONFLICT: &str = "could not be replayed";
const OLDER: &str = "restored to an older state";

#[test]
fn mistakes_in_the_service_break_promises() {
    for (bug, symptoms) in SYMPTOMS {
        let shown = PROTOCOLS.concat().iter().find_map(|protocol| failure(protocol, Some(bug)));
        let shown = shown.unwrap_or_else(|| panic!("{bug:?} is not caught"));
        println!("{bug:?}: {shown}");
        assert!(symptoms.iter().any(|symptom| shown.contains(symptom)), "{bug:?}: {shown}");
    }
}
