/* Children of a process that has a region open: what they call is refused, what they close leaves the region to their parent. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tidegate.h>
#include <unistd.h>

#define EXPECT(asked, answer)                                                                                          \
    do {                                                                                                               \
        int got = (int)(asked);                                                                                        \
        if (got != (int)(answer)) {                                                                                    \
            fprintf(stderr, "line %d: %s is %d: %s\n", __LINE__, #asked, got, tidegate_message());                      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { SIZE = 4096 };

static void child(const char *pmem, const char *disk, tidegate_cache *cache, tidegate_transaction *committed,
                  tidegate_transaction *aborted) {
    unsigned char block[SIZE] = {9};
    tidegate_transaction *begun = NULL;
    tidegate_cache *own = NULL;
    uint64_t dirty = 0;
    EXPECT(tidegate_write(cache, 0, block, SIZE), TIDEGATE_MISUSE);
    EXPECT(strstr(tidegate_message(), "forked") != NULL, 1);
    EXPECT(tidegate_read(cache, 0, block, SIZE), TIDEGATE_MISUSE);
    EXPECT(tidegate_destage(cache, 1024, &dirty), TIDEGATE_MISUSE);
    EXPECT(tidegate_begin(cache, &begun), TIDEGATE_MISUSE);
    EXPECT(tidegate_block_size(cache), 0);
    EXPECT(tidegate_blocks(cache), 0);
    EXPECT(tidegate_transaction_blocks_max(cache), 0);
    EXPECT(tidegate_transaction_write(committed, 1, block, SIZE), TIDEGATE_MISUSE);
    EXPECT(tidegate_transaction_read(committed, 1, block, SIZE), TIDEGATE_MISUSE);
    EXPECT(tidegate_commit(committed), TIDEGATE_MISUSE);
    EXPECT(tidegate_abort(aborted), TIDEGATE_OK);
    EXPECT(tidegate_open(pmem, disk, &own), TIDEGATE_IN_USE);
    EXPECT(tidegate_close(cache), TIDEGATE_OK);
    /* It is still its parent's. */
    EXPECT(tidegate_open(pmem, disk, &own), TIDEGATE_IN_USE);
    _exit(0);
}

int main(int argc, char **argv) {
    tidegate_cache *cache = NULL;
    unsigned char block[SIZE] = {1}, found[SIZE];
    if (argc != 3) {
        return 2;
    }
    EXPECT(tidegate_create(argv[1], 8 << 20, argv[2], SIZE), TIDEGATE_OK);
    EXPECT(tidegate_open(argv[1], argv[2], &cache), TIDEGATE_OK);
    EXPECT(tidegate_write(cache, 0, block, SIZE), TIDEGATE_OK);
    for (int past_libc = 0; past_libc < 2; past_libc++) {
        tidegate_transaction *committed = NULL, *aborted = NULL;
        int status = 0;
        EXPECT(tidegate_begin(cache, &committed), TIDEGATE_OK);
        EXPECT(tidegate_begin(cache, &aborted), TIDEGATE_OK);
        EXPECT(tidegate_transaction_write(committed, 1, block, SIZE), TIDEGATE_OK);
        long pid = past_libc ? syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
        if (pid == 0) {
            child(argv[1], argv[2], cache, committed, aborted);
        }
        EXPECT(waitpid((pid_t)pid, &status, 0), pid);
        EXPECT(status, 0);
        /* The parent goes on with everything. */
        block[1]++;
        EXPECT(tidegate_write(cache, 0, block, SIZE), TIDEGATE_OK);
        EXPECT(tidegate_read(cache, 0, found, SIZE), TIDEGATE_OK);
        EXPECT(memcmp(found, block, SIZE), 0);
        EXPECT(tidegate_commit(committed), TIDEGATE_OK);
        EXPECT(tidegate_abort(aborted), TIDEGATE_OK);
    }
    /* Whoever forks may have the region in the child: the parent closes it, and the child opens it anew. */
    int ready[2], status = 0;
    EXPECT(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        tidegate_cache *own = NULL;
        char go;
        EXPECT(read(ready[0], &go, 1), 1);
        EXPECT(tidegate_open(argv[1], argv[2], &own), TIDEGATE_OK);
        EXPECT(tidegate_read(own, 0, found, SIZE), TIDEGATE_OK);
        EXPECT(memcmp(found, block, SIZE), 0);
        EXPECT(tidegate_read(cache, 0, found, SIZE), TIDEGATE_MISUSE);
        EXPECT(tidegate_close(own), TIDEGATE_OK);
        EXPECT(tidegate_close(cache), TIDEGATE_OK);
        _exit(0);
    }
    EXPECT(tidegate_close(cache), TIDEGATE_OK);
    EXPECT(write(ready[1], "g", 1), 1);
    EXPECT(waitpid(pid, &status, 0), pid);
    EXPECT(status, 0);
    return 0;
}
