//! `machine-killed`: kills whole machines while the program serves a volume in them, and reads what
//! they acknowledged.
//!
//! The tests do the same with few cuts; this does it for as long as one wants to wait, on one
//! medium or on both, and ends at the first thing that is lost or torn.

#![forbid(unsafe_code)]

use clap::Parser;
use tidegate_trials::killed_machine::{Medium, survive};
use tidegate_trials::killed_mount::{SourceFileSystem, survive_with_mount};

/// A guest under QEMU whose NVDIMM is a host file, cut off at random instants. What is lost or torn
/// ends the program.
#[derive(Parser)]
#[command(name = "machine-killed")]
struct Arguments {
    /// Cuts of each medium, rounded up to tens; one in ten is a kill.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    cuts: u32,
    /// Instead of that, kill machines with a mount so many times, and judge what applications find:
    /// half of them with SOURCE on ext4, half with SOURCE on XFS.
    #[arg(long)]
    mount_kills: Option<u32>,
    /// Only this file system of SOURCE.
    #[arg(long, requires = "mount_kills")]
    source: Option<SourceFileSystem>,
    /// Decides at which instants machines with a mount are killed.
    #[arg(long, requires = "mount_kills", default_value_t = 1)]
    seed: u64,
    /// Only this medium.
    #[arg(long)]
    medium: Option<Medium>,
}

fn main() {
    let arguments = Arguments::parse();
    if let Some(kills) = arguments.mount_kills {
        let survive = |source, kills| println!("{}", survive_with_mount(source, kills, arguments.seed));
        match arguments.source {
            Some(only) => survive(only, kills),
            None => SourceFileSystem::BOTH.into_iter().for_each(|source| survive(source, kills.div_ceil(2))),
        }
        return;
    }
    let both = [Medium::Device, Medium::File];
    for medium in both.into_iter().filter(|medium| arguments.medium.is_none_or(|only| only == *medium)) {
        println!("{}", survive(medium, arguments.cuts));
    }
}
