//! `tidegate run`: a program whose roots are mounts for as long as it runs.
//!
//! | step | if this process is killed then |
//! | --- | --- |
//! | each root without a mount is mounted over itself | the mounts stay, as by `tidegate mount` |
//! | the program runs, its current directory in a mount | the same, and the program goes on |
//! | each of these mounts is written back and ended | its service goes on with that |
//!
//! This process holds a descriptor of every root until the program has ended. So nobody unmounts
//! the root meanwhile, another run neither.

mod mounts;
mod private;
mod program;
mod roots;

use crate::commands::files::run::mounts::{Allowed, RunMounts};
use crate::commands::files::run::program::Program;
use crate::config;
use crate::errors::{ConfigFailure, Exit, Failure, ProgramFailure, report};
use crate::grammar::{Run, ServeMount};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_access_trace::{Recording, lost_records};
use tidegate_doctor::MountPlaces;
use tidegate_file_wire::FRAMES_MAX;
use tidegate_host::threads::SignalsHandedOn;
use tidegate_policy::placement::NamedPlacement;
use tidegate_sandbox::SandboxWish;

/// What a run is asked for: by the configuration file of `run`, or by flags, which win.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunConfig {
    pool: Option<PathBuf>,
    #[serde(default, deserialize_with = "config::size")]
    size: Option<u64>,
    #[serde(default, deserialize_with = "config::size")]
    dram: Option<u64>,
    #[serde(default, deserialize_with = "config::size")]
    read_cache: Option<u64>,
    #[serde(default, deserialize_with = "config::size")]
    pin_max: Option<u64>,
    #[serde(default, deserialize_with = "config::placement")]
    policy: Option<NamedPlacement>,
    #[serde(default)]
    upgrade_mappings: bool,
    #[serde(default, deserialize_with = "config::globs")]
    bypass: Vec<String>,
    #[serde(default, deserialize_with = "context_frames")]
    context_frames: Option<u32>,
    #[serde(default, deserialize_with = "config::one_or_more")]
    root: Vec<PathBuf>,
    #[serde(default)]
    no_busy_poll: bool,
    #[serde(default, deserialize_with = "wish")]
    sandbox: Option<SandboxWish>,
}

/// Every key of the file, each like the flag of its name.
pub(crate) const KEYS: [&str; 12] = [
    "pool",
    "size",
    "dram",
    "read_cache",
    "pin_max",
    "policy",
    "upgrade_mappings",
    "bypass",
    "context_frames",
    "root",
    "no_busy_poll",
    "sandbox",
];

/// Runs `tidegate run`; the answer is the program's.
pub(crate) fn run(args: &Run, said: ServeMount) -> Result<ExitCode, Failure> {
    if args.is_private {
        return private::begin_again();
    }
    let asked = asked_by(args)?;
    let library = if args.is_indirect { None } else { Some(program::library()?) };
    let directory = std::env::current_dir().map_err(Failure::system("finding the current directory"))?;
    let roots = roots::resolved(&asked.root, &directory)?;
    let signals = SignalsHandedOn::caught(|words| {
        tracing::warn!("{words}");
        std::process::exit(Exit::Interrupted as i32);
    });
    let signals = signals.map_err(Failure::system("listening to signals"))?;
    let mut mounts = RunMounts::new(said);
    let (words, library) = (&args.command, library.as_deref());
    let recording = args.trace.as_deref().map(|trace| Recording::begin(trace, &roots)).transpose();
    let recording = recording.map_err(ProgramFailure::NoTrace)?;
    let program = Program {
        words,
        directory: &directory,
        library,
        recording: recording.as_ref(),
        context_frames: asked.context_frames,
        read_cache: asked.read_cache,
        upgrade_mappings: asked.upgrade_mappings,
    };
    let allowed = if args.is_trial { Allowed::AnyMemory } else { Allowed::PersistentMemory };
    let ended = match mounts.begin(&roots, &asked, allowed) {
        Ok(Some(exit)) => Ok(exit.into()),
        Ok(None) => program.run(&signals, &mounts.boards),
        Err(failure) => Err(failure),
    };
    signals.end_process_from_now_on(&mounts.left_words());
    let lost = lost_records(&mounts.boards);
    let mut left = mounts.end();
    // Programs that outlive the first one are waited for.
    if let (Some(recording), Ok(_)) = (recording, &ended) {
        left.extend(recording.end(&roots, lost).err().map(|error| ProgramFailure::NoTrace(error).into()));
    }
    // The program's own failure is the one to hear of.
    let code = match ended {
        Ok(code) => code,
        Err(failure) => report(&failure, said.json).into(),
    };
    let unwell = left.iter().fold(None, |_, failure| Some(report(failure, said.json)));
    Ok(match unwell {
        Some(exit) if code == ExitCode::SUCCESS => exit.into(),
        _ => code,
    })
}

/// What is asked for by `args`, and by the file that it names.
fn asked_by(args: &Run) -> Result<RunConfig, Failure> {
    let written = match &args.config {
        Some(path) => parse(path, &config::text_of(path)?)?,
        None => RunConfig::default(),
    };
    Ok(RunConfig {
        pool: args.pool.clone().or(written.pool),
        size: args.size.or(written.size),
        dram: args.dram.or(written.dram),
        read_cache: args.read_cache.or(written.read_cache),
        pin_max: args.pin_max.or(written.pin_max),
        policy: args.policy.or(written.policy),
        upgrade_mappings: args.upgrade_mappings || written.upgrade_mappings,
        sandbox: args.sandbox.or(written.sandbox),
        no_busy_poll: args.no_busy_poll || written.no_busy_poll,
        bypass: config::said_or_written(&args.bypass, written.bypass),
        context_frames: args.context_frames.or(written.context_frames),
        root: config::said_or_written(&args.root, written.root),
    })
}

/// A number of frames, as the command line takes it.
fn context_frames<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let frames = u32::deserialize(deserializer)?;
    let refused = || D::Error::custom(format_args!("a number from 1 to {FRAMES_MAX} is expected"));
    (1..=FRAMES_MAX).contains(&frames).then_some(Some(frames)).ok_or_else(refused)
}

/// Whether there is a sandbox, as the command line takes it.
fn wish<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SandboxWish>, D::Error> {
    config::sandbox(deserializer).map(Some)
}

/// Relative paths start at the file's folder.
fn parse(path: &Path, text: &str) -> Result<RunConfig, ConfigFailure> {
    let written: RunConfig = toml::from_str(text).map_err(|error| config::refused(path, text, &error))?;
    let folder = path.parent().unwrap_or(path);
    let root = written.root.into_iter().map(|root| folder.join(root)).collect();
    Ok(RunConfig { pool: written.pool.map(|pool| folder.join(pool)), root, ..written })
}

/// The roots of a file, each with its places: it is mounted over itself.
pub(crate) fn places(path: &Path, text: &str) -> Result<Vec<MountPlaces>, ConfigFailure> {
    let RunConfig { pool, root, .. } = parse(path, text)?;
    let name = |root: &Path| root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let places =
        |root: PathBuf| MountPlaces { name: name(&root), source: root.clone(), mountpoint: root, pool: pool.clone() };
    Ok(root.into_iter().map(places).collect())
}

/// The failure that the root at `root` cannot be used, as `why` says.
fn no_root(root: &Path, why: impl ToString) -> Failure {
    ProgramFailure::NoRoot { root: root.to_owned(), why: why.to_string() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str, flags: &Run) -> RunConfig {
        let folder = tempfile::tempdir().expect("a folder for what is temporary");
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).expect("the file can be written");
        let mut asked = asked_by(&Run { config: Some(path), ..flags.clone() }).expect("a good file");
        let bare = |path: &mut PathBuf| *path = path.strip_prefix(folder.path()).unwrap_or(path).to_owned();
        asked.pool.iter_mut().chain(&mut asked.root).for_each(bare);
        asked
    }

    #[test]
    fn every_key_reaches_the_run_and_a_list_of_one_needs_no_brackets() {
        let text = "pool = \"p\"\nsize = \"64M\"\ndram = \"2M\"\nread_cache = \"0\"\npin_max = \"3M\"\npolicy = \"lru\"\nupgrade_mappings = true\nbypass = \"*.log\"\ncontext_frames = 8\nroot = [\"a\", \"/b\"]\nno_busy_poll = true\nsandbox = \"on\"\n";
        let expected = RunConfig {
            pool: Some("p".into()),
            size: Some(64 << 20),
            dram: Some(2 << 20),
            read_cache: Some(0),
            pin_max: Some(3 << 20),
            policy: Some(NamedPlacement::Lru),
            upgrade_mappings: true,
            bypass: vec!["*.log".to_owned()],
            context_frames: Some(8),
            root: vec!["a".into(), "/b".into()],
            no_busy_poll: true,
            sandbox: Some(SandboxWish::On),
        };
        assert_eq!(asked(text, &Run::default()), expected);
        assert!(KEYS.iter().all(|key| text.contains(&format!("{key} = "))));
        assert_eq!(asked("root = \"a\"\n", &Run::default()).root, [PathBuf::from("a")]);
        assert_eq!(asked("", &Run::default()), RunConfig::default());
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Run { pool: Some("q".into()), size: Some(32 << 20), root: vec!["/c".into()], ..Run::default() };
        let (pool, size, root) = (Some("q".into()), Some(32 << 20), vec!["/c".into()]);
        let expected = RunConfig { pool, size, root, ..RunConfig::default() };
        assert_eq!(asked("pool = \"p\"\nsize = \"64M\"\nroot = [\"a\", \"/b\"]\n", &flags), expected);
    }

    #[test]
    fn an_unknown_key_or_value_is_refused() {
        for text in [
            "pol = \"p\"\n",
            "context_frames = 9\n",
            "context_frames = 0\n",
            "policy = \"none\"\n",
            "sandbox = \"maybe\"\n",
            "bypass = [\"/a\"]\n",
        ] {
            assert!(parse(Path::new("run.toml"), text).is_err(), "{text}");
        }
    }
}
