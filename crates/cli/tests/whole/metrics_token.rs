//! Metrics for those who have a token, with and without TLS, asked for by another program.

use crate::encrypted::identities::Identities;
use crate::program::{Folder, Server, ended, tidegate};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const FIRST: &str = "first-token-of-32-characters-000";
const SECOND: &str = "second-token-of-32-characters-00";

/// A folder with a token in the file `token`, and a configuration of a volume that begins with the
/// keys `head`, in which `@` is the folder.
fn configured(head: &str, identities: &Identities) -> (Folder, String) {
    let folder = Folder::new();
    folder.volume("v");
    write_token(&folder, FIRST, 0o600);
    for (name, to) in [("server-cert.pem", "cert.pem"), ("server-key.pem", "key.pem")] {
        fs::copy(identities.path(name), folder.path(to)).unwrap();
    }
    let config = folder.text("t.toml");
    write_config(&folder, head);
    (folder, config)
}

fn write_config(folder: &Folder, head: &str) {
    let text = format!("listen = \"unix:@/s\"\n{head}\n[[volume]]\npmem = \"v\"\n");
    fs::write(folder.path("t.toml"), text.replace('@', folder.0.path().to_str().unwrap())).unwrap();
}

fn write_token(folder: &Folder, token: &str, mode: u32) {
    let path = folder.path("token");
    fs::write(&path, format!("{token}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The port at which `server` said that it answers, by this scheme.
fn port_of(server: &Server, scheme: &str) -> String {
    let line = server.said.lines().find(|line| line.starts_with("metrics ")).unwrap();
    let place = line.split_once(&format!(" {scheme}://")).unwrap_or_else(|| panic!("{line}")).1;
    place.strip_suffix("/metrics").unwrap().rsplit_once(':').unwrap().1.to_owned()
}

/// What curl gets at `url`: the status, and the head with the body. No status: there was no answer.
fn curl(url: &str, authority: &Path, token: Option<&str>) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--max-time", "60", "--cacert"]).arg(authority).arg(url);
    if let Some(token) = token {
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    let answer = ended(&mut curl).stdout;
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, answer)
}

#[test]
fn other_machines_see_numbers_encrypted_and_with_the_token() {
    let identities = Identities::make();
    let head = "metrics = \"tcp:0.0.0.0:0\"\nmetrics_token = \"token\"\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\nclients = \"cert.pem\"";
    let (_folder, config) = configured(head, &identities);
    let mut server = Server::start(&["--config", &config]);
    let (port, authority) = (port_of(&server, "https"), identities.path("ca-cert.pem"));
    let get = |path: &str, token| curl(&format!("https://localhost:{port}{path}"), &authority, token);
    let (status, metrics) = get("/metrics", Some(FIRST));
    assert!(status == "200" && metrics.contains("\ntidegate_uptime_seconds "), "{metrics}");
    assert!(get("/history", Some(FIRST)).1.contains("\"period_seconds\":5"));
    for path in ["/metrics", "/history", "/other"] {
        for token in [None, Some(SECOND), Some("")] {
            let (status, answer) = get(path, token);
            assert!(status == "401" && answer.contains("WWW-Authenticate: Bearer"), "{path} {token:?}: {answer}");
            assert!(!answer.contains("tidegate_") && answer.contains("--metrics-token"), "{answer}");
        }
    }
    let (status, page) = get("/", None);
    assert!(status == "200" && page.contains("<form id=\"login\""), "{page}");
    assert_eq!(curl(&format!("http://localhost:{port}/metrics"), &authority, Some(FIRST)).0, "");
    let stranger = Identities::make();
    assert_eq!(curl(&format!("https://localhost:{port}/"), &stranger.path("ca-cert.pem"), None).0, "");
    assert!(server.stop().success());
    assert!(server.said.contains("showed a wrong token: 127.0.0.1:"), "{}", server.said);
    assert!(![FIRST, SECOND].iter().any(|token| server.said.contains(token)), "{}", server.said);
}

#[test]
fn metrics_of_mounts_leave_the_machine_on_the_same_terms() {
    let identities = Identities::make();
    let (folder, _) = configured("", &identities);
    let files = [("token", "--metrics-token"), ("cert.pem", "--tls-certificate"), ("key.pem", "--tls-key")];
    let words = files.map(|(name, option)| [option.to_owned(), folder.text(name)]);
    let top = |place: &str, options: &[[String; 2]]| {
        let mut command = tidegate();
        command.args(["top", "--metrics", place]).args(options.concat());
        command
    };
    for options in [&words[..0], &words[..1]] {
        let refused = ended(&mut top("tcp:0.0.0.0:0", options));
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("by other machines") && refused.stderr.contains("--tls-key"));
    }
    let mut server = Server::spawn_metrics(&mut top("tcp:0.0.0.0:0", &words));
    let (port, authority) = (port_of(&server, "https"), identities.path("ca-cert.pem"));
    let get = |token| curl(&format!("https://localhost:{port}/metrics"), &authority, token);
    let (status, metrics) = get(Some(FIRST));
    assert!(status == "200" && metrics.contains("\ntidegate_mounts "), "{metrics}");
    assert_eq!([get(None).0, get(Some(SECOND)).0], ["401", "401"]);
    assert!(server.stop().success());
}

#[test]
fn a_token_and_an_identity_are_exchanged_while_the_server_runs() {
    let identities = Identities::make();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plain = format!("metrics = \"tcp:{free}\"\nmetrics_token = \"token\"");
    let (folder, config) = configured(&plain, &identities);
    let mut server = Server::start(&["--config", &config]);
    let authority = identities.path("ca-cert.pem");
    let ask = |scheme: &str, token: &str| {
        curl(&format!("{scheme}://localhost:{}/metrics", free.port()), &authority, Some(token)).0
    };
    let mut reload = |last: &str| {
        let before = server.said.len();
        server.signal(Signal::HUP);
        server.hear(last);
        server.said[before..].to_owned()
    };
    assert_eq!([ask("http", FIRST), ask("http", SECOND)], ["200", "401"]);
    write_token(&folder, SECOND, 0o600);
    assert!(reload("reload: done").contains("metrics_token: the file was read again"));
    assert_eq!([ask("http", FIRST), ask("http", SECOND)], ["401", "200"]);
    write_token(&folder, FIRST, 0o640);
    let told = reload("reload: refused");
    assert!(told.contains("has the permissions 0640") && told.contains("chmod 600"), "{told}");
    assert_eq!([ask("http", FIRST), ask("http", SECOND)], ["401", "200"]);
    write_token(&folder, FIRST, 0o600);
    write_config(&folder, &format!("{plain}\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\""));
    reload("reload: done");
    assert_eq!([ask("http", FIRST), ask("https", FIRST), ask("https", SECOND)], ["", "200", "401"]);
    write_config(&folder, &format!("metrics = \"tcp:{free}\""));
    let told = reload("reload: done");
    assert!(told.contains("/token → none"), "{told}");
    assert_eq!(ask("http", "none is needed"), "200");
    assert!(server.stop().success());
}

#[test]
fn metrics_that_others_could_read_are_refused() {
    let folder = Folder::new();
    write_token(&folder, FIRST, 0o600);
    let (token, tls) = (folder.text("token"), ["--tls-certificate", "/c.pem", "--tls-key", "/k.pem"]);
    let with_token = ["--metrics-token", token.as_str()];
    let refused = |more: &[&str], words: [&str; 2]| {
        let refused = ended(tidegate().args(["serve", "--pmem", "/nowhere"]).args(more));
        let told = &refused.stderr;
        assert!(refused.code == 2 && words.iter().all(|word| told.contains(word)), "{more:?}: {told}");
    };
    for place in ["tcp:0.0.0.0:1", "tcp:[::]:1", "tcp:192.0.2.1:1"] {
        let exposed = [&["--metrics", place][..], &tls].concat();
        refused(&exposed, ["can be reached by other machines", "add --metrics-token FILE, --tls-certificate"]);
        let plain = [&["--metrics", place][..], &with_token].concat();
        refused(&plain, ["can be read on their way", "add --tls-certificate and --tls-key; or stay on this machine"]);
    }
    refused(&with_token, ["metrics that are not answered", "leave --metrics-token out"]);
    for place in ["unix:/tmp/m", "9809"] {
        refused(&["--metrics", place], ["no place for metrics", "write an address and a port"]);
    }
    assert!(!Path::new("/tmp/m").exists());
}

#[test]
fn a_file_that_is_no_secret_or_no_token_is_refused() {
    let folder = Folder::new();
    let (volume, token) = (folder.volume("v"), folder.text("token"));
    let refused = |words: [&str; 2]| {
        let serve = ["serve", "--pmem", &volume, "--metrics", "tcp:127.0.0.1:0", "--metrics-token", &token];
        let refused = ended(tidegate().args(serve));
        let told = &refused.stderr;
        assert!(refused.code == 5 && words.iter().all(|word| told.contains(word)), "{told}");
    };
    refused(["No such file", "openssl rand -hex 32"]);
    write_token(&folder, FIRST, 0o644);
    refused(["has the permissions 0644", "chmod 600"]);
    write_token(&folder, "short", 0o600);
    refused(["fewer than 16 characters", "write another"]);
    write_token(&folder, "sixteen or more, with blanks", 0o600);
    refused(["visible ASCII", "write another"]);
}
