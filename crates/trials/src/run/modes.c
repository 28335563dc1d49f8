/* Syncs a file, changes its mode, syncs its contents alone and then all of it, as often as asked. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
	int turns = count > 1 ? atoi(words[1]) : 1;
	int fd = open("file", O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return 1;
	for (int turn = 0; turn < 10; turn++)
		if (pwrite(fd, "word", 4, turn * 4) != 4 || fsync(fd))
			return 2;
	for (int turn = 0; turn < turns; turn++)
		if (fchmod(fd, turn % 2 ? 0600 : 0640) || ftruncate(fd, 1000 + turn) || fdatasync(fd) || fsync(fd))
			return 3;
	return 0;
}
