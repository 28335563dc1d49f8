//! Experiments on threads and replays, at the smallest scale: each yields the figures that it
//! names.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use tidegate_reproduction::{Driver, EXPERIMENTS, Experiment, Scale, figures_in, page, run, verdicts};

#[test]
fn every_experiment_yields_the_figures_it_names_and_none_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    for experiment in EXPERIMENTS.iter().filter(|one| one.driver == Driver::Threads && one.name != "windows") {
        assert!(run(experiment, Scale::SMOKE, folder.path()).unwrap().is_some(), "{}", experiment.name);
        assert!(
            run(experiment, Scale::SMOKE, folder.path()).unwrap().is_none(),
            "{} is there already",
            experiment.name
        );
    }
    let figures = figures_in(folder.path()).unwrap();
    let ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
    let counted = ["tinca-fig-7b", "tinca-fig-7c", "tinca-fig-3a"];
    assert_eq!(ids, [&["fig-2a", "fig-2b", "fig-5a", "fig-5d", "table-1", "metadata"], &counted[..]].concat());
    for figure in &figures {
        assert!(figure.series.iter().all(|series| !series.points.is_empty()), "{}", figure.id);
        assert!(
            figure.series.iter().flat_map(|series| &series.points).all(|point| point.median > 0.0),
            "{}",
            figure.id
        );
    }
    let judged = verdicts::judged(&figures);
    assert!(judged.iter().all(|row| row.verdict() == verdicts::Reproduced::NotRun), "so little shows nothing");
    let page = page::html(&figures, &judged);
    assert!(figures.iter().all(|figure| page.contains(&figure.title)));
}

#[test]
fn every_replay_yields_the_figures_it_names_twice_alike() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let replays = || EXPERIMENTS.iter().filter(|one| one.driver == Driver::Replay);
    // Seconds each; one is enough to show that a seed names the figures.
    let again = |one: &&Experiment| one.name == "placement-dd" || one.name == "placement-threshold";
    for experiment in replays() {
        run(experiment, Scale::SMOKE, folders[0].path()).unwrap();
    }
    for experiment in replays().filter(again) {
        run(experiment, Scale::SMOKE, folders[1].path()).unwrap();
    }
    let [figures, repeated] = folders.map(|folder| figures_in(folder.path()).unwrap());
    let named: Vec<_> = replays().flat_map(|experiment| experiment.figures).collect();
    assert!(figures.iter().map(|figure| figure.id.as_str()).eq(named.into_iter().copied()));
    assert!(figures.iter().flat_map(|figure| &figure.series).all(|series| !series.points.is_empty()));
    assert!(repeated.iter().all(|figure| figures.contains(figure)) && repeated.len() == 5);
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
