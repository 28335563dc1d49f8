/* Syncs a file in the current folder many times, through a descriptor that this process, or the same file, may also be written past. The argument says how:
   `plain` not at all; `number` as a standard stream; `copied` as a copy with a standard stream's number; `renamed` by a shared mapping that was made where the
   file lay before; `queue` by a ring of requests. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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
	int fd = opened(count > 1 ? words[1] : "plain");
	if (fd < 0)
		return 1;
	for (int turn = 0; turn < 20; turn++)
		if (pwrite(fd, "word", 4, turn * 4) != 4 || fdatasync(fd))
			return 2;
	return 0;
}
