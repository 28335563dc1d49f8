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
