//! Commands that examine a machine, a database or a configuration file, and those that print texts
//! made from the grammar and the book: help, manual pages, completions. [`reference`] compares the
//! pages of the book that are made from the code.

pub(crate) mod check_config;
mod completions;
mod config_keys;
pub(crate) mod doctor;
mod help;
mod man;
mod man_sections;
#[cfg(test)]
mod reference;

pub(crate) use completions::print_completions;
pub(crate) use help::print_help;
pub(crate) use man::write_pages;
