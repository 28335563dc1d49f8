//! QEMU's client, told to wait for its server (`open-timeout`, `reconnect-delay`): it is killed
//! with SIGKILL under it and started anew, over and over. No request fails, and whatever was
//! acknowledged is there.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use tidegate_trials::artefacts::announce;
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::Volume;

const KILLS: u64 = 5;
/// Batches that are acknowledged before a kill: at most so many.
const BATCHES_MAX: u64 = 40;
/// Writes that are under way together.
const BATCH: u64 = 8;
const BLOCK_BYTES: usize = 4096;
/// Blocks that are written, over and over.
const BLOCKS: u64 = 1000;

/// How QEMU finds the server at `socket`, and how long it waits for it.
fn blockdev(socket: &Path) -> String {
    format!("driver=nbd,server.type=unix,server.path={},reconnect-delay=300,open-timeout=300", socket.display())
}

/// What `qemu-io` prints when it takes a command.
const PROMPT: &str = "qemu-io> ";

/// `qemu-io` as a client. It has to be given one command at a time.
struct QemuIo {
    child: Child,
    commands: ChildStdin,
    answers: ChildStdout,
    /// The byte that each block holds, as far as it was acknowledged.
    written: BTreeMap<u64, u8>,
    turns: u64,
}

impl QemuIo {
    fn start(socket: &Path) -> QemuIo {
        let mut command = Command::new("qemu-io");
        command.args(["--image-opts", &blockdev(socket)]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("install it by `apt-get install qemu-utils`");
        let (commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        QemuIo { child, commands, answers, written: BTreeMap::new(), turns: 0 }
    }

    /// Waits until a command can be given; what was printed until then.
    fn await_prompt(&mut self) -> String {
        let mut printed = String::new();
        while !printed.ends_with(PROMPT) {
            let mut piece = [0; 1024];
            let len = self.answers.read(&mut piece).unwrap();
            assert!(len > 0, "qemu-io ended: {printed}");
            printed += std::str::from_utf8(&piece[..len]).unwrap();
        }
        assert!(!printed.contains("failed"), "{printed}");
        printed
    }

    /// Gives a command when a prompt was seen; what was printed before the next one.
    fn command(&mut self, command: &str) -> String {
        self.commands.write_all(command.as_bytes()).unwrap();
        self.await_prompt()
    }

    /// Writes some blocks, all under way together, and waits until all are acknowledged.
    fn write_batch(&mut self) {
        self.turns += 1;
        let byte = 1 + (self.turns % 255) as u8;
        let blocks: Vec<u64> = (0..BATCH).map(|nth| (self.turns * BATCH + nth) % BLOCKS).collect();
        let mut printed = String::new();
        for block in &blocks {
            printed += &self.command(&format!("aio_write -P {byte} {} 4k\n", block * BLOCK_BYTES as u64));
        }
        printed += &self.command("aio_flush\n");
        assert_eq!(printed.matches("wrote 4096/4096 bytes").count(), blocks.len(), "{printed}");
        self.written.extend(blocks.into_iter().map(|block| (block, byte)));
    }
}

impl Drop for QemuIo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn qemu_waits_for_a_server_that_was_killed_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "volume", "48M");
    // The first one comes later than its client.
    let mut client = QemuIo::start(&folder.path().join("volume.sock"));
    let mut server = volume.serve();
    let mut dice = Dice::new(7);
    let (acknowledge, acknowledged) = mpsc::channel();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = &mut client;
        let enough = &enough;
        scope.spawn(move || {
            client.await_prompt();
            while !enough.load(Ordering::Relaxed) {
                client.write_batch();
                // The last ones come when nobody counts any more.
                let _ = acknowledge.send(());
            }
        });
        for _ in 0..KILLS {
            (0..=dice.below(BATCHES_MAX)).for_each(|_| acknowledged.recv().expect("writes go on"));
            server.kill();
            volume.assert_clean();
            server = volume.serve();
        }
        acknowledged.recv().expect("writes go on after the last kill, too");
        enough.store(true, Ordering::Relaxed);
    });
    let mut seen = vec![0; BLOCK_BYTES];
    let mut reader = server.connect();
    for (block, byte) in &client.written {
        reader.read(block * BLOCK_BYTES as u64, &mut seen).unwrap();
        assert!(seen.iter().all(|found| found == byte), "block {block} is not {byte:#x} throughout");
    }
    let batches = client.turns;
    drop((reader, client));
    server.stop();
    volume.assert_clean();
    announce(&format!(
        "killed the server {KILLS} times under QEMU's client, which wrote {batches} batches; none failed"
    ));
}
