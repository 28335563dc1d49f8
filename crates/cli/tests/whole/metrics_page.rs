//! The page of metrics, made of the answer of a server that has a volume of every kind.

use crate::program::{Folder, Server, run};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

const PAGE: &str = "../../docs/reference/metrics.md";

#[test]
fn the_page_of_metrics() {
    let folder = Folder::new();
    let volume = folder.volume("plain");
    let (region, disk) = (folder.text("cached"), folder.text("disk"));
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    let made = run(&["create", "--pmem", &region, "--disk", &disk, "--size", "8M", "--accept-volatile"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let config = folder.text("c.toml");
    let (socket, of_cache) = (folder.text("s"), "accept_volatile = true");
    let text = format!(
        "listen = \"unix:{socket}\"\nmetrics = \"tcp:127.0.0.1:0\"\n[[volume]]\npmem = \"{volume}\"\nwrite_cache = \"1M\"\nwear_leveling = 100\n[[volume]]\npmem = \"{region}\"\ndisk = \"{disk}\"\n{of_cache}\n"
    );
    fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", &config]);
    let line = server.said.lines().find(|line| line.starts_with("metrics")).unwrap();
    let port = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let page = page(answer.split_once("\r\n\r\n").unwrap().1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/metrics.md differs from the code: run `cargo xtask bless`, and read what changed"
    );
}

/// A table of what the server answered: a row for each metric, in the order of the answer.
fn page(answer: &str) -> String {
    let (mut order, mut kinds, mut labels) = (Vec::new(), BTreeMap::new(), BTreeMap::<&str, Vec<&str>>::new());
    for line in answer.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            order.push((name, help.trim_end_matches('.')));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name, kind);
        } else if let Some((_, of)) = line.split_once('{') {
            let of = of.rsplit_once('}').unwrap().0;
            let family = labels.entry(order.last().unwrap().0).or_default();
            for (label, _) in of.split("\",").filter_map(|label| label.split_once('=')) {
                if !family.contains(&label) {
                    family.push(label);
                }
            }
        }
    }
    let mut page = "# Metrics\n\nThis page is made from the answer of a server: `cargo xtask bless` writes it. `serve --metrics`\nanswers Prometheus at `/metrics`. `tidegate stat --json` has the numbers of the layers by the same\nnames, without `tidegate_` and `_total`. [Monitoring](../guide/monitoring.md) says which to watch.\n\n| metric | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (name, help) in order {
        let unit =
            ["bytes", "seconds", "blocks", "lines"].into_iter().find(|unit| name.split('_').any(|word| word == *unit));
        let labels =
            labels.get(name).map(|of| of.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", "));
        let (kind, unit, labels) = (kinds[name], unit.unwrap_or("count"), labels.unwrap_or_default());
        writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {help} |").unwrap();
    }
    page
}
