/* Makes every call that reads memory of its caller with addresses at which there is none, beside a leased file, and prints what each answered. What the kernel refuses
   with EFAULT must not end the program. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static const char *at;

static void told(const char *call, long answer)
{
	printf("%s %s %ld %d\n", at, call, answer, answer < 0 ? errno : 0);
}

#define TELL(call) (errno = 0, told(#call, (long)(call)))
/* The same of calls that answer a pointer, or an error. */
#define TELL_POINTER(call) (errno = 0, told(#call, (call) ? 0 : -1))
#define TELL_ERROR(call) told(#call, -(long)(errno = (call)))

static int held, plain;

static int sync_some(void)
{
	return pwrite(held, "held", 4, 0) == 4 && !fdatasync(held) ? 0 : -1;
}

/* A file that is made, synced and removed. */
static int live(void)
{
	int fd = open("journal", O_RDWR | O_CREAT, 0600);
	return fd >= 0 && write(fd, "journal", 7) == 7 && !fsync(fd) && !close(fd) && !unlink("journal") ? 0 : -1;
}

static void by_path(const char *bad)
{
	TELL(open(bad, O_RDONLY));
	TELL(open(bad, O_RDWR | O_CREAT, 0600));
	TELL(open(bad, O_RDWR | O_TRUNC));
	TELL(open(bad, O_RDWR | O_CREAT | O_TRUNC, 0600));
	TELL(open64(bad, O_RDWR | O_CREAT, 0600));
	TELL(openat(AT_FDCWD, bad, O_RDWR | O_CREAT, 0600));
	TELL(openat64(AT_FDCWD, bad, O_RDWR | O_TRUNC));
	TELL(creat(bad, 0600));
	TELL(creat64(bad, 0600));
	TELL(truncate(bad, 0));
	TELL(truncate64(bad, 0));
	TELL(rename(bad, "new"));
	TELL(rename("held", bad));
	TELL(renameat(AT_FDCWD, bad, AT_FDCWD, "new"));
	TELL(renameat(AT_FDCWD, "held", AT_FDCWD, bad));
	TELL(renameat2(AT_FDCWD, bad, AT_FDCWD, "held", RENAME_EXCHANGE));
	TELL(renameat2(AT_FDCWD, "held", AT_FDCWD, bad, RENAME_EXCHANGE));
	TELL(link(bad, "new"));
	TELL(link("held", bad));
	TELL(linkat(AT_FDCWD, bad, AT_FDCWD, "new", 0));
	TELL(linkat(AT_FDCWD, "held", AT_FDCWD, bad, AT_SYMLINK_FOLLOW));
	TELL(symlink(bad, "new"));
	TELL(symlink("held", bad));
	TELL(symlinkat(bad, AT_FDCWD, "new"));
	TELL(symlinkat("held", AT_FDCWD, bad));
	TELL(unlink(bad));
	TELL(unlinkat(AT_FDCWD, bad, 0));
	TELL(unlinkat(AT_FDCWD, bad, AT_REMOVEDIR));
	TELL(remove(bad));
	TELL(mkdir(bad, 0700));
	TELL(mkdirat(AT_FDCWD, bad, 0700));
	TELL(rmdir(bad));
	TELL(mkfifo(bad, 0600));
	TELL(mkfifoat(AT_FDCWD, bad, 0600));
	TELL(mknod(bad, S_IFREG | 0600, 0));
	TELL(mknodat(AT_FDCWD, bad, S_IFREG | 0600, 0));
	TELL(utime(bad, NULL));
	TELL(utimes(bad, NULL));
	TELL(lutimes(bad, NULL));
	TELL(utimensat(AT_FDCWD, bad, NULL, 0));
	TELL(futimesat(AT_FDCWD, bad, NULL));
	TELL(setxattr(bad, "user.word", "word", 4, 0));
	TELL(lsetxattr(bad, "user.word", "word", 4, 0));
	TELL(removexattr(bad, "user.word"));
	TELL(lremovexattr(bad, "user.word"));
	TELL_POINTER(fopen(bad, "r"));
	TELL_POINTER(fopen(bad, "w"));
	TELL_POINTER(fopen64(bad, "a+"));
}

static void by_number(const char *bad)
{
	struct open_how how = {.flags = O_RDWR | O_CREAT | O_TRUNC, .mode = 0600, .resolve = RESOLVE_IN_ROOT};
	TELL(syscall(SYS_open, bad, O_RDWR | O_CREAT, 0600));
	TELL(syscall(SYS_creat, bad, 0600));
	TELL(syscall(SYS_openat, AT_FDCWD, bad, O_RDWR | O_CREAT | O_TRUNC, 0600));
	TELL(syscall(SYS_openat2, AT_FDCWD, bad, &how, sizeof how));
	TELL(syscall(SYS_truncate, bad, 0));
	TELL(syscall(SYS_rename, "held", bad));
	TELL(syscall(SYS_renameat2, AT_FDCWD, bad, AT_FDCWD, "new", 0));
	TELL(syscall(SYS_unlink, bad));
	TELL(syscall(SYS_unlinkat, AT_FDCWD, bad, 0));
	TELL(syscall(SYS_link, "held", bad));
	TELL(syscall(SYS_linkat, AT_FDCWD, bad, AT_FDCWD, "new", 0));
	TELL(syscall(SYS_symlink, "held", bad));
	TELL(syscall(SYS_mkdir, bad, 0700));
	TELL(syscall(SYS_rmdir, bad));
	TELL(syscall(SYS_mknod, bad, S_IFREG | 0600, 0));
	TELL(syscall(SYS_utimes, bad, NULL));
	TELL(syscall(SYS_utimensat, AT_FDCWD, bad, NULL, 0));
	TELL(syscall(SYS_setxattr, bad, "user.word", "word", 4, 0));
}

/* What is no path. */
static void by_others(void *bad)
{
	struct iovec piece = {bad, 5}, pieces[2] = {{"good", 4}, {bad, 5}};
	struct aiocb **list = bad;
	char *words[] = {"true", NULL};
	pid_t child;
	TELL(syscall(SYS_openat2, AT_FDCWD, "new", bad, sizeof(struct open_how)));
	TELL(syscall(SYS_openat2, AT_FDCWD, "new", bad, 8));
	TELL(syscall(SYS_openat2, AT_FDCWD, "new", bad, 4096));
	TELL(pwrite(plain, bad, 5000, 0));
	TELL(pwritev(plain, bad, 1, 0));
	TELL(pwritev(plain, &piece, 1, 0));
	TELL(pwritev2(plain, &piece, 1, 0, RWF_DSYNC));
	TELL(pwritev2(plain, bad, 1, 0, 0));
	TELL(pwritev(plain, pieces, 2, 0) == 4 ? 0 : -1);
	TELL(copy_file_range(held, bad, held, NULL, 5, 0));
	TELL(futimens(held, bad));
	TELL(utimensat(AT_FDCWD, "held", bad, 0));
	TELL(fsetxattr(held, bad, "word", 4, 0));
	TELL(fsetxattr(held, "user.word", bad, 40000, 0));
	TELL(fremovexattr(held, bad));
	TELL(setxattr("held", bad, "word", 4, 0));
	TELL(removexattr("held", bad));

	TELL(fcntl(held, F_SETLK, bad));
	TELL(aio_fsync(99, bad));
	TELL(lio_listio(99, list, 3, NULL));
	TELL_ERROR(posix_spawn(&child, bad, NULL, NULL, words, words + 1));
}

/* Each beside a file that is leased, and behind a file that came and went. */
static int answer(const char *where, char *bad)
{
	at = where;
	for (int turn = 0; turn < 8; turn++)
		if (sync_some() || live())
			return -1;
	by_path(bad);
	plain = open("plain", O_RDWR | O_CREAT, 0600);
	by_number(bad);
	by_others(bad);
	close(plain);
	return 0;
}

int main(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	held = open("held", O_RDWR | O_CREAT, 0600);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (pages == MAP_FAILED || held < 0 || mkdir("folder", 0700))
		return 1;
	memset(pages, 'a', 3 * page);
	pages[2] = '/';
	if (mprotect(pages + 3 * page, page, PROT_NONE))
		return 2;
	if (answer("null", NULL) || answer("one", (char *)1) || answer("closed", pages + 3 * page)
	    || answer("high", (char *)(uintptr_t)0xffff800000000000) || answer("end", pages + 3 * page - 7)
	    || answer("long", pages))
		return 3;
	char text[8] = {0};
	printf("%d %.4s\n", sync_some(), pread(held, text, 4, 0) == 4 ? text : "");
	return 0;
}
