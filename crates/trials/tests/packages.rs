//! Packages on machines of their own: each installs, serves, is upgraded and removed, and leaves
//! nothing behind that its users did not make.
//!
//! No systemd runs there. The trial reads the unit and starts what it says, as its user, in its
//! folders, and hears its notifications.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Dialect};
use tidegate_trials::artefacts::{built, hex, run};
use tidegate_trials::chroot::{Chroot, System};
use tidegate_trials::served::until;

/// What dpkg and its tools write for themselves, and what they do with the user of the service.
const OF_THE_SYSTEM: [&str; 12] = [
    "/etc/group",
    "/etc/gshadow",
    "/etc/passwd",
    "/etc/shadow",
    "/etc/subgid",
    "/etc/subuid",
    "/etc/ld.so.cache",
    "/var/cache/",
    "/var/lib/apt/",
    "/var/lib/dpkg/",
    "/var/lib/systemd/",
    "/var/log/",
];

const UNIT: &str = "/usr/lib/systemd/system/tidegate@.service";
const CONFIGURATION: &str = "[[volume]]\npmem = \"/var/lib/tidegate/db.pmem\"\n";
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// A package of this kind, made from what the tests were built with, in `folder`.
fn made(kind: &str, folder: &Path) -> PathBuf {
    let names = ["cli", "direct-preload", "sqlite-vfs", "capi", "xtask"].map(|name| format!("tidegate-{name}"));
    let parts: Vec<_> = names.iter().flat_map(|name| ["--package", name.as_str()]).collect();
    let built = built(&parts).unwrap_or_else(|missing| panic!("{missing}"));
    let mut make = Command::new(built.join("tidegate-xtask"));
    make.args([kind, "--fast", "--built"]).arg(&built).arg("--out").arg(folder).env("SOURCE_DATE_EPOCH", "1700000000");
    let said = run(&mut make, "binutils").unwrap_or_else(|failure| panic!("{failure}"));
    said.trim().into()
}

/// The Debian package in a system's `/tmp`.
fn debian_package(chroot: &Chroot) {
    let package = made("deb", &chroot.at("/tmp"));
    fs::rename(package, chroot.at("/tmp/tidegate.deb")).unwrap();
}

/// Paths of the entries that are in one listing alone, or changed, without those of the system.
fn differences(before: &[String], after: &[String]) -> BTreeSet<String> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let path = |line: &&String| line.split(' ').next().unwrap().to_owned();
    let of_system = |path: &String| OF_THE_SYSTEM.iter().any(|place| path.starts_with(place));
    before.symmetric_difference(&after).map(path).filter(|path| !of_system(path)).collect()
}

/// The value of `key` in the text of a unit.
fn value<'u>(unit: &'u str, key: &str) -> &'u str {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("the unit has no {key}"))
}

/// The service of a unit, started as systemd does without its limits.
struct Service {
    process: Child,
}

impl Service {
    /// Starts the instance `db`, and returns when it has told that it is ready.
    fn start(chroot: &Chroot) -> Service {
        let unit = fs::read_to_string(chroot.at(UNIT)).unwrap();
        assert_eq!(value(&unit, "Type"), "notify");
        let (user, runtime) = (value(&unit, "User"), value(&unit, "RuntimeDirectory"));
        let mode = value(&unit, "RuntimeDirectoryMode");
        chroot.run(&format!("install -d -o {user} -g {user} -m {mode} /run/{runtime}"));
        chroot.run(&format!("test $(stat -c %U:%a /var/lib/{}) = {user}:700", value(&unit, "StateDirectory")));
        let told = chroot.at("/run/told");
        let _ = fs::remove_file(&told);
        let notifications = UnixDatagram::bind(&told).unwrap();
        fs::set_permissions(&told, Permissions::from_mode(0o666)).unwrap();
        notifications.set_nonblocking(true).unwrap();
        let command = value(&unit, "ExecStart").replace("%i", "db");
        let user = [format!("--reuid={user}"), format!("--regid={}", value(&unit, "Group"))];
        let limits = ["setpriv", "--init-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
        let folders = [format!("RUNTIME_DIRECTORY=/run/{runtime}"), "HOME=/var/lib/tidegate".to_owned()];
        let environment = ["env", "NOTIFY_SOCKET=/run/told"].into_iter().chain(folders.iter().map(String::as_str));
        let words = limits.into_iter().chain(user.iter().map(String::as_str));
        let words = words.chain(environment).chain(command.split_whitespace());
        let process = chroot.command(words).stdout(Stdio::null()).spawn().unwrap();
        let mut service = Service { process };
        until("the service's notification", || service.is_ready(&notifications));
        service
    }

    fn is_ready(&mut self, notifications: &UnixDatagram) -> bool {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "the service ended before it was ready: {ended:?}");
        let mut text = [0; 4096];
        let heard = notifications.recv(&mut text);
        heard.is_ok_and(|length| String::from_utf8_lossy(&text[..length]).lines().any(|line| line == "READY=1"))
    }

    /// A client of its default export.
    fn connect(chroot: &Chroot) -> Client<UnixStream> {
        let stream = UnixStream::connect(chroot.at("/run/tidegate/db.sock")).unwrap();
        Client::connect(stream, "", Dialect::Structured).unwrap()
    }

    /// Ends it as `systemctl stop` does.
    fn stop(self, chroot: &Chroot) {
        self.end();
        fs::remove_file(chroot.at("/run/told")).unwrap();
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_debian_package_serves_is_upgraded_while_it_serves_and_leaves_only_what_users_made() {
    let chroot = Chroot::new(System::Smallest);
    debian_package(&chroot);
    let before = chroot.listing();
    // Whatever is missing comes from the mirror; on the smallest system nothing is.
    let install = "apt-get install --yes --no-install-recommends /tmp/tidegate.deb";
    chroot.run(install);
    assert_eq!(chroot.run("tidegate --version"), format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    assert!(chroot.run("tidegate list").starts_with("no server"), "a machine without servers");
    assert_eq!(chroot.run("dpkg --verify tidegate"), "");
    chroot.run("dpkg --purge tidegate");
    assert_eq!(differences(&before, &chroot.listing()), BTreeSet::new(), "nothing was made, so nothing is left");

    chroot.run(install);
    fs::write(chroot.at("/etc/tidegate/db.toml"), CONFIGURATION).unwrap();
    chroot.run("setpriv --reuid=tidegate --regid=tidegate --init-groups tidegate create --pmem /var/lib/tidegate/db.pmem --size 32M");
    let service = Service::start(&chroot);
    let mut client = Service::connect(&chroot);
    client.write(4096, &BLOCK, Durability::Fua).unwrap();
    chroot.run("dpkg --install /tmp/tidegate.deb");
    let mut read = [0; BLOCK.len()];
    client.read(4096, &mut read).unwrap();
    assert_eq!(read, BLOCK, "the service goes on through an upgrade");
    service.stop(&chroot);

    let service = Service::start(&chroot);
    Service::connect(&chroot).read(4096, &mut read).unwrap();
    assert_eq!(read, BLOCK, "the upgraded service has what the former one wrote");
    service.stop(&chroot);
    chroot.run("dpkg --remove tidegate; dpkg --purge tidegate");
    assert_eq!(fs::read_to_string(chroot.at("/etc/tidegate/db.toml")).unwrap(), CONFIGURATION);
    let kept = ["/etc/tidegate", "/etc/tidegate/db.toml", "/var/lib/tidegate", "/var/lib/tidegate/db.pmem"];
    assert_eq!(differences(&before, &chroot.listing()), kept.map(str::to_owned).into());
    let user = chroot.run("getent passwd tidegate");
    assert!(user.ends_with(":/var/lib/tidegate:/usr/sbin/nologin\n"), "the owner of the volumes stays: {user}");
}

/// What a new user looks at, each in a line, with what it prints.
const LOOKS: [(&str, &str); 9] = [
    ("systemd-analyze verify tidegate@x.service tidegate@x.socket tidegate-mount@x.service", ""),
    (
        "for page in $(dpkg -L tidegate | grep '/man[15]/'); do man --warnings -E UTF-8 -l -Tutf8 -Z $page >/dev/null; done",
        "",
    ),
    ("bash -n /usr/share/bash-completion/completions/tidegate", ""),
    (
        "bash -c '. /usr/share/bash-completion/completions/tidegate; COMP_WORDS=(tidegate ser); COMP_CWORD=1; _tidegate tidegate ser tidegate; echo ${COMPREPLY[@]}'",
        "serve\n",
    ),
    ("zsh -n /usr/share/zsh/vendor-completions/_tidegate", ""),
    ("zsh -c 'autoload -U compinit; compinit -D; echo $_comps[tidegate]'", "_tidegate\n"),
    ("fish -c 'complete -C \"tidegate ser\"' | cut -f 1", "serve\n"),
    ("echo 'select 1;' | sqlite3 -cmd '.load /usr/lib/tidegate/libtidegate_sqlite.so' :memory:", "1\n"),
    ("LD_PRELOAD=/usr/lib/tidegate/libtidegate_direct.so echo loaded", "loaded\n"),
];

/// What users do with mount(8), `run` and a client of NBD.
const USES: &str = "
    mkdir /srv/files /srv/mnt /srv/run
    mount -t fuse.tidegate /srv/files /srv/mnt -o pool=/srv/pool,pool-size=64M,dram=16M,try
    echo mounted > /srv/mnt/file
    umount /srv/mnt
    ! grep -q /srv/mnt /run/mount/utab
    cat /srv/files/file
    tidegate run --try --root /srv/run -- sh -c 'echo run > file; sync file; cat file'
    tidegate create --pmem /srv/v.pmem --size 32M >/dev/null
    tidegate serve --pmem /srv/v.pmem --listen unix:/run/v.sock >/srv/said &
    until grep -q ^serving /srv/said; do kill -0 $!; done
    nbdinfo --size 'nbd+unix:///?socket=/run/v.sock'
    kill $!
    wait $!
";

#[test]
fn everything_in_the_debian_package_is_found_by_the_programs_that_it_is_for() {
    let chroot = Chroot::new(System::WithTools);
    debian_package(&chroot);
    // The administrator made the group first.
    chroot.run("groupadd --system tidegate");
    chroot.run("apt-get install --yes --no-install-recommends /tmp/tidegate.deb");
    for (look, expected) in LOOKS {
        assert_eq!(chroot.run(&format!("exec 2>&1; {look}")), expected, "{look}");
    }
    let linked = chroot.run("ldd /usr/bin/tidegate /usr/lib/libtidegate.so /usr/lib/tidegate/*.so");
    assert!(!linked.contains("not found"), "{linked}");
    assert!(chroot.run("ldconfig -p").contains("libtidegate.so.0"), "programs find the C interface");
    let used = chroot.run(USES);
    let lines: Vec<_> = used.lines().collect();
    assert!(lines[..2] == ["mounted", "run"] && lines[2].parse::<u64>().unwrap() > 8 << 20, "{used}");
    // Enabled units are links, which the package did not bring and takes away.
    chroot.run("systemctl enable tidegate@a.service tidegate@b.socket tidegate-mount@c.service");
    let links = "find /etc/systemd -name 'tidegate*'";
    assert_eq!(chroot.run(links).lines().count(), 3);
    chroot.run("dpkg --purge tidegate");
    assert_eq!(chroot.run(links), "");
}

#[test]
fn the_tarball_runs_where_it_is_and_its_installer_removes_every_file() {
    let chroot = Chroot::new(System::Smallest);
    made("tarball", &chroot.at("/tmp"));
    chroot.run("cd /tmp && mkdir unpacked && tar -xzf tidegate-*.tar.gz -C unpacked --strip-components=1");
    let version = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(chroot.run("/tmp/unpacked/bin/tidegate --version"), version);
    let before = chroot.listing();
    // The second time it finds its own files, and one of an older version.
    chroot.run("/tmp/unpacked/install");
    chroot.run("cd /usr/local/share/tidegate; touch old; echo $PWD/old >> installed-files; /tmp/unpacked/install; ! test -e old");
    assert_eq!(chroot.run("tidegate --version"), version);
    let units = chroot
        .run("grep -h ^ExecStart= /etc/systemd/system/tidegate@.service /etc/systemd/system/tidegate-mount@.service");
    assert_eq!(units.matches("=/usr/local/bin/tidegate ").count(), 2, "{units}");
    assert!(chroot.run("cat /usr/sbin/mount.fuse.tidegate").contains("exec /usr/local/bin/tidegate mount-helper"));
    assert!(chroot.run("getent passwd tidegate").contains(":/var/lib/tidegate:"));
    for (prefix, why) in
        [("rel", "no absolute path"), ("'/opt/a&b c'", "other characters"), ("/opt/two", "another installation")]
    {
        let refused = chroot.run(&format!("! PREFIX={prefix} /tmp/unpacked/install 2>&1"));
        assert!(refused.contains(why), "{prefix}: {refused}");
    }
    chroot.run("/tmp/unpacked/install --remove");
    assert_eq!(differences(&before, &chroot.listing()), BTreeSet::new());
    chroot.run("DESTDIR=/srv/image PREFIX=/usr /tmp/unpacked/install");
    let outside = differences(&before, &chroot.listing()).into_iter().filter(|path| !path.starts_with("/srv/image"));
    assert_eq!(outside.collect::<Vec<_>>(), [""; 0], "only DESTDIR is touched");
    assert!(chroot.at("/srv/image/usr/share/man/man1/tidegate.1.gz").is_file());
}

/// The blob that `descriptor` names, with the size and the digest that it says.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let bytes = fs::read(layout.join("blobs/sha256").join(digest)).unwrap();
    assert_eq!(
        (bytes.len() as u64, hex(&Sha256::digest(&bytes)).as_str()),
        (descriptor["size"].as_u64().unwrap(), digest)
    );
    bytes
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Unpacks an image into `container` and returns its configuration, after a look at every digest.
fn unpacked(image: &Path, container: &Chroot) -> Value {
    let layout = tempfile::tempdir().unwrap();
    run(Command::new("tar").arg("-xf").arg(image).arg("-C").arg(layout.path()), "tar").unwrap();
    let layout = layout.path();
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(json(&fs::read(layout.join("oci-layout")).unwrap())["imageLayoutVersion"], "1.0.0");
    let index = json(&fs::read(layout.join("index.json")).unwrap());
    let manifest = json(&blob(layout, &index["manifests"][0]));
    let config = json(&blob(layout, &manifest["config"]));
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(
        (layers.len(), fs::read_dir(layout.join("blobs/sha256")).unwrap().count()),
        (1, 3),
        "no blob is unnamed"
    );
    let layer = layout.join("layer.tar.gz");
    fs::write(&layer, blob(layout, &layers[0])).unwrap();
    run(Command::new("gunzip").arg(&layer), "gzip").unwrap();
    let layer = layer.with_extension("");
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&Sha256::digest(fs::read(&layer).unwrap()))));
    let mut unpack = Command::new("tar");
    unpack.args(["--numeric-owner", "--same-owner", "-xpf"]).arg(&layer).arg("-C").arg(container.root());
    run(&mut unpack, "tar").unwrap();
    config["config"].clone()
}

#[test]
fn the_image_names_its_digests_is_made_alike_twice_and_serves_as_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let image = made("image", folder.path());
    let first = fs::read(&image).unwrap();
    assert!(fs::read(made("image", folder.path())).unwrap() == first, "the same bytes from the same sources");
    let container = Chroot::empty();
    let config = unpacked(&image, &container);
    let words = [strings(&config["Entrypoint"]), strings(&config["Cmd"])].concat();
    let mut serve = container.command_as(config["User"].as_str().unwrap(), words.iter().map(String::as_str));
    let environment = strings(&config["Env"]);
    serve.envs(environment.iter().map(|text| text.split_once('=').unwrap())).stdout(Stdio::piped());
    let mut service = Service { process: serve.spawn().unwrap() };
    let mut lines = BufReader::new(service.process.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("serving ")), "it serves: {:?}", service.process.try_wait());
    let stream = UnixStream::connect(container.at("/run/tidegate/default.sock")).unwrap();
    let mut client = Client::connect(stream, "", Dialect::Structured).unwrap();
    client.write(0, &BLOCK, Durability::Fua).unwrap();
    service.end();
    assert!(container.at("/var/lib/tidegate/default.pmem").is_file());
}
