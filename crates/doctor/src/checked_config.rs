//! A configuration without mistakes: which command reads it, and what is in it.

use crate::config_files::MountPlaces;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_host::spelling::nearest;
use tidegate_server::options::{Plan, VolumePlan};
use tidegate_server::sockets::listen::ListenAddress;

/// The command that reads a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigReader {
    /// `tidegate serve`.
    Serve,
    /// `tidegate mount`.
    Mount,
    /// `tidegate run`.
    Run,
}

impl ConfigReader {
    /// The command for which most keys at the top of `text` are meant, by the keys that each of the
    /// three knows, also if they are misspelt. `serve`: none is.
    pub fn of(text: &str, known: [&[&str]; 3]) -> ConfigReader {
        let table = text.parse::<toml::Table>().unwrap_or_default();
        let all = || known.iter().flat_map(|keys| keys.iter().copied());
        let meant: Vec<_> = table.keys().filter_map(|key| nearest(key, all())).collect();
        let [serve, mount, run] = known.map(|keys| meant.iter().filter(|key| keys.contains(key)).count());
        if mount > serve.max(run) {
            ConfigReader::Mount
        } else if run > serve {
            ConfigReader::Run
        } else {
            ConfigReader::Serve
        }
    }
}

/// What is in a configuration. As JSON it has the keys `file`, `of`, `volumes`, `listeners` and
/// `mounts`; as text it has a line for each of these.
#[derive(Debug, Serialize)]
pub struct CheckedConfig {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    of: ConfigReader,
    volumes: Vec<CheckedVolume>,
    /// Where a server listens, for clients of every kind.
    listeners: Vec<String>,
    mounts: Vec<MountPlaces>,
}

#[derive(Debug, Serialize)]
struct CheckedVolume {
    name: String,
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    disk: Option<PathBuf>,
}

impl CheckedConfig {
    /// What the plan of a server in `file` says.
    pub fn of_server(file: &Path, plan: Plan) -> CheckedConfig {
        let Plan { volumes, listen, metrics, control, .. } = plan;
        let monitors = volumes.iter().filter_map(|volume| volume.vhost_user.as_ref());
        let place = |place: &ListenAddress| match place.clone().into_path() {
            Some(socket) => format!("unix:{}", socket.display()),
            None => format!("tcp:{place}"),
        };
        let mut listeners: Vec<_> = listen.iter().map(place).collect();
        listeners.extend(monitors.map(|socket| format!("unix:{} for virtual machines", socket.display())));
        listeners.extend(control.map(|socket| format!("unix:{} for commands", socket.display())));
        listeners.extend(metrics.map(|address| format!("tcp:{address} for metrics")));
        let checked = |VolumePlan { name, pmem: file, disk, .. }| CheckedVolume { name, file, disk: disk.path };
        let volumes = volumes.into_iter().map(checked).collect();
        CheckedConfig { file: file.to_owned(), of: ConfigReader::Serve, volumes, listeners, mounts: Vec::new() }
    }

    /// What a file of `mount` or `run` says.
    pub fn of_mounts(file: &Path, of: ConfigReader, mounts: Vec<MountPlaces>) -> CheckedConfig {
        CheckedConfig { file: file.to_owned(), of, volumes: Vec::new(), listeners: Vec::new(), mounts }
    }
}

impl fmt::Display for CheckedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.of {
            ConfigReader::Serve => "serve",
            ConfigReader::Mount => "mount",
            ConfigReader::Run => "run",
        };
        write!(f, "{:<10} {}, a configuration of {of}", "ok", self.file.display())?;
        for CheckedVolume { name, file, disk } in &self.volumes {
            write!(f, "\n{:<10} {name} in {}", "volume", file.display())?;
            disk.as_ref().map_or(Ok(()), |disk| write!(f, ", in front of {}", disk.display()))?;
        }
        self.listeners.iter().try_for_each(|at| write!(f, "\n{:<10} {at}", "listener"))?;
        for MountPlaces { name, source, mountpoint, pool } in &self.mounts {
            write!(f, "\n{:<10} {name} shows {} at {}", "mount", source.display(), mountpoint.display())?;
            let of = |pool: &PathBuf| pool.display().to_string();
            write!(f, ", the pool is {}", pool.as_ref().map_or("the default one".to_owned(), of))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::Access;

    #[test]
    fn a_file_is_read_by_the_command_that_its_keys_are_meant_for() {
        let known: [&[&str]; 3] = [&["listen", "volume"], &["mount"], &["pool", "root"]];
        for (text, of) in [
            ("[[volume]]\npmem = \"/a\"\n", ConfigReader::Serve),
            ("[[mount]]\nsource = \"/a\"\n", ConfigReader::Mount),
            ("root = \"/a\"\npool = \"p\"\n", ConfigReader::Run),
            ("[[mounts]]\nsource = \"/a\"\n", ConfigReader::Mount),
            ("[[volum]]\npmem = \"/a\"\n", ConfigReader::Serve),
            ("", ConfigReader::Serve),
            ("no toml", ConfigReader::Serve),
        ] {
            assert_eq!(ConfigReader::of(text, known), of, "{text}");
        }
    }

    #[test]
    fn a_summary_names_volumes_listeners_and_mounts() {
        let mut plan = Plan { volumes: vec![VolumePlan::of("/v".into(), Access::ReadWrite)], ..Plan::default() };
        plan.listen = vec![ListenAddress::Unix("/s".into())];
        plan.volumes[0].disk.path = Some("/disk".into());
        plan.control = Some("/c".into());
        let server = CheckedConfig::of_server(Path::new("/f"), plan);
        let lines = "ok         /f, a configuration of serve\nvolume     v in /v, in front of /disk\nlistener   unix:/s\nlistener   unix:/c for commands";
        assert_eq!(server.to_string(), lines);
        let place = MountPlaces { name: "a".to_owned(), source: "/s".into(), mountpoint: "/m".into(), pool: None };
        let mounts = CheckedConfig::of_mounts(Path::new("/f"), ConfigReader::Mount, vec![place]);
        let json = serde_json::to_value(&mounts).expect("JSON");
        let mount = serde_json::json!({"name": "a", "source": "/s", "mountpoint": "/m", "pool": null});
        assert_eq!((&json["of"], &json["mounts"][0]), (&"mount".into(), &mount));
    }
}
