//! The program `tidegate`: block devices in persistent memory, caches in front of disks, and mounts
//! whose syncs complete in persistent memory.
//!
//! [`grammar`] reads the command line, [`config`] a configuration file; [`commands`] has a file for
//! each command, which calls the libraries below and prints the answer by [`output`]; [`errors`]
//! reports failures, each with its exit code.

#![forbid(unsafe_code)]

mod commands;
mod config;
mod errors;
mod grammar;
mod output;

use commands::cache::{detach, flush, mode, replay, resize, salvage, scrub};
use commands::files::{explain, mount, mount_helper, recover, run, status};
use commands::tools;
use commands::volume::{check, create, info, list, rebuild, serve, stat, stop, top};
use errors::{Exit, Failure};
use grammar::{Command, Parsed, Program, ServeMount};
use std::process::ExitCode;
use tidegate_host::rlimits;
use tracing::Level;

fn main() -> ExitCode {
    if let Err(error) = rlimits::refuse_writes_past_the_limit() {
        return errors::report(&Failure::system("preparing for the limit on the size of files")(error), false).into();
    }
    match grammar::parse(std::env::args_os().collect()) {
        Parsed::Run(program) => run(&program),
        Parsed::ServeMount(said) => {
            log_to_stderr(said.verbose);
            ended(mount::serve(said.json), said.json).into()
        }
        Parsed::FstabMount(helper) => {
            log_to_stderr(0);
            mount_helper::run(&helper)
        }
        Parsed::FstabUmount(args) => {
            log_to_stderr(0);
            mount_helper::unmount(&args)
        }
        Parsed::RefuseFstab(failure) => mount_helper::code_of(errors::report(&failure, false)),
        Parsed::Print(text) => ended(output::print(text.trim_end()).map(|()| Exit::Done), false).into(),
        Parsed::Refuse(failure, json) => errors::report(&failure, json).into(),
    }
}

fn run(program: &Program) -> ExitCode {
    log_to_stderr(program.verbose);
    let json = program.json;
    let end = match &program.command {
        Command::Create(args) => create::run(args, json),
        Command::Serve(args) => serve::run(args, json),
        Command::Info(args) => info::run(args, json),
        Command::Stat(args) => stat::run(args, json),
        Command::Rebuild(args) => rebuild::run(args, json),
        Command::Flush(args) => flush::run(args, json),
        Command::Mode(args) => mode::run(args, json),
        Command::Detach(args) => detach::detach(args, json),
        Command::Attach(args) => detach::attach(args, json),
        Command::Salvage(args) => salvage::run(args, json),
        Command::Replay(args) => replay::run(args, json),
        Command::Resize(args) => resize::run(args, json),
        Command::Scrub(args) => scrub::run(args, json),
        Command::Mount(args) => mount::mount(args, ServeMount { verbose: program.verbose, json }),
        Command::Umount(args) => mount::unmount(args, json),
        Command::Run(args) => {
            let said = ServeMount { verbose: program.verbose, json };
            return run::run(args, said).unwrap_or_else(|failure| errors::report(&failure, json).into());
        }
        Command::Status(args) => status::run(args, json),
        Command::Explain(args) => explain::run(args, json),
        Command::Recover(args) => recover::run(args, json),
        Command::Doctor(args) => tools::doctor::run(args, json),
        Command::Config(args) => tools::check_config::run(args, json),
        Command::Man(args) => tools::write_pages(args),
        Command::Completions(args) => tools::print_completions(args),
        Command::Help(args) => tools::print_help(args),
        Command::Check(args) => check::run(args, json),
        Command::List => list::run(json),
        Command::Stop(args) => stop::run(args, json),
        Command::Top(args) => top::run(args, json),
    };
    ended(end, json).into()
}

fn ended(end: Result<Exit, Failure>, json: bool) -> Exit {
    end.unwrap_or_else(|failure| errors::report(&failure, json))
}

/// Logs what `verbose` -v ask for, as the help of `Program::verbose` tells. A line that nobody
/// takes, as on a full disk, is lost, and nothing else.
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
        // By default a line that cannot be written is told of with a panic if that fails too.
        .log_internal_errors(false)
        .init();
}
