//! Runs experiments, here or in a child on virtual cores, and finds their figures again.

use super::figure::Figure;
#[cfg(not(virtual_cores))]
use super::{Driver, caiti};
use super::{EXPERIMENTS, Experiment, Scale};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Instant;
#[cfg(not(virtual_cores))]
use tidegate_measure::programs::on_virtual_cores_of;

/// Runs `experiment` unless all its figures lie in `folder` already; says how long it took, or
/// None.
pub fn run(experiment: &Experiment, scale: Scale, folder: &Path) -> anyhow::Result<Option<std::time::Duration>> {
    let file = |id: &str| -> PathBuf { folder.join(format!("{id}.json")) };
    if experiment.figures.iter().all(|id| file(id).exists()) {
        return Ok(None);
    }
    let begin = Instant::now();
    #[cfg(not(virtual_cores))]
    if let Driver::VirtualCores | Driver::Recorded = experiment.driver {
        run_apart(experiment, scale, folder)?;
        return Ok(Some(begin.elapsed()));
    }
    let figures = (experiment.measure)(scale)?;
    experiment.check(&figures, scale)?;
    for mut figure in figures {
        figure.ensure_finite()?;
        figure.run = Some(experiment.provenance(scale));
        let (whole, unfinished) = (file(&figure.id), folder.join(format!("{}.unfinished", figure.id)));
        // The figure counts as there when its JSON is.
        std::fs::write(whole.with_extension("csv"), figure.csv())
            .and_then(|()| std::fs::write(&unfinished, serde_json::to_string_pretty(&figure)?))
            .and_then(|()| std::fs::rename(&unfinished, &whole))
            .with_context(|| format!("write {}", whole.display()))?;
    }
    Ok(Some(begin.elapsed()))
}

/// Has a child that is built for virtual cores run `experiment`, after what it needs was recorded.
#[cfg(not(virtual_cores))]
fn run_apart(experiment: &Experiment, scale: Scale, folder: &Path) -> anyhow::Result<()> {
    let folder = std::path::absolute(folder).context("where the figures go")?;
    let mut arguments = vec![experiment.name.to_owned()];
    arguments.extend(["--out".to_owned(), folder.display().to_string()]);
    arguments.extend(scale.option().map(str::to_owned));
    let mut program = on_virtual_cores_of("tidegate-reproduction", "virtual-experiment", arguments);
    let is_recorded = experiment.driver == Driver::Recorded;
    let records = is_recorded.then(|| caiti::recording::Records::of(scale)).transpose()?;
    program.envs(records.iter().map(|records| (caiti::platform::programs::FOLDER, records.folder())));
    let status = program.stdout(std::process::Stdio::null()).status();
    let status = status.context("running cargo")?;
    anyhow::ensure!(status.success(), "{} failed ({status})", experiment.name);
    Ok(())
}

/// The figures in `folder`, in the order of the experiments.
pub fn figures_in(folder: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for id in EXPERIMENTS.iter().flat_map(|experiment| experiment.figures) {
        let path = folder.join(format!("{id}.json"));
        match std::fs::read_to_string(&path) {
            Ok(text) => figures.push(serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    anyhow::ensure!(!figures.is_empty(), "{} holds no figures; make some with `bench experiments`", folder.display());
    Ok(figures)
}
