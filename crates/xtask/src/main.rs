//! The executed house rules, and the steps of CI.
//!
//! `cargo xtask tidy` judges the tree by every rule a program can judge. `cargo xtask test` does
//! everything a fresh Debian machine needs and runs every test there is. `cargo xtask bless`
//! rewrites generated pages, `cargo xtask book` writes all pages as HTML. `cargo xtask deb`,
//! `tarball` and `image` make packages.

#![forbid(unsafe_code)]

mod book;
mod builds;
mod exceptions;
mod fuzzing;
mod hang;
mod limits;
mod load;
mod markdown;
mod packages;
mod packing;
mod pages;
mod rules;
mod source;
mod steps;
mod suite;
mod workspace;

use anyhow::{Context as _, Result};
use clap::Parser;
use exceptions::LIST;
use fuzzing::Fuzzing;
use packing::{Form, Packing};
use std::fs;
use std::process::ExitCode;
use workspace::Workspace;

/// The house rules and the steps of CI.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Judge the tree by the house rules.
    Tidy {
        /// First lower the list of exceptions to what is still needed.
        #[arg(long)]
        shrink: bool,

        /// Show every place that breaks a measured rule, excused or not. `call-chain` shows how far
        /// calls lead from file to file.
        #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "", conflicts_with = "shrink")]
        report: Option<String>,
    },
    /// Rewrite the generated pages from the code.
    Bless {
        /// Write nothing, and fail if a page differs from its source.
        #[arg(long)]
        check: bool,
    },
    /// Check the pages under docs, and write them as HTML.
    Book,
    /// Make a Debian package of the program.
    Deb(Packing),
    /// Make a tarball with a static program and an installer.
    Tarball(Packing),
    /// Make an OCI image file with a static program.
    Image(Packing),
    /// Give the targets of fuzzing inputs that take new branches, for a time. Needs g++.
    Fuzz(Fuzzing),
    /// Install what the tests need, then run every check and every test.
    Test {
        /// Only what needs no guest and few minutes: format, lints, rules, tests of single crates.
        /// Installs nothing.
        #[arg(long)]
        quick: bool,

        /// Everything, and campaigns in their long forms: hours.
        #[arg(long, conflicts_with = "quick")]
        long: bool,

        /// Every test N times on a machine that stress-ng keeps busy, and nothing else.
        #[arg(long, value_name = "N", conflicts_with_all = ["quick", "long"])]
        under_load: Option<u32>,
    },
}

fn main() -> Result<ExitCode> {
    match Command::parse() {
        Command::Tidy { report: Some(rule), .. } => report(&Workspace::load()?, &rule),
        Command::Tidy { shrink: true, .. } => shrink(Workspace::load()?),
        Command::Tidy { .. } => tidy(&Workspace::load()?),
        Command::Bless { check } => pages::bless(check),
        Command::Book => book::build(&builds::target().join("book")),
        Command::Deb(packing) => packing::package(Form::Deb, &packing),
        Command::Tarball(packing) => packing::package(Form::Tarball, &packing),
        Command::Image(packing) => packing::package(Form::Image, &packing),
        Command::Fuzz(fuzzing) => fuzzing.carry_out().map(|()| ExitCode::SUCCESS),
        Command::Test { under_load: Some(rounds), .. } => load::test(rounds),
        Command::Test { quick: true, .. } => steps::test(steps::Extent::Quick),
        Command::Test { long: true, .. } => steps::test(steps::Extent::Long),
        Command::Test { .. } => steps::test(steps::Extent::Full),
    }
}

fn tidy(workspace: &Workspace) -> Result<ExitCode> {
    let findings = rules::judge(workspace)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("tidy: {} Rust files, {} broken rules", workspace.sources.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lowers the list of exceptions, then judges.
fn shrink(mut workspace: Workspace) -> Result<ExitCode> {
    let shrunk = rules::shrunk(&workspace)?;
    if workspace.text(LIST) != Some(&shrunk) {
        fs::write(workspace::root().join(LIST), &shrunk).with_context(|| format!("cannot write {LIST}"))?;
        println!("wrote {LIST}");
        workspace.replace(LIST, shrunk);
    }
    tidy(&workspace)
}

/// Prints every place that breaks the measured `rule`, or any rule if it is empty; then the sums.
fn report(workspace: &Workspace, rule: &str) -> Result<ExitCode> {
    let mut measured = rules::reported(workspace)?;
    measured.retain(|breach| rule.is_empty() || breach.rule == rule);
    measured.iter().for_each(|breach| println!("{}", breach.finding()));
    print!("{}", exceptions::sums(&measured));
    Ok(ExitCode::SUCCESS)
}
