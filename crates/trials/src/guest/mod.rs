//! A Linux guest with the real persistent-memory drivers: Debian's kernel under QEMU's software
//! emulation, in which host files are NVDIMMs and one shell script runs.
//!
//! The guest's stores are in the host file at once (a shared mapping), so killing the guest leaves
//! the state of a cut at that instruction, with every store before it durable.
//!
//! Other host files may be its disks, and QEMU may count its kernel's stores to the NVDIMMs.
//!
//! The guest talks over its serial line: `@@BEGIN` and the output of `uname -a`, then whatever the
//! script prints, then `@@END` and the script's exit status. A guest that stays silent for longer
//! than its limit is ended and the trial fails.

mod archive;
mod kernel;
mod programs;
mod stores;
mod tools;
pub mod writes;

pub use kernel::GuestKernel;
pub use stores::Stores;

use crate::artefacts::{CProgram, MissingError, announce, run, sha256_of_file};
use archive::Archive;
use kernel::Kernel;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const INIT: &str = include_str!("../../guest/init");
const PRELUDE: &str = include_str!("../../guest/prelude.sh");

/// The program that writes and checks self-describing blocks inside the guest, at `/bin/sectors`
/// there.
const SECTORS: CProgram = CProgram {
    name: "sectors",
    source: include_str!("../../guest/sectors.c"),
    flags: &["-static"],
    packages: "gcc libc6-dev",
};

/// Memory of the guest itself, beside its NVDIMMs, in MiB.
const MEMORY_MIB: u64 = 1024;
/// The file in which QEMU counts stores.
const STORES: &str = "stores";
/// How long a guest may take in all, unless told otherwise: many times what it needs, as a machine
/// may be busy with much else.
pub const LIMIT: Duration = Duration::from_secs(30 * 60);
/// Images larger than this are sparse giants. They are not hashed for the log; and they are
/// aligned, so that the guest maps them by large pages, for the tables of small ones would fill its
/// memory. The aligned size has to be whole.
const GIANT_BYTES: u64 = 1 << 30;

/// Why a guest run did not come to its good end.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A part of the guest is missing on this machine.
    #[error(transparent)]
    Missing(#[from] MissingError),
    /// The guest was still running at its limit, and was ended.
    #[error("the guest was not done after {limit:?}; it said last:\n{tail}")]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// The last lines of its serial line.
        tail: String,
    },
    /// The guest ended without running its script to the end.
    #[error("the guest ended before its script did; it said last:\n{tail}")]
    EndedEarly {
        /// The last lines of its serial line.
        tail: String,
    },
    /// The script's exit status was not 0.
    #[error("the guest's script ended with status {status}; it said last:\n{tail}")]
    ScriptFailed {
        /// The status.
        status: String,
        /// The last lines of its serial line.
        tail: String,
    },
}

/// A guest to be booted: its NVDIMMs, its disks, its files, its script.
#[derive(Debug, Default)]
pub struct Guest {
    kernel: GuestKernel,
    dimms: Vec<Dimm>,
    /// What QEMU calls them.
    disks: Vec<String>,
    /// Sockets of vhost-user-blk, whose disks come after those.
    vhost_disks: Vec<PathBuf>,
    /// Whether stores to the NVDIMMs are counted.
    stores_counted: bool,
    files: BTreeMap<String, Vec<u8>>,
    script: String,
}

#[derive(Debug)]
struct Dimm {
    image: PathBuf,
    /// Bytes at the image's end that are the label area; the namespace is the rest.
    label_bytes: u64,
}

impl Guest {
    /// A guest with nothing in it.
    pub fn new() -> Guest {
        Guest::default()
    }

    /// Has the guest run this kernel.
    pub fn kernel(&mut self, kernel: GuestKernel) {
        self.kernel = kernel;
    }

    /// Puts a host file into the next slot, whose number is returned. Its size has to be a multiple
    /// of 4096. With `label_bytes` of 0 its namespace has no label, and Linux looks for BTT v1.1;
    /// else the last bytes hold labels.
    pub fn dimm(&mut self, image: &Path, label_bytes: u64) -> usize {
        self.dimms.push(Dimm { image: image.to_owned(), label_bytes });
        self.dimms.len() - 1
    }

    /// Makes a host file the next disk: `/dev/vda`, `/dev/vdb` and so on, once the script has said
    /// `disks`. What the guest wrote outlives the guest, in the page cache of this machine; a flush
    /// does not wait for this machine's own disk.
    pub fn disk(&mut self, image: &Path) {
        self.disks.push(format!("{},cache=unsafe", image.display()));
    }

    /// Makes the export `name` of the NBD server on `socket` the next disk, numbered with those of
    /// [`Guest::disk`].
    pub fn served_disk(&mut self, socket: &Path, name: &str) {
        self.disks.push(format!("nbd:unix:{}:exportname={name}", socket.display()));
    }

    /// Makes the volume at the vhost-user-blk socket the next disk behind all of the others, with
    /// which the guest shares its memory. QEMU waits for a server that comes back.
    pub fn vhost_disk(&mut self, socket: &Path) {
        self.vhost_disks.push(socket.to_owned());
    }

    /// Has QEMU count what the kernel stores to NVDIMMs until each `sectors mark` of the script:
    /// [`Transcript::stores`]. Only what is stored through the kernel's own map of all memory is
    /// seen: that is where namespaces with page structures are.
    pub fn count_stores(&mut self) {
        self.stores_counted = true;
    }

    /// Puts a program of this machine in the guest's path, with its libraries. `package` has it,
    /// should it be missing.
    pub fn tool(&mut self, name: &str, package: &'static str) -> Result<(), GuestError> {
        Ok(tools::add(&mut self.files, name, package)?)
    }

    /// Puts a program or a library of this machine in the guest as `inside`, with its libraries.
    pub fn linked(&mut self, program: &Path, inside: &str) -> Result<(), GuestError> {
        Ok(tools::add_at(&mut self.files, program, inside)?)
    }

    /// Puts a file in the root folder of the guest.
    pub fn file(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), content.into());
    }

    /// Puts `/tidegate` and `/guest-writer` in the guest, built now.
    pub fn programs(&mut self) -> Result<(), GuestError> {
        Ok(programs::add(&mut self.files, &["tidegate-cli/tidegate", "tidegate-trials/guest-writer"])?)
    }

    /// Puts a program of this workspace in the guest's root folder, built now: `package/name`.
    pub fn program(&mut self, program: &str) -> Result<(), GuestError> {
        Ok(programs::add(&mut self.files, &[program])?)
    }

    /// Adds lines to the script, which has the words of `guest/prelude.sh`. It ends at the first
    /// failure.
    pub fn script(&mut self, lines: &str) {
        self.script.push_str(lines);
        self.script.push('\n');
    }

    /// Boots the guest, runs its script, and returns what that said.
    pub fn run(self) -> Result<Transcript, GuestError> {
        let mut running = self.boot(LIMIT)?;
        while running.line()?.is_some() {}
        let mut transcript = std::mem::take(&mut running.transcript);
        if running.stores_counted {
            transcript.stores = stores::read(&running.folder.path().join(STORES))?;
        }
        Ok(transcript)
    }

    /// Boots the guest and returns when its script begins. Dropping the answer kills the guest.
    pub fn boot(self, limit: Duration) -> Result<Running, GuestError> {
        let kernel = Kernel::fetch(self.kernel)?;
        let folder = tempfile::tempdir().map_err(MissingError::file(&std::env::temp_dir()))?;
        let archive = folder.path().join("initramfs");
        let bytes = [base_archive(&kernel)?, self.own_archive()].concat();
        fs::write(&archive, bytes).map_err(MissingError::file(&archive))?;
        announce(&format!("guest: {} NVDIMM(s), kernel package {}", self.dimms.len(), kernel.package));
        self.dimms.iter().for_each(announce_image);
        let mut machine = self.machine(&kernel, &archive);
        if self.stores_counted {
            let option = stores::option(&folder.path().join(STORES), self.room_mib() << 20)?;
            machine.arg("-plugin").arg(option);
        }
        let mut child = machine.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                MissingError::Program { program: "qemu-system-x86_64".to_owned(), package: "qemu-system-x86" }
            }
            _ => MissingError::File { path: PathBuf::from("qemu-system-x86_64"), source },
        })?;
        let serial = child.stdout.take().expect("the guest's serial line is piped");
        let mut running = Running {
            child,
            serial: lines_of(serial),
            deadline: Instant::now() + limit,
            limit,
            tail: Vec::new(),
            transcript: Transcript::default(),
            stores_counted: self.stores_counted,
            folder,
        };
        running.await_begin()?;
        Ok(running)
    }

    fn own_archive(&self) -> Vec<u8> {
        let mut archive = Archive::default();
        let script = format!(". /prelude.sh\nset -e\n{}", self.script);
        archive.file("prelude.sh", PRELUDE.as_bytes()).file("run.sh", script.as_bytes());
        for folder in tools::folders(self.files.keys()) {
            archive.folder(&folder);
        }
        for (name, content) in &self.files {
            archive.file(name, content);
        }
        archive.finish()
    }

    fn machine(&self, kernel: &Kernel, archive: &Path) -> Command {
        let room_mib = self.room_mib();
        let mut machine = Command::new("qemu-system-x86_64");
        machine.args(["-machine", "pc,nvdimm=on,nvdimm-persistence=mem-ctrl", "-cpu", "max", "-smp", "2"]);
        // Before QEMU 8.1, a thread for each processor may keep translated code that the kernel has
        // patched meanwhile: the guest then ends by a breakpoint that nothing expects any more.
        machine.args(["-accel", "tcg,thread=single"]);
        machine.arg("-m").arg(format!("{MEMORY_MIB}M,slots={},maxmem={room_mib}M", self.dimms.len() + 1));
        machine.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-net", "none"]);
        machine.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(archive);
        let words = if self.stores_counted { stores::KERNEL_WORDS } else { "" };
        // The kernel would look whether ticks come in time: beside other load they do not.
        machine.arg("-append").arg(format!("console=ttyS0 panic=-1 quiet no_timer_check {words}"));
        for (number, disk) in self.disks.iter().enumerate() {
            let drive = format!("file={disk},format=raw,if=none,id=disk{number}");
            machine.arg("-drive").arg(drive).arg("-device").arg(format!("virtio-blk-pci,drive=disk{number}"));
        }
        if !self.vhost_disks.is_empty() {
            machine.arg("-object").arg(format!("memory-backend-memfd,id=ram,size={MEMORY_MIB}M,share=on"));
            machine.args(["-machine", "memory-backend=ram"]);
        }
        for (number, socket) in self.vhost_disks.iter().enumerate() {
            machine.arg("-chardev").arg(format!("socket,id=vhost{number},path={},reconnect=1", socket.display()));
            machine.arg("-device").arg(format!("vhost-user-blk-pci,chardev=vhost{number}"));
        }
        for (slot, dimm) in self.dimms.iter().enumerate() {
            let (path, size) = (dimm.image.display(), file_bytes(&dimm.image));
            machine.arg("-object");
            let align = if size > GIANT_BYTES { "2M" } else { "4K" };
            let memory = format!("memory-backend-file,id=memory{slot},share=on,mem-path={path},size={size}");
            machine.arg(format!("{memory},align={align}"));
            let label = if dimm.label_bytes == 0 { String::new() } else { format!(",label-size={}", dimm.label_bytes) };
            machine.arg("-device").arg(format!("nvdimm,id=dimm{slot},slot={slot},memdev=memory{slot}{label}"));
        }
        machine.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        machine
    }

    /// Memory that the machine has addresses for, in MiB: each slot may begin at the next GiB, and
    /// there is more than its own.
    fn room_mib(&self) -> u64 {
        let slots = self.dimms.iter().map(|dimm| (file_bytes(&dimm.image) >> 20) + 1024);
        MEMORY_MIB + 1024 + slots.sum::<u64>()
    }
}

/// Where Linux lets the data of a namespace for DAX begin.
pub(crate) const DATA_START: u64 = 2 << 20;

/// Makes the sparse file `image`, of `bytes`, an NVDIMM that the guest's word `mount_dax` can
/// mount: an empty ext4 lies on it.
///
/// # Panics
/// If it cannot be made.
pub fn dax_image(image: &Path, bytes: u64) {
    make_image(image, bytes, DATA_START);
}

/// Makes the sparse file `image`, of `bytes`, a disk with an empty ext4 from its beginning on.
///
/// # Panics
/// If it cannot be made.
pub fn disk_image(image: &Path, bytes: u64) {
    make_image(image, bytes, 0);
}

/// Makes the sparse file `image`, of `bytes`, a disk with an empty XFS on it.
///
/// # Panics
/// If it cannot be made.
pub fn xfs_image(image: &Path, bytes: u64) {
    sparse(image, bytes);
    run(Command::new("mkfs.xfs").arg("-q").arg(image), "xfsprogs").unwrap_or_else(|error| panic!("{error}"));
}

fn sparse(image: &Path, bytes: u64) {
    let file = fs::File::create_new(image).expect("a new image");
    file.set_len(bytes).expect("a sparse image");
}

fn make_image(image: &Path, bytes: u64, start: u64) {
    sparse(image, bytes);
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-b", "4096", "-J", "size=4", "-E", &format!("offset={start}")]);
    make.arg(image).arg(format!("{}k", (bytes - start) >> 10));
    run(&mut make, "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
}

fn announce_image(dimm: &Dimm) {
    let bytes = file_bytes(&dimm.image);
    let hash = match bytes <= GIANT_BYTES {
        true => sha256_of_file(&dimm.image).unwrap_or_else(|error| error.to_string()),
        false => "(sparse, not hashed)".to_owned(),
    };
    announce(&format!("guest: image {} of {bytes} bytes, sha256 {hash}", dimm.image.display()));
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The part of the guest's file system that is the same in every run.
fn base_archive(kernel: &Kernel) -> Result<Vec<u8>, MissingError> {
    let sectors = SECTORS.build()?;
    let busybox = PathBuf::from("/bin/busybox");
    if !busybox.exists() {
        return Err(MissingError::Program { program: "busybox".to_owned(), package: "busybox-static" });
    }
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "proc", "sys", "tmp", "modules"] {
        archive.folder(folder);
    }
    archive.file("init", INIT.as_bytes());
    let read = |path: &Path| fs::read(path).map_err(MissingError::file(path));
    archive.file("bin/busybox", &read(&busybox)?).file("bin/sectors", &read(&sectors)?);
    for module in kernel.modules()? {
        let name = module.rsplit('/').next().expect("a path has a last part");
        archive.file(&format!("modules/{name}"), &read(&kernel.module(module))?);
    }
    Ok(archive.finish())
}

/// A guest whose script is running. Dropped, it is killed, as by a power cut that spares every
/// store so far.
pub struct Running {
    child: Child,
    serial: Receiver<String>,
    deadline: Instant,
    limit: Duration,
    tail: Vec<String>,
    transcript: Transcript,
    stores_counted: bool,
    folder: tempfile::TempDir,
}

impl Running {
    /// The next line that the script prints; `None` when it ended with status 0.
    pub fn line(&mut self) -> Result<Option<String>, GuestError> {
        let line = self.serial_line()?;
        let Some(status) = line.strip_prefix("@@END ") else {
            self.transcript.lines.push(line.clone());
            return Ok(Some(line));
        };
        match status {
            "0" => Ok(None),
            _ => Err(GuestError::ScriptFailed { status: status.to_owned(), tail: self.tail() }),
        }
    }

    /// The lines that the script printed and nobody took yet, without waiting for more. The end of
    /// the script is no line.
    pub fn arrived(&mut self) -> Vec<String> {
        let lines: Vec<String> = self.serial.try_iter().take_while(|line| !line.starts_with("@@END ")).collect();
        self.tail.extend_from_slice(&lines);
        self.transcript.lines.extend_from_slice(&lines);
        lines
    }

    /// The process of QEMU.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The guest's `uname -a`.
    pub fn kernel(&self) -> &str {
        &self.transcript.uname
    }

    /// Freezes the guest's processors between two instructions, calls `look`, and lets them go on.
    /// Meanwhile the images are what a power cut would leave.
    pub fn frozen<T>(&mut self, look: impl FnOnce() -> T) -> Result<T, GuestError> {
        let pid = Pid::from_child(&self.child);
        let signal = |signal| kill_process(pid, signal).map_err(io::Error::from);
        let whole_process_stops = || waitpid(Some(pid), WaitOptions::UNTRACED).map_err(io::Error::from);
        let failed = || MissingError::file(Path::new("qemu-system-x86_64"));
        signal(Signal::STOP).and_then(|()| whole_process_stops()).map_err(failed())?;
        let seen = look();
        signal(Signal::CONT).map_err(failed())?;
        Ok(seen)
    }

    fn await_begin(&mut self) -> Result<(), GuestError> {
        loop {
            // Firmware and kernel may leave terminal escapes before it.
            if let Some((_, uname)) = self.serial_line()?.split_once("@@BEGIN ") {
                announce(&format!("guest: {uname}"));
                self.transcript.uname = uname.to_owned();
                return Ok(());
            }
        }
    }

    fn serial_line(&mut self) -> Result<String, GuestError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let line = self.serial.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => GuestError::TimedOut { limit: self.limit, tail: self.tail() },
            RecvTimeoutError::Disconnected => GuestError::EndedEarly { tail: self.tail() },
        })?;
        self.tail.push(line.clone());
        Ok(line)
    }

    fn tail(&self) -> String {
        self.tail[self.tail.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of the serial line, read by a thread of their own so that waiting for one can have a
/// deadline.
fn lines_of(serial: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut serial = BufReader::new(serial);
        let mut line = Vec::new();
        while serial.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// What a guest's script said.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// The guest's `uname -a`.
    pub uname: String,
    /// The script's output, line by line.
    pub lines: Vec<String>,
    /// What had been stored at each `sectors mark`, if that was counted.
    pub stores: Vec<Stores>,
}

impl Transcript {
    /// What follows `key` and a space on the first line that begins so.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    }

    /// What the guest's word `report` said of the DIMM in `slot`; `None` when the driver made no
    /// device of it.
    pub fn report(&self, slot: usize) -> Option<DeviceReport> {
        self.value(&format!("report {slot}")).and_then(DeviceReport::parse)
    }
}

/// A block device as the guest's Linux sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its size in bytes.
    pub bytes: u64,
    /// The size of its sectors in bytes.
    pub sector_size: u32,
    /// The SHA-256 of all its sectors.
    pub sha256: String,
}

impl DeviceReport {
    fn parse(text: &str) -> Option<DeviceReport> {
        const SYSFS_UNIT_BYTES: u64 = 512;
        let mut words = text.split(' ');
        let bytes = words.next()?.parse::<u64>().ok()? * SYSFS_UNIT_BYTES;
        let sector_size = words.next()?.parse().ok()?;
        Some(DeviceReport { bytes, sector_size, sha256: words.next()?.to_owned() })
    }
}
