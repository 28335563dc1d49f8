/* Holds a file, and has something appended to it before each of its later syncs. The argument says by whom: `own` by this process, `old-stream` by a stream of this process that is made by a name which
   only programs have that were linked long ago, `program` by another program, which no library sees. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern FILE *_IO_fopen(const char *path, const char *mode);

enum { BYTES = 17000, HOLDING = 10, TURNS = 20 };

static char bytes[BYTES];

static int append(const char *how, int fd)
{
	if (!strcmp(how, "old-stream")) {
		FILE *stream = _IO_fopen("file", "a");
		return !stream || fwrite(bytes, BYTES, 1, stream) != 1 || fclose(stream);
	}
	if (!strcmp(how, "program")) {
		int status = 0;
		pid_t child = fork();
		if (!child) {
			char *const none[] = {NULL};
			execle("/bin/sh", "sh", "-c", "/usr/bin/head -c 17000 /dev/zero >> file", NULL, none);
			_exit(1);
		}
		return child < 0 || waitpid(child, &status, 0) != child || status;
	}
	struct stat stat;
	return fstat(fd, &stat) || pwrite(fd, bytes, BYTES, stat.st_size) != BYTES;
}

int main(int count, char **words)
{
	const char *how = count > 1 ? words[1] : "own";
	int fd = open("file", O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return 1;
	memset(bytes, 'a', BYTES);
	for (int turn = 0; turn < HOLDING; turn++)
		if (pwrite(fd, "word", 4, turn * 4) != 4 || fdatasync(fd))
			return 2;
	for (int turn = 0; turn < TURNS; turn++)
		if (append(how, fd) || fdatasync(fd))
			return 3;
	return 0;
}
