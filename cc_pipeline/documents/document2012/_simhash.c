/* The 2012 text_simhash, compiled: the same number as simhash_plainly of simhash.py.
 *
 * Runs of four UTF-16 units are kept once each, as 64 bits, in a table with open addressing. A run that is new is
 * fingerprinted (one look-up per byte) and votes. Eight bits vote at once in the octets of a word,
 * which hold 255 votes before they are emptied into the sums.
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

/* What a byte contributes at each of the eight places of a run, and what a run of zeros gives. */
static uint64_t contribution[RUN_BYTES][256];
static uint64_t of_zeros;
/* Multiplier of the table's hash: odd, and not to be known to whoever wrote the text. */
static uint64_t multiplier;

/* Runs seen, by value, in a table with open addressing; 0 is an empty slot. */
typedef struct {
    uint64_t *slots;
    int log2;
    size_t used;
    int has_zeros; /* the run of four zeros, which the table cannot hold */
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
static uint64_t print_of(uint64_t run) {
    uint64_t print = of_zeros;
    for (int unit = 0; unit < RUN; unit++) {
        uint16_t value = (uint16_t)(run >> (16 * unit));
        print ^= contribution[2 * unit][value >> 8] ^ contribution[2 * unit + 1][value & 0xFF];
    }
    return print;
}

static size_t slot_of(uint64_t run, int log2) { return (size_t)((run * multiplier) >> (64 - log2)); }

/* 1 where the run was put in, 0 where it was there. */
static int insert(uint64_t *slots, int log2, uint64_t run) {
    for (size_t at = slot_of(run, log2);; at = (at + 1) & (((size_t)1 << log2) - 1)) {
        if (slots[at] == run) return 0;
        if (slots[at] == 0) {
            slots[at] = run;
            return 1;
        }
    }
}

static int grow(Tally *tally) {
    uint64_t *slots = calloc((size_t)2 << tally->log2, sizeof *slots);
    if (slots == NULL) return -1;
    for (size_t at = 0; at < (size_t)1 << tally->log2; at++) {
        if (tally->slots[at] != 0) insert(slots, tally->log2 + 1, tally->slots[at]);
    }
    free(tally->slots);
    tally->slots = slots;
    tally->log2 += 1;
    return 0;
}

static int add(Tally *tally, uint64_t run) {
    if (run == 0) {
        if (!tally->has_zeros) vote(tally, of_zeros);
        tally->has_zeros = 1;
    } else if (insert(tally->slots, tally->log2, run)) {
        vote(tally, print_of(run));
        if (++tally->used > ((size_t)1 << tally->log2) / 2) return grow(tally);
    }
    return 0;
}

/* Nearly all runs have been seen before, and most of them lie where the table is asked first. All are asked for without a
 * branch, which would be guessed wrong too often; the others are added one by one. */
static int add_runs(Tally *tally, const uint64_t *runs, int count) {
    uint64_t others[BLOCK + 1];
    int rest = 0;
    for (int at = 0; at < count; at++) {
        others[rest] = runs[at];
        rest += (tally->slots[slot_of(runs[at], tally->log2)] != runs[at]) | (runs[at] == 0);
    }
    for (int at = 0; at < rest; at++) {
        if (add(tally, others[at]) < 0) return -1;
    }
    return 0;
}

static int slide(Tally *tally, int kind, const void *data, Py_ssize_t length) {
    uint64_t run = 0, runs[BLOCK + 1]; /* a character may be two units */
    int count = 0, skipped = RUN - 1; /* the first three are not whole */
    for (Py_ssize_t at = 0; at < length; at++) {
        Py_UCS4 character = PyUnicode_READ(kind, data, at);
        if (character > 0xFFFF) {
            runs[count++] = run = run >> 16 | (uint64_t)(0xD800 + ((character - 0x10000) >> 10)) << 48;
            character = 0xDC00 + ((character - 0x10000) & 0x3FF);
        }
        runs[count++] = run = run >> 16 | (uint64_t)character << 48;
        if (count >= BLOCK) {
            if (add_runs(tally, runs + skipped, count - skipped) < 0) return -1;
            skipped = count = 0;
        }
    }
    return add_runs(tally, runs + skipped, count - skipped);
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
    tally.log2 = FIRST_SLOTS_LOG2;
    /* one run in seven of a page is new, but a table with much room finds the others where it looks first */
    while (tally.log2 < MOST_FIRST_SLOTS_LOG2 && (Py_ssize_t)2 << tally.log2 < length) tally.log2++;
    tally.slots = calloc((size_t)1 << tally.log2, sizeof *tally.slots);
    if (tally.slots == NULL) return PyErr_NoMemory();
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = slide(&tally, kind, data, length);
    Py_END_ALLOW_THREADS
    free(tally.slots);
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
