//! The program that maps files directly, and does with them what it is told line by line.

use crate::direct::with_direct_path;
use crate::mounted::MountTestbed;
use crate::programs::MAPPER;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The program, which is killed with this value.
pub struct Mapper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Mapper {
    /// With the direct path.
    pub fn start(testbed: &MountTestbed) -> Mapper {
        let program = MAPPER.build().unwrap_or_else(|missing| panic!("{missing}"));
        Mapper::run(with_direct_path(testbed, program.to_str().expect("a plain path")))
    }

    /// With the direct path, and mappings of the kernel's pages that are upgraded.
    pub fn upgraded(testbed: &MountTestbed) -> Mapper {
        let program = MAPPER.build().unwrap_or_else(|missing| panic!("{missing}"));
        let mut command = with_direct_path(testbed, program.to_str().expect("a plain path"));
        command.env("TIDEGATE_UPGRADE_MAPPINGS", "1");
        Mapper::run(command)
    }

    /// Without the library.
    pub fn plain(testbed: &MountTestbed) -> Mapper {
        let program = MAPPER.build().unwrap_or_else(|missing| panic!("{missing}"));
        let mut command = Command::new(program);
        command.current_dir(testbed.mountpoint());
        Mapper::run(command)
    }

    fn run(mut command: Command) -> Mapper {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Mapper { child, input, output: BufReader::new(output) }
    }

    /// What it answers.
    pub fn says(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        let mut said = String::new();
        self.output.read_line(&mut said).expect("it writes");
        assert!(said.ends_with('\n'), "it ended at: {line}");
        said.trim_end().to_owned()
    }

    /// It answers each of these by "ok".
    pub fn does(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| assert_eq!(self.says(line), "ok", "{line}"));
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and none of its children.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// It ends by itself.
    pub fn exits(mut self) {
        writeln!(self.input, "exit").expect("it reads");
        assert!(self.child.wait().expect("it was started").success());
    }

    /// It has this file open and so many bytes mapped.
    pub fn mapped(testbed: &MountTestbed, name: &str, bytes: usize) -> Mapper {
        let mut mapper = Mapper::start(testbed);
        mapper.does(&[&format!("open {name} rw"), &format!("map direct 0 {bytes}")]);
        mapper
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What `random` and `threads` of the program leave in a file of which they map all of these bytes.
///
/// # Panics
///
/// If the file is too short.
pub fn store_random(bytes: &mut [u8], seed: u64, count: u64, threads: u64) {
    let words = bytes.len() as u64 / 8 / threads;
    for thread in 0..threads {
        let mut x = seed + thread;
        for step in 1..=count {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(((x >> 20) % words * threads + thread) * 8).expect("in the file");
            bytes[at..at + 8].copy_from_slice(&step.to_le_bytes());
        }
    }
}
