//! Experiments at the smallest scale. That each makes the figures it names is checked whenever it
//! runs, so also when CI runs them all.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use tidegate_reproduction::{Driver, EXPERIMENTS, Experiment, Scale, figures_in, page, run, verdicts};

/// The experiment called `name`.
fn experiment(name: &str) -> &'static Experiment {
    EXPERIMENTS.iter().find(|one| one.name == name).unwrap()
}

#[test]
fn an_experiment_runs_once_and_so_little_of_it_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = experiment("metadata");
    assert!(run(metadata, Scale::SMOKE, folder.path()).unwrap().is_some());
    assert!(run(metadata, Scale::SMOKE, folder.path()).unwrap().is_none(), "it is there already");
    let figures = figures_in(folder.path()).unwrap();
    assert!(figures.iter().map(|figure| figure.id.as_str()).eq(metadata.figures.iter().copied()));
    let judged = verdicts::judged(&figures);
    assert!(judged.iter().all(|row| row.verdict() == verdicts::Reproduced::NotRun));
    let page = page::html(&figures, &judged);
    assert!(figures.iter().all(|figure| page.contains(&figure.title)));
}

#[test]
fn a_replay_has_the_same_figures_again() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for name in ["placement-dd", "placement-threshold"] {
        assert_eq!(experiment(name).driver, Driver::Replay);
        for folder in &folders {
            run(experiment(name), Scale::SMOKE, folder.path()).unwrap();
        }
    }
    let [figures, repeated] = folders.map(|folder| figures_in(folder.path()).unwrap());
    assert!(figures == repeated && figures.len() == 5);
}

#[test]
fn a_folder_without_figures_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    assert!(figures_in(folder.path()).unwrap_err().to_string().contains("bench experiments"));
}

#[test]
fn every_row_has_a_name_of_its_own_and_experiments_that_there_are() {
    let names: BTreeSet<&str> = verdicts::rows().map(|row| row.name).collect();
    assert_eq!((names.len(), verdicts::rows().count()), (35, 35));
    let known = |name: &&str| EXPERIMENTS.iter().any(|one| one.name == *name);
    assert!(verdicts::rows().all(|row| row.experiments.iter().all(&known)));
    assert!(verdicts::rows().all(|row| !row.cause.is_empty()), "each says why it may come out otherwise");
    assert!(verdicts::rows().all(|row| row.judged_on.is_empty() == row.experiments.is_empty()));
    let on_ours: Vec<&str> = verdicts::rows().filter(|row| row.judged_on == "Tidegate").map(|row| row.name).collect();
    assert_eq!(on_ours, ["tinca-10", "tinca-11", "tinca-13", "tinca-recovery"]);
}
