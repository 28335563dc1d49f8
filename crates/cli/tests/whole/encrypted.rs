//! Encryption by the program's flags, judged by other people's clients.

#[path = "../../../nbd/tests/identities/mod.rs"]
pub(crate) mod identities;

use crate::program::{Folder, Server, ended, peer, run};
use identities::Identities;
use std::fs;
use std::process::Command;

fn is_served(uri: &str) -> bool {
    ended(Command::new("nbdinfo").args(["--size", uri])).code == 0
}

#[test]
fn tcp_is_encrypted_for_known_clients_only_and_unix_as_they_like() {
    let (folder, identities) = (Folder::new(), Identities::make());
    let file = |name: &str| identities.path(name).to_str().unwrap().to_owned();
    let unix = format!("unix:{}", folder.text("s"));
    let arguments = ["--pmem", &folder.volume("v"), "--listen", "tcp:0.0.0.0:0", "--listen", &unix];
    let tls = ["--tls-certificate", &file("server-cert.pem"), "--tls-key", &file("server-key.pem")];
    let clients = ["--tls-clients", &file("ca-cert.pem")];
    let mut server = Server::start(&[&arguments[..], &tls, &clients].concat());
    let [tcp, unix] = &server.uris[..] else { panic!("{:?}", server.uris) };
    let port = tcp.strip_prefix("nbds://0.0.0.0:").unwrap().trim_end_matches('/');
    let with = |scheme, folder: &str| format!("{scheme}://localhost:{port}/?tls-certificates={}", file(folder));
    assert!(peer("nbdinfo", &[&with("nbds", "")]).contains("with TLS"));
    assert!(!is_served(&with("nbds", "stranger")), "a certificate that nobody here signed");
    assert!(!is_served(&format!("nbd://localhost:{port}/")), "no encryption at all");
    assert!(is_served(unix), "a unix socket without encryption");
    let secret = unix.replace("nbd+unix:///?", &format!("nbds+unix://localhost/?tls-certificates={}&", file("")));
    assert!(peer("nbdinfo", &[&secret]).contains("with TLS"));
    assert!(server.stop().success());
    assert!(!server.said.contains("open to other machines"), "{}", server.said);
}

#[test]
fn a_port_that_asks_for_no_certificate_warns_when_others_reach_it() {
    let (folder, identities) = (Folder::new(), Identities::make());
    let config = folder.text("t.toml");
    folder.volume("v");
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n",
        identities.path("server-cert.pem"),
        identities.path("server-key.pem")
    );
    fs::write(&config, format!("listen = [\"tcp:0.0.0.0:0\"]\n{tls}[[volume]]\npmem = \"v\"\n")).unwrap();
    let mut server = Server::start(&["--config", &config]);
    assert!(server.stop().success());
    assert!(server.said.contains("encrypted, and asks clients for no certificate"), "{}", server.said);
}

#[test]
fn an_identity_that_cannot_be_used_is_refused() {
    let (folder, identities) = (Folder::new(), Identities::make());
    let (volume, certificate) = (folder.volume("v"), identities.path("server-cert.pem"));
    let certificate = certificate.to_str().unwrap();
    let refused = run(&["serve", "--pmem", &volume, "--tls-certificate", certificate, "--tls-key", certificate]);
    assert!(refused.code == 5 && refused.stderr.contains("no private key"), "{}", refused.stderr);
    let alone = run(&["serve", "--pmem", &volume, "--tls-certificate", certificate]);
    assert!(alone.code == 2 && alone.stderr.contains("--tls-key"), "{}", alone.stderr);
}
