//! The program's commands, each with a deadline, and a server whose every block is read.

use crate::served::program;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tidegate_nbd_client::client::{Client, ClientError, Dialect};

/// After so many seconds a command hangs: many times what any of them needs on two busy cores.
const DEADLINE_SECONDS: &str = "120";

/// The exit codes that the manual names, but for 1: the program did not expect what it met.
const EXIT_CODES: [i32; 6] = [0, 2, 3, 4, 5, 6];

/// How a command ended.
#[derive(Debug)]
pub struct Verdict {
    /// Its exit code.
    pub code: i32,
    /// What it said on stdout and stderr.
    pub said: String,
}

/// What a server answered to the read of one block: its bytes, or the protocol's error number.
pub type Block = Result<Vec<u8>, u32>;

/// Runs `tidegate` with these arguments to its end.
pub fn tidegate(arguments: &[&str]) -> Verdict {
    verdict(Command::new(program()).args(arguments))
}

/// Runs a command to its end, which has to be one that the manual names.
pub fn verdict(command: &mut Command) -> Verdict {
    let output = timed(command).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    judged(command, &output, &[])
}

/// The `command`, ended if it takes too long. `timeout` hands on its exit code, or tells of a
/// signal by one above 128. In the foreground it hands on a signal once, not to itself and the
/// whole group.
fn timed(command: &Command) -> Command {
    let mut timed = Command::new("timeout");
    timed.args(["--foreground", "--signal=KILL", DEADLINE_SECONDS]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| timed.env(name, value));
    }
    timed.stdin(Stdio::null());
    timed
}

fn judged(command: &Command, output: &Output, more: &[u8]) -> Verdict {
    let said = [&output.stdout, &output.stderr, more].map(String::from_utf8_lossy).concat();
    let code = output.status.code().unwrap_or(-1);
    assert!(EXIT_CODES.contains(&code), "{command:?}: {}:\n{said}", output.status);
    assert!(!said.contains("panicked at"), "{command:?}:\n{said}");
    Verdict { code, said }
}

/// Serves `region` as `arguments` say and reads each of `blocks` blocks by itself, or tells how the
/// server refused to start. `folder` takes its socket and what it says.
pub fn serve_and_read(
    folder: &Path,
    region: &Path,
    arguments: &[&str],
    blocks: u64,
    block_bytes: u32,
) -> (Verdict, Option<Vec<Block>>) {
    let (socket, errors) = (folder.join("flips.sock"), folder.join("flips.stderr"));
    let mut command = Command::new(program());
    command.arg("serve").arg("--pmem").arg(region).arg("--listen").arg(format!("unix:{}", socket.display()));
    command.args(arguments);
    let mut serve = timed(&command);
    serve.stdout(Stdio::piped()).stderr(File::create(&errors).expect("a file for errors"));
    let mut server = serve.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = server.stdout.take().expect("its output is piped");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let read = lines.by_ref().any(|line| line.starts_with("serving ")).then(|| {
        let read = read_blocks(&socket, blocks, block_bytes);
        // `timeout` hands the signal on.
        kill_process(Pid::from_child(&server), Signal::TERM).expect("the server runs");
        read
    });
    lines.for_each(drop);
    let output = server.wait_with_output().expect("it can be waited for");
    let verdict = judged(&command, &output, &fs::read(&errors).expect("it can be read"));
    match read {
        None => (verdict, None),
        Some(Err(error)) => panic!("{command:?}: {error}:\n{}", verdict.said),
        Some(Ok(blocks)) => (verdict, Some(blocks)),
    }
}

fn read_blocks(socket: &Path, blocks: u64, block_bytes: u32) -> Result<Vec<Block>, ClientError> {
    let mut client = Client::connect(UnixStream::connect(socket)?, "", Dialect::Structured)?;
    let mut block = |number| {
        let mut bytes = vec![0; block_bytes as usize];
        match client.read(number * u64::from(block_bytes), &mut bytes) {
            Ok(()) => Ok(Ok(bytes)),
            Err(ClientError::Refused(refusal)) => Ok(Err(refusal.code)),
            Err(error) => Err(error),
        }
    };
    (0..blocks).map(&mut block).collect()
}
