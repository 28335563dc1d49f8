//! The configuration file of `mount`: several mounts, with the words of the options.

use crate::config;
use crate::errors::{ConfigFailure, Failure};
use crate::grammar::Mount;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tidegate_doctor::MountPlaces;
use tidegate_policy::placement::NamedPlacement;
use tidegate_sandbox::SandboxWish;

/// A file with every key, which packages install.
pub(crate) const EXAMPLE: &str = include_str!("../../../systemd/mounts.toml");

/// Every key of a mount, each like the option of its name.
pub(crate) const KEYS: [&str; 12] = [
    "source",
    "mountpoint",
    "name",
    "pool",
    "pool_size",
    "dram",
    "pin_max",
    "policy",
    "bypass",
    "no_busy_poll",
    "sandbox",
    "try",
];

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MountsFile {
    #[serde(default, deserialize_with = "config::one_or_more")]
    mount: Vec<WrittenMount>,
}

/// One `[[mount]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMount {
    source: PathBuf,
    mountpoint: PathBuf,
    name: Option<String>,
    pool: Option<PathBuf>,
    #[serde(default, deserialize_with = "config::size")]
    pool_size: Option<u64>,
    #[serde(default, deserialize_with = "config::size")]
    dram: Option<u64>,
    #[serde(default, deserialize_with = "config::size")]
    pin_max: Option<u64>,
    #[serde(default, deserialize_with = "config::placement")]
    policy: Option<NamedPlacement>,
    #[serde(default, deserialize_with = "config::globs")]
    bypass: Vec<String>,
    #[serde(default)]
    no_busy_poll: bool,
    #[serde(default, deserialize_with = "config::sandbox")]
    sandbox: SandboxWish,
    #[serde(default, rename = "try")]
    is_trial: bool,
}

impl WrittenMount {
    /// What it is called: by its name, or else by the last name of its mountpoint.
    fn name(&self) -> String {
        let of_mountpoint = || self.mountpoint.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(of_mountpoint)
    }
}

/// What `args` ask for, with what the file says that they name.
pub(crate) fn completed(args: &Mount) -> Result<Mount, Failure> {
    let Some(path) = &args.config else { return Ok(args.clone()) };
    let folder = path.parent().unwrap_or(path);
    let written = chosen((path, &config::text_of(path)?), args.name.as_deref())?;
    Ok(Mount {
        source: Some(folder.join(written.source)),
        mountpoint: Some(folder.join(written.mountpoint)),
        pool: args.pool.clone().or(written.pool.map(|pool| folder.join(pool))),
        pool_size: args.pool_size.or(written.pool_size),
        dram: args.dram.or(written.dram),
        pin_max: args.pin_max.or(written.pin_max),
        policy: args.policy.or(written.policy),
        bypass: config::said_or_written(&args.bypass, written.bypass),
        sandbox: args.sandbox.or(Some(written.sandbox)),
        is_trial: args.is_trial || written.is_trial,
        no_busy_poll: args.no_busy_poll || written.no_busy_poll,
        ..args.clone()
    })
}

/// The mounts of the file, each with its places.
pub(crate) fn places(path: &Path, text: &str) -> Result<Vec<MountPlaces>, ConfigFailure> {
    let folder = path.parent().unwrap_or(path);
    let places = |written: WrittenMount| MountPlaces {
        name: written.name(),
        source: folder.join(written.source),
        mountpoint: folder.join(written.mountpoint),
        pool: written.pool.map(|pool| folder.join(pool)),
    };
    Ok(read(path, text)?.into_iter().map(places).collect())
}

/// Everything that keeps mounts of these names from being told apart.
pub(crate) fn conflicts(path: &Path, names: &[String]) -> Vec<ConfigFailure> {
    let absent = names.is_empty().then(|| ConfigFailure::NoMount { path: path.to_owned() });
    let twice = names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name));
    let twice = twice.map(|(_, name)| ConfigFailure::SameMount { path: path.to_owned(), name: name.clone() });
    absent.into_iter().chain(twice).collect()
}

fn read(path: &Path, text: &str) -> Result<Vec<WrittenMount>, ConfigFailure> {
    let read: Result<MountsFile, _> = toml::from_str(text);
    read.map(|file| file.mount).map_err(|error| config::refused(path, text, &error))
}

/// The mount of the file that is called `name`, or the only one.
fn chosen((path, text): (&Path, &str), name: Option<&str>) -> Result<WrittenMount, ConfigFailure> {
    let mut mount = read(path, text)?;
    let names: Vec<_> = mount.iter().map(WrittenMount::name).collect();
    if let Some(conflict) = conflicts(path, &names).into_iter().next() {
        return Err(conflict);
    }
    let path = path.to_owned();
    let at = match name {
        None if names.len() > 1 => return Err(ConfigFailure::WhichMount { path, names }),
        None => 0,
        Some(name) => match names.iter().position(|known| known == name) {
            Some(at) => at,
            None => return Err(ConfigFailure::UnknownMount { path, name: name.to_owned(), names }),
        },
    };
    Ok(mount.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Report;

    fn refused(text: &str, name: Option<&str>) -> String {
        let refused = chosen((Path::new("/etc/m.toml"), text), name).expect_err("a bad file");
        let Report { what, why, next, .. } = (&refused).into();
        format!("{what}; {why}; {next}")
    }

    #[test]
    fn the_example_has_every_key_and_flags_win_over_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mounts.toml");
        std::fs::write(&path, EXAMPLE).expect("written");
        let asked = Mount { config: Some(path), name: Some("app".to_owned()), dram: Some(1 << 20), ..Mount::default() };
        let mount = completed(&asked).expect("a good file");
        assert_eq!((mount.source, mount.mountpoint), (Some("/srv/app-files".into()), Some("/srv/app".into())));
        assert_eq!((mount.pool, mount.pool_size), (Some("/mnt/pmem/app.pool".into()), Some(1 << 30)));
        assert_eq!((mount.dram, mount.is_trial), (Some(1 << 20), false));
        assert!(KEYS.iter().all(|key| EXAMPLE.contains(&format!("\n{key} = "))));
    }

    #[test]
    fn the_keys_are_those_that_the_file_knows_and_the_options_have_their_names() {
        let unknown = toml::from_str::<MountsFile>("[[mount]]\nother = 1").expect_err("no such key").to_string();
        assert!(KEYS.iter().all(|key| unknown.contains(&format!("`{key}`"))), "{unknown}");
        let program = crate::grammar::command();
        let mount = program.find_subcommand("mount").expect("it is there");
        let options: Vec<_> =
            mount.get_arguments().filter_map(clap::Arg::get_long).map(|long| long.replace('-', "_")).collect();
        assert!(KEYS[2..].iter().all(|key| options.iter().any(|option| option == key)), "{options:?}");
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_the_line_and_the_nearest_word() {
        let text = "[[mount]]\nsource = \"/s\"\nmountpoint = \"/m\"\npool_sise = \"1G\"\n";
        let told = refused(text, None);
        assert!(
            told.contains("/etc/m.toml:4: unknown key `pool_sise`") && told.contains("write `pool_size`"),
            "{told}"
        );
        let told = refused("[[mount]]\nsource = \"/s\"\nmountpoint = \"/m\"\ndram = \"much\"\n", None);
        assert!(told.contains("/etc/m.toml:4: ") && told.contains("is no size"), "{told}");
        assert!(refused("", None).contains("names no mount"));
    }

    #[test]
    fn a_mount_is_chosen_by_its_name() {
        let text = "[[mount]]\nsource = \"/s\"\nmountpoint = \"/m/one\"\n[[mount]]\nname = \"two\"\nsource = \"/t\"\nmountpoint = \"/m/t\"\n";
        let source = |name| chosen((Path::new("/etc/m.toml"), text), Some(name)).expect("it is there").source;
        assert_eq!((source("one"), source("two")), ("/s".into(), "/t".into()));
        assert!(refused(text, None).contains("--name one"));
        assert!(refused(&text.replace("two", "a b"), None).contains("--name 'a b'"));
        assert!(refused(&text.replace("two", "a b"), Some("ab")).contains("write --name 'a b'"));
        let told = refused(text, Some("tow"));
        assert!(told.contains("no mount \"tow\"") && told.contains("--name two"), "{told}");
        assert!(refused(&text.replace("two", "one"), Some("one")).contains("two mounts are named \"one\""));
    }
}
