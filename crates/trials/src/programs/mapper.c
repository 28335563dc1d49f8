/* Maps a file directly, and does with it what the lines of its input say; it answers each by a line:
 * "ok", a number, or the name of an errno.
 *
 *   open NAME rw|ro      map HOW OFFSET LEN       store AT BYTE LEN      load AT
 *   msync AT LEN         unmap AT LEN             protect AT LEN none|r|rw
 *   fsync
 *   read AT              write AT BYTE LEN        child AT BYTE LEN      move
 *   close                cut LEN                  punch                  count AT LEN MSYNCS
 *   exit                 fork
 *
 * HOW is "direct", "barred" (PROT_NONE), "private" (MAP_PRIVATE | MAP_DAX), "plain" (MAP_SHARED | MAP_DAX), "shared" or
 * "fixed" (over the first mapping). */
#define _GNU_SOURCE
#include "tidegate-mappings.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd = -1;
static unsigned char *base;
static size_t length;

static void answer(long outcome)
{
	if (outcome < 0)
		printf("%s\n", strerrorname_np(errno));
	else
		printf("ok\n");
	fflush(stdout);
}

static void map(const char *how, off_t offset, size_t len)
{
	int flags = MAP_SHARED_VALIDATE | MAP_DAX;
	if (!strcmp(how, "private"))
		flags = MAP_PRIVATE | MAP_DAX;
	if (!strcmp(how, "plain"))
		flags = MAP_SHARED | MAP_DAX;
	if (!strcmp(how, "shared"))
		flags = MAP_SHARED;
	if (!strcmp(how, "fixed"))
		flags |= MAP_FIXED;
	void *place = !strcmp(how, "fixed") ? base : NULL;
	int access = !strcmp(how, "barred") ? PROT_NONE : PROT_READ | PROT_WRITE;
	void *at = mmap(place, len, access, flags, fd, offset);
	if (at != MAP_FAILED) {
		base = at;
		length = len;
	}
	answer(at == MAP_FAILED ? -1 : 0);
}

static int access_of(const char *how)
{
	if (!strcmp(how, "none"))
		return PROT_NONE;
	return PROT_READ | (!strcmp(how, "rw") ? PROT_WRITE : 0);
}

static void child(size_t at, int byte, size_t len)
{
	pid_t pid = fork();
	if (pid == 0) {
		memset(base + at, byte, len);
		_exit(msync((void *)((size_t)(base + at) / 4096 * 4096), len, MS_SYNC) != 0);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	answer(status ? -1 : 0);
}

static void go_on_in_child(void)
{
	int status;
	pid_t pid = fork();
	if (pid > 0) {
		waitpid(pid, &status, 0);
		_exit(0);
	}
	answer(pid);
}

int main(void)
{
	char line[512], word[256], how[256];
	long at, byte, len;
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "open %255s %255s", word, how) == 2)
			answer(fd = open(word, !strcmp(how, "ro") ? O_RDONLY : O_RDWR));
		else if (sscanf(line, "map %255s %ld %ld", how, &at, &len) == 3)
			map(how, at, len);
		else if (sscanf(line, "store %ld %ld %ld", &at, &byte, &len) == 3)
			memset(base + at, byte, len), answer(0);
		else if (sscanf(line, "load %ld", &at) == 1)
			printf("%d\n", base[at]), fflush(stdout);
		else if (sscanf(line, "msync %ld %ld", &at, &len) == 2)
			answer(msync(base + at, len, MS_SYNC));
		else if (sscanf(line, "unmap %ld %ld", &at, &len) == 2)
			answer(munmap(base + at, len));
		else if (sscanf(line, "protect %ld %ld %255s", &at, &len, how) == 3)
			answer(mprotect(base + at, len, access_of(how)));
		else if (!strncmp(line, "fsync", 5))
			answer(fsync(fd));
		else if (sscanf(line, "read %ld", &at) == 1) {
			unsigned char seen = 0;
			if (pread(fd, &seen, 1, at) < 0)
				answer(-1);
			else
				printf("%d\n", seen), fflush(stdout);
		} else if (sscanf(line, "write %ld %ld %ld", &at, &byte, &len) == 3) {
			void *bytes = malloc(len);
			memset(bytes, byte, len);
			answer(pwrite(fd, bytes, len, at) == len ? 0 : -1);
			free(bytes);
		} else if (sscanf(line, "child %ld %ld %ld", &at, &byte, &len) == 3)
			child(at, byte, len);
		else if (!strncmp(line, "move", 4))
			answer(mremap(base, length, length * 2, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
		else if (!strncmp(line, "exit", 4))
			return 0;
		else if (!strncmp(line, "fork", 4))
			go_on_in_child();
		else if (!strncmp(line, "close", 5))
			answer(close(fd));
		else if (sscanf(line, "cut %ld", &len) == 1)
			answer(ftruncate(fd, len));
		else if (!strncmp(line, "punch", 5))
			answer(madvise(base, 4096, MADV_REMOVE));
		else if (sscanf(line, "count %ld %ld %ld", &at, &len, &byte) == 3) {
			int failed = 0;
			for (long turn = 0; turn < byte; turn++) {
				base[at] = turn;
				failed |= msync(base, len, MS_SYNC);
			}
			answer(failed);
		} else
			printf("what?\n"), fflush(stdout);
	}
	return 0;
}
