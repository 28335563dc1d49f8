//! A virtual machine whose disk is a volume, by vhost-user-blk: QEMU, Debian's kernels and their
//! own virtio-blk driver. The server is killed with SIGKILL under the machine's load; the machine
//! sees no error and loses nothing.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_trials::artefacts::announce;
use tidegate_trials::guest::{Guest, GuestKernel, LIMIT, Running};
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::{Server, Volume, until};
use tidegate_virtio_driver::{Command, Machine, Shape};

/// Files that the machine writes and syncs, one after the other.
const FILES: u64 = 48;
/// Writes of each job of fio.
const WRITES: u64 = 1000;
/// Files between two kills of the server.
const FILES_PER_KILL: u64 = 12;

/// fio on the same volume by both fronts: `vda` is QEMU's own NBD client behind its virtio-blk,
/// `vdb` vhost-user-blk. The guest's driver is the same, and it counts its signals to the device
/// and the interrupts from there.
const COSTS: &str = r#"
mount -t tracefs tracefs /sys/kernel/tracing
echo 'p:kick vp_notify' >/sys/kernel/tracing/kprobe_events
echo 1 >/sys/kernel/tracing/events/kprobes/kick/enable
count() { # DISK: requests, signals and interrupts so far
    driver=$(basename $(readlink /sys/block/$1/device))
    awk '{ print $1 + $5 + $16 }' /sys/block/$1/stat
    awk '$1 == "kick" { print $2 }' /sys/kernel/tracing/kprobe_profile
    awk -v queue="$driver-req" 'index($0, queue) { n += $2 + $3 } END { print n + 0 }' /proc/interrupts
}
for disk in vda vdb; do
    for form in '1 --fsync=0' '32 --fsync=0' '1 --fsync=1'; do
        echo "begin $disk"
        set -- $(count $disk)
        fio --name=costs --filename=/dev/$disk --direct=1 --ioengine=libaio --rw=randwrite --bs=4k \
            --size=16M --norandommap --number_ios=WRITES --iodepth=$form >/run.fio 2>&1 || { cat /run.fio; exit 1; }
        took=$(sed -n 's/.*run=[0-9]*-\([0-9]*\)msec.*/\1/p' /run.fio)
        set -- $1 $2 $3 $(count $disk)
        echo "cost $disk ${form% *} ${form#*=} $(($4 - $1)) $(($5 - $2)) $(($6 - $3)) $took"
    done
done
"#;

const SCRIPT: &str = r#"
load crc16 crc32c_generic mbcache jbd2 ext4
echo "disk $(cat /sys/block/DISK/size) $(cat /sys/block/DISK/queue/logical_block_size) $(cat /sys/block/DISK/serial)"
echo "discard $(cat /sys/block/DISK/queue/discard_max_bytes) zeroes $(cat /sys/block/DISK/queue/write_zeroes_max_bytes)"
echo "cache $(cat /sys/block/DISK/queue/write_cache)"
mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/DISK
mkdir /mnt
mount -t ext4 /dev/DISK /mnt
i=0
while [ $i -lt FILES ]; do
    dd if=/dev/urandom of=/mnt/$i bs=8k count=5 conv=fsync 2>/dev/null
    echo "made $i $(sha256sum </mnt/$i)"
    i=$((i + 1))
done
fstrim /mnt
umount /mnt
e2fsck -fn /dev/DISK
mount -t ext4 -o ro /dev/DISK /mnt
i=0
while [ $i -lt FILES ]; do
    echo "found $i $(sha256sum </mnt/$i)"
    i=$((i + 1))
done
umount /mnt
echo "errors $(dmesg | grep -c -i -e 'i/o error' -e 'ext4-fs error')"
"#;

/// The lines that begin with `word`, without it.
fn told<'a>(lines: &'a [String], word: &str) -> Vec<&'a str> {
    lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
}

/// A machine with the volume at `socket` as its disk; with `nbd` it first has the volume by that
/// socket too, and does what [`COSTS`] says.
fn machine(kernel: GuestKernel, socket: &Path, nbd: Option<&Path>) -> Running {
    let mut guest = Guest::new();
    guest.kernel(kernel);
    guest.vhost_disk(socket);
    guest.script("disks");
    let disk = if let Some(nbd) = nbd {
        guest.served_disk(nbd, "disk");
        guest.linked(Path::new("/usr/bin/fio"), "bin/fio").unwrap_or_else(|error| panic!("{error}"));
        guest.script(&COSTS.replace("WRITES", &WRITES.to_string()));
        "vdb"
    } else {
        "vda"
    };
    for tool in ["mkfs.ext4", "e2fsck"] {
        guest.tool(tool, "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
    }
    guest.file("etc/mke2fs.conf", std::fs::read("/etc/mke2fs.conf").expect("apt-get install e2fsprogs"));
    guest.script(&SCRIPT.replace("FILES", &FILES.to_string()).replace("DISK", disk));
    guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"))
}

fn serve(volume: &Volume, socket: &Path) -> Server {
    volume.serve_with(&["--vhost-user", socket.to_str().unwrap()])
}

/// How often each thread of the process gave up its processor to wait.
fn waits(process: u32) -> BTreeMap<PathBuf, u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let waits = |thread: PathBuf| {
        // A thread may have ended meanwhile.
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        Some((thread, waits.trim().parse().unwrap()))
    };
    threads.filter_map(|thread| waits(thread.unwrap().path())).collect()
}

/// Waits since `before`, of the threads that are there now.
fn waits_since(before: &BTreeMap<PathBuf, u64>, process: u32) -> u64 {
    waits(process).iter().map(|(thread, count)| count - before.get(thread).unwrap_or(&0)).sum()
}

/// What fio's requests cost by one front: counts for each request.
struct FrontCost {
    disk: String,
    /// The depth, and whether each write is synced.
    form: [u64; 2],
    requests: u64,
    signals: f64,
    interrupts: f64,
    server_waits: f64,
    machine_waits: f64,
    milliseconds: u64,
}

/// The jobs of [`COSTS`], as they are heard.
#[derive(Default)]
struct FrontCosts {
    found: Vec<FrontCost>,
    /// Of the server and of QEMU, as a job began.
    waits_before: [BTreeMap<PathBuf, u64>; 2],
}

impl FrontCosts {
    /// Hears a line of the guest while the server and QEMU are these processes.
    fn hear(&mut self, line: &str, processes: [u32; 2]) {
        if line.starts_with("begin ") {
            self.waits_before = processes.map(waits);
        }
        let Some((disk, numbers)) = line.strip_prefix("cost ").and_then(|told| told.split_once(' ')) else { return };
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [depth, synced, requests, signals, interrupts, milliseconds] = numbers[..] else { panic!("{line}") };
        let each = |count: u64| count as f64 / requests as f64;
        let waits = |nth: usize| each(waits_since(&self.waits_before[nth], processes[nth]));
        self.found.push(FrontCost {
            disk: disk.to_owned(),
            form: [depth, synced],
            requests,
            signals: each(signals),
            interrupts: each(interrupts),
            server_waits: waits(0),
            machine_waits: waits(1),
            milliseconds,
        });
    }

    /// Tells them, and panics unless one request at a time takes fewer notifications by
    /// vhost-user-blk.
    fn judge(&self) {
        announce(
            "| depth | synced | disk | requests | signals | interrupts | server's waits | QEMU's waits | ms, emulated |",
        );
        announce("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for cost in &self.found {
            let FrontCost { disk, form: [depth, synced], requests, milliseconds, .. } = cost;
            let counts = [cost.signals, cost.interrupts, cost.server_waits, cost.machine_waits];
            let counts = counts.map(|count| format!("{count:.3}")).join(" | ");
            announce(&format!("| {depth} | {synced} | {disk} | {requests} | {counts} | {milliseconds} |"));
        }
        let by = |disk: &str| self.found.iter().filter(|cost| cost.disk == disk).collect::<Vec<_>>();
        let (by_nbd, by_vhost_user) = (by("vda"), by("vdb"));
        assert_eq!([by_nbd.len(), by_vhost_user.len()], [3, 3]);
        let one_by_one = by_vhost_user[0].signals + by_vhost_user[0].interrupts;
        for (nbd, vhost_user) in by_nbd.iter().zip(by_vhost_user) {
            assert_eq!(nbd.form, vhost_user.form);
            assert!(vhost_user.requests >= WRITES && nbd.requests >= WRITES);
            // The guest's signal is what the server waits for: no other process has to tell it.
            assert!(vhost_user.server_waits <= vhost_user.signals + 0.1, "the server is told by signals alone");
            let alone = vhost_user.signals + vhost_user.interrupts;
            let with_socket = nbd.signals + nbd.interrupts + nbd.server_waits;
            let [depth, _] = nbd.form;
            if depth == 1 {
                assert!(alone < with_socket, "{:?}: {alone} is not below {with_socket}", nbd.form);
            } else {
                // How many requests come together is a matter of time, but some do.
                assert!(alone < one_by_one, "{:?}: {alone} is not below {one_by_one}", nbd.form);
            }
        }
    }
}

/// Has a machine with this kernel live on a volume whose server is killed again and again.
fn live(kernel: GuestKernel) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Volume::create(folder.path(), "disk", "96M");
    let socket = folder.path().join("disk.vhost");
    let mut server = serve(&volume, &socket);
    let with_nbd = kernel == GuestKernel::Newer;
    let mut running = machine(kernel, &socket, with_nbd.then(|| server.socket()));
    let mut lines = Vec::new();
    let mut kills = 0;
    let mut costs = FrontCosts::default();
    while let Some(line) = running.line().unwrap_or_else(|error| panic!("{error}")) {
        costs.hear(&line, [server.process(), running.process()]);
        lines.push(line);
        if told(&lines, "made").len() as u64 > FILES_PER_KILL * (kills + 1) {
            kills += 1;
            server.kill();
            volume.assert_clean();
            server = serve(&volume, &socket);
        }
    }
    announce(&format!("virtual machine: {kernel:?}, {kills} kills, {:?}", told(&lines, "disk")));
    assert_eq!(kills, FILES / FILES_PER_KILL - 1, "{lines:?}");
    if with_nbd {
        costs.judge();
    }
    let disk = told(&lines, "disk")[0].to_owned();
    assert!(disk.ends_with(" 4096 disk"), "{disk}");
    assert!(!told(&lines, "discard")[0].starts_with("0 "), "{lines:?}");
    assert_eq!(told(&lines, "cache"), ["write back"]);
    assert_eq!(told(&lines, "made").len() as u64, FILES);
    assert_eq!(told(&lines, "made"), told(&lines, "found"));
    assert_eq!(told(&lines, "errors"), ["0"]);
    drop(running);
    server.stop();
    volume.assert_clean();
}

#[test]
fn linux_6_1_lives_on_a_volume_whose_server_is_killed() {
    live(GuestKernel::Stable);
}

#[test]
fn linux_6_12_lives_on_a_volume_whose_server_is_killed() {
    live(GuestKernel::Newer);
}

/// Kills of the server under the driver, unless `TIDEGATE_KILLS` says another number.
const KILLS: u64 = 25;
const BLOCK_BYTES: u32 = 4096;
const BLOCKS: u64 = 2000;

/// Connects to a server that is about to listen.
fn connected(socket: &Path) -> UnixStream {
    let mut stream = None;
    until("the server's socket", || {
        stream = UnixStream::connect(socket).ok();
        stream.is_some()
    });
    stream.unwrap()
}

/// A machine with many writes and flushes under way whose server is killed.
struct Writer {
    machine: Machine,
    dice: Dice,
    /// Of each block the turn that was written last and answered, and whether that was flushed.
    written: Vec<u32>,
    /// Of each slot the block and the turn that are under way.
    under_way: Vec<Option<(u64, u32)>>,
    turn: u32,
    answers: u64,
}

impl Writer {
    /// Fills free slots. No block is under way twice.
    fn submit(&mut self) {
        let queue = &mut self.machine.queues[0];
        for slot in 0..queue.slots() {
            if self.under_way[usize::from(slot)].is_some() {
                continue;
            }
            let block = self.dice.below(BLOCKS);
            if self.under_way.iter().flatten().any(|(other, _)| *other == block) {
                continue;
            }
            self.turn += 1;
            queue.fill(slot, &self.turn.to_le_bytes().repeat(BLOCK_BYTES as usize / 4));
            queue.submit(slot, Command::Write, block * 8, BLOCK_BYTES);
            self.under_way[usize::from(slot)] = Some((block, self.turn));
        }
        queue.kick();
    }

    /// Takes the answers that are there.
    fn take_answers(&mut self) {
        while let Some(answer) = self.machine.queues[0].answer() {
            assert_eq!(answer.status, 0);
            let (block, turn) = self.under_way[usize::from(answer.slot)].take().expect("it was asked for");
            self.written[block as usize] = turn;
            self.answers += 1;
        }
    }

    /// Works until a number of answers came.
    fn work(&mut self, answers: u64) {
        let enough = self.answers + answers;
        while self.answers < enough {
            self.submit();
            assert!(self.machine.queues[0].wait(600_000).unwrap(), "no answer for ten minutes");
            self.take_answers();
        }
    }
}

#[test]
fn a_killed_server_loses_no_answered_write_and_answers_the_others_when_it_is_back() {
    let kills = std::env::var("TIDEGATE_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "disk", "48M");
    let socket: PathBuf = folder.path().join("disk.vhost");
    let mut server = serve(&volume, &socket);
    let shape = Shape { data_bytes: BLOCK_BYTES.into(), ..Shape::default() };
    let machine = Machine::attach(connected(&socket), shape).unwrap();
    let slots = usize::from(machine.queues[0].slots());
    let (written, under_way) = (vec![0; BLOCKS as usize], vec![None; slots]);
    let mut writer = Writer { machine, dice: Dice::new(kills), written, under_way, turn: 0, answers: 0 };
    let mut left_over = 0;
    for _ in 0..kills {
        let answers = writer.dice.below(2000);
        writer.work(answers);
        writer.submit();
        server.kill();
        writer.take_answers();
        left_over += writer.under_way.iter().flatten().count();
        volume.assert_clean();
        server = serve(&volume, &socket);
        writer.machine.attach_again(connected(&socket)).unwrap();
    }
    while writer.under_way.iter().any(Option::is_some) {
        assert!(writer.machine.queues[0].wait(600_000).unwrap(), "no answer for ten minutes");
        writer.take_answers();
    }
    let mut block_bytes = vec![0; BLOCK_BYTES as usize];
    for block in 0..BLOCKS {
        let queue = &mut writer.machine.queues[0];
        assert_eq!(queue.request(Command::Read, block * 8, BLOCK_BYTES).unwrap().status, 0);
        queue.take(0, &mut block_bytes);
        let expected = writer.written[block as usize].to_le_bytes().repeat(BLOCK_BYTES as usize / 4);
        assert!(block_bytes == expected, "block {block} is not what was answered last");
    }
    announce(&format!(
        "virtual machine: {kills} kills, {} answered writes, {left_over} that had no answer at a kill",
        writer.answers
    ));
    assert!(left_over > 0, "no kill came while a request was under way");
}

#[test]
fn a_second_machine_is_turned_away_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "disk", "48M");
    let socket = folder.path().join("disk.vhost");
    let server = serve(&volume, &socket);
    let mut first = Machine::attach(connected(&socket), Shape::default()).unwrap();
    assert!(Machine::attach(connected(&socket), Shape::default()).is_err(), "the first one has it");
    assert_eq!(first.queues[0].request(Command::Write, 0, 4096).unwrap().status, 0);
    drop(first);
    let mut second = None;
    until("the first one's end", || {
        second = Machine::attach(connected(&socket), Shape::default()).ok();
        second.is_some()
    });
    let mut second = second.unwrap();
    assert_eq!(second.queues[0].request(Command::Read, 0, 4096).unwrap().status, 0);
    server.stop();
    assert!(!socket.exists(), "the socket goes with its server");
}
