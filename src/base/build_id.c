#include "base/build_id.h"
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 16 };
static char g_id[DIGITS + 1];

/* The note of that name in a segment of notes: (name size, size, type), name, value, each padded to 4 bytes. */
static void find_in_notes(const uint8_t *p, size_t n) {
    while (n >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        memcpy(&h, p, sizeof h);
        size_t name = ((size_t)h.n_namesz + 3) & ~(size_t)3, value = ((size_t)h.n_descsz + 3) & ~(size_t)3;
        if (name > n - sizeof h || value > n - sizeof h - name) return;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(p + sizeof h, "GNU", 4) == 0 && h.n_descsz >= DIGITS / 2) {
            for (int i = 0; i < DIGITS / 2; i++) (void)snprintf(g_id + 2 * i, 3, "%02x", p[sizeof h + name + (size_t)i]);
            return;
        }
        p += sizeof h + name + value;
        n -= sizeof h + name + value;
    }
}

/* The object that this function is part of. */
static int look(struct dl_phdr_info *o, size_t size, void *user) {
    (void)size, (void)user;
    const uintptr_t here = (uintptr_t)g_id;
    bool ours = false;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &o->dlpi_phdr[i];
        uintptr_t from = o->dlpi_addr + ph->p_vaddr;
        ours = ours || (ph->p_type == PT_LOAD && here >= from && here < from + ph->p_memsz);
    }
    for (int i = 0; ours && g_id[0] == '\0' && i < o->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &o->dlpi_phdr[i];
        if (ph->p_type == PT_NOTE) find_in_notes((const uint8_t *)(o->dlpi_addr + ph->p_vaddr), ph->p_memsz);
    }
    return ours;
}

static void find(void) { (void)dl_iterate_phdr(look, NULL); }

const char *vb__build_id(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find);
    return g_id;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *vb__build_compiler(void) {
#ifdef __clang__
    return "clang" TEXT(__clang_major__) "." TEXT(__clang_minor__);
#else
    return "gcc" TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__);
#endif
}
