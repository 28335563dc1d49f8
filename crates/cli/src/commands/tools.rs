//! Commands that print texts made from the grammar and the book: help, manual pages, completions.
//! [`reference`] compares the pages of the book that are made from the code.

mod completions;
mod config_keys;
mod help;
mod man;
mod man_sections;
#[cfg(test)]
mod reference;

pub(crate) use completions::print_completions;
pub(crate) use help::print_help;
pub(crate) use man::write_pages;
