/* Appends a thousand records to a log, each durable before the next one, and reads the whole log.
 *
 *   cc log.c $(pkg-config --cflags --libs tidegate) -o log    (libtidegate.so.0: docs/guide/c-api.md)
 *   ./log /mnt/pmem/events.pmem events.log
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tidegate.h>
#include <unistd.h>

enum { RECORD = 64, RECORDS = 1000 };

/* What a replay is looking at. */
struct replay {
    unsigned long long next;
    size_t filled;
    unsigned char record[RECORD];
};

static void done(tidegate_status status, const char *doing) {
    if (status != TIDEGATE_OK) {
        fprintf(stderr, "%s: %s (status %d)\n", doing, tidegate_message(), (int)status);
        exit(1);
    }
}

static void fill(unsigned char *record, unsigned long long number) {
    memset(record, (int)(number % 251), RECORD);
    memcpy(record, &number, sizeof number);
}

/* Parts end anywhere, so records are put together. */
static int visit(void *with, uint64_t at, const uint8_t *data, size_t bytes) {
    struct replay *replay = with;
    unsigned char expected[RECORD];
    (void)at;
    for (size_t byte = 0; byte < bytes; byte++) {
        replay->record[replay->filled++] = data[byte];
        if (replay->filled == RECORD) {
            fill(expected, replay->next++);
            replay->filled = 0;
            if (memcmp(expected, replay->record, RECORD) != 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* A child has no part in the log, and gives its copy back. */
static void fork_and_close(tidegate_log *log) {
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        _exit(tidegate_log_sync(log, NULL) == TIDEGATE_MISUSE && tidegate_log_close(log) == TIDEGATE_OK ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child failed\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    tidegate_log *log = NULL;
    uint64_t begin, end;
    unsigned char record[RECORD];
    if (argc != 3) {
        fprintf(stderr, "usage: %s PMEM FILE\n", argv[0]);
        return 2;
    }
    if (access(argv[1], F_OK) != 0 && errno == ENOENT) {
        /* A window of 64 KiB; 0 would make one of 40 MiB. */
        done(tidegate_log_create(argv[1], 96 << 10, argv[2], 64 << 20), "create");
    }
    done(tidegate_log_open(argv[1], argv[2], &log), "open");
    done(tidegate_log_places(log, &begin, &end), "places");
    /* Half of what is there is no longer needed. */
    begin += (end - begin) / RECORD / 2 * RECORD;
    done(tidegate_log_drop_behind(log, begin), "drop");
    for (int turn = 0; turn < RECORDS; turn++) {
        fill(record, end / RECORD);
        done(tidegate_log_append(log, record, RECORD, NULL), "append");
        done(tidegate_log_sync(log, &end), "sync");
    }
    fork_and_close(log);
    struct replay replay = {.next = begin / RECORD};
    done(tidegate_log_replay(log, 0, visit, &replay), "replay");
    if (replay.next != end / RECORD || replay.filled != 0) {
        fprintf(stderr, "record %llu is not what was appended\n", replay.next);
        return 1;
    }
    /* Mistakes are answered. */
    if (tidegate_log_drop_behind(log, end + 1) != TIDEGATE_MISUSE || tidegate_log_sync(NULL, NULL) != TIDEGATE_MISUSE ||
        tidegate_log_replay(log, 0, NULL, NULL) != TIDEGATE_MISUSE) {
        fprintf(stderr, "a mistake was not answered\n");
        return 1;
    }
    done(tidegate_log_write_back(log), "write back");
    done(tidegate_log_close(log), "close");
    printf("%llu..%llu\n", (unsigned long long)begin / RECORD, (unsigned long long)end / RECORD);
    return 0;
}
