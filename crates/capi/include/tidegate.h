/* Tidegate: a disk behind persistent memory, with transactions. Link with -ltidegate; `pkg-config --libs tidegate` knows how.
 *
 * Functions return a tidegate_status; after any but TIDEGATE_OK, tidegate_message() tells what was wrong, to the thread that called.
 * No function unwinds or longjmps. The law that callers keep:
 *
 *   L1  A handle is null, or came from this library and was not given back (closed, committed or aborted) since.
 *   L2  A path or another text is null or ends with a zero byte.
 *   L3  A buffer is null or has as many bytes as the call says, which nobody else changes meanwhile.
 *   L4  A place for a result is null or can be written to.
 *   L5  A transaction is used by one thread at a time; so is a cache that is being closed. Else a cache serves many threads at once.
 *
 * A handle belongs to the process that got it. In a child made by fork() every call with it is answered with TIDEGATE_MISUSE and does nothing; tidegate_close()
 * and tidegate_abort() free the child's copy of it, and leave the region, the disk and the parent's locks alone. A child that keeps its copy keeps
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

// What was wrong with the last call of this thread that did not return TIDEGATE_OK; it stays until
// the next such call.
const char *tidegate_message(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIDEGATE_H */
