//! `tidegate run-log`: what a run is asked for, by flags, and by its configuration file, which has
//! the same words. Flags win over the file.

use crate::config;
use crate::errors::{ConfigFailure, Exit, Failure};
use crate::grammar::RunLog;
use crate::output;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidegate_run_log::{Around, Asked};

/// The configuration file of `run-log`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunConfig {
    pool: Option<PathBuf>,
    #[serde(default, deserialize_with = "config::size")]
    size: Option<u64>,
    #[serde(default, deserialize_with = "config::one_or_more")]
    root: Vec<PathBuf>,
    #[serde(default, deserialize_with = "config::one_or_more")]
    deny: Vec<String>,
}

/// Runs `tidegate run-log`; the answer is the program's.
pub(crate) fn run(args: &RunLog) -> Result<ExitCode, Failure> {
    tracing::warn!(
        "`tidegate run-log` is experimental and will be removed: docs/guide/run-log.md lists when a recovery after a power loss is wrong"
    );
    let library = tidegate_run_log::library()?;
    let around = Around { tell: output::teller(false), interrupted: Exit::Interrupted as i32 };
    Ok(tidegate_run_log::run(&library, &asked_by(args)?, &args.command, around)?)
}

/// What is asked for by `args`, and by the file that it names.
fn asked_by(args: &RunLog) -> Result<Asked, Failure> {
    let written = match &args.config {
        Some(path) => parse(path, &config::text_of(path)?)?,
        None => RunConfig::default(),
    };
    Ok(Asked {
        pool: args.pool.clone().or(written.pool),
        size: args.size.or(written.size),
        roots: if args.root.is_empty() { written.root } else { args.root.clone() },
        deny: if args.deny.is_empty() { written.deny } else { args.deny.clone() },
        is_trial: args.is_trial,
    })
}

/// Relative paths start at the file's folder.
fn parse(path: &Path, text: &str) -> Result<RunConfig, ConfigFailure> {
    let RunConfig { pool, size, root, deny } =
        toml::from_str(text).map_err(|error| config::refused(path, text, &error))?;
    let folder = path.parent().unwrap_or(path);
    let root = root.into_iter().map(|root| folder.join(root)).collect();
    Ok(RunConfig { pool: pool.map(|pool| folder.join(pool)), size, root, deny })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_KEY: &str = "pool = \"p\"\nsize = \"64M\"\nroot = [\"a\", \"/b\"]\ndeny = [\"*.tmp\"]\n";

    fn asked(text: &str, flags: &RunLog) -> Asked {
        let folder = tempfile::tempdir().expect("a folder for what is temporary");
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).expect("the file can be written");
        let mut asked = asked_by(&RunLog { config: Some(path), ..flags.clone() }).expect("a good file");
        let bare = |path: &mut PathBuf| *path = path.strip_prefix(folder.path()).unwrap_or(path).to_owned();
        asked.pool.iter_mut().chain(&mut asked.roots).for_each(bare);
        asked
    }

    #[test]
    fn every_key_reaches_the_run() {
        let expected = Asked {
            pool: Some("p".into()),
            size: Some(64 << 20),
            roots: vec!["a".into(), "/b".into()],
            deny: vec!["*.tmp".to_owned()],
            is_trial: false,
        };
        assert_eq!(asked(EVERY_KEY, &RunLog::default()), expected);
        let usual = Asked { pool: None, size: None, roots: Vec::new(), deny: Vec::new(), is_trial: false };
        assert_eq!(asked("", &RunLog::default()), usual);
    }

    #[test]
    fn a_list_of_one_needs_no_brackets() {
        let one = asked("root = \"a\"\ndeny = \"*.tmp\"\n", &RunLog::default());
        assert_eq!((one.roots, one.deny), (vec!["a".into()], vec!["*.tmp".to_owned()]));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = RunLog {
            pool: Some("q".into()),
            size: Some(32 << 20),
            root: vec!["/c".into()],
            deny: vec!["*.log".to_owned()],
            ..RunLog::default()
        };
        let expected = Asked {
            pool: flags.pool.clone(),
            size: Some(32 << 20),
            roots: flags.root.clone(),
            deny: flags.deny.clone(),
            is_trial: false,
        };
        assert_eq!(asked(EVERY_KEY, &flags), expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_one() {
        let Err(ConfigFailure::UnknownKey { line, key, nearest, known, .. }) =
            parse(Path::new("/r.toml"), "\nrot = []\n")
        else {
            panic!("it is not refused for a key")
        };
        assert_eq!((line, key.as_str(), nearest.as_deref()), (2, "rot", Some("root")));
        assert_eq!(known, ["pool", "size", "root", "deny"]);
    }

    #[test]
    fn a_size_that_is_none_is_refused_with_its_line() {
        let Err(ConfigFailure::Invalid { line, .. }) = parse(Path::new("/r.toml"), "pool = \"p\"\nsize = \"big\"\n")
        else {
            panic!("it is not refused")
        };
        assert_eq!(line, 2);
    }
}
