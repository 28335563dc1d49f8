/* Writes places of a file, each write a sync, and says what each returned, or the error with a minus sign; until it is killed. The arguments are the file and where in it the places begin. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PLACES = 8, PLACE_BYTES = 4096 };

int main(int count, char **words)
{
	int fd = count == 3 ? open(words[1], O_RDWR | O_SYNC) : -1;
	if (fd < 0)
		return 1;
	off_t begin = strtoll(words[2], NULL, 10);
	for (uint64_t number = 1;; number++) {
		uint64_t block[PLACE_BYTES / 8];
		for (int word = 0; word < PLACE_BYTES / 8; word++)
			block[word] = number;
		ssize_t wrote = pwrite(fd, block, PLACE_BYTES, begin + (off_t)(number % PLACES) * PLACE_BYTES);
		if (dprintf(1, "%lu %ld\n", (unsigned long)number, wrote < 0 ? (long)-errno : (long)wrote) < 0)
			return 2;
	}
}
