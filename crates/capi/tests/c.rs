//! The header is the one that the code makes; a C program compiled with it and linked with either
//! library does what it is to do.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tidegate.h");

/// The name by which programs load the library; its number changes with the binary interface.
const LOADED: &str = "libtidegate.so.0";

#[test]
fn the_header_is_made_from_the_code() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_folder.join("cbindgen.toml")).unwrap();
    let sources = ["src/lib.rs", "src/cache.rs", "src/log.rs", "src/status.rs"].map(|source| crate_folder.join(source));
    let builder =
        sources.iter().fold(cbindgen::Builder::new().with_config(config), |made, source| made.with_src(source));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    // `TIDEGATE_BLESS=1 cargo test -p tidegate-capi` writes it.
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(HEADER, &made).unwrap();
    }
    let made = String::from_utf8(made).unwrap();
    assert!(fs::read_to_string(HEADER).unwrap() == made, "run: TIDEGATE_BLESS=1 cargo test -p tidegate-capi");
}

/// The folder with both libraries, built by the cargo that runs this test.
fn libraries() -> PathBuf {
    built(&["--package", "tidegate-capi", "--lib"])
}

/// The folder with what cargo makes of `parts`; `TIDEGATE_BUILT` names one where all is built.
fn built(parts: &[&str]) -> PathBuf {
    if let Some(folder) = std::env::var_os("TIDEGATE_BUILT") {
        return folder.into();
    }
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet"]).args(parts).arg("--target-dir").arg(folder.parent().unwrap());
    build.args(folder.ends_with("release").then_some("--release"));
    succeeded(&mut build, "cargo");
    folder.to_owned()
}

/// A program made of `source` in this folder, with the shared library in `folder`.
fn made_of(source: &str, scratch: &Path, folder: &Path) -> Command {
    let program = scratch.join("program");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]);
    compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source));
    compile.args(flags(scratch, folder, &[])).arg("-o").arg(&program);
    succeeded(&mut compile, "gcc");
    run_with(&program, scratch, folder)
}

/// A command of `program`, which finds the library in `folder` by its name with a number.
fn run_with(program: &Path, scratch: &Path, folder: &Path) -> Command {
    let link = scratch.join(LOADED);
    if !link.exists() {
        std::os::unix::fs::symlink(folder.join("libtidegate.so"), link).unwrap();
    }
    let mut run = Command::new(program);
    run.env("LD_LIBRARY_PATH", scratch);
    run
}

/// What `tidegate serve` answers with the region `pmem`, told to end as soon as it serves.
fn served(tidegate: &Path, pmem: &Path) -> (Option<i32>, String) {
    let mut serve = Command::new(tidegate);
    serve.arg("serve").arg("--pmem").arg(pmem).arg("--listen").arg(format!("unix:{}.socket", pmem.display()));
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its output ends if it does not serve.
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    if lines.any(|line| line.starts_with("serving")) {
        succeeded(Command::new("sh").args(["-c", &format!("kill -TERM {}", server.id())]), "dash");
    }
    lines.for_each(drop);
    let ended = server.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

fn succeeded(command: &mut Command, package: &str) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install {package}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What pkg-config says of the libraries in `folder`.
fn flags(scratch: &Path, folder: &Path, more: &[&str]) -> Vec<String> {
    let template = include_str!("../tidegate.pc.in");
    let include = Path::new(HEADER).parent().unwrap().to_str().unwrap();
    let pc = template
        .replace("@prefix@", "/usr")
        .replace("@includedir@", include)
        .replace("@libdir@", folder.to_str().unwrap())
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    fs::write(scratch.join("tidegate.pc"), pc).unwrap();
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs"]).args(more).arg("tidegate").env("PKG_CONFIG_PATH", scratch);
    let said = succeeded(&mut ask, "pkg-config");
    String::from_utf8(said.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

fn first_word(path: &Path, block: u64) -> i64 {
    let mut word = [0; 8];
    File::open(path).unwrap().read_exact_at(&mut word, block * 4096).unwrap();
    i64::from_ne_bytes(word)
}

#[test]
fn a_c_program_commits_transactions_through_either_library() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = libraries();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/commit.c");
    let program = |name: &str| scratch.path().join(name);
    let warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let mut shared = Command::new("cc");
    shared.args(warnings).arg(source).args(flags(scratch.path(), &folder, &[])).arg("-o").arg(program("shared"));
    succeeded(&mut shared, "gcc");
    let mut fixed = Command::new("cc");
    let parts: Vec<String> = flags(scratch.path(), &folder, &["--static"])
        .into_iter()
        .map(|flag| if flag == "-ltidegate" { folder.join("libtidegate.a").to_str().unwrap().to_owned() } else { flag })
        .collect();
    fixed.args(warnings).arg(source).args(parts).arg("-o").arg(program("static"));
    succeeded(&mut fixed, "gcc");
    let (pmem, disk) = (scratch.path().join("pmem"), scratch.path().join("disk"));
    File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    for (turn, name) in (1_i64..).zip(["shared", "static", "shared"]) {
        let mut run = run_with(&program(name), scratch.path(), &folder);
        let said = succeeded(run.arg(&pmem).arg(&disk), "gcc");
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), format!("{} {}", turn * -700, turn * 700));
        assert_eq!((first_word(&disk, 0), first_word(&disk, 1000)), (turn * -700, turn * 700), "on the disk itself");
    }
    let mut run = run_with(&program("shared"), scratch.path(), &folder);
    fs::copy(&disk, scratch.path().join("copy")).unwrap();
    let refused = run.arg(&pmem).arg(scratch.path().join("copy")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("belongs to another disk"), "{refused:?}");
}

#[test]
fn a_c_program_appends_to_a_log_and_finds_it_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (pmem, below) = (scratch.path().join("pmem"), scratch.path().join("below"));
    let folder = libraries();
    for turn in 1..=3 {
        let mut run = made_of("../examples/log.c", scratch.path(), &folder);
        let said = succeeded(run.arg(&pmem).arg(&below), "gcc");
        // Each turn drops the older half of what it found, in whole records.
        let told = [(0, 1000), (500, 2000), (1250, 3000)][turn - 1];
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), format!("{}..{}", told.0, told.1));
    }
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(&below, &elsewhere).unwrap();
    let mut run = made_of("../examples/log.c", scratch.path(), &folder);
    let refused = run.arg(&pmem).arg(&below).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("is not there") && !said.contains("create"), "{said}");
    fs::rename(&elsewhere, &below).unwrap();
    succeeded(made_of("../examples/log.c", scratch.path(), &folder).arg(&pmem).arg(&below), "gcc");
}

#[test]
fn the_commands_of_the_guide_make_a_program_that_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = libraries();
    let crate_folder = env!("CARGO_MANIFEST_DIR");
    let guide = fs::read_to_string(Path::new(crate_folder).join("../../docs/guide/c-api.md")).unwrap();
    let commands = guide.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The libraries are built, and lie in another folder, as does the program.
    let library = folder.join("libtidegate.so");
    std::os::unix::fs::symlink(library, scratch.path().join("libtidegate.so")).unwrap();
    let commands = commands
        .replace("cargo build", ": cargo build")
        .replace("\"$PWD/target/release\"", "\"$PWD\"")
        .replace("target/release", ".")
        .replace("crates/capi", crate_folder)
        .replace("/mnt/pmem", ".");
    let run = Command::new("sh").args(["-ec", &commands]).current_dir(&scratch).output().unwrap();
    let said = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap());
    assert_eq!(said.0.trim(), "0..1000", "{commands}{}", said.1);
}

#[test]
fn children_of_a_c_program_leave_its_region_to_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (pmem, disk) = (scratch.path().join("pmem"), scratch.path().join("disk"));
    File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    succeeded(made_of("children.c", scratch.path(), &libraries()).arg(&pmem).arg(&disk), "gcc");
}

#[test]
fn a_c_program_and_a_server_take_turns_and_both_see_a_disk_that_was_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let (pmem, disk) = (scratch.path().join("pmem"), scratch.path().join("disk"));
    File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let tidegate = built(&["--package", "tidegate-cli", "--bin", "tidegate"]).join("tidegate");
    let mut create = Command::new(&tidegate);
    create.args(["create", "--size", "4M", "--pmem"]).arg(&pmem).arg("--disk").arg(&disk);
    succeeded(&mut create, "cargo");
    let folder = libraries();
    let stamp =
        |byte: &str| made_of("stamp.c", scratch.path(), &folder).arg(&pmem).arg(&disk).arg(byte).output().unwrap();
    // The server notes how it leaves the disk, and the program writes to it.
    assert_eq!(served(&tidegate, &pmem).0, Some(0));
    assert_eq!(stamp("a").status.code(), Some(0));
    let (code, said) = served(&tidegate, &pmem);
    assert!(code == Some(0) && !said.contains("was changed"), "{said}");
    // The program notes it too. A clock with long ticks could give two writes one time.
    assert_eq!(stamp("b").status.code(), Some(0));
    let changed = File::options().write(true).open(&disk).unwrap();
    changed.write_all_at(&[7; 4096], 5 * 4096).unwrap();
    changed.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    drop(changed);
    let (code, said) = served(&tidegate, &pmem);
    assert!(code == Some(3) && said.contains("changed"), "{said}");
    let refused = stamp("c");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(
        said.contains("changed without its region, which has 1 blocks") && said.contains("flush --force"),
        "{said}"
    );
    succeeded(Command::new(&tidegate).args(["flush", "--force", "--pmem"]).arg(&pmem), "cargo");
    let mut block = [0; 4096];
    File::open(&disk).unwrap().read_exact_at(&mut block, 2 * 4096).unwrap();
    assert_eq!(block, [b'b'; 4096], "what only the region had");
    assert_eq!(stamp("d").status.code(), Some(0));
    assert_eq!(served(&tidegate, &pmem).0, Some(0));
}

/// Every function that programs may have been linked to. None is ever removed: see
/// docs/reference/compatibility.md.
const FUNCTIONS: [&str; 28] = [
    "tidegate_abort",
    "tidegate_begin",
    "tidegate_block_size",
    "tidegate_blocks",
    "tidegate_close",
    "tidegate_commit",
    "tidegate_create",
    "tidegate_create_with",
    "tidegate_destage",
    "tidegate_log_append",
    "tidegate_log_close",
    "tidegate_log_create",
    "tidegate_log_drop_behind",
    "tidegate_log_open",
    "tidegate_log_open_damaged",
    "tidegate_log_places",
    "tidegate_log_read",
    "tidegate_log_replay",
    "tidegate_log_sync",
    "tidegate_log_write_back",
    "tidegate_message",
    "tidegate_open",
    "tidegate_open_with",
    "tidegate_read",
    "tidegate_transaction_blocks_max",
    "tidegate_transaction_read",
    "tidegate_transaction_write",
    "tidegate_write",
];

#[test]
fn the_binary_interface_is_the_one_that_programs_were_linked_to() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = libraries();
    let library = folder.join("libtidegate.so");
    let mut names = Command::new("nm");
    let defined = succeeded(names.args(["--dynamic", "--defined-only", "--format=posix"]).arg(&library), "binutils");
    let defined = String::from_utf8(defined.stdout).unwrap();
    let defined: Vec<_> = defined.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(defined, FUNCTIONS, "and nothing else is exported");
    let dynamic = succeeded(Command::new("objdump").arg("-p").arg(&library), "binutils");
    let dynamic = String::from_utf8(dynamic.stdout).unwrap();
    let name = dynamic.lines().find_map(|line| line.trim().strip_prefix("SONAME")).unwrap();
    assert_eq!(name.trim(), LOADED);
    // Types, values and sizes are checked by the compiler; every name by the linker and the loader.
    succeeded(&mut made_of("abi.c", scratch.path(), &folder), "gcc");
}
