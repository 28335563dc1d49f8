//! Notations of sizes, paths and answers, and the word that was meant.

pub mod columns;
pub mod json_path;
pub mod plain;
pub mod shell;
pub mod spelling;
pub mod units;
