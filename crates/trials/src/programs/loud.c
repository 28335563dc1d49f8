/* Writes a file that was opened with O_SYNC, after something that such a file may go through. The argument says what. What is printed is the same with and
   without the direct path. The second argument is `appends` for a file that is opened to append. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITES = 40, LINE = 64, THREADS = 4, THREAD_WRITES = 500, CROWD = 70 };

static void said(const char *what, long answer)
{
	printf("%s %ld %d\n", what, answer, answer < 0 ? errno : 0);
}

static void demand(int what, const char *text)
{
	if (what)
		return;
	printf("not so: %s\n", text);
	exit(1);
}
#define DEMAND(what) demand(what, #what)

static int opened(int flags)
{
	int fd = open("file", O_RDWR | O_CREAT | flags, 0600);
	DEMAND(fd > 2);
	return fd;
}

static void many(int fd, int from, int writes)
{
	for (int number = from; number < from + writes; number++) {
		char line[LINE + 1];
		snprintf(line, sizeof line, "%0*d\n", LINE - 1, number);
		DEMAND(write(fd, line, LINE) == LINE);
	}
}

static void look(int fd)
{
	struct stat stat;
	uint64_t sum = 14695981039346656037u;
	unsigned char byte;
	DEMAND(fstat(fd, &stat) == 0);
	for (off_t at = 0; at < stat.st_size && pread(fd, &byte, 1, at) == 1; at++)
		sum = (sum ^ byte) * 1099511628211u;
	printf("%ld bytes, sum %016lx, position %ld\n", (long)stat.st_size, sum, (long)lseek(fd, 0, SEEK_CUR));
}

/* So many that the file is leased where it can be. */
static void lease(int fd)
{
	many(fd, 0, WRITES);
}

static void closed(int fd)
{
	lease(fd);
	said("close of another number", close(fd + 1));
	many(fd, 0, WRITES);
	look(fd);
	said("close", close(fd));
	int fresh = opened(O_APPEND);
	DEMAND(fresh == fd);
	many(fresh, 0, WRITES);
	look(fresh);
}

static void copied_over(int fd)
{
	lease(fd);
	int none = open("/dev/null", O_WRONLY), file;
	said("dup2 of nothing", dup2(-1, fd));
	many(fd, WRITES, WRITES);
	file = dup(fd);
	said("dup2", dup2(none, fd) == fd);
	many(fd, WRITES, WRITES);
	many(file, 2 * WRITES, WRITES);
	look(file);
	said("dup3", dup3(file, none, O_CLOEXEC) == none);
	many(none, 3 * WRITES, WRITES);
	look(none);
}

static void closed_in_ranges(int fd)
{
	lease(fd);
	DEMAND(close_range(fd, fd, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	many(fd, WRITES, WRITES);
	look(fd);
	said("close_range", close_range(fd, fd, 0));
	fd = opened(O_SYNC | O_TRUNC);
	lease(fd);
	look(fd);
	closefrom(3);
	fd = opened(O_SYNC | O_APPEND);
	lease(fd);
	look(fd);
}

static void streamed(int fd)
{
	lease(fd);
	FILE *stream = fdopen(fd, "r+");
	DEMAND(stream != NULL);
	said("fseek", fseek(stream, 0, SEEK_END));
	said("fputs", fputs("a line of a stream\n", stream));
	said("fflush", fflush(stream));
	many(fd, WRITES, WRITES);
	look(fd);
	said("fclose", fclose(stream));
}

static struct flock whole(void)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* Whether a child finds the file locked. */
static int is_locked(void)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		struct flock lock = whole();
		int fd = open("file", O_RDWR);
		_exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 7 : 8);
	}
	int status = 0;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status) == 7;
}

static void locked(int fd)
{
	struct flock lock = whole();
	DEMAND(fcntl(fd, F_SETLK, &lock) == 0);
	lease(fd);
	DEMAND(is_locked());
	many(fd, 0, WRITES);
	DEMAND(dup2(-1, fd) == -1 && close(-1) == -1);
	DEMAND(is_locked());
	look(fd);
	close(fd);
	DEMAND(!is_locked());
}

/* A child that locks the file before it does anything else keeps its lock. */
static void locked_by_child(int fd)
{
	lease(fd);
	int to_child[2], to_parent[2];
	char byte = 0;
	DEMAND(pipe(to_child) == 0 && pipe(to_parent) == 0);
	pid_t child = fork();
	if (child == 0) {
		close(to_child[1]);
		struct flock lock = whole();
		byte = fcntl(fd, F_SETLK, &lock) == 0 ? 'y' : 'n';
		many(fd, WRITES, WRITES);
		_exit(write(to_parent[1], &byte, 1) == 1 && read(to_child[0], &byte, 1) == 1 ? 0 : 1);
	}
	DEMAND(read(to_parent[0], &byte, 1) == 1 && byte == 'y');
	DEMAND(is_locked());
	DEMAND(write(to_child[1], &byte, 1) == 1);
	int status = 1;
	waitpid(child, &status, 0);
	DEMAND(status == 0);
	many(fd, WRITES, WRITES);
	look(fd);
}

static void unlinked(int fd)
{
	lease(fd);
	said("unlink", unlink("file"));
	many(fd, WRITES, WRITES);
	look(fd);
}

static void renamed(int fd)
{
	lease(fd);
	said("rename", rename("file", "other"));
	many(fd, WRITES, WRITES);
	said("rename", rename("other", "file"));
	many(fd, WRITES, WRITES);
	look(fd);
}

static void *in_thread(void *argument)
{
	many(*(int *)argument, 0, THREAD_WRITES);
	return NULL;
}

/* Lines that were written beside each other, by threads and then by a child too: all are there, whole. */
static void shared(int fd)
{
	lease(fd);
	pthread_t threads[THREADS];
	for (int thread = 0; thread < THREADS; thread++)
		DEMAND(pthread_create(&threads[thread], NULL, in_thread, &fd) == 0);
	for (int thread = 0; thread < THREADS; thread++)
		pthread_join(threads[thread], NULL);
	pid_t child = fork();
	many(fd, 0, WRITES);
	if (child == 0)
		_exit(0);
	int found[THREAD_WRITES] = {0}, status = 1, lines = THREADS * THREAD_WRITES + 3 * WRITES;
	waitpid(child, &status, 0);
	DEMAND(status == 0 && lseek(fd, 0, SEEK_CUR) == lines * LINE);
	for (int line = 0; line < lines; line++) {
		char text[LINE + 1] = {0};
		DEMAND(pread(fd, text, LINE, line * LINE) == LINE && text[LINE - 1] == '\n');
		int number = atoi(text);
		DEMAND(number >= 0 && number < THREAD_WRITES);
		found[number]++;
	}
	for (int number = 0; number < THREAD_WRITES; number++)
		DEMAND(found[number] == THREADS + (number < WRITES ? 3 : 0));
}

static atomic_int written;

static void *without_end(void *argument)
{
	for (;; written++)
		many(*(int *)argument, 0, 1);
	return NULL;
}

/* A thread that does nothing but write is cancelled within a write. */
static void cancelled(int fd)
{
	lease(fd);
	pthread_t thread;
	void *end = NULL;
	DEMAND(pthread_create(&thread, NULL, without_end, &fd) == 0);
	while (written < WRITES)
		sched_yield();
	DEMAND(pthread_cancel(thread) == 0 && pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED);
	off_t position = lseek(fd, 0, SEEK_CUR);
	DEMAND(position % LINE == 0 && position == lseek(fd, 0, SEEK_END));
}

/* More descriptors of one file than the library knows. */
static void crowded(int fd)
{
	lease(fd);
	for (int copy = 0; copy < CROWD; copy++)
		many(dup(fd), WRITES * copy, WRITES / 10);
	look(fd);
}

/* Calls that fail, or write less than they were asked. */
static void refused(int fd)
{
	char bytes[1000] = {1}, *volatile nowhere = NULL;
	struct iovec *volatile nothing = NULL;
	volatile long less = -1;
	struct iovec none = {NULL, 10}, two[2] = {{bytes, 10}, {bytes + 500, 20}};
	lease(fd);
	said("write of nowhere", write(fd, nowhere, 10));
	said("write of nothing", write(fd, bytes, 0));
	said("pwrite before the file", pwrite(fd, bytes, 10, -1));
	said("writev of nowhere", writev(fd, &none, 1));
	said("writev of no pieces", writev(fd, nothing, 1));
	said("writev of too many", writev(fd, two, less));
	said("pwritev of nowhere", pwritev(fd, nothing, 2, 5));
	said("pwritev", pwritev(fd, two, 2, 5));
	said("writev", writev(fd, two, 2));
	said("write of too much", write(fd, bytes, less));
	look(fd);
	int reader = open("file", O_RDONLY | O_SYNC);
	said("write of a reader", write(reader, bytes, 10));
	said("pwrite of a reader", pwrite(reader, bytes, 10, 0));
	struct rlimit limit = {lseek(fd, 0, SEEK_END) + 100, RLIM_INFINITY};
	signal(SIGXFSZ, SIG_IGN);
	DEMAND(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	said("write up to the limit", write(fd, bytes, 1000));
	said("write at the limit", write(fd, bytes, 1000));
	said("pwrite at the limit", pwrite(fd, bytes, 1000, limit.rlim_cur));
	said("ftruncate to the limit", ftruncate(fd, limit.rlim_cur));
	look(fd);
}

static void flagged(int fd)
{
	lease(fd);
	for (int turn = 0; turn < 4; turn++) {
		said("flags", fcntl(fd, F_SETFL, turn % 2 ? 0 : O_APPEND));
		said("lseek", lseek(fd, 10 * turn, SEEK_SET));
		many(fd, 100 * turn, WRITES / 4);
		said("pwrite", pwrite(fd, "offset", 6, 3));
		look(fd);
	}
	said("ftruncate", ftruncate(fd, 1 << 20));
	many(fd, 0, WRITES);
	look(fd);
}

static const struct {
	const char *name;
	void (*run)(int fd);
} cases[] = {
	{"closed", closed}, {"copied-over", copied_over}, {"closed-in-ranges", closed_in_ranges}, {"streamed", streamed},
	{"locked", locked}, {"locked-by-child", locked_by_child}, {"unlinked", unlinked}, {"renamed", renamed},
	{"shared", shared}, {"cancelled", cancelled}, {"crowded", crowded}, {"refused", refused}, {"flagged", flagged},
};

int main(int count, char **words)
{
	setlinebuf(stdout);
	alarm(100);
	for (size_t which = 0; which < sizeof cases / sizeof *cases; which++)
		if (count == 3 && !strcmp(words[1], cases[which].name)) {
			cases[which].run(opened(!strcmp(words[2], "appends") ? O_SYNC | O_APPEND : O_DSYNC));
			return 0;
		}
	return 2;
}
