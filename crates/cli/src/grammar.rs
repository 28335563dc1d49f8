//! The command line: its grammar and its help. There is one file for each group of commands, as the
//! help shows them.

mod disk_cache;
mod examples;
mod files;
mod help;
mod helper;
mod refusal;
mod tools;
mod topics;
mod values;
mod volumes;
mod words;

pub(crate) use disk_cache::{Attach, Detach, Flush, Replay, Resize, Salvage, Scrub, SetMode};
pub(crate) use examples::examples;
pub(crate) use files::{Explain, Mount, Recover, Run, Status, Umount};
pub(crate) use help::command;
pub(crate) use helper::{FstabMount, Pretence};
pub(crate) use tools::{Completions, Config, Doctor, Help, Man};
pub(crate) use topics::{TOPICS, TOPICS_WORD};
pub(crate) use values::{
    ByteRange, admit, cache, cache_mode, glob, group, listen_as_written, metrics, profile, replacement, size,
    socket_mode, user,
};
pub(crate) use volumes::{Check, Create, Info, Rebuild, Serve, Stat, Stop, Top};
#[cfg(test)]
pub(crate) use {
    examples::Example,
    help::{GROUPS, subjects},
};

use crate::errors::Failure;
use clap::error::ErrorKind;
use clap::{ArgAction, FromArgMatches, Parser, Subcommand};
use refusal::{named_command, refusal};
use std::ffi::OsString;

/// Persistent memory as block volumes, as a cache of disks, and for the syncs of programs
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Program {
    /// Answer with JSON, one object to a line: answers on stdout, errors on stderr
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    /// Log more than warnings to stderr: -v clients that come and go, and background work; -vv
    /// also each client's identity, scrapes and control requests; -vvv also each client request
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands, in the order of [`help::GROUPS`].
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a region with an empty volume in it, or one that caches a disk
    Create(Create),
    /// Serve volumes over NBD until SIGTERM or SIGINT
    Serve(Box<Serve>),
    /// Show the size and format of a volume, its users, and which failures it survives
    Info(Info),
    /// List servers, mounts, runs and leftovers, of this user, or as root of all
    List,
    /// Stop a server in good order, wait until it has ended, and show how it ended
    Stop(Stop),
    /// Show the counters of a running server: requests, latencies, clients, memory
    Stat(Stat),
    /// Show every server and mount on one screen: rates, latencies, dirty bytes
    ///
    /// There is a line for each volume, disk cache and mount of this user, or as root of every
    /// user, with rates, latencies, dirty bytes and write-back. If a server or mount does not
    /// answer, its line says so. Press ? for the keys.
    Top(Top),
    /// Check every rule of the format, and repair damaged structures
    ///
    /// The command recognises a volume, a cache of a disk, and the pool of a mount by its
    /// superblock. It repairs volumes only. For the pool of a mount, you may also name SOURCE.
    Check(Check),
    /// Copy a side of a mirror to the other one, or to a new region in its place
    ///
    /// No server may use either region. Only bytes that differ are copied. If a rebuild is
    /// interrupted, run it again.
    Rebuild(Rebuild),
    /// Write all dirty blocks of a disk cache to its disk, or a mount's pool to its files
    Flush(Flush),
    /// Change how a served disk cache treats reads and writes
    Mode(SetMode),
    /// Flush a disk cache, and release its disk
    Detach(Detach),
    /// Put a detached region in front of a disk again
    Attach(Attach),
    /// Enlarge or shrink the region in front of a disk
    Resize(Resize),
    /// Compare every cached block with its checksum
    Scrub(Scrub),
    /// Save the dirty blocks of a disk cache to a file or another disk, without its disk
    Salvage(Salvage),
    /// Recover an ordered disk whose region is lost, by replaying the journal at its end
    Replay(Replay),
    /// Show files at a mountpoint where syncs complete in persistent memory
    ///
    /// Every program can use the mount. It lasts until `tidegate umount`, SIGTERM or SIGINT; then
    /// Tidegate writes everything back to SOURCE. Until then, only the owner of SOURCE may enter
    /// it, and no program may change files there.
    Mount(Mount),
    /// Unmount files, and wait until they are written back
    Umount(Umount),
    /// Run an unchanged program whose syncs complete in persistent memory
    ///
    /// For the run, each root is mounted over itself, and every process sees the mounts. At the end
    /// Tidegate writes everything back, and the roots are plain directories again. The exit code is
    /// the program's, or 128 plus the number of the signal that ended it.
    Run(Run),
    /// Show what a mount or a run is doing: files, syncs, the time they saved, write-back
    Status(Status),
    /// Show where the bytes of a file of a mount lie, why, and what moves them
    Explain(Explain),
    /// Write the pool of a mount or run back to its files, without mounting it
    Recover(Recover),
    /// Examine this machine, or the directory of a database: findings with reasons and fixes
    ///
    /// Without DIR, the command examines persistent memory, the kernel, limits, and Tidegate's own
    /// mounts, services and leftovers. With DIR, it recognises the database, and shows how safe the
    /// place and the settings of the database are. It changes no file.
    Doctor(Doctor),
    /// Check a configuration file of serve, mount or run, and print all of its mistakes
    ///
    /// The command reads the file with the parser of serve, mount or run. Then it looks at the
    /// files that the configuration names. It serves, mounts and creates none of them, and opens
    /// none for writing.
    #[command(override_usage = "tidegate config check [OPTIONS] <FILE>")]
    Config(Config),
    /// Write manual pages: for the program, each command, and configuration files
    Man(Man),
    /// Print a script that completes command lines in a shell
    Completions(Completions),
    /// Show the help of a command, or a topic
    Help(Help),
}

/// What `tidegate mount` starts: no command of users, so not in the help.
const MOUNT_SERVER: &str = "mount-server";

/// What mount(8) and umount(8) start by way of a script: no commands of users, so not in the help.
const MOUNT_HELPER: &str = "mount-helper";
const UMOUNT_HELPER: &str = "umount-helper";

/// How `tidegate mount` has its server speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServeMount {
    pub(crate) verbose: u8,
    pub(crate) json: bool,
}

impl ServeMount {
    /// The words of a command line.
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        let json = if self.json { Some("--json") } else { None };
        std::iter::once(MOUNT_SERVER).chain(json).chain(std::iter::repeat_n("-v", self.verbose.into()))
    }

    fn of(options: &[OsString]) -> ServeMount {
        let verbose = options.iter().filter(|word| *word == "-v").count();
        ServeMount {
            verbose: u8::try_from(verbose).unwrap_or(u8::MAX),
            json: options.iter().any(|word| word == "--json"),
        }
    }
}

/// What the command line leads to.
pub(crate) enum Parsed {
    /// A command to run.
    Run(Program),
    /// A text to print: the help or the version.
    Print(String),
    /// Serve a mount that `tidegate mount` keeps alive.
    ServeMount(ServeMount),
    /// Mount as mount(8) asks.
    FstabMount(FstabMount),
    /// Unmount as umount(8) asks.
    FstabUmount(Umount),
    /// A mistake of the one or the other.
    RefuseFstab(Failure),
    /// A mistake, and whether the line asked for JSON.
    Refuse(Failure, bool),
}

/// Reads a whole command line, program name first.
pub(crate) fn parse(line: Vec<OsString>) -> Parsed {
    if let [_, word, options @ ..] = &*line
        && word == MOUNT_SERVER
    {
        return Parsed::ServeMount(ServeMount::of(options));
    }
    if let [_, word, words @ ..] = &*line
        && (word == MOUNT_HELPER || word == UMOUNT_HELPER)
    {
        let read = match word == MOUNT_HELPER {
            true => FstabMount::parse(words).map(Parsed::FstabMount),
            false => helper::parse_umount(words).map(Parsed::FstabUmount),
        };
        return read.unwrap_or_else(|refused| Parsed::RefuseFstab(refused.into()));
    }
    let json = line.iter().any(|word| word == "--json");
    let grammar = command();
    let named = named_command(&grammar, &line);
    match grammar.try_get_matches_from(line).and_then(|matches| Program::from_arg_matches(&matches)) {
        Ok(program) => Parsed::Run(program),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Parsed::Print(error.render().to_string()),
            _ => Parsed::Refuse(refusal(&error, named).into(), json),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, ValueHint};
    use std::path::PathBuf;
    use tidegate_layout::btt::SECTOR_SIZES;
    use tidegate_media::emulate::Profile;

    #[test]
    fn a_server_of_a_mount_speaks_as_its_supervisor_says() {
        for said in [ServeMount { verbose: 0, json: false }, ServeMount { verbose: 2, json: true }] {
            let line = std::iter::once("tidegate").chain(said.words()).map(OsString::from).collect();
            assert!(matches!(parse(line), Parsed::ServeMount(read) if read == said));
        }
    }

    #[test]
    fn the_grammar_has_no_contradictions() {
        Program::command().debug_assert();
    }

    /// Every flag and value that takes one of a few words takes each of them, and every path says
    /// of which kind it is.
    #[test]
    fn whatever_is_offered_is_taken() {
        let mut program = Program::command();
        program.build();
        let mut offered = 0;
        for command in program.get_subcommands() {
            for arg in command.get_arguments() {
                let parser = arg.get_value_parser();
                for value in parser.possible_values().into_iter().flatten() {
                    let alone = clap::Command::new("").arg(clap::Arg::new("value").value_parser(parser.clone()));
                    let taken = alone.try_get_matches_from(["", value.get_name()]);
                    assert!(taken.is_ok(), "{}: {}: {}", command.get_name(), arg.get_id(), value.get_name());
                    offered += 1;
                }
                let is_path = parser.type_id() == std::any::TypeId::of::<PathBuf>();
                assert!(
                    !is_path || arg.get_value_hint() != ValueHint::AnyPath,
                    "{}: {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
        }
        assert!(offered > 30, "{offered}");
    }

    #[test]
    fn the_help_names_every_block_size_and_every_medium() {
        let mut command = Program::command();
        command.build();
        let mut help = |name| command.find_subcommand_mut(name).expect(name).render_help().to_string();
        let (create, serve) = (help("create"), help("serve"));
        assert!(SECTOR_SIZES.iter().all(|size| create.contains(&size.to_string())), "{create}");
        assert!(Profile::NAMES.iter().all(|name| serve.contains(name)), "{serve}");
    }

    fn served(flags: &[&str]) -> String {
        let line = ["tidegate", "serve", "--pmem", "v"].iter().chain(flags);
        format!("{:?}", Program::try_parse_from(line).expect("a good line"))
    }

    /// Flags that were renamed, and their old names: hidden, and understood as before.
    #[test]
    fn old_names_of_flags_are_hidden_and_still_work() {
        let mut program = command();
        let help = program.find_subcommand_mut("serve").expect("it is there").render_long_help().to_string();
        for (old, new, value) in [
            ("--cache", "--write-cache", Some("32M")),
            ("--level-wear", "--wear-leveling", Some("100")),
            ("--admit", "--read-admission", Some("second-miss")),
            ("--forget-reads", "--volatile-reads", None),
        ] {
            let flags = |name| std::iter::once(name).chain(value).collect::<Vec<&str>>();
            assert_eq!(served(&flags(old)), served(&flags(new)), "{old}");
            assert_ne!(served(&flags(old)), served(&[]), "{old}");
            let shown = |name: &str| help.split_whitespace().any(|word| word == name);
            assert!(shown(new) && !shown(old), "{old}: {help}");
        }
    }
}
