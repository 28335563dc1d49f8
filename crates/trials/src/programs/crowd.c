// Threads that write places of one file, and sync it. The arguments are the file, a file for notes, the number of threads, and the number before that of
// each one's first write. The notes have two words for each place: the number of the last write whose sync has returned, and that of the last one that began.
// Each thread prints a line when it has made so many writes.
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 8, PLACE_BYTES = 1000, STRIDE = 1024, THREADS_MAX = 16, WRITES_TOLD = 500 };

static int file;
static uint64_t before;
static _Atomic uint64_t (*notes)[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *work(void *argument) {
    unsigned thread = (unsigned)(uintptr_t)argument;
    uint64_t words[PLACE_BYTES / 8], pending[PLACES] = {0};
    unsigned random = thread + 1;
    for (uint64_t number = before + 1;; number++) {
        if (number == before + WRITES_TOLD && dprintf(1, "%u\n", thread) < 0)
            fail("dprintf");
        unsigned place = rand_r(&random) % PLACES, index = thread * PLACES + place;
        for (unsigned word = 0; word < PLACE_BYTES / 8; word++)
            words[word] = number;
        atomic_store(&notes[index][1], number);
        if (pwrite(file, words, PLACE_BYTES, (off_t)index * STRIDE) != PLACE_BYTES)
            fail("pwrite");
        pending[place] = number;
        if (rand_r(&random) % 3 == 0)
            continue;
        if (fdatasync(file) != 0)
            fail("fdatasync");
        for (unsigned synced = 0; synced < PLACES; synced++)
            if (pending[synced] != 0)
                atomic_store(&notes[thread * PLACES + synced][0], pending[synced]);
    }
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count == 5 ? atoi(arguments[3]) : 0;
    if (threads < 1 || threads > THREADS_MAX)
        return 2;
    before = strtoull(arguments[4], NULL, 10);
    file = open(arguments[1], O_RDWR | O_CREAT, 0644);
    int noted = open(arguments[2], O_RDWR | O_CREAT, 0644);
    size_t bytes = THREADS_MAX * PLACES * sizeof *notes;
    if (file < 0 || noted < 0 || ftruncate(noted, (off_t)bytes) != 0)
        fail("open");
    notes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, noted, 0);
    if (notes == MAP_FAILED)
        fail("mmap");
    for (int thread = 0; thread < threads; thread++) {
        pthread_t started;
        if (pthread_create(&started, NULL, work, (void *)(uintptr_t)thread) != 0)
            fail("pthread_create");
    }
    pause();
}
