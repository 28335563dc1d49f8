//! A virtual machine whose disk is a volume, by vhost-user-blk: QEMU, Debian's kernels and their
//! own virtio-blk driver. The server is killed with SIGKILL under the machine's load; the machine
//! sees no error and loses nothing.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tidegate_trials::artefacts::announce;
use tidegate_trials::guest::{Guest, GuestKernel, LIMIT, Running};
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::{Server, Volume, until};
use tidegate_virtio_driver::{Command, Machine, Shape};

/// Files that the machine writes and syncs, one after the other.
const FILES: u64 = 48;
/// Files between two kills of the server.
const FILES_PER_KILL: u64 = 12;

const SCRIPT: &str = r#"
disks
load crc16 crc32c_generic mbcache jbd2 ext4
echo "disk $(cat /sys/block/vda/size) $(cat /sys/block/vda/queue/logical_block_size) $(cat /sys/block/vda/serial)"
echo "discard $(cat /sys/block/vda/queue/discard_max_bytes) zeroes $(cat /sys/block/vda/queue/write_zeroes_max_bytes)"
echo "cache $(cat /sys/block/vda/queue/write_cache)"
mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/vda
mkdir /mnt
mount -t ext4 /dev/vda /mnt
i=0
while [ $i -lt FILES ]; do
    dd if=/dev/urandom of=/mnt/$i bs=8k count=5 conv=fsync 2>/dev/null
    echo "made $i $(sha256sum </mnt/$i)"
    i=$((i + 1))
done
fstrim /mnt
umount /mnt
e2fsck -fn /dev/vda
mount -t ext4 -o ro /dev/vda /mnt
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

fn machine(kernel: GuestKernel, socket: &Path) -> Running {
    let mut guest = Guest::new();
    guest.kernel(kernel);
    guest.vhost_disk(socket);
    for tool in ["mkfs.ext4", "e2fsck"] {
        guest.tool(tool, "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
    }
    guest.file("etc/mke2fs.conf", std::fs::read("/etc/mke2fs.conf").expect("apt-get install e2fsprogs"));
    guest.script(&SCRIPT.replace("FILES", &FILES.to_string()));
    guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"))
}

fn serve(volume: &Volume, socket: &Path) -> Server {
    volume.serve_with(&["--vhost-user", socket.to_str().unwrap()])
}

/// Has a machine with this kernel live on a volume whose server is killed again and again.
fn live(kernel: GuestKernel) {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "disk", "96M");
    let socket = folder.path().join("disk.vhost");
    let mut server = serve(&volume, &socket);
    let mut running = machine(kernel, &socket);
    let mut lines = Vec::new();
    let mut kills = 0;
    while let Some(line) = running.line().unwrap_or_else(|error| panic!("{error}")) {
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
