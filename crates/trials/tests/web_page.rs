//! The page at the port of the metrics in a browser: its numbers are those of `stat`, a disk that
//! stalls or refuses is visible, each banner names what to do, the last hour is drawn, nothing is
//! asked of anybody but the server, and a token is asked for where the server has one.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Dialect};
use tidegate_trials::browser::Browser;
use tidegate_trials::mounted::serve_failing;
use tidegate_trials::scraped::MetricsProgram;
use tidegate_trials::served::{Volume, program, until};

const BLOCK: usize = 4096;
const MIB: usize = 1 << 20;

/// The text of every banner.
const BANNERS: &str = "document.getElementById('banners').innerText";
/// The line with the dirty bytes of the only volume.
const DIRTY: &str =
    "[...document.querySelectorAll('section p')].map((of) => of.innerText).find((of) => of.startsWith('dirty'))";
/// The table of requests: total and errors by kind.
const TABLE: &str = "Object.fromEntries([...document.querySelectorAll('section tr')].slice(1).map((row) => { const of = [...row.cells].map((cell) => cell.innerText); return [of[0], [Number(of[5]), Number(of[6])]]; }))";

/// A disk in a file of a file system that may stand still, or fail as its plan says.
struct Disk {
    folder: tempfile::TempDir,
    files: Child,
}

impl Disk {
    fn new() -> Disk {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        let files = serve_failing(&folder.path().join("files"), &folder.path().join("plan"));
        let disk = Disk { folder, files };
        File::create(disk.path()).and_then(|file| file.set_len(32 << 20)).unwrap();
        disk
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("files/disk")
    }

    fn stands(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.files), signal).unwrap();
    }

    fn fails(&self, plan: &str) {
        let fresh = self.folder.path().join("fresh");
        fs::write(&fresh, plan).and_then(|()| fs::rename(fresh, self.folder.path().join("plan"))).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.files), Signal::CONT);
        let _ = unmount(self.folder.path().join("files"), UnmountFlags::DETACH);
        let _ = self.files.kill().and_then(|()| self.files.wait());
    }
}

/// A served cache in front of a disk, and its page in a browser.
struct Shown {
    browser: Browser,
    server: MetricsProgram,
    client: Client<UnixStream>,
    pmem: PathBuf,
    disk: Disk,
    _folder: tempfile::TempDir,
}

impl Drop for Shown {
    fn drop(&mut self) {
        // A server whose disk stands still does not end.
        self.disk.stands(Signal::CONT);
    }
}

impl Shown {
    fn new() -> Shown {
        let (disk, folder) = (Disk::new(), tempfile::tempdir().unwrap());
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let below = disk.path().to_str().unwrap().to_owned();
        Volume::create_with(folder.path(), "v", "8M", &["--disk", &below, "--accept-volatile"]);
        let (pmem, socket) = (at("v"), at("s"));
        let cache = ["serve", "--pmem", &pmem, "--disk", &below, "--accept-volatile"];
        let places = ["--listen", &format!("unix:{socket}"), "--metrics", "tcp:127.0.0.1:0"];
        let server = MetricsProgram::begin(&[&cache[..], &places].concat());
        let client = Client::connect(UnixStream::connect(&socket).unwrap(), "", Dialect::Structured).unwrap();
        let mut browser = Browser::begin();
        browser.open(&server.page());
        Shown { browser, server, client, pmem: pmem.into(), disk, _folder: folder }
    }

    fn write(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            self.client.write(block * BLOCK as u64, &[7; BLOCK], Durability::Volatile).unwrap();
        }
    }

    /// Fills most of the cache, which holds 6.96 MiB.
    fn fill(&mut self) {
        let pieces = (0..6 * MIB).step_by(MIB).map(|at| (at, MIB)).chain([(6 * MIB, 800 << 10)]);
        for (at, len) in pieces {
            self.client.write(at as u64, &vec![8; len], Durability::Volatile).unwrap();
        }
    }

    fn stat(&self) -> Value {
        let mut command = Command::new(program());
        let output = command.args(["stat", "--json", "--pmem"]).arg(&self.pmem).output().unwrap();
        let stat: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        stat["volumes"][0].clone()
    }

    /// What `stat` says of each kind of request that the table has: how many, and how many failed.
    fn requests(&self) -> Value {
        let stat = self.stat();
        let kinds = ["read", "write", "flush", "trim", "write_zeroes", "cache", "block_status"];
        let of = |kind: &str| json!([stat["requests"][kind]["requests"], stat["requests"][kind]["errors"]]);
        kinds.iter().map(|kind| ((*kind).to_owned(), of(kind))).collect::<serde_json::Map<_, _>>().into()
    }

    /// Waits until the page says that so many bytes are dirty as `stat` says: the disk may get some
    /// in between.
    fn until_dirty_as_in_stat(&mut self) {
        until("the dirty bytes of stat", || {
            let dirty = self.stat()["counters"]["disk_cache_dirty_bytes"].as_f64().unwrap();
            self.browser.value_of(&format!("{DIRTY}.startsWith(`dirty: ${{short({dirty}, 'B', 1000)}} (`)")) == true
        });
    }

    fn until_banner(&mut self, parts: &[&str]) {
        let parts: Vec<_> = parts.iter().map(|part| format!("{BANNERS}.includes({})", json!(part))).collect();
        self.browser.until(&parts.join(" && "));
    }
}

#[test]
fn the_page_shows_the_numbers_of_stat_and_asks_nobody_else() {
    let mut shown = Shown::new();
    shown.write(0..10);
    shown.client.read(0, &mut [0; 2 * BLOCK]).unwrap();
    shown.client.flush().unwrap();
    // The request fails: there is nothing behind the end.
    shown.client.read(64 << 20, &mut [0; BLOCK]).unwrap_err();
    let requests = shown.requests();
    assert_eq!((&requests["write"], &requests["read"]), (&json!([10, 0]), &json!([2, 1])), "{requests}");
    let same = "Object.keys(of).every((kind) => String(table[kind]) === String(of[kind]))";
    let browser = &mut shown.browser;
    browser.until(&format!("(() => {{ const table = {TABLE}, of = {requests}; return {same}; }})()"));
    shown.until_banner(&["1 requests to v failed", "Its log tells why", "A power loss may take flushed writes of v"]);
    shown.until_dirty_as_in_stat();
    rates_are_those_of_stat(&mut shown);
    the_last_hour_is_drawn(&mut shown);
    it_fits_a_phone_and_darkens(&mut shown.browser);
    nobody_else_is_asked(&mut shown.browser, &shown.server.page());
}

/// The page makes rates of two answers of the server as `stat` would.
fn rates_are_those_of_stat(shown: &mut Shown) {
    let look = "(async () => model(parse(await (await fetch('/metrics')).text())))()";
    let before = shown.stat();
    shown.browser.value_of(&format!("{look}.then((seen) => {{ window.before = seen; return 1; }})"));
    shown.write(0..20);
    let after = shown.stat();
    let rates = "rates(window.before.volumes.get('v'), now.volumes.get('v'), 10)";
    let row = format!("{look}.then((now) => {rates}.find((row) => row.kind === 'write'))");
    let row = shown.browser.value_of(&row);
    let grown = |key: &str| {
        let of = |stat: &Value| stat["requests"]["write"][key].as_f64().unwrap();
        of(&after) - of(&before)
    };
    assert_eq!(row["requests"].as_f64().map(|rate| rate * 10.0), Some(grown("requests")), "{row}");
    assert_eq!(row["bytes"].as_f64().map(|rate| rate * 10.0), Some(grown("bytes")), "{row}");
    assert!(row["p50"].as_f64().unwrap() <= row["p99"].as_f64().unwrap(), "{row}");
}

/// Each chart has a line, and says the most that the server's samples have.
fn the_last_hour_is_drawn(shown: &mut Shown) {
    let browser = &mut shown.browser;
    browser.until("[...document.querySelectorAll('section svg')].length === 3");
    browser.until("[...document.querySelectorAll('section svg')].every((of) => of.querySelector('polyline'))");
    let title = "[...document.querySelectorAll('h3')].find((of) => of.innerText.startsWith('Bytes per second'))";
    until("the most bytes of a second that the server's samples have", || {
        let answer = shown.server.asked("/history");
        let history: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let samples = history["volumes"][0]["written_bytes_per_second"].as_array().unwrap();
        let written = samples.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        let same = format!("{title}.innerText.endsWith(`at most ${{short({written}, 'B', 1000)}}`)");
        written > 0.0 && browser.value_of(&same) == true
    });
}

/// Nothing but tables is wider than a phone, and the colours follow the reader's choice.
fn it_fits_a_phone_and_darkens(browser: &mut Browser) {
    let phone = json!({"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    assert_eq!(browser.value_of("document.documentElement.scrollWidth <= 360"), true);
    let colour = "getComputedStyle(document.body).backgroundColor";
    let [light, dark] = ["light", "dark"].map(|scheme| {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", features);
        browser.value_of(colour)
    });
    assert_ne!(light, dark);
}

/// The page asked for addresses of the server alone, and cannot ask for others.
fn nobody_else_is_asked(browser: &mut Browser, page: &str) {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = stranger.local_addr().unwrap();
    // It answers nothing, so that an attempt that reaches it ends too.
    let first = thread::spawn(move || stranger.accept().unwrap().1);
    let requested = browser.requested();
    assert!(requested.iter().any(|url| url.ends_with("/history?after=0")), "{requested:?}");
    assert!(requested.iter().all(|url| url.starts_with(page)), "{requested:?}");
    let url = format!("http://{place}/");
    let attempts = [
        format!("fetch('{url}', {{ mode: 'no-cors' }}).then(() => 'answered', () => 'refused')"),
        format!(
            "new Promise((told) => {{ const image = new Image(); image.onload = () => told('answered'); image.onerror = () => told('refused'); image.src = '{url}'; }})"
        ),
    ];
    for attempt in attempts {
        assert_eq!(browser.value_of(&attempt), "refused");
    }
    let own = TcpStream::connect(place).and_then(|own| own.local_addr());
    assert_eq!(own.ok(), first.join().ok(), "the page reached somebody else");
}

#[test]
fn a_disk_that_stalls_or_refuses_and_a_server_that_is_gone_are_told_with_what_to_do() {
    let mut shown = Shown::new();
    shown.write(0..1);
    shown.disk.stands(Signal::STOP);
    shown.fill();
    shown.until_banner(&["The cache of v is nearly all dirty, and writers wait for the disk", "tidegate resize"]);
    shown.until_dirty_as_in_stat();
    let age = format!("Number(/the oldest for (\\d+) s$/.exec({DIRTY})?.[1])");
    shown.browser.until(&format!("{age} >= 1"));
    let first = shown.browser.value_of(&age);
    shown.browser.until(&format!("{age} > {first}"));
    let told = "troubles('v', { info: {}, numbers: { disk_cache_dirty_age_seconds: age }, requests: {} }).join()";
    let told = |shown: &mut Shown, age: u32| shown.browser.value_of(&told.replace("age }", &format!("{age} }}")));
    let late = told(&mut shown, 601);
    assert!(late.as_str().unwrap().contains("lacks a block for 601 s") && late.as_str().unwrap().contains("look at"));
    assert_eq!(told(&mut shown, 600), "");
    shown.disk.fails("write 5\n");
    shown.disk.stands(Signal::CONT);
    shown.until_banner(&["The disk of v refuses", "Look at the disk and at `tidegate info`"]);
    let refused = "last.volumes.get('v').numbers.disk_cache_refused_blocks";
    shown.browser.until(&format!("{refused} > 0 && {BANNERS}.includes(`refuses ${{{refused}}} blocks`)"));
    shown.disk.fails("");
    shown.browser.until(&format!("!{BANNERS}.includes('refuses') && !{BANNERS}.includes('dirty')"));
    shown.until_dirty_as_in_stat();
    kill_process(shown.server.pid(), Signal::KILL).unwrap();
    shown.until_banner(&["The server does not answer", "The numbers below are old", "start it again"]);
    assert_eq!(shown.browser.value_of(&format!("{TABLE}.write[0] > 0")), true, "the last numbers are still there");
}

#[test]
fn numbers_are_for_those_who_have_the_token_and_a_wrong_one_is_told_with_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    Volume::create(folder.path(), "v", "24M");
    let right = "a-token-of-32-characters-in-all-";
    fs::write(at("token"), format!("{right}\n")).unwrap();
    fs::set_permissions(at("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let (pmem, place, token) = (at("v"), format!("unix:{}", at("s")), at("token"));
    let port = ["--metrics", "tcp:127.0.0.1:0", "--metrics-token", &token];
    let server = MetricsProgram::begin(&[&["serve", "--pmem", &pmem, "--listen", &place][..], &port].concat());
    let mut browser = Browser::begin();
    browser.open(&server.page());
    let form = "document.getElementById('login')";
    let give = |browser: &mut Browser, token: &str| {
        browser.until(&format!("{form}.checkVisibility()"));
        let field = format!("document.getElementById('token').value = {}", json!(token));
        browser.value_of(&format!("{field}; {form}.requestSubmit()"));
    };
    assert_eq!(browser.value_of("document.querySelector('section')"), Value::Null, "no numbers yet");
    give(&mut browser, "another-token-of-some-length");
    let told = "The server has another token. Look into the file of `--metrics-token` on its machine.";
    browser.until(&format!("{BANNERS} === {}", json!(told)));
    give(&mut browser, right);
    browser.until(&format!("document.querySelector('section h2')?.innerText === 'v' && {BANNERS} === ''"));
    assert_eq!(browser.value_of(&format!("{form}.checkVisibility()")), false);
    assert!(!browser.requested().iter().any(|url| url.contains("token")), "a token in an address is logged on its way");
    server.end();
}
