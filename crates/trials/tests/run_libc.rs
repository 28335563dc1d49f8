//! Every function of libc that takes a descriptor, a stream or a path is taken over by the library
//! under `tidegate run-log`, or listed here with the reason why it need not be.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::run::library;

/// Headers of libc6-dev with functions about files.
const HEADERS: [&str; 62] = [
    "stdio.h",
    "stdlib.h",
    "unistd.h",
    "fcntl.h",
    "dirent.h",
    "spawn.h",
    "aio.h",
    "ftw.h",
    "fts.h",
    "glob.h",
    "mntent.h",
    "utime.h",
    "wchar.h",
    "pty.h",
    "sys/types.h",
    "sys/stat.h",
    "sys/statfs.h",
    "sys/statvfs.h",
    "sys/mman.h",
    "sys/uio.h",
    "sys/sendfile.h",
    "sys/file.h",
    "sys/ioctl.h",
    "sys/time.h",
    "sys/xattr.h",
    "sys/socket.h",
    "sys/mount.h",
    "sys/inotify.h",
    "sys/fanotify.h",
    "sys/epoll.h",
    "sys/eventfd.h",
    "sys/signalfd.h",
    "sys/timerfd.h",
    "sys/vfs.h",
    "sys/swap.h",
    "sys/acct.h",
    "sys/ipc.h",
    "sys/shm.h",
    "poll.h",
    "sys/select.h",
    "termios.h",
    "utmp.h",
    "utmpx.h",
    "pwd.h",
    "grp.h",
    "shadow.h",
    "gshadow.h",
    "stdio_ext.h",
    "err.h",
    "error.h",
    "printf.h",
    "mqueue.h",
    "dlfcn.h",
    "link.h",
    "fstab.h",
    "syslog.h",
    "wordexp.h",
    "nl_types.h",
    "sys/sysmacros.h",
    "sys/random.h",
    "sys/quota.h",
    "sys/timex.h",
];

/// What need not be taken over, by reason.
const LEFT_TO_LIBC: [(&str, &str); 13] = [
    (
        "they only read contents, and the kernel has the newest",
        "read pread pread64 readv preadv preadv64 preadv2 preadv64v2 readahead posix_fadvise posix_fadvise64 __read_chk \
         __pread_chk __pread64_chk aio_read aio_read64 aio_return aio_return64 aio_error aio_error64 aio_cancel \
         aio_cancel64 aio_suspend aio_suspend64 process_madvise lseek lseek64 lockf lockf64 flock",
    ),
    (
        "files of streams are not held: a stream is seen when it is made and when it is closed",
        "clearerr clearerr_unlocked feof feof_unlocked ferror ferror_unlocked fflush fflush_unlocked fgetc fgetc_unlocked \
         fgetpos fgetpos64 fgets fgets_unlocked fgetwc fgetwc_unlocked fgetws fgetws_unlocked fileno fileno_unlocked \
         flockfile fprintf fputc fputc_unlocked fputs fputs_unlocked fputwc fputwc_unlocked fputws fputws_unlocked fread \
         fread_unlocked fscanf fseek fseeko fseeko64 fsetpos fsetpos64 ftell ftello ftello64 ftrylockfile funlockfile \
         fwide fwprintf fwrite fwrite_unlocked fwscanf getc getc_unlocked getdelim getline getw getwc getwc_unlocked \
         putc putc_unlocked putw putwc putwc_unlocked rewind setbuf setbuffer setlinebuf setvbuf ungetc ungetwc vfprintf \
         vfscanf vfwprintf vfwscanf printf_size __fbufsize __fgets_chk __fgets_unlocked_chk __fgetws_chk \
         __fgetws_unlocked_chk __flbf __fpending __fprintf_chk __fpurge __fread_chk __fread_unlocked_chk __freadable \
         __freading __fsetlocking __fwprintf_chk __fwritable __fwriting __getdelim __overflow __uflow __vfprintf_chk \
         __vfwprintf_chk fgetgrent fgetgrent_r fgetpwent fgetpwent_r fgetsgent fgetsgent_r fgetspent fgetspent_r \
         getmntent getmntent_r addmntent putgrent putpwent putsgent putspent",
    ),
    ("their files are pipes, and what their children do before exec is libc's own", "_IO_popen"),
    ("they take the inside of a stream, which only libc makes", "_IO_file_fopen _IO_file_open"),
    (
        "they are about texts and the processor",
        "__xpg_basename __xpg_sigpause __xpg_strerror_r __x86_get_cpuid_feature_leaf __x86_get_cpu_features",
    ),
    (
        "streams that libc opens for itself, on files of the system",
        "setmntent endmntent utmpname utmpxname getgrnam getgrnam_r getpwnam getpwnam_r getsgnam getsgnam_r getspnam \
         getspnam_r getfsfile getfsspec error_at_line",
    ),
    (
        "they ask about files, and the kernel knows",
        "__xstat __xstat64 access eaccess euidaccess faccessat stat stat64 lstat lstat64 fstat fstat64 fstatat fstatat64 statx statfs statfs64 \
         fstatfs fstatfs64 statvfs statvfs64 fstatvfs fstatvfs64 fpathconf pathconf readlink readlinkat __readlink_chk \
         __readlinkat_chk realpath __realpath_chk canonicalize_file_name getxattr lgetxattr fgetxattr listxattr llistxattr \
         flistxattr isatty isfdtype ftok name_to_handle_at getdents64 getdirentries getdirentries64 opendir fdopendir \
         scandir scandir64 scandirat scandirat64 ftw ftw64 nftw nftw64 inotify_add_watch inotify_rm_watch fanotify_mark \
         tempnam",
    ),
    ("a sync looks at mode and owner itself", "chmod fchmod fchmodat lchmod chown fchown fchownat lchown"),
    (
        "they make names that are no file's, and that nobody had before, or lie in no folder of a root",
        "mktemp shm_open shm_unlink mq_open mq_unlink __mq_open_2 memfd_create",
    ),
    (
        "they replace the program, whose library finds the descriptors again; what children of posix_spawn do before that is seen when they are spawned",
        "execl execle execlp execv execve execveat execvp execvpe fexecve \
         posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addclose posix_spawn_file_actions_adddup2 \
         posix_spawn_file_actions_addfchdir_np posix_spawn_file_actions_addopen posix_spawn_file_actions_addtcsetpgrp_np",
    ),
    (
        "they are about sockets, queues, timers and terminals, or wait for any of them",
        "openpty forkpty accept accept4 bind connect listen getpeername getsockname getsockopt setsockopt recv recvfrom recvmmsg recvmsg \
         send sendmmsg sendmsg sendto shutdown sockatmark socketpair __recv_chk __recvfrom_chk epoll_ctl epoll_pwait \
         epoll_pwait2 epoll_wait poll ppoll __poll_chk __ppoll_chk pselect select eventfd_read eventfd_write signalfd \
         timerfd_gettime timerfd_settime grantpt ptsname ptsname_r __ptsname_r_chk ttyname ttyname_r __ttyname_r_chk \
         unlockpt tcdrain tcflow tcflush tcgetattr tcgetpgrp tcgetsid tcsendbreak tcsetattr tcsetpgrp tee vmsplice revoke",
    ),
    (
        "they are about places, mounts and the system, not about contents",
        "gethostname getdomainname getlogin_r chdir fchdir chroot acct swapon swapoff mount umount umount2 mount_setattr move_mount open_tree fsconfig fsmount \
         fspick setns dlopen dlmopen dlsym dlvsym getenv secure_getenv setenv unsetenv setdomainname sethostname setlogin",
    ),
    (
        "a range that is asked to be written is not promised to be durable; who opens by handle is root and is told in the guide",
        "sync_file_range open_by_handle_at",
    ),
];

/// What in a list of parameters stands for a descriptor, a stream, a path or an asynchronous
/// request.
const MARKS: [&str; 31] = [
    "int __fd",
    "int *__fd",
    "int __fildes",
    "int __filedes",
    "int __outfd",
    "int __infd",
    "int __out_fd",
    "int __in_fd",
    "int __fdin",
    "int __fdout",
    "int __dfd",
    "int __dirfd",
    "FILE *",
    "struct aiocb",
    "char *__file",
    "char *__path",
    "char *__filename",
    "char *__name",
    "char *__old",
    "char *__new",
    "char *__from",
    "char *__to",
    "char *__dir",
    "char *__target",
    "char *__special_file",
    "char *__devname",
    "char *__pathname",
    "char *__template",
    "char *__fname",
    "int __pfd",
    "int fd",
];

fn declarations() -> String {
    let includes: String = HEADERS.iter().map(|header| format!("#include <{header}>\n")).collect();
    let mut compiler = Command::new("gcc");
    compiler.args(["-E", "-P", "-O2", "-D_FORTIFY_SOURCE=2", "-D_GNU_SOURCE", "-x", "c", "-"]);
    compiler.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut compiling = compiler.spawn().expect("gcc is not installed: apt-get install gcc libc6-dev");
    compiling.stdin.take().unwrap().write_all(includes.as_bytes()).unwrap();
    let output = compiling.wait_with_output().unwrap();
    assert!(output.status.success(), "headers are missing: apt-get install libc6-dev");
    let text = String::from_utf8_lossy(&output.stdout).replace("__restrict", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("* ", "*")
}

/// Names of functions in `text` with a marked parameter.
fn about_files(text: &str) -> BTreeSet<&str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices('(') {
        let before = text[..at].trim_end();
        let name = &before[before.rfind(|letter| !is_letter(letter)).map_or(0, |place| place + 1)..];
        let end = text[at + 1..].find([';', '{']).map_or(text.len(), |end| at + 1 + end);
        let parameters = text[at + 1..end].split(')').next().unwrap_or_default();
        if !name.is_empty() && MARKS.iter().any(|mark| parameters.contains(mark)) {
            found.insert(name);
        }
    }
    found
}

/// What `library` defines for others, but for what only libc's own parts may call.
fn defined(library: &Path) -> BTreeSet<String> {
    let listing = run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library), "binutils").unwrap();
    let public = listing.lines().filter(|line| !line.ends_with("@GLIBC_PRIVATE"));
    let functions =
        public.filter_map(|line| line.split_once(" T ").or(line.split_once(" W ")).or(line.split_once(" i ")));
    functions.map(|(_, name)| name.split('@').next().unwrap_or_default().to_owned()).collect()
}

/// The libc that this very program uses.
fn libc() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.into_iter().find(|path| path.contains("/libc.so")).expect("a C library is loaded").to_owned()
}

/// What stands before a function's name in names of the same function that no header has.
const PREFIXES: [&str; 4] = ["_", "__", "_IO_", "__libc_"];

/// Whether `name` is in no header, and may be an exported function's, or that of one that makes
/// streams or files, in programs that were linked long ago.
fn is_older_name(name: &str, exported: &BTreeSet<String>) -> bool {
    let same = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| exported.contains(rest));
    let makes_stream = name.starts_with("_IO_f") && name.contains("open");
    PREFIXES.into_iter().any(same) || makes_stream || name == "_IO_popen" || name.starts_with("__x")
}

#[test]
fn every_function_about_files_is_taken_over_or_left_for_a_reason() {
    let text = declarations();
    let (exported, libc) = (defined(library()), defined(Path::new(&libc())));
    let left: BTreeSet<_> = LEFT_TO_LIBC.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
    let about_files = about_files(&text);
    assert!(about_files.len() > 400, "only {} functions were found", about_files.len());
    let in_libc = about_files.into_iter().filter(|name| libc.contains(*name));
    let in_no_header = libc.iter().map(String::as_str).filter(|name| is_older_name(name, &exported));
    assert!(in_no_header.clone().count() > 20, "the names that only the library tells of were not found");
    let in_libc = in_libc.chain(in_no_header);
    let forgotten: Vec<_> = in_libc.filter(|name| !exported.contains(*name) && !left.contains(name)).collect();
    assert!(forgotten.is_empty(), "neither taken over nor left to libc: {forgotten:?}");
    let both: Vec<_> = left.iter().filter(|name| exported.contains(**name)).collect();
    assert!(both.is_empty(), "taken over and left to libc: {both:?}");
}

/// What makes calls of the kernel by the exports.
const CALLS: &str = include_str!("../../preload/src/exports/calls.rs");

/// Calls without a function of their name.
const WITHOUT_FUNCTION: [&str; 3] = ["openat2", "io_setup", "io_uring_setup"];

#[test]
fn every_call_with_the_name_of_an_export_is_made_by_it() {
    let mut compiler = Command::new("gcc");
    compiler.args(["-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"]);
    let text = run(&mut compiler, "gcc libc6-dev").unwrap();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split(' ').next());
    let exported = defined(library());
    let is_marked = |name: &&str| exported.contains(*name) || WITHOUT_FUNCTION.contains(name);
    let followed: Vec<_> = numbers.filter(is_marked).collect();
    assert!(followed.len() > 30, "only {followed:?} were found");
    let made = |name: &str| {
        let after = |(at, _): (usize, &str)| CALLS.as_bytes().get(at + "SYS_".len() + name.len());
        CALLS
            .match_indices(&format!("SYS_{name}"))
            .any(|place| after(place).is_none_or(|byte| !byte.is_ascii_alphanumeric()))
    };
    let forgotten: Vec<_> = followed.into_iter().filter(|name| !made(name)).collect();
    assert!(forgotten.is_empty(), "writes past the library: {forgotten:?}");
}

#[test]
fn nothing_is_exported_that_no_library_has() {
    // Those of libaio and liburing, which programs may be linked with.
    let others = ["io_setup", "io_uring_setup", "io_uring_queue_init", "io_uring_queue_init_params"];
    let libc = defined(Path::new(&libc()));
    let strange: Vec<_> = defined(library())
        .into_iter()
        .filter(|name| !libc.contains(name) && !others.contains(&name.as_str()))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
}
