/* Maps a file directly, and does with it what the lines of its input say; it answers each by a line:
 * "ok", a number, or the name of an errno.
 *
 *   open NAME rw|ro      map HOW OFFSET LEN       store AT BYTE LEN      load AT
 *   msync AT LEN         unmap AT LEN             protect AT LEN none|r|rw
 *   fsync
 *   read AT              write AT BYTE LEN        child AT BYTE LEN      move
 *   close                cut LEN                  punch                  count AT LEN MSYNCS
 *   splice AT LEN        spliced BYTE             (pages go into a pipe; it has such bytes)
 *   exit                 drop AT LEN              probe AT (in a child)  closeall
 *   readto AT FROM LEN   writefrom AT TO LEN      random SEED COUNT      threads SEED COUNT
 *   alarmed COUNT        fork                     exec
 *   lock AT LEN          locktouched AT LEN (MLOCK_ONFAULT)         unlock AT LEN
 *   lockall FLAGS        unlockall                other AT LEN (memory of no file, there)
 *   holes AT COUNT       streams FORKS            fill LEFT
 *   reread AT COUNT (stores and reads by the descriptor: how many reads are older)
 *
 * HOW is "direct", "barred" (PROT_NONE), "private" (MAP_PRIVATE | MAP_DAX), "plain" (MAP_SHARED | MAP_DAX), "shared",
 * "paged" (MAP_NORESERVE), "whole" (MAP_POPULATE) or "fixed" (over the first mapping). */
#define _GNU_SOURCE
#include "tidegate-mappings.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd = -1;
static unsigned char *base;
static size_t length;
static volatile unsigned char seen;

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
	if (!strcmp(how, "paged"))
		flags |= MAP_NORESERVE;
	if (!strcmp(how, "whole"))
		flags |= MAP_POPULATE;
	void *place = !strcmp(how, "fixed") ? base : NULL;
	int access = !strcmp(how, "barred") ? PROT_NONE : PROT_READ | PROT_WRITE;
	void *at = mmap(place, len, access, flags, fd, offset);
	if (at != MAP_FAILED) {
		base = at;
		length = len;
	}
	answer(at == MAP_FAILED ? -1 : 0);
}

static int ends[2];
static size_t in_pipe;

/* The kernel refers to these pages from now on. */
static void splice_pages(size_t at, size_t len)
{
	struct iovec pages = { base + at, len };
	int failed = pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, (int)len) < 0;
	failed = failed || vmsplice(ends[1], &pages, 1, 0) != (ssize_t)len;
	in_pipe = len;
	answer(failed ? -1 : 0);
}

/* Answers with the number of bytes in the pipe that are others. */
static void spliced(int byte)
{
	static unsigned char bytes[4096];
	long others = 0;
	while (in_pipe) {
		ssize_t got = read(ends[0], bytes, sizeof bytes);
		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++)
			others += bytes[i] != byte;
		in_pipe -= got;
	}
	printf("%ld\n", others + (long)in_pipe);
	fflush(stdout);
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

static void probe(size_t at)
{
	pid_t pid = fork();
	if (pid == 0) {
		seen = base[at];
		_exit(0);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	printf("%s\n", WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "ok");
	fflush(stdout);
}

#define THREADS 4

struct work {
	pthread_t thread;
	uint64_t seed;
	long count, number, of;
	int failed;
};

/* Stores the number of each step to a random word of those of this thread, and syncs its page. */
static void *step(void *argument)
{
	struct work *work = argument;
	uint64_t x = work->seed;
	for (long i = 1; i <= work->count; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		size_t word = (x >> 20) % (length / 8 / work->of) * work->of + work->number;
		((volatile uint64_t *)base)[word] = i;
		work->failed |= msync(base + word * 8 / 4096 * 4096, 4096, MS_SYNC);
	}
	return NULL;
}

static void run(uint64_t seed, long count, long threads)
{
	struct work works[THREADS];
	int failed = 0;
	for (long i = 0; i < threads; i++) {
		works[i] = (struct work){ .seed = seed + i, .count = count, .number = i, .of = threads };
		failed |= pthread_create(&works[i].thread, NULL, step, &works[i]);
	}
	for (long i = 0; i < threads; i++) {
		pthread_join(works[i].thread, NULL);
		failed |= works[i].failed;
	}
	answer(failed ? -1 : 0);
}

static volatile sig_atomic_t alarms;

/* Each alarm loads a byte of another part. */
static void on_alarm(int number)
{
	(void)number;
	seen = base[(size_t)alarms++ * 7 * 262144 % length];
}

static void alarmed(long count)
{
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	int failed = 0;
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &often, NULL);
	for (size_t at = 0; alarms < count; at = (at + 5 * 262144) % length) {
		base[at + 1] = 9;
		failed |= msync(base, length, MS_SYNC);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	answer(failed);
}

/* Unmaps every second page until that is refused; answers with the number of those it unmapped. */
static void holes(size_t at, long count)
{
	long done = 0;
	while (done < count && munmap(base + at + done * 2 * 4096, 4096) == 0)
		done++;
	printf("%ld\n", done);
	fflush(stdout);
}

/* Maps pages of the file from its beginning on until there is no room, and unmaps the last ones. */
static void fill(long left)
{
	size_t size = 1 << 20, at = 0, last[64] = { 0 }, count = 0;
	while (size) {
		int flags = MAP_SHARED_VALIDATE | MAP_DAX | MAP_POPULATE;
		void *part = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, at);
		if (part != MAP_FAILED) {
			at += size;
			if (size == 4096)
				last[count++ % 64] = (size_t)part;
		} else
			size = size == 4096 ? 0 : 4096;
	}
	int failed = left > 64 || (size_t)left > count;
	while (!failed && left--)
		failed = munmap((void *)last[--count % 64], 4096);
	answer(failed ? -1 : 0);
}

static void reread(size_t at, long count)
{
	long older = 0;
	for (long i = 1; i <= count; i++) {
		unsigned char byte_read = 0;
		base[at] = i;
		older += pread(fd, &byte_read, 1, at) != 1 || byte_read != (unsigned char)i;
	}
	printf("%ld\n", older);
	fflush(stdout);
}

static volatile int enough;

/* Writes pages of the mapping to a stream. */
static void *write_to_stream(void *unused)
{
	FILE *stream = fopen("/dev/null", "w");
	for (uint64_t x = 1; stream && !enough; x = x * 6364136223846793005u + 1442695040888963407u)
		fwrite(base + (x >> 20) % (length - 4096), 1, 2000, stream);
	return unused;
}

static void *flush_streams(void *unused)
{
	while (!enough)
		fflush(NULL);
	return unused;
}

static void streams(long forks)
{
	pthread_t writer, flusher;
	int failed = pthread_create(&writer, NULL, write_to_stream, NULL);
	failed |= pthread_create(&flusher, NULL, flush_streams, NULL);
	for (; forks > 0; forks--) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(fflush(NULL));
		int status = -1;
		waitpid(pid, &status, 0);
		failed |= status;
	}
	enough = 1;
	pthread_join(writer, NULL);
	pthread_join(flusher, NULL);
	answer(failed ? -1 : 0);
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
			unsigned char byte_read = 0;
			if (pread(fd, &byte_read, 1, at) < 0)
				answer(-1);
			else
				printf("%d\n", byte_read), fflush(stdout);
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
		else if (!strncmp(line, "closeall", 8))
			closefrom(3), answer(0);
		else if (!strncmp(line, "close", 5))
			answer(close(fd));
		else if (sscanf(line, "drop %ld %ld", &at, &len) == 2)
			answer(madvise(base + at, len, MADV_DROPCACHE));
		else if (sscanf(line, "probe %ld", &at) == 1)
			probe(at);
		else if (sscanf(line, "readto %ld %ld %ld", &at, &byte, &len) == 3)
			answer(pread(fd, base + at, len, byte) == len ? 0 : -1);
		else if (sscanf(line, "writefrom %ld %ld %ld", &at, &byte, &len) == 3)
			answer(pwrite(fd, base + at, len, byte) == len ? 0 : -1);
		else if (sscanf(line, "random %ld %ld", &byte, &len) == 2)
			run(byte, len, 1);
		else if (sscanf(line, "threads %ld %ld", &byte, &len) == 2)
			run(byte, len, THREADS);
		else if (sscanf(line, "holes %ld %ld", &at, &len) == 2)
			holes(at, len);
		else if (sscanf(line, "reread %ld %ld", &at, &len) == 2)
			reread(at, len);
		else if (sscanf(line, "fill %ld", &len) == 1)
			fill(len);
		else if (sscanf(line, "streams %ld", &len) == 1)
			streams(len);
		else if (sscanf(line, "splice %ld %ld", &at, &len) == 2)
			splice_pages(at, len);
		else if (sscanf(line, "spliced %ld", &byte) == 1)
			spliced(byte);
		else if (sscanf(line, "alarmed %ld", &len) == 1)
			alarmed(len);
		else if (sscanf(line, "cut %ld", &len) == 1)
			answer(ftruncate(fd, len));
		else if (sscanf(line, "lock %ld %ld", &at, &len) == 2)
			answer(mlock(base + at, len));
		else if (sscanf(line, "locktouched %ld %ld", &at, &len) == 2)
			answer(mlock2(base + at, len, MLOCK_ONFAULT));
		else if (sscanf(line, "unlock %ld %ld", &at, &len) == 2)
			answer(munlock(base + at, len));
		else if (sscanf(line, "lockall %ld", &at) == 1)
			answer(mlockall(at));
		else if (!strncmp(line, "unlockall", 9))
			answer(munlockall());
		else if (sscanf(line, "other %ld %ld", &at, &len) == 2)
			answer(mmap(base + at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
					       MAP_FAILED ? -1 : 0);
		else if (!strncmp(line, "exec", 4))
			answer(0), execl("/proc/self/exe", "mapper", NULL);
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
