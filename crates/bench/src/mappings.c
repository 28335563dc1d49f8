/* Maps a file of its folder directly, and memory of the same size beside it. Answers each line of
 * its input by nanoseconds:
 *
 *   map MIB              mmap of that much, for each 2 MiB
 *   sync RANGE COUNT     median of COUNT times: 4 KiB stored at random, msync of the RANGE around it
 *   floor COUNT          median of COUNT times: 4 KiB streamed to the memory at random, and a fence
 *   plain COUNT          median of COUNT times: 4 KiB stored to the memory at random, flushed, and a
 *                        fence
 *   bare RANGE COUNT     median of COUNT times: 4 KiB stored at random to a file in memory that the
 *                        kernel watches, the kernel asked for pages of the RANGE that were stored
 *                        to, the page flushed, and a fence */
#define _GNU_SOURCE
#include "tidegate-mappings.h"
#include <immintrin.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* What linux/userfaultfd.h and linux/fs.h have in Linux 6.7. */
struct watch_api { uint64_t api, features, ioctls; };
struct watch_register { uint64_t start, len, mode, ioctls; };
struct watch_protect { uint64_t start, len, mode; };
struct written { uint64_t start, end, categories; };
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, any_of, told;
};
enum { API = 0xAA, FEATURES = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15, USER_ONLY = 1, WRITES = 2, PROTECT = 1 };
enum { PROTECT_AGAIN = 1 << 0, ONLY_WATCHED = 1 << 1, IS_WRITTEN = 1 << 1 };
#define WATCH_API 0xC018AA3FUL
#define WATCH_REGISTER 0xC020AA00UL
#define WATCH_PROTECT 0xC018AA06UL
#define SCAN 0xC0606610UL

static char *mapped, *beside, *watched;
static int pages_told;
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

/* A file in memory, which the kernel watches. */
static void watch(void)
{
	int fd = memfd_create("watched", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, length))
		fail("memory");
	watched = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (watched == MAP_FAILED)
		fail("memory");
	memset(watched, 1, length);
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_ONLY);
	struct watch_api api = { API, FEATURES, 0 };
	struct watch_register all = { (uintptr_t)watched, length, WRITES, 0 };
	struct watch_protect protect = { (uintptr_t)watched, length, PROTECT };
	if (faults < 0 || ioctl(faults, WATCH_API, &api) || ioctl(faults, WATCH_REGISTER, &all)
	    || ioctl(faults, WATCH_PROTECT, &protect))
		fail("userfaultfd");
	pages_told = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pages_told < 0)
		fail("pagemap");
}

__attribute__((target("clwb"))) static void write_back(uint64_t start, uint64_t end)
{
	for (uint64_t line = start; line < end; line += 64)
		_mm_clwb((void *)(uintptr_t)line);
}

static void evict(uint64_t start, uint64_t end)
{
	for (uint64_t line = start; line < end; line += 64)
		_mm_clflush((void *)(uintptr_t)line);
}

static void flush(uint64_t start, uint64_t end)
{
	if (__builtin_cpu_supports("clwb"))
		write_back(start, end);
	else
		evict(start, end);
}

static void store_and_ask(size_t range)
{
	size_t at = place(), from = at / range * range;
	size_t until = from + range < length ? from + range : length;
	struct written told[64];
	struct scan scan = {
		.size = sizeof scan, .flags = PROTECT_AGAIN | ONLY_WATCHED,
		.start = (uintptr_t)watched + from, .end = (uintptr_t)watched + until,
		.vec = (uintptr_t)told, .vec_len = 64, .mask = IS_WRITTEN, .told = IS_WRITTEN,
	};
	memcpy(watched + at, page, PAGE);
	int count = ioctl(pages_told, SCAN, &scan);
	if (count < 0)
		fail("PAGEMAP_SCAN");
	for (int n = 0; n < count; n++)
		flush(told[n].start, told[n].end);
	_mm_sfence();
}

static void store_and_flush(size_t range)
{
	(void)range;
	uint64_t at = (uintptr_t)beside + place();
	memcpy((void *)(uintptr_t)at, page, PAGE);
	flush(at, at + PAGE);
	_mm_sfence();
}

static void stream(size_t range)
{
	(void)range;
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

static double median(void (*step)(size_t), size_t range, size_t count)
{
	double *took = malloc(count * sizeof *took);
	for (size_t n = 0; n < count; n++) {
		memset(page, (int)n, PAGE);
		double began = now();
		step(range);
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
			printf("%f\n", median(store_and_sync, one, two));
		else if (sscanf(line, "bare %zu %zu", &one, &two) == 2) {
			if (!watched)
				watch();
			printf("%f\n", median(store_and_ask, one, two));
		} else if (sscanf(line, "floor %zu", &one) == 1)
			printf("%f\n", median(stream, 0, one));
		else if (sscanf(line, "plain %zu", &one) == 1)
			printf("%f\n", median(store_and_flush, 0, one));
		else
			printf("unknown: %s", line);
		fflush(stdout);
	}
	return 0;
}
