//! Mirrors that are refused: they change nothing, and tell what to do.

use crate::disk::{USAGE, assert_tells};
use crate::program::{Folder, run};
use std::fs;

#[test]
fn two_names_of_one_file_are_no_two_sides() {
    let folder = Folder::new();
    let [one, other, link] = ["one", "other", "link"].map(|name| folder.text(name));
    let make = ["create", "--pmem", &one, "--mirror", &other, "--size", "20M"];
    assert_eq!(run(&make).code, 0);
    fs::hard_link(&one, &link).unwrap();
    for command in [&["serve"][..], &["rebuild"], &["rebuild", "--force"], &["create", "--force", "--size", "20M"]] {
        let refused = run(&[command, &["--pmem", &one, "--mirror", &link]].concat());
        assert_tells(&refused, USAGE, &["cannot be both sides of a mirror"]);
    }
}
