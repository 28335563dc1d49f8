//! `tidegate config check`: a configuration file of `serve`, `mount` or `run`, read by the parsers
//! of these commands, and the files that it names.

use crate::commands::files::{mount_config, run as run_command};
use crate::commands::volume::serve::plan;
use crate::config;
use crate::errors::{ConfigFailure, Exit, Failure, UsageFailure, report};
use crate::grammar::Config;
use crate::output;
use std::path::Path;
use tidegate_doctor::{CheckedConfig, ConfigReader, MountPlaces, mount_files, read_all, server_files};
use tidegate_server::fronts::nbd;
use tidegate_server::options::Plan;

/// Keys that stand at the top of a file of `mount`.
const KEYS_OF_MOUNT: [&str; 1] = ["mount"];

/// Runs `tidegate config check`.
pub(crate) fn run(args: &Config, json: bool) -> Result<Exit, Failure> {
    let (path, text) = (args.file.as_path(), config::text_of(&args.file)?);
    let checked = match ConfigReader::of(&text, [&config::KEYS, &KEYS_OF_MOUNT, &run_command::KEYS]) {
        ConfigReader::Serve => of_serve(path, &text),
        ConfigReader::Mount => of_mount(path, &text),
        ConfigReader::Run => of_run(path, &text),
    };
    match checked {
        Ok(checked) => output::give(&checked, json).map(|()| Exit::Done),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| _ = report(mistake, json));
            Ok(Exit::Usage)
        }
    }
}

fn failures<F: Into<Failure>>(mistakes: impl IntoIterator<Item = F>) -> Vec<Failure> {
    mistakes.into_iter().map(Into::into).collect()
}

/// What `read` gives of the text, or every mistake that it refuses.
fn read<T>(text: &str, read: impl Fn(&str) -> Result<T, ConfigFailure>) -> Result<T, Vec<Failure>> {
    read_all(text, read, ConfigFailure::refused_at).map_err(failures)
}

/// The plan of a server in the text of the file at `path`, as flags `complete` it; or every mistake
/// that the text shows.
pub(crate) fn server_plan(
    path: &Path,
    text: &str,
    complete: impl FnOnce(Plan) -> Plan,
) -> (Option<Plan>, Vec<Failure>) {
    let plan = match read(text, |text| config::planned(path, text)) {
        Ok(plan) => complete(plan),
        Err(mistakes) => return (None, mistakes),
    };
    let mut mistakes = failures(config::conflicts(path, &plan));
    if let (true, Err(error)) = (mistakes.is_empty(), nbd::check_texts(&plan)) {
        mistakes.push(UsageFailure::Exports { why: error.to_string() }.into());
    }
    mistakes.extend(failures(plan::conflicts(&plan)));
    (Some(plan), mistakes)
}

fn of_serve(path: &Path, text: &str) -> Result<CheckedConfig, Vec<Failure>> {
    let (plan, mut mistakes) = server_plan(path, text, |plan| plan);
    let Some(plan) = plan else { return Err(mistakes) };
    mistakes.extend(failures(server_files(&plan).into_iter().map(ConfigFailure::Files)));
    if mistakes.is_empty() { Ok(CheckedConfig::of_server(path, plan)) } else { Err(mistakes) }
}

fn of_mount(path: &Path, text: &str) -> Result<CheckedConfig, Vec<Failure>> {
    let mounts = read(text, |text| mount_config::places(path, text))?;
    let names: Vec<_> = mounts.iter().map(|mount| mount.name.clone()).collect();
    of_places(path, (ConfigReader::Mount, mounts), mount_config::conflicts(path, &names))
}

fn of_run(path: &Path, text: &str) -> Result<CheckedConfig, Vec<Failure>> {
    let mounts = read(text, |text| run_command::places(path, text))?;
    of_places(path, (ConfigReader::Run, mounts), Vec::new())
}

fn of_places(
    path: &Path,
    (of, mounts): (ConfigReader, Vec<MountPlaces>),
    conflicts: Vec<ConfigFailure>,
) -> Result<CheckedConfig, Vec<Failure>> {
    let files = mount_files(&mounts).into_iter().map(ConfigFailure::Files);
    let mistakes = failures(conflicts.into_iter().chain(files));
    if mistakes.is_empty() { Ok(CheckedConfig::of_mounts(path, of, mounts)) } else { Err(mistakes) }
}
