//! TLS: encrypted and plain clients, refusals without encryption, and real clients.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod identities;

use identities::Identities;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidegate_block_export::Export;
use tidegate_media::Durability;
use tidegate_nbd::{ConnectionError, Encryption, End, Exports, Service, Timeouts, Tls, TlsError, Violation, serve};
use tidegate_nbd_client::client::{Client, ClientError, Dialect, Greeted, Operation};
use tidegate_nbd_client::ram::Ram;

const TLS_REQUIRED: u32 = 0x8000_0005;
const POLICY: u32 = 0x8000_0002;

fn tls(identities: &Identities, client_authority: Option<&Path>) -> Tls {
    let [certificate, key] = ["server-cert.pem", "server-key.pem"].map(|name| identities.path(name));
    Tls::from_pem_files(&certificate, &key, client_authority, |path| fs::read(path)).unwrap()
}

fn service(encryption: Encryption) -> Service {
    let disk = Export::new("disk", "", Arc::new(Ram::new(4096, 4096)));
    Service { encryption, ..Service::plain(Exports::new(vec![disk]).unwrap()) }
}

type Served = JoinHandle<Result<End, ConnectionError>>;

/// One end of a connection whose other end is served.
fn connect(encryption: Encryption) -> (UnixStream, Served) {
    let (near, far) = UnixStream::pair().unwrap();
    (near, thread::spawn(move || serve(&service(encryption), &far)))
}

/// A client's part of TLS on `stream`, with the certificate in `own` if there is one.
fn encrypt(
    identities: &Identities,
    own: Option<&str>,
    stream: UnixStream,
) -> StreamOwned<ClientConnection, UnixStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identities.path("ca-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(folder) => {
            let file = |name: &str| identities.path(folder).join(name);
            let chain = vec![CertificateDer::from_pem_file(file("client-cert.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(file("client-key.pem")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn refusal(error: ClientError) -> u32 {
    match error {
        ClientError::Refused(refusal) => refusal.code,
        other => panic!("{other}"),
    }
}

#[test]
fn an_encrypted_connection_carries_everything() {
    let identities = Identities::make();
    for dialect in [Dialect::Simple, Dialect::Structured, Dialect::Extended] {
        let (near, served) = connect(Encryption::Required(tls(&identities, None)));
        let greeted = Greeted::meet(near).unwrap().start_tls(|stream| encrypt(&identities, None, stream)).unwrap();
        let mut client = greeted.pick("disk", dialect).unwrap();
        let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        client.write(1000, &data, Durability::Fua).unwrap();
        client.flush().unwrap();
        let mut seen = vec![0; data.len()];
        client.read(1000, &mut seen).unwrap();
        assert!(seen == data, "the bytes differ");
        client.disconnect().unwrap();
        assert_eq!(served.join().unwrap().unwrap(), End::Disconnected);
    }
}

#[test]
fn two_threads_that_answer_keep_the_records_in_order() {
    let identities = Identities::make();
    let (near, served) = connect(Encryption::Required(tls(&identities, None)));
    let greeted = Greeted::meet(near).unwrap().start_tls(|stream| encrypt(&identities, None, stream)).unwrap();
    let mut client = greeted.pick("disk", Dialect::Structured).unwrap();
    client.write(12 << 20, &[5; 4096], Durability::Volatile).unwrap();
    for _ in 0..20 {
        // The discards are long enough to be answered by another thread than the reads.
        for _ in 0..16 {
            client.submit(Operation::Trim { offset: 0, len: 2 << 20 }).unwrap();
            client.submit(Operation::Read { offset: 12 << 20, len: 4096 }).unwrap();
        }
        while client.pending().next().is_some() {
            let seen = client.complete().unwrap().outcome.unwrap();
            assert!(seen.is_empty() || seen == [5; 4096]);
        }
    }
    client.disconnect().unwrap();
    assert_eq!(served.join().unwrap().unwrap(), End::Disconnected);
}

#[test]
fn nothing_is_told_in_plain_sight_where_encryption_is_required() {
    let identities = Identities::make();
    let required = || Encryption::Required(tls(&identities, None));
    let (near, served) = connect(required());
    assert_eq!(refusal(Client::connect(near, "disk", Dialect::Simple).unwrap_err()), TLS_REQUIRED);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
    // Each option but ABORT, byte by byte: LIST, INFO, STRUCTURED_REPLY, contexts, extended
    // headers, an unknown one.
    let (mut near, served) = connect(required());
    let mut greeting = [0; 18];
    near.read_exact(&mut greeting).unwrap();
    near.write_all(b"\x00\x00\x00\x03").unwrap();
    for option in [3, 6, 7, 8, 9, 10, 11, 77_u32] {
        near.write_all(&[b"IHAVEOPT", &option.to_be_bytes()[..], &[0; 4]].concat()).unwrap();
        let mut header = [0; 20];
        near.read_exact(&mut header).unwrap();
        assert_eq!(header[12..16], TLS_REQUIRED.to_be_bytes(), "option {option}");
        let mut text = vec![0; header[19].into()];
        near.read_exact(&mut text).unwrap();
    }
    near.write_all(b"IHAVEOPT\x00\x00\x00\x02\x00\x00\x00\x00").unwrap();
    assert_eq!(served.join().unwrap().unwrap(), End::Aborted);
    let (mut near, served) = connect(required());
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk").unwrap();
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::Violation(Violation::NotEncrypted))));
}

#[test]
fn encryption_is_a_choice_where_it_is_allowed_and_refused_where_there_is_none() {
    let identities = Identities::make();
    let (near, served) = connect(Encryption::Allowed(tls(&identities, None)));
    Client::connect(near, "disk", Dialect::Structured).unwrap().disconnect().unwrap();
    assert_eq!(served.join().unwrap().unwrap(), End::Disconnected);
    let (near, served) = connect(Encryption::Allowed(tls(&identities, None)));
    let greeted = Greeted::meet(near).unwrap().start_tls(|stream| encrypt(&identities, None, stream)).unwrap();
    // Once is enough.
    let again = greeted.start_tls(|stream| stream).unwrap_err();
    assert_eq!(refusal(again), 0x8000_0003);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
    let (near, served) = connect(Encryption::Off);
    assert_eq!(refusal(Greeted::meet(near).unwrap().start_tls(|stream| stream).unwrap_err()), POLICY);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn bytes_behind_starttls_that_are_not_encrypted_are_refused() {
    let identities = Identities::make();
    let injected = b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00";
    let (mut near, served) = connect(Encryption::Allowed(tls(&identities, None)));
    near.write_all(&[b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00", &injected[..]].concat()).unwrap();
    match served.join().unwrap() {
        Err(ConnectionError::Violation(Violation::PlainBehindStartTls { len })) => assert_eq!(len, injected.len()),
        end => panic!("{end:?}"),
    }
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 18, "not even STARTTLS is acknowledged");
}

#[test]
fn what_was_agreed_before_starttls_is_forgotten() {
    let identities = Identities::make();
    let (mut near, served) = connect(Encryption::Allowed(tls(&identities, None)));
    let mut words = [0; 18 + 20];
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00").unwrap();
    near.read_exact(&mut words).unwrap();
    near.write_all(b"IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00").unwrap();
    near.read_exact(&mut words[..20]).unwrap();
    let mut secret = encrypt(&identities, None, near);
    secret.write_all(b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x00").unwrap();
    let mut size_and_flags = [0; 10];
    secret.read_exact(&mut size_and_flags).unwrap();
    assert_eq!(size_and_flags[9] & 0x80, 0, "DF comes with structured replies only");
    drop(secret);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn only_clients_with_a_good_certificate_are_served_where_one_is_wanted() {
    let identities = Identities::make();
    let authority = identities.path("ca-cert.pem");
    for (own, good) in [(Some(""), true), (Some("stranger"), false), (None, false)] {
        let (near, served) = connect(Encryption::Required(tls(&identities, Some(&authority))));
        let greeted = Greeted::meet(near).unwrap().start_tls(|stream| encrypt(&identities, own, stream)).unwrap();
        let picked = greeted.pick("disk", Dialect::Structured);
        assert_eq!(picked.is_ok(), good, "{own:?}");
        drop(picked);
        match served.join().unwrap() {
            Ok(End::Closed) if good => {}
            Err(ConnectionError::Stream(error)) if !good => assert!(error.to_string().starts_with("TLS: "), "{error}"),
            end => panic!("{own:?}: {end:?}"),
        }
    }
}

#[test]
fn a_client_that_does_not_speak_tls_after_starttls_ends() {
    let identities = Identities::make();
    let (mut near, served) = connect(Encryption::Required(tls(&identities, None)));
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00").unwrap();
    let mut answers = [0; 18 + 20];
    near.read_exact(&mut answers).unwrap();
    near.write_all(b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00").unwrap();
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::Stream(error)) if error.to_string().contains("TLS")));
}

#[test]
fn drops_of_a_tls_record_do_not_win_time() {
    let identities = Identities::make();
    let (mut near, far) = UnixStream::pair().unwrap();
    let limit = Duration::from_millis(300);
    let timeouts = Timeouts { handshake: limit, ..Timeouts::default() };
    let service = Service { timeouts, ..service(Encryption::Required(tls(&identities, None))) };
    let served = thread::spawn(move || serve(&service, &far));
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00").unwrap();
    let mut answers = [0; 18 + 20];
    near.read_exact(&mut answers).unwrap();
    // A record of 16 KiB, of which a byte comes whenever the one before is sure to be there.
    near.write_all(b"\x16\x03\x01\x40\x00").unwrap();
    while near.write_all(b"x").is_ok() {
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1) {
            thread::yield_now();
        }
    }
    assert!(matches!(served.join().unwrap(), Err(ConnectionError::SlowHandshake { limit: found }) if found == limit));
}

/// A client in the middle of the handshake of a service, encrypted, and the service's end.
fn encrypted(
    identities: &Identities,
    timeouts: Timeouts,
) -> (StreamOwned<ClientConnection, UnixStream>, UnixStream, Served) {
    let (mut near, far) = UnixStream::pair().unwrap();
    let handle = far.try_clone().unwrap();
    let service = Service { timeouts, ..service(Encryption::Required(tls(identities, None))) };
    let served = thread::spawn(move || serve(&service, &far));
    near.write_all(b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x05\x00\x00\x00\x00").unwrap();
    near.read_exact(&mut [0; 18 + 20]).unwrap();
    let mut client = encrypt(identities, None, near);
    // Encryption begins with what is asked first: LIST, whose answer is an export and an
    // acknowledgement.
    client.write_all(b"IHAVEOPT\x00\x00\x00\x03\x00\x00\x00\x00").unwrap();
    client.read_exact(&mut [0; 20 + 4 + 4 + 20]).unwrap();
    (client, handle, served)
}

/// Picks the export without structured replies.
fn pick(client: &mut StreamOwned<ClientConnection, UnixStream>) {
    client.write_all(b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk").unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
}

/// A request without data.
fn request(kind: u8, offset: u64, len: u32) -> Vec<u8> {
    [&b"\x25\x60\x95\x13\x00\x00\x00"[..], &[kind], b"a cookie", &offset.to_be_bytes(), &len.to_be_bytes()].concat()
}

const READ: u8 = 0;
const DISCONNECT: u8 = 2;

#[test]
fn every_end_of_an_encrypted_connection_is_told() {
    type Ending = fn(&mut StreamOwned<ClientConnection, UnixStream>, &UnixStream);
    let usual = Timeouts::default();
    // The client's part of TLS has to fit in the one, and nothing in the other.
    let few_seconds = Timeouts { handshake: Duration::from_secs(5), ..usual };
    let a_moment = Timeouts { request: Duration::from_millis(300), ..usual };
    let by_disconnect: Ending = |client, _| {
        pick(client);
        client.write_all(&request(DISCONNECT, 0, 0)).unwrap();
    };
    let by_abort: Ending = |client, _| client.write_all(b"IHAVEOPT\x00\x00\x00\x02\x00\x00\x00\x00").unwrap();
    let by_the_clients_close: Ending = |client, _| {
        pick(client);
        client.conn.send_close_notify();
        client.flush().unwrap();
    };
    let by_the_servers_end: Ending = |client, server| {
        pick(client);
        server.shutdown(Shutdown::Read).unwrap();
    };
    let by_a_slow_handshake: Ending = |_, _| {};
    let by_a_slow_request: Ending = |client, _| {
        pick(client);
        client.write_all(&request(READ, 0, 4096)[..9]).unwrap();
    };
    let by_a_violation: Ending = |client, _| client.write_all(&[7; 16]).unwrap();
    for (name, timeouts, ending) in [
        ("a disconnect", usual, by_disconnect),
        ("an abort", usual, by_abort),
        ("the client's close", usual, by_the_clients_close),
        ("the server's end", usual, by_the_servers_end),
        ("a slow handshake", few_seconds, by_a_slow_handshake),
        ("a slow request", a_moment, by_a_slow_request),
        ("a violation", usual, by_a_violation),
    ] {
        let identities = Identities::make();
        let (mut client, server, served) = encrypted(&identities, timeouts);
        ending(&mut client, &server);
        drop(server);
        let mut rest = Vec::new();
        // An end that is not told is `UnexpectedEof`.
        client.read_to_end(&mut rest).unwrap_or_else(|error| panic!("{name}: {error}"));
        let end = served.join().unwrap();
        let fits = match name {
            "a disconnect" => matches!(end, Ok(End::Disconnected)),
            "an abort" => matches!(end, Ok(End::Aborted)),
            "the client's close" | "the server's end" => matches!(end, Ok(End::Closed)),
            "a slow handshake" => matches!(end, Err(ConnectionError::SlowHandshake { .. })),
            "a slow request" => matches!(end, Err(ConnectionError::SlowRequest { .. })),
            _ => matches!(end, Err(ConnectionError::Violation(_))),
        };
        assert!(fits, "{name}: {end:?}");
    }
}

#[test]
fn answers_that_are_on_their_way_come_before_the_end() {
    let identities = Identities::make();
    let (mut client, server, served) = encrypted(&identities, Timeouts::default());
    pick(&mut client);
    let requests = [request(READ, 0, 1 << 20), request(READ, 0, 1 << 20), request(DISCONNECT, 0, 0)].concat();
    client.write_all(&requests).unwrap();
    drop(server);
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).unwrap();
    assert_eq!(answers.len(), 2 * (16 + (1 << 20)));
    assert_eq!(served.join().unwrap().unwrap(), End::Disconnected);
}

#[test]
fn a_client_that_does_not_read_does_not_hold_the_end_up() {
    let identities = Identities::make();
    let (mut client, server, served) = encrypted(&identities, Timeouts::default());
    pick(&mut client);
    // No more answers than fit the socket, so that what is left to wait for is the end alone.
    fill(&server);
    client.write_all(&request(DISCONNECT, 0, 0)).unwrap();
    assert_eq!(served.join().unwrap().unwrap(), End::Disconnected);
}

/// Sends until the other side has room for nothing more.
fn fill(stream: &UnixStream) {
    stream.set_nonblocking(true).unwrap();
    for piece in [4096, 1] {
        while (&*stream).write(&vec![0; piece]).is_ok() {}
    }
    stream.set_nonblocking(false).unwrap();
}

#[test]
fn files_that_make_no_identity_are_named() {
    let identities = Identities::make();
    let [certificate, key] = ["server-cert.pem", "server-key.pem"].map(|name| identities.path(name));
    let other_key = identities.path("client-key.pem");
    let [garbage, nowhere] = ["garbage.pem", "nowhere.pem"].map(|name| identities.path(name));
    fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nthis is no base64!\n-----END CERTIFICATE-----\n").unwrap();
    let refused = |certificate, key, authority| {
        Tls::from_pem_files(certificate, key, authority, |path| fs::read(path)).unwrap_err()
    };
    assert!(matches!(refused(&nowhere, &key, None), TlsError::Unreadable { path, .. } if path == nowhere));
    assert!(matches!(refused(&certificate, &nowhere, None), TlsError::Unreadable { path, .. } if path == nowhere));
    assert!(matches!(refused(&key, &key, None), TlsError::NoCertificate { path } if path == key));
    assert!(matches!(refused(&certificate, &certificate, None), TlsError::NoKey { path } if path == certificate));
    assert!(matches!(refused(&garbage, &key, None), TlsError::NotPem { path, .. } if path == garbage));
    assert!(matches!(refused(&certificate, &other_key, None), TlsError::BadPair { key, .. } if key == other_key));
    assert!(matches!(refused(&certificate, &key, Some(&key)), TlsError::NoCertificate { path } if path == key));
}

/// A server on a port of this machine, for as long as the test runs.
fn listen(encryption: Encryption) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = Arc::new(service(encryption));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (service, stream): (_, TcpStream) = (Arc::clone(&service), stream.unwrap());
            thread::spawn(move || serve(&service, &stream));
        }
    });
    port
}

/// Runs a program: whether it succeeded, and what it printed.
fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program}: {error}; install it by `apt-get install libnbd-bin python3-libnbd qemu-utils`");
    });
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn libnbds_clients_encrypt() {
    let identities = Identities::make();
    let port = listen(Encryption::Required(tls(&identities, Some(&identities.path("ca-cert.pem")))));
    let uri = |folder| format!("nbds://localhost:{port}/disk?tls-certificates={}", identities.path(folder).display());
    let (good, text) = run("nbdinfo", &[&uri("")]);
    assert!(good && text.contains("with TLS"), "{text}");
    let (good, text) = run("nbdinfo", &[&uri("stranger")]);
    assert!(!good, "{text}");
    let (good, text) = run("nbdinfo", &[&format!("nbd://localhost:{port}/disk")]);
    assert!(!good, "{text}");
    let (source, back) = (identities.path("source"), identities.path("back"));
    fs::write(&source, (0..4096 * 4096_u32).map(|at| (at / 3 % 255) as u8).collect::<Vec<u8>>()).unwrap();
    let (good, text) = run("nbdcopy", &[source.to_str().unwrap(), &uri("")]);
    assert!(good, "{text}");
    let (good, text) = run("nbdcopy", &[&uri(""), back.to_str().unwrap()]);
    assert!(good, "{text}");
    assert!(fs::read(&source).unwrap() == fs::read(&back).unwrap(), "the copy differs");
}

#[test]
fn nbdsh_encrypts() {
    let identities = Identities::make();
    let port = listen(Encryption::Allowed(tls(&identities, None)));
    let connect = format!(
        "h.set_tls(nbd.TLS_REQUIRE); h.set_tls_certificates('{}'); h.set_export_name('disk'); h.connect_tcp('localhost', '{port}')",
        identities.path("").display()
    );
    let ask = "h.pwrite(b'tide' * 1024, 4096); h.flush(); print(h.pread(8, 4096), h.get_tls_negotiated())";
    // What nbdsh does, with the Python that the package is made for.
    let (good, text) = run("/usr/bin/python3", &["-m", "nbd", "--command", &connect, "--command", ask]);
    assert!(good && text.contains("b'tidetide') True"), "{text}");
}

#[test]
fn libnbd_sees_the_end_of_tls() {
    let identities = Identities::make();
    let port = listen(Encryption::Required(tls(&identities, None)));
    let uri = format!("nbds://localhost:{port}/disk?tls-certificates={}", identities.path("").display());
    let output = Command::new("nbdinfo").args(["--size", &uri]).env("LIBNBD_DEBUG", "1").output().unwrap();
    let debug = String::from_utf8_lossy(&output.stderr);
    let end = debug.split("nbd_shutdown: enter").nth(1).unwrap_or_else(|| panic!("no end: {debug}"));
    assert!(output.status.success() && end.contains("-> CLOSED"), "{debug}");
    assert!(!end.contains("gnutls"), "{debug}");
}

#[test]
fn qemus_client_encrypts() {
    let identities = Identities::make();
    let port = listen(Encryption::Required(tls(&identities, Some(&identities.path("ca-cert.pem")))));
    let info = |folder| {
        let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", identities.path(folder).display());
        let image = format!("driver=nbd,host=localhost,port={port},tls-creds=tls0,export=disk");
        run("qemu-img", &["info", "--object", &object, "--image-opts", &image])
    };
    let (good, text) = info("");
    assert!(good && text.contains("virtual size: 16 MiB"), "{text}");
    let (good, text) = info("stranger");
    assert!(!good, "{text}");
}
