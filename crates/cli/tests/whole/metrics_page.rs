//! The page of metrics and the dashboard for Grafana, made of the answer of a server that has a
//! volume of every kind, and of what a mount says.

use crate::dashboard::{self, Family};
use crate::program::{Folder, Server, run};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use tidegate_file_service::MountStatus;
use tidegate_top::{AskedMount, mount_metrics};

const PAGE: &str = "../../docs/reference/metrics.md";
const DASHBOARD: &str = "systemd/grafana-dashboard.json";

#[test]
fn the_page_of_metrics() {
    let folder = Folder::new();
    let volume = folder.volume("plain");
    let [region, disk, side, other] = ["cached", "disk", "side", "other"].map(|name| folder.text(name));
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    let made = run(&["create", "--pmem", &region, "--disk", &disk, "--size", "8M", "--accept-volatile"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let made = run(&["create", "--pmem", &side, "--mirror", &other, "--size", "24M"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let config = folder.text("c.toml");
    let (socket, of_cache) = (folder.text("s"), "accept_volatile = true");
    let text = format!(
        "listen = \"unix:{socket}\"\nmetrics = \"tcp:127.0.0.1:0\"\n[[volume]]\npmem = \"{volume}\"\nwrite_cache = \"1M\"\nwear_leveling = 100\n[[volume]]\npmem = \"{region}\"\ndisk = \"{disk}\"\n{of_cache}\n[[volume]]\npmem = \"{side}\"\nmirror = \"{other}\"\n"
    );
    fs::write(&config, text).unwrap();
    let server = Server::start_of_uris(3, &["--config", &config]);
    let line = server.said.lines().find(|line| line.starts_with("metrics")).unwrap();
    let port = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let of_servers = families(answer.split_once("\r\n\r\n").unwrap().1);
    let of_mounts = mount_metrics(&[mount()]);
    let of_mounts = families(&of_mounts);
    is_written(PAGE, &page(&of_servers, &of_mounts));
    let all: Vec<_> = of_servers.into_iter().chain(of_mounts).collect();
    dashboard::check(&is_written(DASHBOARD, &dashboard::file(&all)), &all);
}

/// A mount that answered.
pub(crate) fn mount() -> AskedMount {
    let status = Some(MountStatus::default());
    AskedMount { pool: "p".into(), mountpoint: None, uid: 0, status }
}

/// Compares the file with what it ought to be, or writes it for `bless`.
fn is_written(file: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{file} differs from the code: run `cargo xtask bless`, and read what changed");
    written
}

/// Each metric that a server answered, in the order of the answer.
fn families(answer: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in answer.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(Family { name, kind: "", help: help.trim_end_matches('.'), labels: Vec::new() });
            continue;
        }
        let last = families.last_mut().unwrap();
        if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            last.kind = kind;
        } else if let Some((_, of)) = line.split_once('{') {
            let of = of.rsplit_once('}').unwrap().0;
            for (label, _) in of.split("\",").filter_map(|label| label.split_once('=')) {
                if !last.labels.contains(&label) {
                    last.labels.push(label);
                }
            }
        }
    }
    families
}

const OF_SERVERS: &str = "# Metrics

This page is made from the metrics themselves: `cargo xtask bless` writes it.
[Monitoring](../guide/monitoring.md) says which to watch.

## Servers of volumes

`serve --metrics` answers Prometheus at `/metrics`. `tidegate stat --json` has the numbers of the
layers by the same names, without `tidegate_` and `_total`.

";

const OF_MOUNTS: &str = "
## Mounts

`top --metrics` answers Prometheus at `/metrics`, with the numbers of `tidegate status --json`.
`mount` is the mountpoint. A mount that does not answer has `tidegate_mount_up` alone.

";

/// A table of the metrics of servers and one of mounts: a row for each metric.
fn page(of_servers: &[Family<'_>], of_mounts: &[Family<'_>]) -> String {
    let mut page = String::new();
    for (words, families) in [(OF_SERVERS, of_servers), (OF_MOUNTS, of_mounts)] {
        page += words;
        page += "| metric | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n";
        families.iter().for_each(|family| page += &row(family));
    }
    page
}

fn row(Family { name, kind, help, labels }: &Family<'_>) -> String {
    let unit =
        ["bytes", "seconds", "blocks", "lines"].into_iter().find(|unit| name.split('_').any(|word| word == *unit));
    let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    format!("| `{name}` | {kind} | {} | {labels} | {help} |\n", unit.unwrap_or("count"))
}
