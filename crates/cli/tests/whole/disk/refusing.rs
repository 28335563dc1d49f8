//! A disk that refuses blocks is told to everybody who listens: once in the log, and in numbers as
//! long as it lasts.

use super::*;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

const MONITORING: &str = include_str!("../../../../../docs/guide/monitoring.md");

/// A disk in a file of a file system of 1 MiB.
pub(super) struct Full {
    pub(super) pair: Pair,
    mount: String,
    _undo: Undo,
}

impl Full {
    pub(super) fn new() -> Full {
        let folder = Folder::new();
        let mount = folder.text("full");
        fs::create_dir(&mount).unwrap();
        peer("mount", &["-t", "tmpfs", "-o", "size=1M", "none", &mount]);
        let undo = Undo("umount", ["--lazy".to_owned(), mount.clone()]);
        Full { pair: Pair::over(folder, format!("{mount}/disk")), mount, _undo: undo }
    }

    pub(super) fn give_room(&self) {
        peer("mount", &["-o", "remount,size=64M", &self.mount]);
    }
}

/// What Prometheus gets of a server that said where it answers.
fn scraped(server: &Server) -> String {
    let line = server.said.lines().find(|line| line.contains("/metrics")).unwrap();
    let mut stream = TcpStream::connect(line.split("http://").nth(1).unwrap().trim_end_matches("/metrics")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The number of the one series that begins so.
#[track_caller]
fn number(scraped: &str, series: &str) -> f64 {
    let line = scraped.lines().find(|line| line.starts_with(series));
    line.unwrap_or_else(|| panic!("no {series} in {scraped}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_disk_that_refuses_blocks_is_told_once_and_counted_until_it_takes_them() {
    need_root("mount a file system without room");
    let full = Full::new();
    let pair = &full.pair;
    let mut server = pair.serve(&["--metrics", "tcp:127.0.0.1:0"]);
    let healthy = scraped(&server);
    for series in ["tidegate_disk_cache_refused_blocks", "tidegate_disk_errors_total{volume=\"v\",kind=\"write\"}"] {
        assert!(number(&healthy, series) < 0.5, "{healthy}");
    }
    let mut client = pair.client();
    (0..1000).for_each(|block| write(&mut client, block, 4));
    // Nobody asks for a flush: the server says so by itself.
    let told = server.hear("refuses block");
    assert!(told.contains("WARN") && told.contains("No space left") && told.contains("tidegate salvage"), "{told}");
    // Two sweeps more, each of which meets the same again.
    for _ in 0..2 {
        assert_eq!(run(&["flush", "--pmem", &pair.pmem, "--wait"]).code, ENVIRONMENT);
    }
    let refusing = scraped(&server);
    assert!(number(&refusing, "tidegate_disk_cache_refused_blocks") >= 700.0, "{refusing}");
    assert!(number(&refusing, "tidegate_disk_errors_total{volume=\"v\",kind=\"write\"}") >= 1.0, "{refusing}");
    assert!(number(&refusing, "tidegate_disk_cache_dirty_age_seconds") > 0.0, "{refusing}");
    assert!(number(&refusing, "tidegate_disk_cache_dirty_bytes") >= 700.0 * 4096.0, "{refusing}");
    let stat = json(&["stat", "--pmem", &pair.pmem]);
    let volume = &stat["volumes"][0];
    assert!(volume["counters"]["disk_errors_write"].as_f64().unwrap() >= 1.0, "{stat}");
    assert_eq!((volume["domain"].as_str(), volume["format"].as_str()), (Some("disk-file"), Some("disk-cache")));
    full.give_room();
    server.hear("takes everything again");
    let over = scraped(&server);
    assert!(number(&over, "tidegate_disk_cache_refused_blocks") < 0.5, "{over}");
    assert_eq!(server.stop().code(), Some(0));
    let lines = |phrase: &str| server.said.lines().filter(|line| line.contains(phrase)).count();
    assert_eq!([lines("refuses block"), lines("takes everything again")], [1, 1], "{}", server.said);
}

#[test]
fn the_document_about_watching_names_only_metrics_that_there_are() {
    let pair = Pair::laid_out(&["--checksums"]);
    let mut server = pair.serve(&["--metrics", "tcp:127.0.0.1:0"]);
    let scraped = scraped(&server);
    let info = "tidegate_volume_info{volume=\"v\",format=\"disk-cache\",domain=\"disk-file\",mode=\"write-back\"} 1";
    assert!(scraped.lines().any(|line| line == info), "{scraped}");
    let words = |text: &str| -> BTreeSet<String> {
        let is_of_a_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        text.split(|character| !is_of_a_name(character))
            .filter(|word| word.starts_with("tidegate_"))
            .map(str::to_owned)
            .collect()
    };
    let of_mounts = tidegate_top::mount_metrics(&[crate::metrics_page::mount()]);
    let families: BTreeSet<String> = scraped
        .lines()
        .chain(of_mounts.lines())
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let named = words(MONITORING);
    assert!(named.len() >= 9, "{named:?}");
    assert_eq!(named.difference(&families).collect::<Vec<_>>(), [""; 0]);
    assert!(server.stop().success());
}
