/* Writes numbers to a place of a file, syncs each, and says it when the sync has returned; for ever. Amid that the file gets another path, which the argument says how, and no sync of its new folder follows. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make(const char *path)
{
	char bytes[4096] = {0};
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	return fd >= 0 && pwrite(fd, bytes, sizeof bytes, 0) == sizeof bytes ? fd : -1;
}

static int move(const char *how)
{
	if (!strcmp(how, "renamed"))
		return rename("from/file", "from/new");
	if (!strcmp(how, "moved"))
		return rename("from/file", "to/new");
	if (!strcmp(how, "exchanged"))
		return renameat2(AT_FDCWD, "from/file", AT_FDCWD, "from/other", RENAME_EXCHANGE);
	if (!strcmp(how, "put-over"))
		return rename("from/file", "from/other");
	if (!strcmp(how, "folder"))
		return rename("from", "new");
	return -1;
}

int main(int count, char **words)
{
	if (count < 2 || mkdir("from", 0700) || mkdir("to", 0700))
		return 1;
	int fd = make("from/file");
	if (fd < 0 || make("from/other") < 0)
		return 2;
	sync();
	for (long number = 1;; number++) {
		char text[32];
		int len = snprintf(text, sizeof text, "%ld\n", number);
		/* It changes no size and no block's place, so that the file system has nothing to make durable but bytes. */
		if (pwrite(fd, text, len, 100) != len || fdatasync(fd) || write(1, text, len) != len)
			return 3;
		if (number == 20 && move(words[1]))
			return 4;
	}
}
