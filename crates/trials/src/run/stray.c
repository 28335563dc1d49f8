/* Has a file held, and a name, and then stores by mistake to every mapping of its own that shares a file and can be stored to, as seen by threads of every kind. Says
   what came of it, and how many lines are synced: before, in between and after. The arguments are a folder, a number of lines, and "die" if the last stray store is nobody's
   to catch; else it waits for its end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACES_MAX 16

static struct { volatile char *at; char path[256]; int key; } places[PLACES_MAX];
static int count;
static int fd;
static long line;
static long each;
static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t code;

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(2);
	}
}

static void caught(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	code = info->si_code;
	siglongjmp(back, 1);
}

static void append(void)
{
	for (long end = line + each; line != end; line++) {
		char text[32];
		int len = snprintf(text, sizeof text, "line %010ld\n", line);
		check(write(fd, text, len) == len && fdatasync(fd) == 0, "append");
	}
	printf("synced %ld\n", line);
	fflush(stdout);
}

/* What is mapped, shared and can be stored to. */
static void look(void)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	check(maps != NULL, "smaps");
	char text[512], path[256];
	unsigned long from;
	int known = 0;
	count = 0;
	while (fgets(text, sizeof text, maps)) {
		char rights[5];
		if (sscanf(text, "%lx-%*x %4s %*s %*s %*s %255s", &from, rights, path) == 3 && strchr(rights, '-')) {
			known = strcmp(rights, "rw-s") == 0 && count < PLACES_MAX;
			if (known) {
				places[count].at = (volatile char *)from;
				places[count].key = 0;
				strcpy(places[count++].path, path);
			}
		} else if (known) {
			sscanf(text, "ProtectionKey: %d", &places[count - 1].key);
		}
	}
	fclose(maps);
}

/* What came of a load from there, or a store to there. */
static __attribute__((noinline)) const char *touch(volatile char *at, int store)
{
	code = 0;
	if (sigsetjmp(back, 1) == 0) {
		if (store)
			*at = 0x55;
		else
			(void)*at;
	}
	return code == 0 ? "done" : code == SEGV_PKUERR ? "closed" : "refused otherwise";
}

/* Loads from every place, and stores to it. */
static void stray(const char *who)
{
	for (int place = 0; place < count; place++) {
		volatile char *at = places[place].at + 64;
		const char *load = touch(at, 0), *store = touch(at, 1);
		printf("%s load %s store %s key %d of %s\n", who, load, store, places[place].key, places[place].path);
	}
	fflush(stdout);
}

static void *in_thread(void *who)
{
	append();
	stray(who);
	append();
	return NULL;
}

static void in_handler(int number)
{
	(void)number;
	append();
	stray("handler");
	append();
}

static pthread_barrier_t seen;

/* A thread that is older than every mapping. */
static void *older(void *who)
{
	pthread_barrier_wait(&seen);
	return in_thread(who);
}

/* A name is held from the third file on that comes and goes. */
static void come_and_go(const char *folder)
{
	char path[256];
	snprintf(path, sizeof path, "%s/comes-and-goes", folder);
	for (int file = 0; file < 8; file++) {
		int made = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		check(made >= 0 && write(made, folder, 1) == 1 && fdatasync(made) == 0 && close(made) == 0, path);
		check(unlink(path) == 0, path);
	}
}

static void open_lines(const char *folder, const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	check(fd >= 0, path);
	line = 0;
}

int main(int words_count, char **words)
{
	check(words_count > 3, "three words");
	each = atol(words[2]);
	struct sigaction act = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
	check(sigaction(SIGSEGV, &act, NULL) == 0, "sigaction");
	check(signal(SIGUSR1, in_handler) != SIG_ERR, "signal");
	pthread_barrier_init(&seen, NULL, 2);
	pthread_t thread;
	check(pthread_create(&thread, NULL, older, "older") == 0, "thread");

	open_lines(words[1], "lines");
	append();
	come_and_go(words[1]);
	look();
	stray("main");
	append();
	pthread_barrier_wait(&seen);
	pthread_join(thread, NULL);
	check(pthread_create(&thread, NULL, in_thread, "younger") == 0, "thread");
	pthread_join(thread, NULL);
	raise(SIGUSR1);
	come_and_go(words[1]);

	pid_t child = fork();
	if (child == 0) {
		open_lines(words[1], "lines of the child");
		append();
		append();
		look();
		stray("child");
		append();
		_exit(0);
	}
	int status;
	check(waitpid(child, &status, 0) == child && status == 0, "the child");
	stray("main");
	append();
	printf("all %ld\n", line);
	fflush(stdout);
	if (strcmp(words[3], "die") == 0) {
		check(signal(SIGSEGV, SIG_DFL) != SIG_ERR, "signal");
		places[0].at[64] = 0x55;
		return 3;
	}
	for (;;)
		pause();
}
