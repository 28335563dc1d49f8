/* Counts what a guest's kernel stores to its persistent memory. QEMU loads this and calls it at each such store.
 *
 *   -plugin PROGRAM,out=PATH,first=ADDRESS,bytes=COUNT
 *
 * The kernel has that memory at the virtual addresses from ADDRESS on. Whenever the guest runs `sectors mark`, a line is added to
 * PATH: bytes stored and store fences since the guest began. Fences are for no address, and are counted whatever they are for.
 *
 * Debian 12 has no package with QEMU's header, so the part of its interface (version 1) that is used here is declared here. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_W = 2 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned int, void *),
                                            enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *),
                                      enum qemu_plugin_cb_flags, enum qemu_plugin_mem_rw, void *);

int qemu_plugin_version = 1;

static FILE *out;
static uint64_t first, length;
static uint64_t bytes, fences;

/* Asked for stores alone, QEMU still tells of the loads of instructions that do both. */
static void stored(unsigned int cpu, qemu_plugin_meminfo_t access, uint64_t at, void *unused) {
    (void)cpu, (void)unused;
    if (at - first < length && qemu_plugin_mem_is_store(access))
        __atomic_fetch_add(&bytes, UINT64_C(1) << qemu_plugin_mem_size_shift(access), __ATOMIC_RELAXED);
}

static void fenced(unsigned int cpu, void *unused) {
    (void)cpu, (void)unused;
    __atomic_fetch_add(&fences, 1, __ATOMIC_RELAXED);
}

static void mark(unsigned int cpu, void *unused) {
    (void)cpu, (void)unused;
    fprintf(out, "%" PRIu64 " %" PRIu64 "\n", bytes, fences);
    fflush(out);
}

static bool is_mark(const uint8_t *code, size_t size) {
    return size == 8 && memcmp(code, "\x0f\x1f\x84\0TIDE", 8) == 0;
}

static bool is_fence(const uint8_t *code, size_t size) {
    return size == 3 && memcmp(code, "\x0f\xae\xf8", 3) == 0;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t index = 0; index < qemu_plugin_tb_n_insns(block); index++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, index);
        const uint8_t *code = qemu_plugin_insn_data(insn);
        size_t size = qemu_plugin_insn_size(insn);
        if (is_mark(code, size))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_NO_REGS, NULL);
        /* Programs do not reach the memory: only the kernel, in the upper half of the addresses, is watched. */
        if (qemu_plugin_insn_vaddr(insn) >> 63 == 0)
            continue;
        if (is_fence(code, size))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, fenced, QEMU_PLUGIN_CB_NO_REGS, NULL);
        qemu_plugin_register_vcpu_mem_cb(insn, stored, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_W, NULL);
    }
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    (void)info;
    for (int index = 0; index < argc; index++) {
        if (strncmp(argv[index], "out=", 4) == 0)
            out = fopen(argv[index] + 4, "w");
        else if (strncmp(argv[index], "first=", 6) == 0)
            first = strtoull(argv[index] + 6, NULL, 0);
        else if (strncmp(argv[index], "bytes=", 6) == 0)
            length = strtoull(argv[index] + 6, NULL, 0);
    }
    if (!out || !first || !length)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
