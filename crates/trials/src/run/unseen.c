/* Syncs a file in the current folder many times, through a descriptor that this process, or the same file, may also be written past. The argument says how:
   `plain` not at all; `number` as a standard stream; `copied` as a copy with a standard stream's number; `renamed` by a shared mapping that was made where the
   file lay before; `queue` by a ring of requests; `reused` not the file itself, but one that had its inode number before; `flagged` not at all, by writes that say of themselves that they are
   syncs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* How often a number is waited for that is given again: file systems that never do so have nothing to be tried. A file with the same birth is taken for the older one. */
enum { TRIES = 20000 };

/* A new file with the number of an older one that a stream wrote, and another birth. */
static int reborn(void)
{
	for (int try = 0; try < TRIES; try++) {
		struct statx old, new;
		FILE *stream = fopen("old", "w");
		if (!stream || statx(fileno(stream), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &old))
			return -1;
		fclose(stream);
		if (unlink("old"))
			return -1;
		int fd = open("file", O_RDWR | O_CREAT, 0600);
		if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &new))
			return -1;
		if ((new.stx_ino == old.stx_ino && new.stx_btime.tv_nsec != old.stx_btime.tv_nsec) || try + 1 == TRIES)
			return fd;
		close(fd);
		unlink("file");
	}
	return -1;
}

static int opened(const char *how)
{
	if (!strcmp(how, "number")) {
		close(1);
		return open("file", O_RDWR | O_CREAT, 0600);
	}
	if (!strcmp(how, "copied")) {
		int fd = open("file", O_RDWR | O_CREAT, 0600);
		close(2);
		return fcntl(fd, F_DUPFD, 0) == 2 ? fd : -1;
	}
	if (!strcmp(how, "renamed")) {
		int fd = open("../outside", O_RDWR | O_CREAT, 0600);
		if (fd < 0 || mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED || rename("../outside", "file"))
			return -1;
		return open("file", O_RDWR);
	}
	if (!strcmp(how, "reused"))
		return reborn();
	if (!strcmp(how, "queue")) {
		char none[120] = {0}, name[] = "fileXXXXXX";
		/* It is asked for, and that counts, whether or not the system grants it. */
		(void)syscall(SYS_io_uring_setup, 1, none);
		return mkstemp(name);
	}
	return open("file", O_RDWR | O_CREAT, 0600);
}

int main(int count, char **words)
{
	const char *how = count > 1 ? words[1] : "plain";
	struct iovec word = {"word", 4};
	int fd = opened(how);
	if (fd < 0)
		return 1;
	for (int turn = 0; turn < 20; turn++)
		if (!strcmp(how, "flagged") ? pwritev2(fd, &word, 1, turn * 4, turn % 2 ? RWF_DSYNC : RWF_SYNC) != 4 : pwrite(fd, "word", 4, turn * 4) != 4 || fdatasync(fd))
			return 2;
	return 0;
}
