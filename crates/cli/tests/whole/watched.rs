//! What a running server says about its work: every counter predicted exactly.

use crate::program::{Folder, NOBODY, Server, json, need_root, run, tidegate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};
use tidegate_media::Durability;
use tidegate_nbd_client::client::Client;

const BLOCK: usize = 4096;

/// A served volume of 32 MiB.
struct Watched {
    server: Server,
    folder: Folder,
}

impl Watched {
    fn start(more: &[&str]) -> Watched {
        let folder = Folder::new();
        let volume = folder.volume("v");
        let listen = format!("unix:{}", folder.text("s"));
        let cache: &[&str] = if more.contains(&"--write-cache") { &[] } else { &["--write-cache", "off"] };
        let server = Server::start(&[&["--pmem", &volume, "--listen", &listen], cache, more].concat());
        Watched { server, folder }
    }

    fn client(&self) -> Client<UnixStream> {
        Server::client(&self.folder.path("s"))
    }

    fn metrics_port(&self) -> String {
        let line = self.server.said.lines().find(|line| line.starts_with("metrics")).unwrap();
        line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap().to_owned()
    }

    fn stat(&self) -> Value {
        json(&["stat", "--pmem", &self.folder.text("v")])
    }

    /// Clients that were admitted by now. While it starts, a server has no control socket yet, and
    /// `list` and `doctor` of other tests may ask on the socket of its clients: those still wait in
    /// front of a client that comes now.
    fn admitted_before(&self) -> u64 {
        drop(self.client());
        self.stat_with_open(0)["connections"]["admitted"].as_u64().unwrap()
    }

    /// Waits until `connections` are open: a server sees the end of one a little later than its
    /// client.
    fn stat_with_open(&self, connections: u64) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let stat = self.stat();
            if stat["connections"]["open"] == connections {
                return stat;
            }
            assert!(Instant::now() < deadline, "{stat}");
            thread::yield_now();
        }
    }
}

fn counters(stat: &Value) -> BTreeMap<String, f64> {
    serde_json::from_value(stat["volumes"][0]["counters"].clone()).unwrap()
}

#[test]
fn requests_errors_and_bytes_are_counted_by_kind() {
    let watched = Watched::start(&[]);
    let mut client = watched.client();
    let bytes = u32::try_from(BLOCK).unwrap();
    for block in 0..7 {
        client.write(block * BLOCK as u64, &[1; BLOCK], Durability::Volatile).unwrap();
    }
    client.write(0, &[2; 4 * BLOCK], Durability::Fua).unwrap();
    for _ in 0..5 {
        client.read(0, &mut [0; 2 * BLOCK]).unwrap();
    }
    client.trim(0, 3 * bytes).unwrap();
    client.write_zeroes(0, 2 * bytes, Durability::Volatile).unwrap();
    client.write_zeroes(0, bytes, Durability::Volatile).unwrap();
    let stat = watched.stat();
    fs::File::options().write(true).open(watched.folder.path("v")).unwrap().set_len(4096).unwrap();
    assert!(client.read(24 << 20, &mut [0; BLOCK]).is_err() && client.flush().is_ok());
    client.status(0, 4 * BLOCK as u64).unwrap_err();
    let after = watched.stat();
    for (stat, kind, requests, errors, blocks) in [
        (&stat, "read", 5, 0, 10),
        (&stat, "write", 8, 0, 11),
        (&stat, "flush", 0, 0, 0),
        (&stat, "trim", 1, 0, 3),
        (&stat, "write_zeroes", 2, 0, 3),
        (&stat, "block_status", 0, 0, 0),
        (&stat, "cache", 0, 0, 0),
        (&stat, "unknown", 0, 0, 0),
        (&after, "block_status", 1, 1, 0),
        (&after, "read", 6, 1, 10),
        (&after, "flush", 1, 0, 0),
    ] {
        let found = &stat["volumes"][0]["requests"][kind];
        let expected = (requests.into(), errors.into(), (blocks * BLOCK).into());
        assert_eq!(
            (&found["requests"], &found["errors"], &found["bytes"]),
            (&expected.0, &expected.1, &expected.2),
            "{kind}"
        );
        assert_eq!(found["latency_us"].is_null(), requests == 0, "{kind}: {found}");
    }
    let times = &stat["volumes"][0]["requests"]["write"]["latency_us"];
    let of = |name: &str| times[name].as_f64().unwrap();
    assert!(0.0 < of("p50") && of("p50") <= of("p99") && of("p99") <= of("p99_99"), "{times}");
}

#[test]
fn stores_lines_and_fences_of_a_block_write_are_counted() {
    const WRITES: u64 = 100;
    let watched = Watched::start(&[]);
    let mut client = watched.client();
    let mut write = |count: u64| {
        for turn in 0..count {
            client.write(turn % 8 * BLOCK as u64, &[3; BLOCK], Durability::Volatile).unwrap();
        }
    };
    // The first writes flush what the recovery left to flush.
    write(8);
    let before = counters(&watched.stat());
    write(WRITES);
    let after = counters(&watched.stat());
    // 64 lines of data, the flog's line for each of its two words, and the map line of the write
    // before; one word of the map.
    for (name, each) in [
        ("region_stored_bytes", 4096 + 2 * 8 + 8),
        ("region_flushed_lines", 64 + 2 + 1),
        ("region_touched_256_byte_lines", 16 + 2 + 1),
        ("region_fences", 2),
    ] {
        assert_eq!(after[name] - before[name], (WRITES * each) as f64, "{name}");
    }
    assert_eq!(after.len(), 4, "{after:?}");
}

#[test]
fn blocks_that_move_to_level_wear_are_counted() {
    let watched = Watched::start(&["--wear-leveling", "1"]);
    let mut client = watched.client();
    let at = |lba: u8| u64::from(lba) * BLOCK as u64;
    (0..20).for_each(|lba| client.write(at(lba), &[lba; BLOCK], Durability::Volatile).unwrap());
    assert_eq!(counters(&watched.stat())["table_moved_blocks"], 20.0);
    let mut block = [0; BLOCK];
    for lba in 0..20 {
        client.read(at(lba), &mut block).unwrap();
        assert_eq!(block, [lba; BLOCK]);
    }
}

#[test]
fn blocks_that_pass_through_the_cache_are_counted() {
    let watched = Watched::start(&["--write-cache", "1M"]);
    let mut client = watched.client();
    for lba in 0..5 {
        client.write(lba * BLOCK as u64, &[3; BLOCK], Durability::Volatile).unwrap();
    }
    client.write(9 * BLOCK as u64, &[3; 2 * BLOCK], Durability::Fua).unwrap();
    client.flush().unwrap();
    client.read(0, &mut [0; BLOCK]).unwrap();
    let counts = counters(&watched.stat());
    for (name, value) in [
        ("cache_written_blocks", 5),
        ("cache_replaced_blocks", 0),
        ("cache_bypassed_blocks", 0),
        ("cache_forced_blocks", 2),
        ("cache_evicted_blocks", 5),
        ("cache_read_blocks", 0),
        ("cache_flushes", 1),
        ("cache_dirty_slots", 0),
    ] {
        assert_eq!(counts[name], f64::from(value), "{name}: {counts:?}");
    }
    assert!(counts["cache_wake_ups"] <= 5.0 && counts["cache_slots_limit"] <= 256.0, "{counts:?}");
    assert_eq!(counts["cache_stalls"] > 0.0, counts["cache_stall_seconds"] > 0.0, "{counts:?}");
    assert_eq!(counts.len(), 4 + 13, "{counts:?}");
}

#[test]
fn clients_are_counted_by_what_became_of_them() {
    let watched = Watched::start(&["--connections-max", "3"]);
    let before = watched.admitted_before();
    let counts = |open, admitted, over| serde_json::json!({"open": open, "admitted": before + admitted, "over_limit": over, "strangers": 0});
    assert_eq!(watched.stat()["connections"], counts(0, 0, 0));
    let clients: Vec<_> = (0..3).map(|_| watched.client()).collect();
    for _ in 0..2 {
        let mut beyond = UnixStream::connect(watched.folder.path("s")).unwrap();
        assert_eq!(beyond.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(watched.stat()["connections"], counts(3, 3, 2));
    drop(clients);
    watched.stat_with_open(0);
    let one = watched.client();
    assert_eq!(watched.stat()["connections"], counts(1, 4, 2));
    drop(one);
}

#[test]
fn strangers_are_counted() {
    need_root("be another user");
    let watched = Watched::start(&["--socket-mode", "0666"]);
    fs::set_permissions(watched.folder.0.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let before = watched.admitted_before();
    let uri = &watched.server.uris[0];
    for _ in 0..2 {
        let mut stranger = Command::new("nbdinfo");
        stranger.args(["--size", uri]).uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!stranger.status().unwrap().success());
    }
    let connections = &watched.stat()["connections"];
    assert_eq!((&connections["strangers"], &connections["admitted"]), (&2.into(), &before.into()));
}

#[test]
fn the_control_socket_is_the_owners_and_goes_with_the_server() {
    let mut watched = Watched::start(&[]);
    let control = watched.folder.path("v.control");
    assert!(watched.server.said.contains(&format!("control    {}", control.display())), "{}", watched.server.said);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&control).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let people = run(&["stat", "--control", control.to_str().unwrap()]).stdout;
    // Others may ask on the socket of its clients: see `admitted_before`.
    assert!(people.contains(" open, ") && people.contains(" admitted") && people.contains("write_zeroes"), "{people}");
    assert!(people.contains("p99.99 µs") && people.contains("region_fences"), "{people}");
    // Somebody who connects and does not read holds nobody up.
    let _deaf: Vec<_> = (0..4).map(|_| UnixStream::connect(&control).unwrap()).collect();
    watched.stat();
    assert!(watched.server.stop().success());
    assert!(!control.exists());
    let gone = run(&["stat", "--pmem", &watched.folder.text("v")]);
    assert!(gone.code == 5 && gone.stderr.contains("no server answers on"), "{}", gone.stderr);
    let elsewhere = watched.folder.text("c");
    let listen = format!("unix:{}", watched.folder.text("s"));
    let arguments = ["--pmem", &watched.folder.text("v"), "--listen", &listen, "--control", &elsewhere];
    let mut server = Server::start(&arguments);
    assert!(!control.exists());
    assert_eq!(json(&["stat", "--control", &elsewhere])["pid"], server.pid());
    assert!(server.stop().success());
}

#[test]
fn a_server_without_a_place_for_its_control_socket_serves_all_the_same() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    fs::write(folder.path("v.control"), "in the way").unwrap();
    let mut server = Server::start(&["--pmem", &volume, "--listen", &format!("unix:{}", folder.text("s"))]);
    Server::client(&folder.path("s"));
    assert!(server.stop().success());
    assert!(server.said.contains("no control socket"), "{}", server.said);
    assert_eq!(fs::read_to_string(folder.path("v.control")).unwrap(), "in the way");
    let refused = run(&["serve", "--pmem", &volume, "--control", &folder.text("v.control")]);
    assert!(refused.code == 5 && refused.stderr.contains("no socket has this name"), "{}", refused.stderr);
}

#[test]
fn watching_shows_what_came_in_between() {
    let watched = Watched::start(&["--write-cache", "1M"]);
    let mut client = watched.client();
    let write = |client: &mut Client<UnixStream>, count: u64| {
        (0..count).for_each(|lba| client.write(lba * BLOCK as u64, &[1; BLOCK], Durability::Volatile).unwrap());
        client.flush().unwrap();
    };
    write(&mut client, 8);
    let mut stat = tidegate();
    stat.args(["stat", "--json", "--watch", "--pmem", &watched.folder.text("v")]);
    let mut child = stat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let writes = |stat: &Value| stat["volumes"][0]["requests"]["write"]["requests"].as_u64().unwrap();
    let counter = |stat: &Value, name: &str| counters(stat)[name];
    let first = next();
    assert_eq!((writes(&first), counter(&first, "cache_written_blocks"), &first["since"]), (8, 8.0, &"start".into()));
    let limit = counter(&first, "cache_slots_limit");
    write(&mut client, 5);
    let second_client = watched.client();
    let interval = next();
    assert_eq!((writes(&interval), &interval["since"]), (5, &"last".into()));
    assert_eq!((counter(&interval, "cache_written_blocks"), counter(&interval, "cache_flushes")), (5.0, 1.0));
    let seconds = interval["seconds"].as_f64().unwrap();
    assert!((0.5..30.0).contains(&seconds), "{interval}");
    let rates = &interval["volumes"][0]["per_second"];
    assert_eq!(rates["cache_written_blocks"].as_f64().unwrap(), 5.0 / seconds);
    let connections = serde_json::json!({"open": 2, "admitted": 1, "over_limit": 0, "strangers": 0});
    assert_eq!(interval["connections"], connections);
    // What goes up and down is as it is, and has no rate.
    assert!(counter(&interval, "cache_slots_limit") > 0.0 && limit > 0.0 && rates["cache_slots_limit"].is_null());
    let last = next();
    assert_eq!((writes(&last), counter(&last, "cache_written_blocks"), counter(&last, "region_fences")), (0, 0.0, 0.0));
    drop((watched, second_client));
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

/// Asks `path` of the server at `port`.
fn scrape(port: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Reads the text format as strictly as it is written down, and returns every sample.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut helped, mut kinds) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(!words.is_empty() && !helped.contains(&name), "{line}");
            helped.push(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none() && helped.last() == Some(&name), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let of_histogram = || name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
            let family = if kinds.contains_key(name) { name } else { of_histogram() };
            assert_eq!(helped.last(), Some(&family), "{line} is not behind its family's head");
            assert!(
                name.starts_with("tidegate_")
                    && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            );
            assert_eq!(kinds[family] == "counter", name.ends_with("_total"), "{line}");
            assert!(kinds[family] != "histogram" || family.ends_with("_seconds"), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line} twice");
        }
    }
    assert_eq!(helped.len(), kinds.len());
    samples
}

#[test]
fn prometheus_reads_the_same_numbers() {
    let watched = Watched::start(&["--metrics", "tcp:127.0.0.1:0"]);
    let port = &watched.metrics_port();
    let before = watched.admitted_before();
    let mut client = watched.client();
    for turn in 0..40 {
        client.write(turn % 7 * BLOCK as u64, &[1; BLOCK], Durability::Volatile).unwrap();
    }
    // A scraper that says nothing keeps nobody waiting for long.
    let silent = TcpStream::connect(port).unwrap();
    silent.shutdown(Shutdown::Write).unwrap();
    let (head, body) = scrape(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let samples = parsed(&body);
    let of = |series: &str| samples[series];
    let write = "volume=\"v\",kind=\"write\"";
    assert_eq!(of(&format!("tidegate_request_bytes_total{{{write}}}")), (40 * BLOCK) as f64);
    assert_eq!(of(&format!("tidegate_request_errors_total{{{write}}}")), 0.0);
    assert_eq!(of("tidegate_connections_open"), 1.0);
    assert_eq!(of("tidegate_connections_admitted_total"), (before + 1) as f64);
    assert_eq!(of("tidegate_connections_turned_away_total{reason=\"limit\"}"), 0.0);
    let buckets: Vec<f64> = body
        .lines()
        .filter(|line| line.starts_with(&format!("tidegate_request_duration_seconds_bucket{{{write},le=")))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(buckets.len() == 26 && buckets.is_sorted(), "{buckets:?}");
    assert_eq!(buckets[25], 40.0);
    assert_eq!(of(&format!("tidegate_request_duration_seconds_count{{{write}}}")), 40.0);
    let stat = watched.stat();
    let mean = stat["volumes"][0]["requests"]["write"]["latency_us"]["mean"].as_f64().unwrap();
    let sum = of(&format!("tidegate_request_duration_seconds_sum{{{write}}}"));
    assert!((sum - mean * 40.0 / 1e6).abs() < 1e-9, "{sum} {mean}");
    for (name, value) in counters(&stat) {
        assert_eq!(of(&format!("tidegate_{name}_total{{volume=\"v\"}}")), value, "{name}");
    }
    assert!(scrape(port, "GET /other HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(scrape(port, "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
}

#[test]
fn browsers_get_a_page_that_asks_for_the_metrics() {
    let watched = Watched::start(&["--metrics", "tcp:127.0.0.1:0"]);
    let port = &watched.metrics_port();
    let (head, body) = scrape(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("\r\nCache-Control: no-store\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
    assert!(body.starts_with("<!DOCTYPE html>") && body.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(body.contains("ask('/metrics')") && body.len() <= 100_000);
    for (request, status) in [("GET /page HTTP/1.1", "404"), ("POST / HTTP/1.1", "405"), ("\u{1}/ /", "405")] {
        let (head, body) = scrape(port, &format!("{request}\r\n\r\n"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && !body.contains("<html"), "{head}");
    }
}

#[test]
fn the_last_hour_is_told_to_a_browser_that_was_not_there() {
    let watched = Watched::start(&["--metrics", "tcp:127.0.0.1:0"]);
    let port = &watched.metrics_port();
    let history = |query: &str| -> Value {
        let (head, body) = scrape(port, &format!("GET /history{query} HTTP/1.1\r\n\r\n"));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    let first = history("");
    assert_eq!((&first["period_seconds"], &first["volumes"][0]["name"]), (&5.into(), &"v".into()));
    let mut client = watched.client();
    (0..64).for_each(|block| client.write(block * 4096, &[1; 4096], Durability::Volatile).unwrap());
    let column = |of: &Value| -> Vec<f64> {
        of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap_or_default()).collect()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let told = loop {
        let told = history("");
        let ends = column(&told["seconds"]);
        let begins = [0.0].into_iter().chain(ends.iter().copied());
        let rates = column(&told["volumes"][0]["written_bytes_per_second"]);
        let bytes: f64 = ends.iter().zip(begins).zip(rates).map(|((end, begin), rate)| (end - begin) * rate).sum();
        assert!(bytes <= 64.0 * 4096.0 * 1.02, "{told}");
        if bytes >= 64.0 * 4096.0 * 0.98 {
            break told;
        }
        assert!(Instant::now() < deadline, "{told}");
        // Nothing tells of a sample.
        thread::park_timeout(Duration::from_millis(100));
    };
    assert_eq!(told["run"], first["run"]);
    assert!(column(&told["volumes"][0]["write_p99_seconds"]).iter().any(|time| *time > 0.0), "{told}");
    let last = column(&told["seconds"]).pop().unwrap();
    assert!(last >= 5.0, "{told}");
    assert!(!column(&history(&format!("?after={last}"))["seconds"]).contains(&last));
    assert!(scrape(port, "GET /history?until=1 HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 400"));
}

/// Clients that keep a server waiting in every way there is, `count` of each: some say nothing,
/// some say a little, some send a byte whenever the last one may have arrived, and some ask and
/// take no answer. They go on until what is returned is dropped.
fn trying<S: Read + Write + Send + 'static>(
    count: usize,
    connect: impl Fn() -> S,
    trickle: &'static [u8],
    asked: &[u8],
) -> (Vec<S>, std::sync::mpsc::Sender<()>) {
    let mut held: Vec<S> = (0..count).map(|_| connect()).collect();
    for begun in [&trickle[..1], asked] {
        held.extend((0..count).map(|_| {
            let mut client = connect();
            client.write_all(begun).unwrap();
            client
        }));
    }
    let mut dripping: Vec<S> = (0..count).map(|_| connect()).collect();
    let (goes_on, end) = std::sync::mpsc::channel::<()>();
    thread::spawn(move || {
        for byte in trickle.iter().cycle() {
            // Those that the server sends away come no more.
            dripping.retain_mut(|client| client.write_all(&[*byte]).is_ok());
            if end.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    });
    (held, goes_on)
}

#[test]
fn clients_that_say_nothing_or_take_no_answer_keep_nobody_waiting() {
    let watched = Watched::start(&["--metrics", "tcp:127.0.0.1:0"]);
    let (port, control) = (watched.metrics_port(), watched.folder.path("v.control"));
    let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let begin = Instant::now();
    let scrapers = trying(50, || TcpStream::connect(&port).unwrap(), get, get);
    let watchers = trying(50, || UnixStream::connect(&control).unwrap(), b"{\"snapshot\"", b"\"snapshot\"\n");
    for _ in 0..3 {
        assert_eq!(watched.stat()["connections"]["open"], 0);
        for path in ["/metrics", "/"] {
            assert!(scrape(&port, &format!("GET {path} HTTP/1.1\r\n\r\n")).0.starts_with("HTTP/1.1 200"));
        }
    }
    // One after the other, those who scrape would take 300 s, and `stat` would have given up.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    drop((scrapers, watchers));
}

#[test]
fn silent_scrapers_and_watchers_do_not_keep_a_server_from_ending() {
    let mut watched = Watched::start(&["--metrics", "tcp:127.0.0.1:0"]);
    let (port, control) = (watched.metrics_port(), watched.folder.path("v.control"));
    let scrapers: Vec<_> = (0..40).map(|_| TcpStream::connect(&port).unwrap()).collect();
    let watchers: Vec<_> = (0..40).map(|_| UnixStream::connect(&control).unwrap()).collect();
    let begin = Instant::now();
    assert_eq!(watched.server.stop().code(), Some(0));
    // One after the other, the scrapers alone would take 80 s.
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    drop((scrapers, watchers));
}
