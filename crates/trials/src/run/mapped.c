/* Writes and syncs a file that it has mapped for reading, and looks at the mapping; then does what the argument says, and goes on: `nothing`; `mapped`: maps it anew, many times; `written`: makes the mapping writable, and stores
   through it; `keyed`: the same with a key; `grown`: has the mapping moved and made longer before; `placed`: has it moved to a place of its own; `child`: a child does so; `fixed`: maps it at a place that it says itself;
   `crowded`: maps it more often than is noted; `replaced`: makes memory writable that lies where such a mapping was. It ends well if the kernel gave and took what it should. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 65536, TURNS = 20, MANY = 200 };

static int fd;
static char *seen;

static char *map(void *at, int how)
{
	char *got = mmap(at, BYTES, PROT_READ, MAP_SHARED | how, fd, 0);
	return got == MAP_FAILED ? NULL : got;
}

static int written(int turns)
{
	for (int turn = 0; turn < turns; turn++) {
		char word[4] = {'a' + turn % 20, 'b', 'c', 'd'};
		if (pwrite(fd, word, 4, turn * 40) != 4 || fdatasync(fd) || memcmp(seen + turn * 40, word, 4))
			return 1;
	}
	return 0;
}

static int stored(void)
{
	strcpy(seen + 5000, "stored");
	char got[7] = "";
	return pread(fd, got, 6, 5000) != 6 || strcmp(got, "stored");
}

static int done(const char *what)
{
	int both = PROT_READ | PROT_WRITE;
	if (!strcmp(what, "mapped"))
		for (int turn = 0; turn < MANY; turn++) {
			char *more = map(NULL, 0);
			if (!more || munmap(more, BYTES))
				return 1;
		}
	if (!strcmp(what, "crowded"))
		for (int turn = 0; turn < MANY; turn++)
			if (!map(NULL, 0))
				return 1;
	if (!strcmp(what, "written"))
		return mprotect(seen + 4096, 4096, both) || stored();
	if (!strcmp(what, "keyed"))
		return pkey_mprotect(seen + 4096, 4096, both, -1) || stored();
	if (!strcmp(what, "grown") || !strcmp(what, "placed")) {
		char *place = mmap(NULL, 4 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int placed = !strcmp(what, "placed");
		if (place == MAP_FAILED)
			return 1;
		seen = mremap(seen, BYTES, 2 * BYTES, MREMAP_MAYMOVE | (placed ? MREMAP_FIXED : 0), place + BYTES);
		return seen == MAP_FAILED || written(TURNS) || ftruncate(fd, 2 * BYTES) || mprotect(seen, BYTES, both) || stored();
	}
	if (!strcmp(what, "child")) {
		int status = 0;
		pid_t child = fork();
		if (!child)
			_exit(mprotect(seen, BYTES, both) || stored());
		return child < 0 || waitpid(child, &status, 0) != child || status;
	}
	if (!strcmp(what, "fixed"))
		return !map(seen, MAP_FIXED);
	if (!strcmp(what, "replaced")) {
		char *old = map(NULL, 0), *memory;
		if (!old || munmap(old, BYTES))
			return 1;
		memory = mmap(old, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		return memory != old || mprotect(memory, BYTES, both);
	}
	return 0;
}

int main(int count, char **words)
{
	fd = open("file", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, BYTES) || !(seen = map(NULL, 0)))
		return 1;
	if (written(TURNS))
		return 2;
	if (done(count > 1 ? words[1] : "nothing"))
		return 3;
	return written(TURNS) ? 4 : 0;
}
