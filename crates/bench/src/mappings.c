/* Maps a file of its folder directly, and memory of the same size beside it. Answers each line of
 * its input by nanoseconds:
 *
 *   map MIB              mmap of that much, for each 2 MiB
 *   sync RANGE COUNT     median of COUNT times: 4 KiB stored at random, msync of the RANGE around it
 *   floor COUNT          median of COUNT times: 4 KiB streamed to the memory at random, and a fence */
#define _GNU_SOURCE
#include "tidegate-mappings.h"
#include <emmintrin.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *mapped, *beside;
static size_t length;
static unsigned long seed = 88172645463325252UL;
static char page[PAGE] __attribute__((aligned(64)));

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static size_t place(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % (length / PAGE) * PAGE;
}

static double map(size_t mib)
{
	int fd = open("mapped", O_RDWR | O_CREAT, 0600);
	length = mib << 20;
	if (fd < 0 || ftruncate(fd, length))
		fail("file");
	double began = now();
	mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_DAX, fd, 0);
	double took = now() - began;
	if (mapped == MAP_FAILED)
		fail("mmap");
	beside = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (beside == MAP_FAILED)
		fail("memory");
	return took / (length >= 2 << 20 ? length / (2 << 20) : 1);
}

static void store_and_sync(size_t range)
{
	size_t at = place(), from = at / range * range;
	size_t until = from + range < length ? from + range : length;
	memcpy(mapped + at, page, PAGE);
	if (msync(mapped + from, until - from, MS_SYNC))
		fail("msync");
}

static void stream(void)
{
	__m128i *to = (__m128i *)(beside + place());
	const __m128i *from = (const __m128i *)page;
	for (size_t n = 0; n < PAGE / sizeof *to; n++)
		_mm_stream_si128(to + n, _mm_load_si128(from + n));
	_mm_sfence();
}

static int ascending(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static double median(size_t range, size_t count)
{
	double *took = malloc(count * sizeof *took);
	for (size_t n = 0; n < count; n++) {
		memset(page, (int)n, PAGE);
		double began = now();
		if (range)
			store_and_sync(range);
		else
			stream();
		took[n] = now() - began;
	}
	qsort(took, count, sizeof *took, ascending);
	double middle = took[count / 2];
	free(took);
	return middle;
}

int main(void)
{
	char line[100];
	size_t one, two;
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "map %zu", &one) == 1)
			printf("%f\n", map(one));
		else if (sscanf(line, "sync %zu %zu", &one, &two) == 2)
			printf("%f\n", median(one, two));
		else if (sscanf(line, "floor %zu", &one) == 1)
			printf("%f\n", median(0, one));
		else
			printf("unknown: %s", line);
		fflush(stdout);
	}
	return 0;
}
