//! The program `tidegate`: atomic block devices in persistent memory, served over NBD.
//!
//! [`grammar`] reads the command line, [`config`] a configuration file; [`create`], [`serve`],
//! [`info`], [`list`], [`stop`], [`stat`], [`check`], and for caches of disks [`flush`], [`mode`],
//! [`detach`], [`resize`], [`salvage`], [`replay`] and [`scrub`] are the commands; [`mod@run`]
//! mounts files whose syncs complete in persistent memory, and runs other programs, [`status`]
//! tells of them, and [`recover`] looks after what they left; [`compose`] alone chooses which types
//! make up a volume; [`contract`] is the one table of what survives what; [`failure`] says what
//! went wrong and with which exit code.

#![forbid(unsafe_code)]

mod answer;
mod belonging;
mod cached_disk;
mod change;
mod check;
mod check_cache;
mod compose;
mod config;
mod connections;
mod consent;
mod contract;
mod control;
mod create;
mod create_cache;
mod damage;
mod detach;
mod disk_left;
mod disks;
mod facts;
mod failure;
mod flush;
mod grammar;
mod holdings;
mod info;
mod last_words;
mod leftovers;
mod list;
mod listen;
mod live_disk;
mod metrics;
mod mode;
mod notes;
mod ordered;
mod peers;
mod plan;
mod read_only;
mod recover;
mod replay;
mod resize;
mod risk;
mod room;
mod run;
mod salvage;
mod scrub;
mod serve;
mod snapshot;
mod spelling;
mod stat;
mod status;
mod stop;
mod tools;
mod transit;
mod troubles;
mod uris;
mod watchers;

use failure::{Exit, Failure};
use grammar::{Command, Parsed, Program};
use std::process::ExitCode;
use tracing::Level;

fn main() -> ExitCode {
    match grammar::parse(std::env::args_os().collect()) {
        Parsed::Run(program) => run(&program),
        Parsed::Print(text) => ended(answer::print(text.trim_end()).map(|()| Exit::Done), false).into(),
        Parsed::Refuse(failure, json) => failure::tell(&failure, json).into(),
    }
}

fn run(program: &Program) -> ExitCode {
    log_to_stderr(program.verbose);
    let json = program.json;
    let end = match &program.command {
        Command::Create(wish) => create::run(wish, json),
        Command::Serve(wish) => serve::run(wish, json),
        Command::Info(wish) => info::run(wish, json),
        Command::Stat(wish) => stat::run(wish, json),
        Command::Flush(wish) => flush::run(wish, json),
        Command::Mode(wish) => mode::run(wish, json),
        Command::Detach(wish) => detach::detach(wish, json),
        Command::Attach(wish) => detach::attach(wish, json),
        Command::Salvage(wish) => salvage::run(wish, json),
        Command::Replay(wish) => replay::run(wish, json),
        Command::Resize(wish) => resize::run(wish, json),
        Command::Scrub(wish) => scrub::run(wish, json),
        Command::Mount(args) => run::mount::mount(args, json),
        Command::Umount(args) => run::mount::unmount(args, json),
        Command::Run(wish) => {
            return run::run(wish).unwrap_or_else(|failure| failure::tell(&failure, json).into());
        }
        Command::Status(wish) => status::run(wish, json),
        Command::Recover(wish) => recover::run(wish, json),
        Command::Man(wish) => tools::write_pages(wish),
        Command::Completions(wish) => tools::print_completions(wish),
        Command::Help(wish) => tools::print_help(wish),
        Command::Check(wish) => check::run(wish, json),
        Command::List => list::run(json),
        Command::Stop(wish) => stop::run(wish, json),
    };
    ended(end, json).into()
}

fn ended(end: Result<Exit, Failure>, json: bool) -> Exit {
    end.unwrap_or_else(|failure| failure::tell(&failure, json))
}

/// Logs what `verbose` -v ask for, as the help of `Program::verbose` tells.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}
