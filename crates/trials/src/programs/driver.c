/* Random calls of every kind that the library follows, on a few files. Each is printed with what it returned; at the end, and now and then before,
   the files' sizes and sums. The same seed makes the same calls. The arguments are a seed, a number of calls, `loud` to have most files opened so that each
   write is a sync, and how many processes make the calls, each call by one of them, chosen at random. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <spawn.h>
#include <unistd.h>

extern char **environ;

enum { FILES = 4, SPAN = 200000, OPEN = 10, PROCESSES_MAX = 8 };
static uint64_t state;
static FILE *out;
static int fds[OPEN];
static int loud;
static unsigned char bytes[65536];

static uint32_t any(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static void said(const char *what, long answer)
{
	fprintf(out, "%s %ld %d\n", what, answer, answer < 0 ? errno : 0);
}

static int loud_at_random(void)
{
	static const int kinds[] = {0, O_DSYNC, O_SYNC};
	return loud ? kinds[any(3)] : 0;
}

static const char *name(int file)
{
	static char names[2][16];
	static int turn;
	turn = !turn;
	snprintf(names[turn], sizeof names[turn], "file%d", file);
	return names[turn];
}

static void fill(size_t len)
{
	unsigned char from = any(256);
	for (size_t at = 0; at < len; at++)
		bytes[at] = from + at * 7;
}

static void look(int file)
{
	int fd = open(name(file), O_RDONLY);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat)) {
		said("absent", -1);
		return;
	}
	uint64_t sum = 14695981039346656037u;
	ssize_t got;
	unsigned char piece[4096];
	while ((got = read(fd, piece, sizeof piece)) > 0)
		for (ssize_t at = 0; at < got; at++)
			sum = (sum ^ piece[at]) * 1099511628211u;
	fprintf(out, "file%d has %ld bytes, sum %016lx, mode %o, names %lu\n", file, (long)stat.st_size, sum,
		stat.st_mode, (unsigned long)stat.st_nlink);
	close(fd);
}

static int flags_at_random(void)
{
	static const int kinds[] = {O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_APPEND, O_RDWR | O_CREAT,
		O_RDWR | O_APPEND, O_RDWR | O_CREAT | O_TRUNC, O_WRONLY | O_CREAT, O_RDONLY, O_RDWR | O_DSYNC};
	/* The kinds that cut and that sync are rarer. */
	return kinds[any(10) ? any(5) : any(9)] | loud_at_random();
}

static void in_child(int fd)
{
	fflush(out);
	pid_t child = fork();
	if (child == 0) {
		fill(100);
		_exit(write(fd, bytes, 100) == 100 && fsync(fd) == 0 ? 7 : 8);
	}
	int status = 0;
	waitpid(child, &status, 0);
	said("child", WEXITSTATUS(status));
}

static void spawned(int file)
{
	char command[64];
	snprintf(command, sizeof command, "echo spawned >> file%d", file);
	char *words[] = {"sh", "-c", command, NULL};
	pid_t child = -1;
	int status = posix_spawnp(&child, "sh", NULL, NULL, words, environ);
	if (status == 0)
		waitpid(child, &status, 0);
	said("spawn", WEXITSTATUS(status));
}

static void mapped(int fd)
{
	struct stat stat;
	if (fstat(fd, &stat) || stat.st_size < 4096)
		return;
	unsigned char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	said("mmap", map == MAP_FAILED ? -1 : 0);
	if (map == MAP_FAILED)
		return;
	memset(map + any(2000), any(256), 1000);
	said("msync", msync(map, 4096, MS_SYNC));
	said("munmap", munmap(map, 4096));
}

static void streamed(int file)
{
	FILE *stream = fopen(name(file), any(2) ? "a" : "r+");
	said("fopen", stream ? 0 : -1);
	if (!stream)
		return;
	for (int line = 0; line < 20; line++)
		fprintf(stream, "line %d of a stream\n", line);
	said("fflush", fflush(stream));
	said("fsync", fsync(fileno(stream)));
	said("fclose", fclose(stream));
}

static void asynchronous(int fd)
{
	fill(300);
	struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = 300, .aio_offset = any(SPAN)};
	const struct aiocb *list[] = {&request};
	if (aio_write(&request))
		return said("aio_write", -1);
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	said("aio_write", aio_return(&request));
}

static void call(void)
{
	int which = any(OPEN), fd = fds[which], file = any(FILES), other = any(FILES);
	size_t len = any(8) ? any(300) : any(sizeof bytes);
	off_t at = any(SPAN), from = any(SPAN);
	fill(len);
	struct iovec pieces[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
	/* Most calls write and sync; those that end a hold are rare enough for others to come between. */
	uint32_t kind = any(40) ? any(820) : 820 + any(180);
	if (kind < 150) said("write", write(fd, bytes, len));
	else if (kind < 300) said("pwrite", pwrite(fd, bytes, len, at));
	else if (kind < 340) said("writev", writev(fd, pieces, 2));
	else if (kind < 380) said("pwritev", pwritev(fd, pieces, 2, at));
	else if (kind < 400) said("pwritev2", pwritev2(fd, pieces, 2, any(2) ? -1 : at, 0));
	else if (kind < 410) said("pwritev2 at the end", pwritev2(fd, pieces, 2, at, RWF_APPEND));
	else if (kind < 412) said("pwritev2 and sync", pwritev2(fd, pieces, 2, at, RWF_DSYNC));
	else if (kind < 550) said("fdatasync", fdatasync(fd));
	else if (kind < 650) said("fsync", fsync(fd));
	else if (kind < 700) said("lseek", lseek(fd, at, any(2) ? SEEK_SET : SEEK_CUR));
	else if (kind < 730) said("lseek to the end", lseek(fd, 0, SEEK_END));
	else if (kind < 790) said("read", read(fd, bytes, len));
	else if (kind < 820) said("pread", pread(fd, bytes, len, at));
	else if (kind < 828) said("ftruncate", ftruncate(fd, at));
	else if (kind < 832) said("truncate", truncate(name(file), at));
	else if (kind < 836) said("fallocate", fallocate(fd, any(2) ? 0 : FALLOC_FL_KEEP_SIZE, at, len + 1));
	else if (kind < 839) said("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len + 1));
	else if (kind < 842) said("posix_fallocate", posix_fallocate(fd, at, len + 1));
	else if (kind < 848) said("sendfile", sendfile(fd, fds[any(OPEN)], &from, len));
	else if (kind < 854) said("copy_file_range", copy_file_range(fds[any(OPEN)], &from, fd, &at, len, 0));
	else if (kind < 858) said("rename", rename(name(file), name(other)));
	else if (kind < 861) said("unlink", unlink(name(file)));
	else if (kind < 863) said("link", link(name(file), "another name") + unlink("another name"));
	else if (kind < 870) said("chmod", fchmod(fd, any(2) ? 0644 : 0600));
	else if (kind < 873) said("futimes", futimes(fd, NULL));
	else if (kind < 880) said("dup2", dup2(fd, fds[any(OPEN)]));
	else if (kind < 885) said("append", fcntl(fd, F_SETFL, any(2) ? O_APPEND : 0));
	else if (kind < 888) said("flags", fcntl(fd, F_GETFL) & (O_APPEND | O_ACCMODE | O_SYNC));
	else if (kind < 892) in_child(fd);
	else if (kind < 894) spawned(file);
	else if (kind < 897) mapped(fd);
	else if (kind < 900) streamed(file);
	else if (kind < 902) asynchronous(fd);
	else if (kind < 904) said("dprintf", dprintf(fd, "%d and %f and %s\n", any(100), any(100) / 8.0, "text"));
	else if (kind < 912) {
		said("syscall write", syscall(SYS_write, fd, bytes, len));
		/* Behind an append that no library sees, the position is where the kernel took the end to be. */
		lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
	}
	else if (kind < 920) said("syscall fsync", syscall(SYS_fsync, fd));
	else if (kind < 930) said("sync_file_range", sync_file_range(fd, at, len, SYNC_FILE_RANGE_WRITE));
	else if (kind < 932) { int copy = dup(fd); said("dup", copy); said("close", close(copy)); }
	else if (kind < 936) said("bad", write(-1, bytes, 1) + fsync(-1) + close(12345));
	else if (kind < 950) {
		said("close", close(fd));
		said("open", fds[which] = open(name(file), flags_at_random(), 0640));
	} else look(file);
}

static void open_all(void)
{
	for (int which = 0; which < OPEN; which++)
		fds[which] = open(name(which % FILES), O_RDWR | O_CREAT | (which % 3 ? 0 : O_APPEND) | loud_at_random(), 0640);
}

/* Makes a call whenever it is told the state of the numbers, and tells the state behind it. */
static int follow(int from, int to)
{
	out = fdopen(dup(1), "w");
	for (int is_open = 0; read(from, &state, sizeof state) == sizeof state; is_open = 1) {
		if (!is_open)
			open_all();
		call();
		fflush(out);
		if (write(to, &state, sizeof state) != sizeof state)
			return 3;
	}
	return 0;
}

/* Has so many processes make the calls. */
static int by_processes(int processes, long calls)
{
	int orders[PROCESSES_MAX][2], done[2], failed = 0;
	if (processes > PROCESSES_MAX || pipe(done))
		return 2;
	for (int process = 0; process < processes; process++) {
		if (pipe(orders[process]))
			return 2;
		if (fork() == 0) {
			for (int each = 0; each <= process; each++)
				close(orders[each][1]);
			_exit(follow(orders[process][0], done[1]));
		}
	}
	for (; calls > 0; calls--) {
		int process = any(processes);
		if (write(orders[process][1], &state, sizeof state) != sizeof state || read(done[0], &state, sizeof state) != sizeof state)
			return 3;
	}
	for (int process = 0; process < processes; process++)
		close(orders[process][1]);
	for (int status; wait(&status) > 0;)
		failed |= status;
	return failed ? 4 : 0;
}

int main(int count, char **words)
{
	if (count < 5)
		return 2;
	state = strtoull(words[1], NULL, 10);
	loud = !strcmp(words[3], "loud");
	int processes = atoi(words[4]), failed = 0;
	out = fdopen(dup(1), "w");
	if (processes > 1)
		failed = by_processes(processes, atol(words[2]));
	else {
		open_all();
		for (long calls = atol(words[2]); calls > 0; calls--)
			call();
	}
	for (int file = 0; file < FILES; file++)
		look(file);
	fflush(out);
	return failed;
}
