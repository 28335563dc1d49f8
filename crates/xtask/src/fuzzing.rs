//! Fuzzing: programs that libFuzzer gives inputs, led by the branches that they take.
//!
//! The targets are the programs of `fuzz/Cargo.toml`, and each has its kept inputs in
//! `fuzz/corpus/TARGET`. What a run finds stays in the build's folder, and the next run goes on
//! there; `--keep` brings the inputs that take new branches into the tree.

use crate::builds::{cargo_command, run, target};
use crate::workspace::root;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets: the programs of `fuzz/Cargo.toml`.
const TARGETS: [&str; 4] = ["fuse", "nbd", "superblocks", "vhost-user"];

/// How long each target runs in the long form of the tests, in seconds.
const SECONDS_LONG: u32 = 1800;

/// Bytes of an input at most.
const INPUT_BYTES_MAX: u32 = 8192;

/// Memory that a target may take, in MiB.
const MEMORY_MIB_MAX: u32 = 2048;

/// How long one input may take, in seconds, on a machine that is busy with much else.
const INPUT_SECONDS_MAX: u32 = 300;

/// What makes the compiler count branches and comparisons, as `cargo fuzz` has it. The stable
/// compiler knows all of it.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Which targets to run, and for how long.
#[derive(Args)]
pub(crate) struct Fuzzing {
    /// The targets; without one, all of them.
    targets: Vec<String>,

    /// How long each of them runs, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,

    /// Add the inputs that take new branches to the tree.
    #[arg(long)]
    keep: bool,
}

impl Fuzzing {
    /// All targets as the long form of the tests runs them.
    pub(crate) fn long() -> Fuzzing {
        Fuzzing { targets: Vec::new(), seconds: SECONDS_LONG, keep: false }
    }

    /// Runs the targets; fails at the first that found an input which it does not stand.
    pub(crate) fn carry_out(&self) -> Result<()> {
        if let Some(unknown) = self.targets.iter().find(|name| !TARGETS.contains(&name.as_str())) {
            bail!("there is no target `{unknown}`; the targets are {}", TARGETS.join(", "));
        }
        let is_wanted = |name: &str| self.targets.is_empty() || self.targets.iter().any(|wanted| wanted == name);
        let built = build()?;
        for name in TARGETS.into_iter().filter(|name| is_wanted(name)) {
            let places = Places::of(name)?;
            self.run(&built.join(name), &places).with_context(|| {
                let (found, program) = (places.findings.display(), built.join(name));
                format!("{name}: the input is in {found}; {} FILE repeats it", program.display())
            })?;
            if self.keep {
                places.keep(&built.join(name))?;
            }
        }
        Ok(())
    }

    fn run(&self, program: &Path, places: &Places) -> Result<()> {
        let mut target = Command::new(program);
        target.arg(&places.found).arg(&places.kept);
        target.arg(format!("-max_total_time={}", self.seconds));
        target.arg(format!("-max_len={INPUT_BYTES_MAX}"));
        target.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
        target.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
        target.arg(format!("-artifact_prefix={}/", places.findings.display()));
        run(target.args(["-verbosity=0", "-print_final_stats=1"]))
    }
}

/// Where the inputs of a target lie.
struct Places {
    /// Those in the tree.
    kept: PathBuf,
    /// Those of all runs.
    found: PathBuf,
    /// Those that the target did not stand.
    findings: PathBuf,
}

impl Places {
    fn of(name: &str) -> Result<Places> {
        let below = |part: &str| target().join("fuzz").join(part).join(name);
        let places =
            Places { kept: root().join("fuzz/corpus").join(name), found: below("corpus"), findings: below("findings") };
        for folder in [&places.kept, &places.found, &places.findings] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(places)
    }

    /// Adds what takes new branches to the inputs in the tree.
    fn keep(&self, program: &Path) -> Result<()> {
        run(Command::new(program).args(["-merge=1", "-verbosity=0"]).arg(&self.kept).arg(&self.found))
    }
}

/// Builds the targets, and returns the folder in which they are.
fn build() -> Result<PathBuf> {
    let folder = target().join("fuzz");
    let mut build = cargo_command(&["build", "--release", "--target", "host-tuple", "--manifest-path"]);
    build.arg(root().join("fuzz/Cargo.toml")).env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &folder);
    run(&mut build)
        .context("cannot build the targets of fuzzing; their engine needs a compiler of C++ (apt-get install g++)")?;
    let built = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let built = built.filter_map(|entry| Some(entry.ok()?.path().join("release")));
    let built: Vec<_> = built.filter(|folder| folder.join(TARGETS[0]).exists()).collect();
    ensure!(built.len() == 1, "{} has the targets of {} machines", folder.display(), built.len());
    Ok(built.into_iter().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_those_of_the_manifest_and_have_kept_inputs() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let programs = manifest["bin"].as_array().unwrap();
        let names: Vec<_> = programs.iter().map(|program| program["name"].as_str().unwrap()).collect();
        assert_eq!(names, TARGETS);
        for name in TARGETS {
            let kept = fs::read_dir(root().join("fuzz/corpus").join(name)).unwrap();
            assert!(kept.count() > 10, "{name}");
        }
    }
}
