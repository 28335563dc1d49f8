/* Tidegate: a disk behind persistent memory, with transactions, and append-only logs. Link with -ltidegate; `pkg-config --libs tidegate` knows how.
 *
 * Functions return a tidegate_status; after any but TIDEGATE_OK, tidegate_message() tells what was wrong, to the thread that called.
 * No function unwinds or longjmps. The law that callers keep:
 *
 *   L1  A handle is null, or came from this library and was not given back (closed, committed or aborted) since.
 *   L2  A path or another text is null or ends with a zero byte.
 *   L3  A buffer is null or has as many bytes as the call says, which nobody else changes meanwhile.
 *   L4  A place for a result is null or can be written to.
 *   L5  A transaction is used by one thread at a time; so is a cache or log that is being closed. Else a cache or log serves many threads at once.
 *   L6  A function that is called back returns, and does not close the handle that called it.
 *
 * A handle belongs to the process that got it. In a child made by fork() every call with it is answered with TIDEGATE_MISUSE and does nothing; tidegate_close(),
 * tidegate_log_close() and tidegate_abort() free the child's copy of it, and leave the region, the disk and the parent's locks alone. A child that keeps its copy keeps
 * the locks too if the parent is killed: close it there, or run another program. Between vfork() and exec no function may be called. */

#ifndef TIDEGATE_H
#define TIDEGATE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// How a call ended.
typedef enum {
  // It did what it was asked.
  TIDEGATE_OK = 0,
  // The caller asked for what is never possible: a null pointer, blocks past the end, a buffer
  // that holds no whole blocks, a handle of the process that this one was forked from.
  TIDEGATE_MISUSE = 1,
  // The memory or the disk cannot give bytes back, or refuses them.
  TIDEGATE_MEDIA = 2,
  // What lies in the region is damaged, no cache, or the cache of another disk; or something
  // lies on the disk that may not be lost, or the disk was changed without its region, which has
  // blocks for it.
  TIDEGATE_REFUSED = 3,
  // Another program uses the region or the disk.
  TIDEGATE_IN_USE = 4,
  // The system refused: permission, space, no such file.
  TIDEGATE_SYSTEM = 5,
  // An earlier store was lost: close the cache and open it anew.
  TIDEGATE_SEALED = 6,
  // The transaction has more blocks than the region's ring and size allow.
  TIDEGATE_TOO_LARGE = 7,
  // A mistake in the library itself. Close the cache and open it anew.
  TIDEGATE_BUG = 8,
  // Somebody else committed a block that the transaction read or wrote since it began. It may be
  // tried again from its beginning.
  TIDEGATE_CONFLICT = 9,
} tidegate_status;

// A cache in persistent memory in front of a disk.
typedef struct tidegate_cache tidegate_cache;

// An append-only log in persistent memory, in front of a file or a disk.
typedef struct tidegate_log tidegate_log;

// Writes that will be put in place together, or not at all.
typedef struct tidegate_transaction tidegate_transaction;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a new region of `bytes` bytes in the file `pmem`, which may not exist, in front of `disk`:
// a block device or a file, to which nothing is written. `block_size` is a power of two from 512
// to 65536.
//
// # Safety
// L2 for both paths.
tidegate_status tidegate_create(const char *pmem, uint64_t bytes, const char *disk, uint32_t block_size);

// Does as tidegate_create(), with `options` if they are not null: `checksums=on` keeps a checksum
// of each block. `ordered=on` has the disk keep the order of commits: at every instant it alone is
// what all commits up to a moment left, and `tidegate replay` makes it so if the region is lost.
// The end of the disk becomes its journal, with as many blocks as the region; it may hold nothing
// but zeroes, and no file system or partition table may call it its own. With `force=on` it may
// hold anything. A disk that has the journal of another region is refused, whether this one is
// ordered or not, as that may have blocks that the disk lacks: run `tidegate detach` on that
// region, which erases the journal; with `force=on` nobody asks. A disk amid a group is always
// refused: see `tidegate replay`.
//
// # Safety
// L2 for both paths and for `options`.
tidegate_status tidegate_create_with(const char *pmem,
                                     uint64_t bytes,
                                     const char *disk,
                                     uint32_t block_size,
                                     const char *options);

// Opens the cache in `pmem` in front of `disk`, and finishes what was interrupted. `*out` is to be
// closed by tidegate_close(). Another disk is refused; but disks that have no name, as some
// virtual ones, are not told from each other. If a disk in a file was changed since the region was
// closed in good order, what is cached is dropped; if some of it is dirty, opening is refused
// (TIDEGATE_REFUSED). If another process has the region or the disk, this waits for it for up to
// 10 s, as the kernel may be about to end a process that was killed; not for a process of the same
// program, nor for a server: then it fails at once (TIDEGATE_IN_USE).
//
// # Safety
// L2 for both paths, L4 for `out`.
tidegate_status tidegate_open(const char *pmem, const char *disk, tidegate_cache **out);

// Does as tidegate_open(), with `options` if they are not null: words of the command line and
// their values, parted by commas. `disk-mode` (write-back, write-through, write-around,
// write-only, pass-through, read-only), `replacement` (lru, clock, sieve, 2q, s3-fifo), `admit`
// (always, never, second-miss), `sequential-cutoff` (bytes; 0: no run of reads is too long to come
// in), `forget-reads` (on, off: whether nothing is flushed for blocks that are read, so that the
// next opening has forgotten them), and `conflicts`: of transactions that touch the same blocks at
// the same time, with `last-wins` the last one wins each block, with `refuse` it gets
// TIDEGATE_CONFLICT.
//
// # Safety
// L2 for both paths and for `options`, L4 for `out`.
tidegate_status tidegate_open_with(const char *pmem, const char *disk, const char *options, tidegate_cache **out);

// Gives the cache back. What is dirty stays so, durably. Transactions that were begun keep it open
// until they are committed or aborted. Null is allowed. In a forked child this frees the child's
// copy and closes its descriptors; the parent goes on with the region and the disk, which stay
// locked for it.
//
// # Safety
// L1 and L5.
tidegate_status tidegate_close(tidegate_cache *cache);

// Bytes in a block; 0 for null, and in a forked child.
//
// # Safety
// L1.
uint32_t tidegate_block_size(const tidegate_cache *cache);

// Blocks of the disk; 0 for null, and in a forked child.
//
// # Safety
// L1.
uint64_t tidegate_blocks(const tidegate_cache *cache);

// Blocks that a transaction may have at most; 0 for null, and in a forked child.
//
// # Safety
// L1.
uint32_t tidegate_transaction_blocks_max(const tidegate_cache *cache);

// Reads `bytes` bytes, whole blocks, from block `block` on.
//
// # Safety
// L1, and L3 for `out`.
tidegate_status tidegate_read(const tidegate_cache *cache, uint64_t block, uint8_t *out, size_t bytes);

// Writes `bytes` bytes, whole blocks, from block `block` on: durable on return as far as the
// memory is. Up to 1 MiB, and no more than tidegate_transaction_blocks_max() blocks, is put in
// place as a whole; in the modes write-around and pass-through, what the disk does as a whole.
//
// # Safety
// L1, and L3 for `data`.
tidegate_status tidegate_write(const tidegate_cache *cache, uint64_t block, const uint8_t *data, size_t bytes);

// Moves at most `blocks_max` dirty blocks to the disk, from the calling thread. `*dirty` is how
// many are dirty then; it may be null. Nobody else does this: a program that never calls it fills
// the region, and then waits for the disk in its writes.
//
// # Safety
// L1, and L4 for `dirty`.
tidegate_status tidegate_destage(const tidegate_cache *cache, uint32_t blocks_max, uint64_t *dirty);

// Begins a transaction. `*out` is to be given to tidegate_commit() or tidegate_abort().
//
// # Safety
// L1, and L4 for `out`.
tidegate_status tidegate_begin(const tidegate_cache *cache, tidegate_transaction **out);

// Adds whole blocks to a transaction: nobody else sees them before it is committed. One block more
// than tidegate_transaction_blocks_max() is refused with TIDEGATE_TOO_LARGE, and the transaction
// stays as it was.
//
// # Safety
// L1 and L5, and L3 for `data`.
tidegate_status tidegate_transaction_write(tidegate_transaction *transaction,
                                           uint64_t block,
                                           const uint8_t *data,
                                           size_t bytes);

// Reads blocks as the transaction sees them: its own writes, and of the rest what is committed at
// that moment.
//
// # Safety
// L1 and L5, and L3 for `out`.
tidegate_status tidegate_transaction_read(tidegate_transaction *transaction,
                                          uint64_t block,
                                          uint8_t *out,
                                          size_t bytes);

// Puts all that the transaction wrote in place at once, durably as far as the memory is, and frees
// it. After TIDEGATE_MISUSE, TIDEGATE_TOO_LARGE or TIDEGATE_CONFLICT nothing of it is in place;
// the last comes if the cache was opened to refuse conflicts. After TIDEGATE_SEALED the next
// opening shows all of it or nothing. In the modes write-through, write-around and pass-through
// the disk is asked behind the commit: if it fails (TIDEGATE_MEDIA, TIDEGATE_SEALED), all of it is
// in place, and dirty. Read the blocks before trying again.
//
// # Safety
// L1 and L5.
tidegate_status tidegate_commit(tidegate_transaction *transaction);

// Forgets all that the transaction wrote, and frees it. Null is allowed. In a forked child this
// frees the child's copy.
//
// # Safety
// L1 and L5.
tidegate_status tidegate_abort(tidegate_transaction *transaction);

// Makes an append-only log: a new region of `bytes` bytes in the file `pmem`, which may not exist,
// in front of `below`: a block device, or a file that is empty or not there, which then gets room
// for `capacity` bytes without taking it. 0 stands for about 40 MiB, and for 1 TiB.
//
// # Safety
// L2 for both paths.
tidegate_status tidegate_log_create(const char *pmem, uint64_t bytes, const char *below, uint64_t capacity);

// Opens the log in `pmem` in front of `below`: it ends with the last sync that was answered, or
// with one that was under way. `*out` is to be closed by tidegate_log_close(). A thread of the
// library moves full parts of the log below. If bytes of the log are damaged, opening is refused
// (TIDEGATE_REFUSED), and the message names them. It is refused too if `below` is absent or too
// short; TIDEGATE_SYSTEM means that `pmem` is not there, or that the system refused.
//
// # Safety
// L2 for both paths, L4 for `out`.
tidegate_status tidegate_log_open(const char *pmem, const char *below, tidegate_log **out);

// Does as tidegate_log_open(), and opens a damaged log for reading the bytes that are whole.
//
// # Safety
// L2 for both paths, L4 for `out`.
tidegate_status tidegate_log_open_damaged(const char *pmem, const char *below, tidegate_log **out);

// Appends `bytes` bytes; `*end`, which may be null, is where they end in the log. They are durable
// after tidegate_log_sync(). Waits while the region has no room. TIDEGATE_SYSTEM or TIDEGATE_MEDIA
// if what lies below has none or refuses: what was synced is kept, and the call may be repeated
// later, from the end that tidegate_log_sync() tells.
//
// # Safety
// L1, L3 for `data`, and L4 for `end`.
tidegate_status tidegate_log_append(const tidegate_log *log, const uint8_t *data, size_t bytes, uint64_t *end);

// Makes durable what was appended before, as far as the memory is; `*end`, which may be null, is
// where it ends. After TIDEGATE_SEALED nobody knows whether the last bytes are durable: close the
// log, and open it anew.
//
// # Safety
// L1, and L4 for `end`.
tidegate_status tidegate_log_sync(const tidegate_log *log, uint64_t *end);

// Tells where the log begins and where its durable bytes end. Either place may be null.
//
// # Safety
// L1, and L4 for `begin` and `end`.
tidegate_status tidegate_log_places(const tidegate_log *log, uint64_t *begin, uint64_t *end);

// Reads at most `bytes` durable bytes from byte `at` of the log on; `*got` is how many, which may
// be fewer: 0 at the end only.
//
// # Safety
// L1, L3 for `out`, and L4 for `got`.
tidegate_status tidegate_log_read(const tidegate_log *log, uint64_t at, uint8_t *out, size_t bytes, uint64_t *got);

// Calls `visit` with `with` and all durable bytes from byte `from` of the log on, or from its
// begin, part by part in their order, each part with the place of its first byte. A part is there
// for the time of the call only. `visit` returns 0 to go on.
//
// # Safety
// L1, and L6 for `visit`.
tidegate_status tidegate_log_replay(const tidegate_log *log, uint64_t from, int (*visit)(void *with,
                                                                                         uint64_t at,
                                                                                         const uint8_t *data,
                                                                                         size_t bytes), void *with);

// Has the log begin at byte `offset`, durably; room of what lies before is given back below. Bytes
// that are not durable cannot be dropped (TIDEGATE_MISUSE).
//
// # Safety
// L1.
tidegate_status tidegate_log_drop_behind(const tidegate_log *log, uint64_t offset);

// Moves all durable bytes below, from the calling thread: byte n of the log is then byte n of the
// file, as long as that is no longer than its capacity, and zeroes follow the last one.
//
// # Safety
// L1.
tidegate_status tidegate_log_write_back(const tidegate_log *log);

// Makes durable what was appended, and gives the log back, whatever the answer is. Null is
// allowed. In a forked child this frees the child's copy, and the parent goes on.
//
// # Safety
// L1 and L5.
tidegate_status tidegate_log_close(tidegate_log *log);

// What was wrong with the last call of this thread that did not return TIDEGATE_OK; it stays until
// the next such call.
const char *tidegate_message(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIDEGATE_H */
