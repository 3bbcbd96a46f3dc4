/* The 2012 text_simhash, compiled: the same number as simhash_np.text_simhash.
 *
 * Runs of four UTF-16 units are kept once each in tables with open addressing: runs of units below 256 as 32
 * bits, the others as 64, since what this costs is waiting for memory and guessing wrong about what it holds. A run
 * that is new is fingerprinted (one look-up per byte, see rabin.py) and votes. Eight bits vote at once in the
 * octets of a word, which hold 255 votes before they are emptied into the sums.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../_module.h"

enum { RUN = 4, RUN_BYTES = 8, BITS = 64, OCTETS = 8, OCTET_MAX = 255, BLOCK = 1024 };
enum { FIRST_SLOTS_LOG2 = 11, MOST_FIRST_SLOTS_LOG2 = 18 };

static const uint64_t POLYNOMIAL = 0xD74307D3FD3382DBULL;
static const uint64_t LOWEST_BITS = 0x0101010101010101ULL;
static const uint64_t HIGH_OCTETS = 0xFF00FF00FF00FF00ULL;

/* What a byte contributes at each of the eight places of a run, and what a run of zeros gives. */
static uint64_t contribution[RUN_BYTES][256];
static uint64_t of_zeros;
/* Multiplier of the table's hash: odd, and not to be known to whoever wrote the text. */
static uint64_t multiplier;

/* Runs seen, by value; 0 is an empty slot. */
typedef struct {
    uint32_t *slots;
    int log2;
    size_t used;
} Narrow;

typedef struct {
    uint64_t *slots;
    int log2;
    size_t used;
} Wide;

typedef struct {
    Narrow narrow;
    Wide wide;
    int has_zeros; /* the run of four zeros, which no table can hold */
    int64_t runs;
    uint64_t octets[OCTETS];
    int pending;
    int64_t votes[BITS];
} Tally;

static uint64_t fingerprint_step(const uint64_t *table, uint64_t value, uint8_t byte) {
    return (value >> 8) ^ table[(uint8_t)(value ^ byte)];
}

static int prepare(void) {
    uint64_t table[256];
    for (int byte = 0; byte < 256; byte++) {
        uint64_t value = (uint64_t)byte;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ ((value & 1) ? POLYNOMIAL : 0);
        table[byte] = value;
    }
    of_zeros = POLYNOMIAL;
    for (int place = 0; place < RUN_BYTES; place++) of_zeros = fingerprint_step(table, of_zeros, 0);
    for (int place = 0; place < RUN_BYTES; place++) {
        for (int byte = 0; byte < 256; byte++) {
            uint64_t value = POLYNOMIAL;
            for (int at = 0; at < RUN_BYTES; at++) value = fingerprint_step(table, value, at == place ? (uint8_t)byte : 0);
            contribution[place][byte] = value ^ of_zeros;
        }
    }
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    multiplier = (0x9E3779B97F4A7C15ULL ^ ((uint64_t)now.tv_nsec << 20) ^ ((uint64_t)(uintptr_t)&now >> 4)) | 1;
    return 0;
}

static void empty_octets(Tally *tally) {
    for (int bit = 0; bit < 8; bit++) {
        for (int octet = 0; octet < OCTETS; octet++) {
            tally->votes[8 * octet + bit] += (tally->octets[bit] >> (8 * octet)) & 0xFF;
        }
        tally->octets[bit] = 0;
    }
    tally->pending = 0;
}

static void vote(Tally *tally, uint64_t print) {
    tally->runs++;
    for (int bit = 0; bit < 8; bit++) tally->octets[bit] += (print >> bit) & LOWEST_BITS;
    if (++tally->pending == OCTET_MAX) empty_octets(tally);
}

/* The first unit of a run is in its lowest bits; its bytes are taken high before low. A zero contributes nothing. */
static uint64_t print_of_wide(uint64_t run) {
    uint64_t print = of_zeros;
    for (int unit = 0; unit < RUN; unit++) {
        uint16_t value = (uint16_t)(run >> (16 * unit));
        print ^= contribution[2 * unit][value >> 8] ^ contribution[2 * unit + 1][value & 0xFF];
    }
    return print;
}

static uint64_t print_of_narrow(uint32_t run) {
    return of_zeros ^ contribution[1][run & 0xFF] ^ contribution[3][run >> 8 & 0xFF] ^ contribution[5][run >> 16 & 0xFF] ^
           contribution[7][run >> 24];
}

static void vote_narrow(Tally *tally, const uint32_t *runs, int count) {
    for (int at = 0; at < count; at++) vote(tally, print_of_narrow(runs[at]));
}

static size_t narrow_slot(uint32_t run, int log2) { return run * (uint32_t)multiplier >> (32 - log2); }

static size_t wide_slot(uint64_t run, int log2) { return (size_t)((run * multiplier) >> (64 - log2)); }

/* For both tables: 1 where the run was put in, 0 where it was there. */
#define INSERT(slots, log2, run, at)                   \
    for (;; (at) = ((at) + 1) & (((size_t)1 << (log2)) - 1)) { \
        if ((slots)[at] == (run)) return 0;            \
        if ((slots)[at] == 0) {                        \
            (slots)[at] = (run);                       \
            return 1;                                  \
        }                                              \
    }

static int insert_narrow(uint32_t *slots, int log2, uint32_t run) {
    size_t at = narrow_slot(run, log2);
    INSERT(slots, log2, run, at)
}

static int insert_wide(uint64_t *slots, int log2, uint64_t run) {
    size_t at = wide_slot(run, log2);
    INSERT(slots, log2, run, at)
}

#define GROW(table, kind, insert)                                           \
    kind *slots = calloc((size_t)2 << (table)->log2, sizeof *slots);        \
    if (slots == NULL) return -1;                                           \
    for (size_t at = 0; at < (size_t)1 << (table)->log2; at++) {            \
        if ((table)->slots[at] != 0) insert(slots, (table)->log2 + 1, (table)->slots[at]); \
    }                                                                       \
    free((table)->slots);                                                   \
    (table)->slots = slots;                                                 \
    (table)->log2 += 1;                                                     \
    return 0;

static int is_crowded(const Narrow *table) { return table->used > ((size_t)1 << table->log2) / 2; }

static int grow_narrow(Narrow *table) { GROW(table, uint32_t, insert_narrow) }

static int grow_wide(Wide *table) { GROW(table, uint64_t, insert_wide) }

static int add_narrow(Tally *tally, uint32_t run) {
    Narrow *table = &tally->narrow;
    if (run == 0) {
        if (!tally->has_zeros) vote(tally, of_zeros);
        tally->has_zeros = 1;
    } else if (insert_narrow(table->slots, table->log2, run)) {
        vote(tally, print_of_narrow(run));
        table->used++;
        if (is_crowded(table)) return grow_narrow(table);
    }
    return 0;
}

static int add_wide(Tally *tally, uint64_t run) {
    Wide *table = &tally->wide;
    if (insert_wide(table->slots, table->log2, run)) {
        vote(tally, print_of_wide(run));
        if (++table->used > ((size_t)1 << table->log2) / 4 * 3) return grow_wide(table);
    }
    return 0;
}

/* Those of some runs that do not lie where the table is asked first. Nearly all runs have been seen before, and most of
 * them lie there: all are asked for without a branch, which would be guessed wrong too often. */
static int others_of(const Narrow *table, const uint8_t *text, int runs, uint32_t *others) {
    int count = 0;
    for (int at = 0; at < runs; at++) {
        const uint8_t *octets = text + at;
        uint32_t run = octets[0] | (uint32_t)octets[1] << 8 | (uint32_t)octets[2] << 16 | (uint32_t)octets[3] << 24;
        others[count] = run;
        count += table->slots[narrow_slot(run, table->log2)] != run;
    }
    return count;
}

/* Runs of octets, none of them zero. */
static int add_runs(Tally *tally, const uint8_t *text, int runs) {
    uint32_t others[BLOCK];
    int count = others_of(&tally->narrow, text, runs, others);
    /* without a branch again: what lies elsewhere, or is new where another lies, is added one by one */
    uint32_t *slots = tally->narrow.slots, fresh[BLOCK];
    int news = 0, rest = 0;
    for (int at = 0; at < count; at++) {
        uint32_t run = others[at], *slot = &slots[narrow_slot(run, tally->narrow.log2)], there = *slot;
        const uint32_t empty = (uint32_t)(((uint64_t)there - 1) >> 63); /* compilers would branch */
        *slot = there | (run & (0 - empty));
        fresh[news] = others[rest] = run;
        news += (int)empty;
        rest += (there != run) & !empty;
    }
    vote_narrow(tally, fresh, news);
    tally->narrow.used += (size_t)news;
    if (is_crowded(&tally->narrow) && grow_narrow(&tally->narrow) < 0) return -1;
    for (int at = 0; at < rest; at++) {
        if (add_narrow(tally, others[at]) < 0) return -1;
    }
    return 0;
}

static int add_units(Tally *tally, const uint16_t *units, int runs) {
    for (; runs > 0; units++, runs--) {
        uint64_t run = units[0] | (uint64_t)units[1] << 16 | (uint64_t)units[2] << 32 | (uint64_t)units[3] << 48;
        uint32_t low = units[0] | (uint32_t)units[1] << 8 | (uint32_t)units[2] << 16 | (uint32_t)units[3] << 24;
        if ((run & HIGH_OCTETS ? add_wide(tally, run) : add_narrow(tally, low)) < 0) return -1;
    }
    return 0;
}

/* The runs that begin at the first units, with three more behind the last; what is between wide units and zeros as octets. */
static int add_block(Tally *tally, const uint16_t *units, int runs) {
    uint8_t octets[BLOCK + RUN];
    int count = runs + RUN - 1;
    for (int at = 0; at < count; at++) octets[at] = units[at] > 0xFF ? 0 : (uint8_t)units[at];
    for (int at = 0, stop, end; at < runs; at = end) {
        const uint8_t *odd = memchr(octets + at, 0, (size_t)(count - at));
        stop = odd ? (int)(odd - octets) : count;
        end = stop - RUN + 1;
        if (end > at) {
            if (add_runs(tally, octets + at, end - at) < 0) return -1;
            continue;
        }
        while (stop + 1 < runs && octets[stop + 1] == 0) stop++;
        end = stop < runs ? stop + 1 : runs;
        if (add_units(tally, units + at, end - at) < 0) return -1;
    }
    return 0;
}

/* A text of any characters, a block of units at a time; the last three of a block are the first of the next. */
static int slide_any(Tally *tally, int kind, const void *data, Py_ssize_t length) {
    uint16_t units[BLOCK + 1]; /* a character may be two units */
    int count = 0;
    for (Py_ssize_t at = 0; at < length;) {
        for (; at < length && count < BLOCK; at++) {
            Py_UCS4 character = PyUnicode_READ(kind, data, at);
            if (character <= 0xFFFF) {
                units[count++] = (uint16_t)character;
            } else {
                units[count++] = (uint16_t)(0xD800 + ((character - 0x10000) >> 10));
                units[count++] = (uint16_t)(0xDC00 + ((character - 0x10000) & 0x3FF));
            }
        }
        int runs = count - RUN + 1;
        if (runs <= 0) continue;
        if (add_block(tally, units, runs) < 0) return -1;
        memmove(units, units + runs, (RUN - 1) * sizeof *units);
        count = RUN - 1;
    }
    return 0;
}

static int slide(Tally *tally, int kind, const void *data, Py_ssize_t length) {
    const int octets = kind == PyUnicode_1BYTE_KIND && memchr(data, 0, (size_t)length) == NULL;
    if (!octets && kind != PyUnicode_2BYTE_KIND) return slide_any(tally, kind, data, length);
    for (Py_ssize_t at = 0; at + RUN <= length; at += BLOCK) {
        int runs = length - at - RUN + 1 < BLOCK ? (int)(length - at - RUN + 1) : BLOCK;
        if ((octets ? add_runs(tally, (const uint8_t *)data + at, runs) : add_block(tally, (const uint16_t *)data + at, runs)) < 0)
            return -1;
    }
    return 0;
}

static PyObject *text_simhash(PyObject *self, PyObject *text) {
    (void)self;
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "text_simhash takes a str");
        return NULL;
    }
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    Tally tally;
    memset(&tally, 0, sizeof tally);
    tally.narrow.log2 = tally.wide.log2 = FIRST_SLOTS_LOG2;
    /* one run in seven of a page is new, but a table with much room finds the others where it looks first */
    while (tally.narrow.log2 < MOST_FIRST_SLOTS_LOG2 && (Py_ssize_t)1 << tally.narrow.log2 < length) tally.narrow.log2++;
    tally.narrow.slots = calloc((size_t)1 << tally.narrow.log2, sizeof *tally.narrow.slots);
    tally.wide.slots = calloc((size_t)1 << tally.wide.log2, sizeof *tally.wide.slots);
    if (tally.narrow.slots == NULL || tally.wide.slots == NULL) {
        free(tally.narrow.slots);
        free(tally.wide.slots);
        return PyErr_NoMemory();
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = slide(&tally, kind, data, length);
    Py_END_ALLOW_THREADS
    free(tally.narrow.slots);
    free(tally.wide.slots);
    if (failed) return PyErr_NoMemory();
    empty_octets(&tally);
    uint64_t result = 0;
    for (int bit = 0; bit < BITS; bit++) {
        if (2 * tally.votes[bit] > tally.runs) result |= (uint64_t)1 << bit;
    }
    return PyLong_FromLongLong((long long)(int64_t)result);
}

MODULE(_simhash, prepare,
    {"text_simhash", text_simhash, METH_O, "The signed 64-bit simhash of a text."})
