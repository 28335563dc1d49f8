/* Writes and syncs a file until it is leased, has its descriptor changed in a way that the next write has to see, writes, and demands of the file what it then has to have.
   The arguments are a way and the names of two files. As `append NUMBER` it has a descriptor append. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ulimit.h>
#include <unistd.h>

enum { PIECE = 100, PIECES = 50, WHOLE = PIECE * PIECES };

extern char **environ;
int __dup2(int from, int to);

static const char *self, *first, *second;

static void demand(int what, const char *text)
{
	if (what)
		return;
	dprintf(2, "not so: %s\n", text);
	_exit(1);
}
#define DEMAND(what) demand(what, #what)

static int append(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
}

static int opened(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	DEMAND(fd >= 0);
	return fd;
}

/* So often that the file comes to be leased. */
static void hold(int fd)
{
	char piece[PIECE];
	memset(piece, 'a', PIECE);
	for (int turn = 0; turn < PIECES; turn++)
		DEMAND(write(fd, piece, PIECE) == PIECE && fsync(fd) == 0);
}

/* The file has so many bytes, and these at that place. */
static void has(const char *name, off_t bytes, off_t at, const char *text)
{
	char there[32] = {0};
	int fd = open(name, O_RDONLY);
	DEMAND(fd >= 0);
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t len = pread(fd, there, strlen(text), at);
	if (end != bytes || len != (ssize_t)strlen(text) || strcmp(there, text)) {
		dprintf(2, "%s has %ld bytes, and '%s' at %ld\n", name, (long)end, there, (long)at);
		_exit(1);
	}
	close(fd);
}

/* The next write by a descriptor goes to the end, wherever its position is. */
static void appends(int fd)
{
	DEMAND(write(fd, "XYZ", 3) == 3 && fsync(fd) == 0);
	has(first, WHOLE + 3, WHOLE, "XYZ");
	has(first, WHOLE + 3, 10, "aaa");
}

static int ended(pid_t child)
{
	int status;
	DEMAND(child > 0 && waitpid(child, &status, 0) == child);
	return status;
}

static int copied(const char *way, int fd)
{
	if (!strcmp(way, "dup"))
		return dup(fd);
	if (!strcmp(way, "dup2"))
		return dup2(fd, 40);
	if (!strcmp(way, "__dup2"))
		return __dup2(fd, 41);
	if (!strcmp(way, "dup3"))
		return dup3(fd, 42, O_CLOEXEC);
	if (!strcmp(way, "F_DUPFD"))
		return fcntl(fd, F_DUPFD, 43);
	return -1;
}

/* What another process does with the flags, which has the open file description. */
static void let_others(const char *way, int fd)
{
	char number[16], line[4096];
	snprintf(number, sizeof number, "%d", fd);
	snprintf(line, sizeof line, "%s append %s", self, number);
	if (!strcmp(way, "fork")) {
		pid_t child = fork();
		if (!child)
			_exit(append(fd));
		DEMAND(ended(child) == 0);
	} else if (!strcmp(way, "vfork")) {
		pid_t child = vfork();
		if (!child) {
			execl(self, self, "append", number, NULL);
			_exit(1);
		}
		DEMAND(ended(child) == 0);
	} else if (!strcmp(way, "posix_spawn")) {
		pid_t child;
		char *words[] = {(char *)self, "append", number, NULL};
		DEMAND(posix_spawn(&child, self, NULL, NULL, words, environ) == 0 && ended(child) == 0);
	} else if (!strcmp(way, "system")) {
		DEMAND(system(line) == 0);
	} else if (!strcmp(way, "popen")) {
		DEMAND(pclose(popen(line, "r")) == 0);
	} else {
		DEMAND(!"a way");
	}
}

/* A child that was there before the file was opened gets the descriptor in a message. */
static void pass(int pipe[2], pid_t child, int fd)
{
	char byte = 1;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof fd)];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	struct iovec piece = {&byte, 1};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	DEMAND(sendmsg(pipe[0], &message, 0) == 1);
	DEMAND(ended(child) == 0);
}

static int take(int from)
{
	char byte;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec piece = {&byte, 1};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	DEMAND(recvmsg(from, &message, 0) == 1);
	int fd;
	memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	return fd;
}

static void message(void)
{
	int pipe[2];
	DEMAND(socketpair(AF_UNIX, SOCK_STREAM, 0, pipe) == 0);
	pid_t child = fork();
	if (!child)
		_exit(append(take(pipe[1])));
	int fd = opened(first);
	hold(fd);
	lseek(fd, 10, SEEK_SET);
	pass(pipe, child, fd);
	appends(fd);
}

static void reopen(FILE *(*how)(const char *, const char *, FILE *))
{
	FILE *stream = fopen(first, "w+");
	DEMAND(stream != NULL);
	int number = fileno(stream);
	hold(number);
	stream = how(second, "w+", stream);
	DEMAND(stream != NULL && fileno(stream) == number);
	DEMAND(write(number, "hello\n", 6) == 6 && fsync(number) == 0);
	has(second, 6, 0, "hello\n");
	has(first, WHOLE, 0, "aaaaaa");
	/* And once more, with the second file leased. */
	hold(number);
	stream = how(first, "a", stream);
	DEMAND(stream != NULL && write(fileno(stream), "end", 3) == 3);
	has(first, WHOLE + 3, WHOLE, "end");
	has(second, WHOLE + 6, WHOLE + 3, "aaa");
}

/* A limit of file sizes that is set while the file is leased: a write stops there. */
static void limit(const char *way)
{
	struct rlimit size = {WHOLE + 1024, RLIM_INFINITY};
	char piece[PIECE];
	memset(piece, 'b', PIECE);
	signal(SIGXFSZ, SIG_IGN);
	int fd = opened(first);
	hold(fd);
	if (!strcmp(way, "setrlimit"))
		DEMAND(setrlimit(RLIMIT_FSIZE, &size) == 0);
	else if (!strcmp(way, "prlimit"))
		DEMAND(prlimit(0, RLIMIT_FSIZE, &size, NULL) == 0);
	else
		DEMAND(ulimit(UL_SETFSIZE, (WHOLE + 1024) / 512) >= 0);
	DEMAND(getrlimit(RLIMIT_FSIZE, &size) == 0);
	int turns = 0;
	while (turns < PIECES && write(fd, piece, PIECE) == PIECE && fsync(fd) == 0)
		turns++;
	DEMAND(turns == (int)(size.rlim_cur - WHOLE) / PIECE);
	DEMAND(write(fd, piece, PIECE) == -1 && errno == EFBIG);
	has(first, size.rlim_cur, WHOLE, "bbb");
}

int main(int count, char **words)
{
	if (count == 3 && !strcmp(words[1], "append"))
		return append(atoi(words[2])) ? 1 : 0;
	DEMAND(count == 4);
	const char *way = words[1];
	self = words[0], first = words[2], second = words[3];
	if (!strcmp(way, "freopen") || !strcmp(way, "freopen64")) {
		reopen(strcmp(way, "freopen") ? freopen64 : freopen);
	} else if (strstr(way, "limit") != NULL) {
		limit(way);
	} else if (!strcmp(way, "message")) {
		message();
	} else {
		int fd = opened(first), copy = copied(way, fd);
		hold(fd);
		lseek(fd, 10, SEEK_SET);
		if (copy >= 0)
			DEMAND(append(copy) == 0);
		else
			let_others(way, fd);
		appends(fd);
	}
	return 0;
}
