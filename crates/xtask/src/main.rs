//! Preamble to come with the first commit of this crate.

fn main() {}
