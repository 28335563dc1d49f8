//! One of Filebench's personalities by itself, on a folder:
//! `personality LABEL FOLDER THREADS ROUNDS`.
//!
//! For guests, where the rest of `bench` has no place: they count the requests to their disk, and
//! take no times. It says how many operations that were, and how many of them read.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use std::path::Path;
use tidegate_reproduction::personalities::Personality;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, label, folder, threads, rounds] = &arguments[..] else {
        anyhow::bail!("personality LABEL FOLDER THREADS ROUNDS");
    };
    let personality = Personality::ALL.into_iter().find(|one| one.label() == label).context("no such personality")?;
    let taken = personality.run(Path::new(folder), threads.parse()?, rounds.parse()?)?;
    println!("{label} {} {}", taken.operations, taken.reads);
    Ok(())
}
