/* Steps that a model can repeat: each writes some pieces of one file or appends a line to another one, syncs, and says its number when the sync has
   returned; for ever. The arguments are a seed, the first step, and how many lines the second file has. With a fourth argument
   the writes are the syncs: `appends`, or `moves` for lines, and stretches of pieces, that are written at the position. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE = 100, SPAN = 120000, PIECE_MAX = 6000 };
static uint64_t state;

static uint32_t any(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static void fill(unsigned char *bytes, uint32_t len, uint64_t step, uint32_t piece)
{
	for (uint32_t at = 0; at < len; at++)
		bytes[at] = step * 131 + piece * 17 + (at >> 4);
}

/* Some writes are the kernel's call by its number, as some programs make it. */
static ssize_t put(int fd, int appends, unsigned char *bytes, uint32_t len, uint32_t at, int by_number, int moves)
{
	struct iovec all = {bytes, len};
	if (by_number && moves && !appends)
		return lseek(fd, at, SEEK_SET) < 0 ? -1 : syscall(SYS_writev, fd, &all, 1);
	if (appends)
		return by_number ? syscall(SYS_writev, fd, &all, 1) : write(fd, bytes, len);
	return by_number ? syscall(SYS_pwritev, fd, &all, 1, (long)at, 0L) : pwrite(fd, bytes, len, at);
}

int main(int count, char **words)
{
	static unsigned char bytes[PIECE_MAX];
	if (count < 4)
		return 1;
	uint64_t seed = strtoull(words[1], NULL, 10), step = strtoull(words[2], NULL, 10);
	int loud = count > 4, moves = loud && !strcmp(words[4], "moves");
	int pieces = open("pieces", O_RDWR | O_CREAT | (loud ? O_DSYNC : 0), 0600);
	int lines = open("lines", O_WRONLY | O_CREAT | (moves ? 0 : O_APPEND) | (loud ? O_SYNC : 0), 0600);
	if (pieces < 0 || lines < 0 || ftruncate(lines, strtoull(words[3], NULL, 10) * LINE) || lseek(lines, 0, SEEK_END) < 0)
		return 2;
	for (;; step++) {
		state = seed * 2862933555777941757u + step;
		int appends = any(3) == 0, fd = appends ? lines : pieces;
		uint32_t writes = appends ? 1 : 1 + any(4);
		for (uint32_t piece = 0; piece < writes; piece++) {
			uint32_t at = any(SPAN), len = appends ? LINE : 1 + any(PIECE_MAX);
			fill(bytes, len, step, piece);
			ssize_t wrote = put(fd, appends, bytes, len, at, (loud ? step / 16 : step + piece) % 2, moves);
			if (wrote != (ssize_t)len)
				return 3;
		}
		if (!loud && (any(4) ? fdatasync(fd) : fsync(fd)))
			return 4;
		char text[32];
		int len = snprintf(text, sizeof text, "%lu\n", (unsigned long)step);
		if (write(1, text, len) != len)
			return 5;
	}
}
