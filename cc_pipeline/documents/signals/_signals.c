/* Sketches and repetition of texts, compiled: the same values as plain.py, a hundred times faster. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../../_module.h"

enum { VALUES = 64, SHINGLE = 5, TOP_FROM = 2, TOP_TO = 4, TWICE_FROM = 5, TWICE_TO = 10, FIRST_ROOM = 1024 };

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15ULL;
static const uint64_t FNV_START = 0xCBF29CE484222325ULL;
static const uint64_t FNV_PRIME = 0x100000001B3ULL;

static uint64_t factors[VALUES], terms[VALUES];
/* Where a hash lies in a table, unknown to whoever writes pages; no value depends on it. */
static uint64_t slot_factor;

static inline uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

/* Scripts that put no space between words: each character is a word there. */
static inline int stands_alone(Py_UCS4 c) {
    if (c < 0x0E00) return 0;
    return c <= 0x0EFF || (c >= 0x1000 && c <= 0x109F) || (c >= 0x1780 && c <= 0x17FF) || (c >= 0x3040 && c <= 0x30FF) ||
           (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

typedef struct {
    uint64_t hash;
    uint32_t length;
} Word;

typedef struct {
    Word *words;
    size_t count, room;
} Words;

static int append(Words *all, uint64_t hash, uint32_t length) {
    if (all->count == all->room) {
        size_t room = all->room ? all->room * 2 : FIRST_ROOM;
        Word *more = PyMem_Realloc(all->words, room * sizeof(Word));
        if (more == NULL) return -1;
        all->words = more;
        all->room = room;
    }
    all->words[all->count++] = (Word){mixed(hash), length};
    return 0;
}

static int is_text(PyObject *text) {
    if (PyUnicode_Check(text)) return 1;
    PyErr_SetString(PyExc_TypeError, "a str is wanted");
    return 0;
}

static PyObject *minhash(PyObject *self, PyObject *text) {
    (void)self;
    if (!is_text(text)) return NULL;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Words all = {NULL, 0, 0};
    uint64_t hash = FNV_START;
    int inside = 0;
    for (Py_ssize_t at = 0; at <= length; at++) {
        Py_UCS4 c = at < length ? PyUnicode_READ(kind, data, at) : ' ';
        int alone = stands_alone(c), part = c < 0x80 ? Py_ISALNUM(c) != 0 : Py_UNICODE_ISALNUM(c);
        if (inside && (!part || alone)) {
            if (append(&all, hash, 1) < 0) goto no_memory;
            inside = 0;
        }
        if (!part) continue;
        if (!inside) hash = FNV_START;
        hash = (hash ^ c) * FNV_PRIME;
        inside = 1;
        if (alone) {
            if (append(&all, hash, 1) < 0) goto no_memory;
            inside = 0;
        }
    }
    if (all.count == 0) {
        PyMem_Free(all.words);
        Py_RETURN_NONE;
    }
    uint32_t least[VALUES];
    memset(least, 0xFF, sizeof least);
    size_t size = all.count < SHINGLE ? all.count : SHINGLE;
    for (size_t at = 0; at + size <= all.count; at++) {
        uint64_t run = 0;
        for (size_t word = at; word < at + size; word++) run = mixed(run + GOLDEN + all.words[word].hash);
        for (int value = 0; value < VALUES; value++) {
            uint32_t found = (uint32_t)((run * factors[value] + terms[value]) >> 32);
            if (found < least[value]) least[value] = found;
        }
    }
    PyMem_Free(all.words);
    PyObject *result = PyList_New(VALUES);
    if (result == NULL) return NULL;
    for (int value = 0; value < VALUES; value++) {
        PyObject *each = PyLong_FromLong((int32_t)least[value]);
        if (each == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyList_SET_ITEM(result, value, each);
    }
    return result;
no_memory:
    PyMem_Free(all.words);
    return PyErr_NoMemory();
}

typedef struct {
    uint64_t hash;
    uint32_t times, stamp;
} Slot;

static inline Slot *slot_of(Slot *table, int shift, size_t mask, uint64_t hash, uint32_t stamp) {
    size_t at = (size_t)((hash * slot_factor) >> shift);
    while (table[at].stamp == stamp && table[at].hash != hash) at = (at + 1) & mask;
    if (table[at].stamp != stamp) table[at] = (Slot){hash, 0, stamp};
    return &table[at];
}

/* Makes runs of words one word longer: run `at` becomes words `at` to `at + size - 1`. */
static void lengthen(Word *runs, const Words *all, size_t size) {
    for (size_t at = 0; at + size <= all->count; at++) {
        const Word *next = &all->words[at + size - 1];
        runs[at].hash = mixed(runs[at].hash + GOLDEN + next->hash);
        runs[at].length += next->length;
    }
}

/* Characters of the run of words that occurs most, times its occurrences; of several the longest; 0 where none repeats. */
static uint64_t top(const Word *runs, size_t count, Slot *table, int shift, size_t mask, uint32_t stamp) {
    uint64_t best = 0, longest = 0;
    for (size_t at = 0; at < count; at++) {
        Slot *slot = slot_of(table, shift, mask, runs[at].hash, stamp);
        slot->times++;
        if (slot->times > best || (slot->times == best && runs[at].length > longest)) {
            best = slot->times;
            longest = runs[at].length;
        }
    }
    return best > 1 ? best * longest : 0;
}

/* Characters in runs of words that occurred before; behind such a run the search goes on after its last word. */
static uint64_t twice(const Word *runs, size_t count, size_t size, Slot *table, int shift, size_t mask, uint32_t stamp) {
    uint64_t sum = 0;
    for (size_t at = 0; at < count;) {
        Slot *slot = slot_of(table, shift, mask, runs[at].hash, stamp);
        if (slot->times++) {
            sum += runs[at].length;
            at += size;
        } else at++;
    }
    return sum;
}

static PyObject *repetition(PyObject *self, PyObject *text) {
    (void)self;
    if (!is_text(text)) return NULL;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Words all = {NULL, 0, 0};
    uint64_t characters = 0, alphabetic = 0;
    Py_ssize_t at = 0;
    for (;;) {
        while (at < length && Py_UNICODE_ISSPACE(PyUnicode_READ(kind, data, at))) at++;
        if (at >= length) break;
        Py_ssize_t from = at;
        uint64_t hash = FNV_START;
        int letters = 0, unspaced = 0;
        for (; at < length; at++) {
            Py_UCS4 c = PyUnicode_READ(kind, data, at);
            if (Py_UNICODE_ISSPACE(c)) break;
            hash = (hash ^ c) * FNV_PRIME;
            unspaced |= stands_alone(c);
            if (!letters) letters = c < 0x80 ? Py_ISALPHA(c) != 0 : Py_UNICODE_ISALPHA(c) != 0;
        }
        if (!unspaced) {
            if (append(&all, hash, (uint32_t)(at - from)) < 0) goto no_memory;
            characters += (uint64_t)(at - from);
            alphabetic += letters;
            continue;
        }
        uint32_t size = 0;
        letters = 0;
        for (Py_ssize_t each = from; each <= at; each++) {
            Py_UCS4 c = each < at ? PyUnicode_READ(kind, data, each) : ' ';
            int alone = stands_alone(c), part = c < 0x80 ? Py_ISALNUM(c) != 0 : Py_UNICODE_ISALNUM(c);
            if (size && (!part || alone)) {
                if (append(&all, hash, size) < 0) goto no_memory;
                characters += size;
                alphabetic += letters;
                size = 0;
            }
            if (!part) continue;
            if (!size) {
                hash = FNV_START;
                letters = 0;
            }
            hash = (hash ^ c) * FNV_PRIME;
            size++;
            letters |= Py_UNICODE_ISALPHA(c) != 0;
            if (alone) {
                if (append(&all, hash, size) < 0) goto no_memory;
                characters += size;
                alphabetic += letters;
                size = 0;
            }
        }
    }
    int bits = 4;
    while (((size_t)1 << bits) < all.count * 2) bits++;
    size_t room = (size_t)1 << bits;
    Slot *table = PyMem_Calloc(room, sizeof(Slot));
    Word *runs = PyMem_Calloc(all.count + 1, sizeof(Word));
    if (table == NULL || runs == NULL) {
        PyMem_Free(table);
        PyMem_Free(runs);
        goto no_memory;
    }
    PyObject *result = PyTuple_New(3 + TOP_TO - TOP_FROM + 1 + TWICE_TO - TWICE_FROM + 1);
    if (result != NULL) {
        Py_ssize_t place = 0;
        uint32_t stamp = 1;
        PyTuple_SET_ITEM(result, place++, PyLong_FromUnsignedLongLong(all.count));
        PyTuple_SET_ITEM(result, place++, PyLong_FromUnsignedLongLong(characters));
        PyTuple_SET_ITEM(result, place++, PyLong_FromUnsignedLongLong(alphabetic));
        for (size_t run = 1; run <= TWICE_TO; run++) {
            lengthen(runs, &all, run);
            if (run < TOP_FROM) continue;
            size_t count = all.count < run ? 0 : all.count - run + 1;
            uint64_t found = run <= TOP_TO ? top(runs, count, table, 64 - bits, room - 1, stamp++)
                                           : twice(runs, count, run, table, 64 - bits, room - 1, stamp++);
            PyTuple_SET_ITEM(result, place++, PyLong_FromUnsignedLongLong(found));
        }
        if (PyErr_Occurred()) Py_CLEAR(result);
    }
    PyMem_Free(table);
    PyMem_Free(runs);
    PyMem_Free(all.words);
    return result;
no_memory:
    PyMem_Free(all.words);
    return PyErr_NoMemory();
}

static int prepare(void) {
    uint64_t state = 0;
    for (int value = 0; value < VALUES; value++) {
        factors[value] = mixed(state += GOLDEN) | 1;
        terms[value] = mixed(state += GOLDEN);
    }
    PyObject *name = PyUnicode_FromString("cc_pipeline.documents.signals");
    if (name == NULL) return -1;
    slot_factor = mixed((uint64_t)PyObject_Hash(name)) | 1;
    Py_DECREF(name);
    return 0;
}

MODULE(_signals, prepare,
    {"minhash", minhash, METH_O, "64 least values of a text's shingles, None where it has no word."},
    {"repetition", repetition, METH_O, "Words, characters, words with a letter, and characters in repeated runs."})
