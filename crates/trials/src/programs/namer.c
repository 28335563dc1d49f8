/* Processes that make, write, sync, remove, rename and link files with few names, over and over, and do to folders and names whatever else there is, each
   act by one of them, chosen at random. Each call is printed with what it returned, and now and then everything that the folder has. The same seed makes
   the same calls. The arguments are a seed and a number of acts. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 3, PROCESSES = 3, PIECE_MAX = 3000 };
static uint64_t state;
static unsigned char bytes[PIECE_MAX];
/* The folders of the first name, and of the others. */
static int folders[2];

static uint32_t any(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static void said(const char *what, long answer)
{
	dprintf(1, "%s %ld %d\n", what, answer, answer < 0 ? errno : 0);
}

static const char *name(int number)
{
	static const char *names[] = {"journal", "folder/journal", "folder/other"};
	return names[number % NAMES];
}

static size_t fill(void)
{
	size_t len = 1 + any(any(6) ? 300 : PIECE_MAX);
	unsigned char from = any(256);
	for (size_t at = 0; at < len; at++)
		bytes[at] = from + at * 7;
	return len;
}

static void write_piece(int fd)
{
	size_t len = fill();
	if (any(2))
		said("write", write(fd, bytes, len));
	else
		said("pwrite", pwrite(fd, bytes, len, any(5000)));
}

static void sync_either(int fd)
{
	if (any(3))
		said("fdatasync", fdatasync(fd));
	else
		said("fsync", fsync(fd));
}

static int made(int number)
{
	static const int kinds[] = {0, O_EXCL, O_TRUNC, O_CLOEXEC, O_NOFOLLOW};
	int flags = O_CREAT | kinds[any(5)] | (any(4) ? O_RDWR : O_WRONLY);
	int fd = any(2) ? open(name(number), flags, 0644 - any(2) * 044) : openat(AT_FDCWD, name(number), flags, 0600);
	said("open", fd < 0 ? -1 : 0);
	return fd;
}

static void removed(int number)
{
	switch (any(4)) {
	case 0: said("unlinkat", unlinkat(AT_FDCWD, name(number), 0)); break;
	case 1: said("remove", remove(name(number))); break;
	case 2: said("syscall unlinkat", syscall(SYS_unlinkat, AT_FDCWD, name(number), 0)); break;
	default: said("unlink", unlink(name(number)));
	}
}

/* What is done to a file between its first sync and its removal. */
static void disturbed(int number, int fd)
{
	size_t len;
	char text[64];
	switch (any(12)) {
	case 0: said("ftruncate", ftruncate(fd, any(4000))); break;
	case 1: said("fchmod", fchmod(fd, any(2) ? 0600 : 0640)); break;
	case 2: said("append", fcntl(fd, F_SETFL, O_APPEND)); break;
	case 3: said("link", link(name(number), "link")); said("unlink", any(2) ? unlink("link") : 0); break;
	case 4: said("rename", rename(name(number), name(number + 1))); break;
	case 5: said("dup", close(dup(fd))); break;
	case 6: said("sync", (sync(), 0)); break;
	case 7: {
		int second = open(name(number), O_RDWR | (any(2) ? O_TRUNC : 0));
		len = fill();
		said("second", second < 0 ? -1 : write(second, bytes, len));
		said("second fsync", second < 0 ? -1 : fsync(second));
		said("close", close(second));
		break;
	}
	case 8: said("unlink of an open file", unlink(name(number))); write_piece(fd); break;
	case 9: {
		FILE *stream = fopen(name(number), "a");
		said("fopen", stream ? fprintf(stream, "text %d\n", (int)any(1000)) + fclose(stream) : -1);
		break;
	}
	case 10: {
		struct stat stat;
		if (fstat(fd, &stat) || stat.st_size < 100)
			break;
		unsigned char *map = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		said("mmap", map == MAP_FAILED ? -1 : 0);
		if (map != MAP_FAILED) {
			memset(map, any(256), 100);
			said("msync", msync(map, 100, MS_SYNC) + munmap(map, 100));
		}
		break;
	}
	default:
		snprintf(text, sizeof text, "echo more >> %s; sync %s", name(number), name(number));
		said("system", system(text));
	}
}

/* One file's life. */
static void life(int number, int is_disturbed)
{
	int fd = made(number);
	for (uint32_t pieces = 1 + any(4); pieces > 0; pieces--)
		write_piece(fd);
	sync_either(fd);
	if (any(2))
		said("fsync of the folder", fsync(folders[number != 0]));
	if (is_disturbed)
		disturbed(number, fd);
	if (any(4) == 0) {
		write_piece(fd);
		sync_either(fd);
	}
	int before = any(2);
	if (before)
		said("close", close(fd));
	removed(number);
	if (!before) {
		write_piece(fd);
		sync_either(fd);
		said("close", close(fd));
	}
	if (any(3) == 0)
		said("fsync of the folder", fsync(folders[number != 0]));
}

/* What is done to names and the folder besides. */
static void beside(int number)
{
	char template[] = "folder/XXXXXX";
	switch (any(10)) {
	case 0: said("mkdir", mkdir(name(number), 0700)); said("rmdir", any(4) ? rmdir(name(number)) : 0); break;
	case 1: said("symlink", symlink("target", name(number))); removed(number); said("unlink", unlink("target")); break;
	case 2: said("mkfifo", mkfifo(name(number), 0600)); removed(number); break;
	case 3: said("mknod", mknod(name(number), S_IFREG | 0600, 0)); break;
	case 4: said("rename", rename(name(number + 1), name(number))); break;
	case 5: said("rename of the folder", rename("folder", "moved") + rename("moved", "folder")); break;
	case 6: said("link", linkat(AT_FDCWD, name(number + 1), AT_FDCWD, name(number), 0)); break;
	case 7: said("mkdtemp", mkdtemp(template) ? rmdir(template) : -1); break;
	case 8: close(creat(name(number), 0600)); break;
	default: said("exchange", renameat2(AT_FDCWD, name(number), AT_FDCWD, name(number + 1), RENAME_EXCHANGE));
	}
	said("rmdir", rmdir(name(number)));
}

static void look(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) || !S_ISREG(stat.st_mode)) {
		dprintf(1, "%s is no file\n", path);
		close(fd);
		return;
	}
	uint64_t sum = 14695981039346656037u;
	unsigned char piece[4096];
	for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0;)
		for (ssize_t at = 0; at < got; at++)
			sum = (sum ^ piece[at]) * 1099511628211u;
	dprintf(1, "%s has %ld bytes, sum %016lx, mode %o, names %lu\n", path, (long)stat.st_size, sum, stat.st_mode,
		(unsigned long)stat.st_nlink);
	close(fd);
}

/* The process's own file is held after some syncs: until something is, nobody looks at names. */
static void log_act(int process)
{
	static int log;
	char text[32];
	if (!log) {
		snprintf(text, sizeof text, "log%d", process);
		log = open(text, O_WRONLY | O_CREAT, 0600);
	}
	said("log", write(log, "acts\n", 5) + fdatasync(log));
}

static void act(int process, uint64_t seed)
{
	state = seed;
	log_act(process);
	int number = any(NAMES);
	uint32_t kind = any(8);
	if (kind < 6)
		/* Often enough for the name to be held. */
		for (uint32_t lives = 1 + any(9); lives > 0; lives--)
			life(number, kind > 3 && lives == 1);
	else if (kind == 6)
		beside(number);
	else
		removed(number);
	for (int each = 0; each < NAMES; each++)
		look(name(each));
	look("link");
}

/* Acts whenever it is told a seed, and tells when it has. */
static int follow(int process, int from, int to)
{
	uint64_t seed;
	while (read(from, &seed, sizeof seed) == sizeof seed) {
		act(process, seed);
		if (write(to, "", 1) != 1)
			return 3;
	}
	return 0;
}

int main(int count, char **words)
{
	int orders[PROCESSES][2], done[2];
	char told;
	if (count < 3 || pipe(done))
		return 2;
	if (mkdir("folder", 0700))
		return 2;
	folders[0] = open(".", O_RDONLY | O_DIRECTORY);
	folders[1] = open("folder", O_RDONLY | O_DIRECTORY);
	for (int process = 0; process < PROCESSES; process++) {
		if (pipe2(orders[process], O_CLOEXEC))
			return 2;
		if (fork() == 0) {
			for (int each = 0; each <= process; each++)
				close(orders[each][1]);
			return follow(process, orders[process][0], done[1]);
		}
	}
	uint64_t choice = strtoull(words[1], NULL, 10) * 2862933555777941757u + 1;
	for (long acts = atol(words[2]); acts > 0; acts--) {
		choice = choice * 6364136223846793005u + 1442695040888963407u;
		/* One of them acts more often than the others. */
		uint32_t process = (choice >> 33) % 8 < PROCESSES ? (choice >> 33) % 8 : 0;
		dprintf(1, "process %u\n", process);
		if (write(orders[process][1], &choice, sizeof choice) != sizeof choice || read(done[0], &told, 1) != 1)
			return 3;
	}
	for (int process = 0; process < PROCESSES; process++)
		close(orders[process][1]);
	int failed = 0;
	for (int status; wait(&status) > 0;)
		failed |= status;
	return failed ? 4 : 0;
}
