//! A server whose configuration is changed while it runs: SIGHUP has it follow the file, or nothing
//! changes.

use crate::encrypted::identities::Identities;
use crate::program::{Folder, NOBODY, Server, ended, json, need_root, peer, run, tidegate};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Dialect};

/// A served configuration.
struct Configured {
    folder: Folder,
    config: String,
    server: Server,
}

impl Configured {
    /// Serves a volume `v` by a file that begins with `head`, in which `@` is the test's folder.
    fn serve(head: &str) -> Configured {
        Configured::serve_of_uris(1, head)
    }

    fn serve_of_uris(uris: usize, head: &str) -> Configured {
        let folder = Folder::new();
        folder.volume("v");
        let config = folder.text("t.toml");
        write(&folder, head, "");
        let server = Server::start_of_uris(uris, &["--config", &config]);
        Configured { folder, config, server }
    }

    /// Has the server follow a file that begins with `head` and ends with `tail`, and says what the
    /// server tells of it, up to the line with `last`.
    fn reload(&mut self, (head, tail): (&str, &str), last: &str) -> String {
        write(&self.folder, head, tail);
        self.signal(last)
    }

    fn signal(&mut self, last: &str) -> String {
        let before = self.server.said.len();
        self.server.signal(Signal::HUP);
        self.server.hear(last);
        self.server.said[before..].to_owned()
    }

    fn end(mut self) {
        assert!(self.server.stop().success(), "{}", self.server.said);
    }
}

fn write(folder: &Folder, head: &str, tail: &str) {
    let text = format!("{head}\n[[volume]]\npmem = \"v\"\n{tail}\n").replace('@', folder.0.path().to_str().unwrap());
    fs::write(folder.path("t.toml"), text).unwrap();
}

/// Whether the client can still write and read.
fn is_served(client: &mut Client<UnixStream>) -> bool {
    let mut block = [0; 4096];
    client.write(0, &[7; 4096], Durability::Fua).is_ok() && client.read(0, &mut block).is_ok() && block == [7; 4096]
}

#[test]
fn listeners_come_and_go_and_clients_of_those_that_stay_are_served_on() {
    let mut of = Configured::serve_of_uris(2, "listen = [\"unix:@/stays\", \"unix:@/goes\"]");
    let mut stays = Server::client(&of.folder.path("stays"));
    let mut goes = Server::client(&of.folder.path("goes"));
    assert!(is_served(&mut stays) && is_served(&mut goes));
    let told = of.reload(("listen = [\"unix:@/comes\", \"unix:@/stays\"]", ""), "reload: done");
    let folder = of.folder.0.path().display().to_string();
    let difference =
        format!("listen: unix:{folder}/stays, unix:{folder}/goes → unix:{folder}/comes, unix:{folder}/stays\n");
    assert!(told.contains(&difference), "{told}");
    assert!(told.contains("1 connections were cut"), "{told}");
    assert!(is_served(&mut stays), "its listener stays");
    assert!(!is_served(&mut goes), "its listener went");
    assert!(!of.folder.path("goes").exists());
    assert!(is_served(&mut Server::client(&of.folder.path("comes"))));
    let listed = json(&["list"]);
    let is_ours = |listed: &&serde_json::Value| listed["pid"] == of.server.pid();
    let own = listed["servers"].as_array().unwrap().iter().find(is_ours).expect("it is listed");
    let uris: Vec<_> =
        own["volumes"][0]["uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap().to_owned()).collect();
    let uri = |name: &str| format!("nbd+unix:///?socket={folder}/{name}");
    assert_eq!(uris, [uri("comes"), uri("stays")]);
    of.end();
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_all_of_them_are_told() {
    let mut of = Configured::serve("listen = \"unix:@/s\"");
    let mut client = Server::client(&of.folder.path("s"));
    let told =
        of.reload(("listen = \"unix:@/other\"\nlistne = 1\nmetrics = \"x\"", "emulate = \"tape\""), "reload: refused");
    for mistake in ["t.toml:2: unknown key `listne`", "t.toml:3: ", "t.toml:6: ", "nothing is changed"] {
        assert!(told.contains(mistake), "{mistake}: {told}");
    }
    assert!(is_served(&mut client) && !of.folder.path("other").exists());
    let told =
        of.reload(("listen = \"unix:@/s\"\nmetrics = \"tcp:127.0.0.1:0\"", "ublk_queues = 2"), "reload: refused");
    assert!(told.contains("t.toml:5: ublk_queues without ublk"), "{told}");
    fs::remove_file(&of.config).unwrap();
    let told = of.signal("reload: refused");
    assert!(told.contains("cannot read"), "{told}");
    assert!(is_served(&mut client));
    let told = of.reload(("listen = \"unix:@/s\"", ""), "reload: done");
    assert!(told.contains("done: 0 keys changed"), "{told}");
    assert!(is_served(&mut client));
    of.end();
}

#[test]
fn a_listener_that_fails_leaves_all_others_as_they_were() {
    let mut of = Configured::serve("listen = \"unix:@/s\"");
    let mut client = Server::client(&of.folder.path("s"));
    fs::write(of.folder.path("file"), "mine").unwrap();
    let head = "connections_max = 1\nsocket_mode = \"0666\"\nlisten = [\"unix:@/new\", \"unix:@/file\"]";
    let told = of.reload((head, ""), "reload: refused");
    assert!(told.contains("a file that is no socket has this name"), "{told}");
    assert!(is_served(&mut client) && !of.folder.path("new").exists());
    assert_eq!(fs::read(of.folder.path("file")).unwrap(), b"mine");
    let mode = fs::metadata(of.folder.path("s")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(is_served(&mut Server::client(&of.folder.path("s"))), "there are as many connections as before");
    of.end();
}

#[test]
fn a_server_without_a_file_ignores_the_signal() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &format!("unix:{}", folder.text("s"))]);
    server.signal(Signal::HUP);
    server.hear("reload: ignored: the server was started without --config");
    assert!(is_served(&mut Server::client(&folder.path("s"))));
    assert!(server.stop().success());
}

#[test]
fn a_supervisor_hears_of_each_reload_and_of_its_end() {
    let folder = Folder::new();
    folder.volume("v");
    write(&folder, "listen = \"unix:@/s\"", "");
    let supervisor = UnixDatagram::bind(folder.path("notify")).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut datagram = [0; 4096];
        let len = supervisor.recv(&mut datagram).expect("something is said in time");
        String::from_utf8(datagram[..len].to_vec()).unwrap()
    };
    let mut command = tidegate();
    command.args(["serve", "--config", &folder.text("t.toml")]).env("NOTIFY_SOCKET", folder.path("notify"));
    let mut server = Server::spawn(command.env_remove("WATCHDOG_USEC"));
    assert!(hear().starts_with("READY=1\n"));
    for (head, place) in [("listen = \"unix:@/t\"", "/t\n"), ("listen = 7", "/t\n")] {
        write(&folder, head, "");
        server.signal(Signal::HUP);
        let reloading = hear();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a beginning").lines().next();
        assert!(since.unwrap().parse::<u64>().unwrap() > 0, "{reloading}");
        let ready = hear();
        assert!(ready.starts_with("READY=1\nSTATUS=serving v at ") && ready.ends_with(place), "{ready}");
    }
    assert!(server.stop().success());
}

#[test]
fn modes_of_caches_change_and_keys_that_need_a_restart_are_named() {
    let folder = Folder::new();
    let (region, disk) = (folder.text("v"), folder.text("disk"));
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    json(&["create", "--pmem", &region, "--disk", &disk, "--size", "8M", "--accept-volatile"]);
    write(&folder, "listen = \"unix:@/s\"", "accept_volatile = true");
    let config = folder.text("t.toml");
    let server = Server::start(&["--config", &config]);
    let mut of = Configured { folder, config, server };
    let mode = |of: &Configured| json(&["info", "--pmem", &of.folder.text("v")])["disk"]["mode"].clone();
    assert_eq!(mode(&of), "write-back");
    let tail = "accept_volatile = true\ndisk_mode = \"write-through\"\ndirty_percent = 5\nname = \"new\"";
    let head = "listen = \"unix:@/s\"\ncontrol = \"c\"";
    let told = of.reload((head, tail), "reload: done");
    for line in [
        "volume \"v\": disk_mode: write-back → write-through\n",
        "volume \"v\": dirty_percent: 70 → 5 (restart to apply)\n",
        "volume \"v\": name: v → new (restart to apply)\n",
        "control: none → ",
        "done: 4 keys changed, 3 of them for the next start",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert_eq!(mode(&of), "write-through");
    let set = run(&["mode", "read-only", "--pmem", &of.folder.text("v")]);
    assert_eq!(set.code, 0, "{}", set.stderr);
    let told = of.signal("reload: done");
    assert!(told.contains("done: 3 keys changed, 3 of them for the next start"), "{told}");
    assert_eq!(mode(&of), "read-only", "the file has not changed, and the command came later");
    // What is accepted no more is so until the end.
    let told = of.reload((head, "disk_mode = \"write-through\""), "reload: done");
    assert!(told.contains("accept_volatile: true → false (restart to apply)"), "{told}");
    // A listener that fails leaves the mode too.
    fs::write(of.folder.path("file"), "").unwrap();
    of.reload(("listen = \"unix:@/file\"", "accept_volatile = true\ndisk_mode = \"write-around\""), "reload: refused");
    assert_eq!(mode(&of), "read-only");
    of.end();
}

#[test]
fn a_mode_and_the_risk_that_it_takes_may_come_together() {
    let folder = Folder::new();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (region, disk) = (in_memory.path().join("v").display().to_string(), folder.text("disk"));
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    json(&["create", "--pmem", &region, "--disk", &disk, "--size", "8M", "--accept-volatile"]);
    let write = |tail: &str| {
        let head = format!("listen = \"unix:{}\"\n[[volume]]\npmem = \"{region}\"\n", folder.text("s"));
        fs::write(folder.path("t.toml"), head + tail).unwrap();
    };
    write("disk_mode = \"write-through\"");
    let config = folder.text("t.toml");
    let mut server = Server::start(&["--config", &config]);
    write("disk_mode = \"write-back\"\naccept_volatile = true");
    server.signal(Signal::HUP);
    server.hear("done: 2 keys changed, 0 of them for the next start");
    assert_eq!(json(&["info", "--pmem", &region])["disk"]["mode"], "write-back");
    assert!(server.stop().success());
}

#[test]
fn a_mode_for_a_volume_without_a_disk_is_refused_with_the_rest() {
    let mut of = Configured::serve("listen = \"unix:@/s\"");
    let told = of.reload(("listen = \"unix:@/t\"", "disk_mode = \"write-through\""), "reload: refused");
    assert!(told.contains("the running server refuses") && told.contains("is no cache of a disk"), "{told}");
    assert!(of.folder.path("s").exists() && !of.folder.path("t").exists());
    of.end();
}

#[test]
fn users_who_lose_their_permission_are_cut_and_others_are_not() {
    need_root("be another user");
    let head = "listen = \"unix:@/s\"\nsocket_mode = \"0666\"\nallow_uids = [65534]";
    let mut of = Configured::serve(head);
    fs::set_permissions(of.folder.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = Server::client(&of.folder.path("s"));
    let mut own = own;
    // It reads until its connection ends.
    let script = "import nbd,sys\nh = nbd.NBD()\nh.connect_uri(sys.argv[1])\nprint('connected', flush=True)\n\
                  try:\n  while True: h.poll(-1); h.pread(512, 0)\nexcept nbd.Error: print('cut', flush=True)\n";
    let uri = format!("nbd+unix:///?socket={}", of.folder.text("s"));
    let mut python = Command::new("python3");
    python.args(["-c", script, &uri]).uid(NOBODY).gid(NOBODY).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut nobody = python.spawn().expect("python3-libnbd");
    let mut out = nobody.stdout.take().unwrap();
    out.read_exact(&mut [0; "connected\n".len()]).expect("nobody is let in");
    let told = of.reload(("listen = \"unix:@/s\"\nsocket_mode = \"0600\"\nallow_uids = [1]", ""), "reload: done");
    assert!(told.contains("allow_uids: 65534 → 1\n") && told.contains("socket_mode: 0666 → 0600\n"), "{told}");
    assert!(told.contains("1 connections were cut"), "{told}");
    let mut last = String::new();
    out.read_to_string(&mut last).unwrap();
    assert!(nobody.wait().unwrap().success() && last == "cut\n", "{last}");
    assert!(is_served(&mut own));
    let mode = fs::metadata(of.folder.path("s")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let refused = ended(Command::new("nbdinfo").args(["--size", &uri]).uid(NOBODY).gid(NOBODY));
    assert_ne!(refused.code, 0);
    of.end();
}

#[test]
fn the_number_of_connections_follows_the_file() {
    let mut of = Configured::serve("listen = \"unix:@/s\"");
    let socket = of.folder.path("s");
    let (mut first, mut second) = (Server::client(&socket), Server::client(&socket));
    of.reload(("listen = \"unix:@/s\"\nconnections_max = 1", ""), "reload: done");
    assert!(is_served(&mut first) && is_served(&mut second), "those that are there may stay");
    assert!(Client::connect(UnixStream::connect(&socket).unwrap(), "", Dialect::Structured).is_err());
    of.reload(("listen = \"unix:@/s\"\nconnections_max = 3", ""), "reload: done");
    assert!(is_served(&mut Server::client(&socket)));
    of.end();
}

#[test]
fn metrics_move_with_the_file() {
    let answer = |port: &str| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(port)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (first, second) = (free(), free());
    let head = |port: &str| format!("listen = \"unix:@/s\"\nmetrics = \"tcp:{port}\"");
    let mut of = Configured::serve(&head(&first));
    assert!(answer(&first).unwrap().contains("tidegate_"));
    of.reload((&head(&second), ""), "reload: done");
    assert!(answer(&second).unwrap().contains("tidegate_") && answer(&first).is_err());
    of.reload(("listen = \"unix:@/s\"", ""), "reload: done");
    assert!(answer(&second).is_err());
    of.end();
}

#[test]
fn a_renewed_certificate_is_read_and_clients_of_the_old_one_stay() {
    let [old, new] = [Identities::make(), Identities::make()];
    let head = "listen = \"tcp:127.0.0.1:0\"\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"";
    let folder = Folder::new();
    folder.volume("v");
    let install = |folder: &Folder, from: &Identities| {
        for (name, to) in [("server-cert.pem", "cert.pem"), ("server-key.pem", "key.pem")] {
            fs::copy(from.path(name), folder.path(to)).unwrap();
        }
    };
    install(&folder, &old);
    write(&folder, head, "");
    let config = folder.text("t.toml");
    let server = Server::start(&["--config", &config]);
    let mut of = Configured { folder, config, server };
    let port = of.server.uris[0].trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let trusts = |authority: &Identities| {
        let certificates = authority.path("");
        let uri = format!("nbds://localhost:{port}/?tls-certificates={}", certificates.display());
        ended(Command::new("nbdinfo").args(["--size", &uri])).code == 0
    };
    assert!(trusts(&old) && !trusts(&new));
    install(&of.folder, &new);
    let told = of.signal("reload: done");
    assert!(told.contains("tls: the files were read again") && !told.contains("cut"), "{told}");
    assert!(!trusts(&old) && trusts(&new));
    fs::write(of.folder.path("key.pem"), "no key").unwrap();
    let told = of.signal("reload: refused");
    assert!(told.contains("no identity to encrypt with"), "{told}");
    assert!(trusts(&new), "the identity before is in use still");
    of.end();
}

#[test]
fn queues_of_a_block_device_need_the_device_on_the_command_line_too() {
    let refused = run(&["serve", "--pmem", "/nowhere/v", "--ublk-queues", "2"]);
    assert!(refused.code == 2 && refused.stderr.contains("--ublk"), "{}", refused.stderr);
}

#[test]
fn a_socket_of_virtual_machines_comes_and_goes() {
    let mut of = Configured::serve("listen = \"unix:@/s\"");
    let told = of.reload(("listen = \"unix:@/s\"", "vhost_user = \"m\""), "reload: done");
    assert!(told.contains("volume \"v\": vhost_user: none → "), "{told}");
    let monitor = UnixStream::connect(of.folder.path("m")).expect("somebody listens");
    of.reload(("listen = \"unix:@/s\"", ""), "reload: done");
    // A connection that the server had not taken yet is reset with its listener.
    let ended = (&monitor).read(&mut [0]).or_else(|error| match error.kind() {
        ErrorKind::ConnectionReset => Ok(0),
        _ => Err(error),
    });
    assert_eq!(ended.expect("an end"), 0, "its listener went");
    assert!(!Path::new(&of.folder.path("m")).exists());
    peer("nbdinfo", &["--size", &format!("nbd+unix:///?socket={}", of.folder.text("s"))]);
    of.end();
}
