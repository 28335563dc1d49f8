//! Atomic groups of writes on a mount, by F2FS's `ioctl`s: all or nothing, whoever is killed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tidegate_trials::mounted::MountTestbed;

/// Carries out a command a line on the file of its argument, and says `ok`, or the error's number.
/// It goes on behind a short write, as SQLite does.
const PROGRAM: &str = r#"
use Fcntl; use Errno; $| = 1;
sysopen(F, $ARGV[0], O_RDWR) or die $!;
sub put { my ($at, $data) = @_;
    while (length $data) {
        sysseek(F, $at, 0);
        my $done = syswrite(F, $data);
        next if !$done and $!{EINTR};
        $done or return 0;
        $at += $done; substr($data, 0, $done) = '';
    }
    1 }
while (<STDIN>) {
    my ($what, $at, $len, $byte) = split;
    my $features = pack('L', 0);
    my $done = $what eq 'write' ? put($at, $byte x $len)
        : $what eq 'features' ? (ioctl(F, 0x8004f50c, $features) and unpack('L', $features) == 4)
        : ioctl(F, $at + 0, 0);
    print $done ? "ok\n" : $!+0, $done ? '' : "\n";
}
"#;
const BEGIN: &str = "ioctl 62721";
const COMMIT: &str = "ioctl 62722";
const ABORT: &str = "ioctl 62725";
const EIO: &str = "5";
const EINVAL: &str = "22";
const ENOTTY: &str = "25";

/// The file at the beginning: pages that the kernel has, and no whole number of them.
static OLD: [u8; 20_000] = [b'o'; 20_000];

/// The program at work.
struct Client {
    program: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn of(file: &Path) -> Client {
        let mut program = Command::new("perl");
        program.args(["-e", PROGRAM]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let (commands, answers) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        Client { program, commands, answers: BufReader::new(answers) }
    }

    fn does(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// Begins a group that changes bytes in four pages, and lengthens the file.
    fn writes_a_group(&mut self, byte: char) {
        for command in [BEGIN, "write 100 5000 ", "write 12000 3 ", "write 16900 1 ", "write 24576 4096 "] {
            assert_eq!(self.does(&format!("{command}{byte}")), "ok", "{command}");
        }
    }

    fn killed(mut self) {
        self.program.kill().unwrap();
        self.program.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
    }
}

/// The file with a group of this byte.
fn with_group(byte: u8) -> Vec<u8> {
    let mut bytes = OLD.to_vec();
    bytes.resize(24_576 + 4096, 0);
    bytes[100..5100].fill(byte);
    bytes[12_000..12_003].fill(byte);
    bytes[16_900] = byte;
    bytes[24_576..].fill(byte);
    bytes
}

#[test]
fn a_group_is_there_as_a_whole_after_its_commit_and_not_before_whoever_is_killed() {
    let mut bed = MountTestbed::new();
    let file = bed.mountpoint().join("file");
    let read = || fs::read(&file).unwrap();
    fs::write(&file, OLD).unwrap();
    assert!(read() == OLD);

    let mut client = Client::of(&file);
    assert_eq!((client.does("features"), client.does("ioctl 12345")), ("ok".to_owned(), ENOTTY.to_owned()));
    assert_eq!(client.does(COMMIT), EINVAL, "no group");
    client.writes_a_group('a');
    assert_eq!(client.does(ABORT), "ok");
    assert!(read() == OLD, "aborted");
    client.writes_a_group('b');
    client.killed();
    assert!(read() == OLD, "the program was killed");

    let mut client = Client::of(&file);
    client.writes_a_group('c');
    // The length counts the group's bytes while it is open; nobody sees the bytes, and the read
    // ends the group.
    let (old, behind) = (read(), OLD.len());
    assert!(old[..behind] == OLD && old[behind..].iter().all(|byte| *byte == 0), "not committed");
    assert!(read() == OLD, "the group has ended");
    assert_eq!(client.does(COMMIT), EIO, "its pages were read");
    client.writes_a_group('d');
    assert_eq!(client.does(COMMIT), "ok");
    assert!(read() == with_group(b'd'), "committed");

    client.writes_a_group('e');
    bed.kill_server();
    assert_eq!(client.does("write 0 100 f"), EIO, "the server was killed");
    assert!(read() == with_group(b'd'), "the server was killed");
    assert_eq!(client.does(COMMIT), EIO);
    client.writes_a_group('g');
    assert_eq!(client.does(COMMIT), "ok");

    client.writes_a_group('h');
    bed.kill();
    drop(client);
    bed.mount_again();
    assert!(read() == with_group(b'g'), "everything was killed");
    assert!(bed.end().is_written_back());
}
