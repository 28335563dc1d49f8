//! The command line: what may be written, and its help. There is one file for each group of commands, as the help shows them.

mod disk_cache;
mod files;
mod help;
mod refusal;
mod tools;
mod values;
mod volumes;
mod words;

pub(crate) use disk_cache::{Attach, Detach, Flush, Replay, Resize, Salvage, Scrub, SetMode};
pub(crate) use files::{Recover, Run, Status};
pub(crate) use tools::{Completions, Man};
pub(crate) use values::{admit, cache, cache_mode, metrics, profile, replacement, size, socket_mode};
pub(crate) use volumes::{Check, Create, Info, Serve, Stat, Stop};

use crate::failure::Failure;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use refusal::{named_command, refusal};
use std::ffi::OsString;

/// Atomic block devices in persistent memory, served over NBD.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
pub(crate) struct Program {
    /// Answer with JSON, one object to a line: answers on stdout, errors on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log more than warnings to stderr: -v clients that come and go, and what the program does by itself; -vv also who each client is, scrapes, and what
    /// control sockets are asked; -vvv also each request of a client
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a region file with an empty volume in it
    Create(Create),
    /// Serve volumes over NBD until SIGTERM or SIGINT
    Serve(Box<Serve>),
    /// Show what a volume is, whether it is in use, and what survives what
    Info(Info),
    /// List servers and runs, and what killed ones left: for this user, or as root for all
    List,
    /// End a server in good order, wait until it has ended, and tell how
    Stop(Stop),
    /// Show what a running server does: requests, times, clients, and what reached the memory
    Stat(Stat),
    /// Check every rule of the format, and repair what can be repaired
    Check(Check),
    /// Write everything that only the cache of a disk has to that disk
    Flush(Flush),
    /// Change what the cache of a disk does with reads and writes, while it is served
    Mode(SetMode),
    /// Move everything from the cache of a disk to that disk, and set the disk free
    Detach(Detach),
    /// Give a detached cache a disk
    Attach(Attach),
    /// Make the region in front of a disk larger or smaller
    Resize(Resize),
    /// Write what only the cache of a disk has to a file or to another disk, without that disk
    Salvage(Salvage),
    /// Make an ordered disk whole whose region is lost: put in place what its journal holds
    Replay(Replay),
    /// Read every block that the cache of a disk holds, and compare it with its checksum
    Scrub(Scrub),
    /// Run an unchanged program whose syncs end in persistent memory, and return what it returns (experimental)
    ///
    /// Experimental: in some cases a recovery after a power loss puts older bytes over synced ones, or cannot put synced bytes back. The guide lists them
    /// (docs/guide/run.md, "When a recovery is wrong"). Keep backups of what lies below the roots.
    Run(Run),

    /// Show what a run is doing: files, their syncs, and what each saved
    Status(Status),

    /// Bring what a run left in its pool to its files; what cannot go there, aside
    Recover(Recover),
    /// Write manual pages: one for the program, one for each command
    Man(Man),
    /// Print a script that completes command lines
    Completions(Completions),
}

/// What the command line leads to.
pub(crate) enum Parsed {
    /// A command to run.
    Run(Program),
    /// A text to print: help or the version.
    Print(String),
    /// A mistake, and whether the line asked for JSON.
    Refuse(Failure, bool),
}

/// Reads a whole command line, program name first.
pub(crate) fn parse(line: Vec<OsString>) -> Parsed {
    let json = line.iter().any(|word| word == "--json");
    let command = Program::command().after_help(help::exit_codes());
    let named = named_command(&command, &line);
    match command.try_get_matches_from(line).and_then(|matches| Program::from_arg_matches(&matches)) {
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
    use clap::ValueHint;
    use std::path::PathBuf;
    use tidegate_layout::btt::SECTOR_SIZES;
    use tidegate_media::emulate::Profile;

    #[test]
    fn the_grammar_has_no_contradictions() {
        Program::command().debug_assert();
    }

    /// Every flag and value that takes one of a few words takes each of them, and every path says of which kind it is.
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
}
