/* One look over the markup of a page before a tree is made of it: which tags and attributes have to go, compiled.
   What html/bounds.py says in Python, step by step. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../_module.h"

enum { ATTRIBUTES = 1, NESTING = 2, ELEMENTS = 4 };
enum { VOID = 1, FLAT = 2, RAW = 4, FORMATTING = 8, FOREIGN = 16, MERGED = 32, OPTION = 64, READING = 128, RUBY = 256 };
enum { NAMES = 4096, PROBES = 64, MOST_FORMATTING = 24, SAME = 3, FREE_FORMATTING = 8, LONGEST_NAME = 16, MOST_READINGS = 256 };
/* A power of two well above the names that a page may have: see note_name(). */
enum { DISTINCT = 1 << 16, NAMES_A_TAG = 400 };

typedef struct {
    uint64_t name, whole;
} Format;

typedef struct {
    uint64_t distinct[DISTINCT]; /* all zero before a page: only what a page put there is cleared behind it */
    uint16_t taken[DISTINCT / 2];
    Py_ssize_t takes;
    const uint8_t *data;
    Py_ssize_t length, most_attributes, most_depth, most_elements, most_options;
    Py_ssize_t depth, over, elements, options, foreign, formats, readings, work;
    uint64_t open_name[NAMES];
    uint32_t open[NAMES];
    Py_ssize_t names;
    Py_ssize_t merged[2];
    Format format[MOST_FORMATTING];
    PyObject *cuts;
    int kinds;
} Scan;

typedef struct {
    const char *name;
    int kind;
} Known;

static const Known known[] = {
    {"area", VOID}, {"base", VOID}, {"basefont", VOID}, {"bgsound", VOID}, {"br", VOID}, {"col", VOID},
    {"embed", VOID}, {"frame", VOID}, {"hr", VOID}, {"image", VOID}, {"img", VOID}, {"input", VOID},
    {"link", VOID}, {"meta", VOID}, {"param", VOID}, {"source", VOID}, {"track", VOID}, {"wbr", VOID},
    {"body", FLAT | MERGED}, {"html", FLAT | MERGED}, {"head", FLAT}, {"dd", FLAT}, {"dt", FLAT}, {"li", FLAT},
    {"optgroup", FLAT | OPTION}, {"option", FLAT | OPTION}, {"p", FLAT}, {"rp", FLAT | READING}, {"rt", FLAT | READING},
    {"ruby", RUBY},
    {"tbody", FLAT}, {"td", FLAT}, {"tfoot", FLAT}, {"th", FLAT}, {"thead", FLAT}, {"tr", FLAT},
    {"script", RAW}, {"style", RAW}, {"title", RAW}, {"textarea", RAW}, {"xmp", RAW}, {"iframe", RAW},
    {"noembed", RAW}, {"noframes", RAW}, {"plaintext", RAW},
    {"a", FLAT}, {"b", FORMATTING}, {"big", FORMATTING}, {"code", FORMATTING}, {"em", FORMATTING},
    {"font", FORMATTING}, {"i", FORMATTING}, {"nobr", FORMATTING}, {"s", FORMATTING}, {"small", FORMATTING},
    {"strike", FORMATTING}, {"strong", FORMATTING}, {"tt", FORMATTING}, {"u", FORMATTING},
    {"svg", FOREIGN}, {"math", FOREIGN},
};
enum { KNOWN = sizeof(known) / sizeof(known[0]), SLOTS = 256 };

static uint64_t slot_name[SLOTS];
static int slot_kind[SLOTS];
static uint8_t blank[256], in_name[256], in_attribute[256], lower[256];
static uint64_t body_name;

static uint64_t hashed(const uint8_t *data, Py_ssize_t start, Py_ssize_t stop) {
    uint64_t value = 1469598103934665603u;
    for (; start < stop; start++) value = (value ^ lower[data[start]]) * 1099511628211u;
    return value;
}

static int kind_of(uint64_t name) {
    for (unsigned slot = name % SLOTS; slot_name[slot]; slot = (slot + 1) % SLOTS) {
        if (slot_name[slot] == name) return slot_kind[slot];
    }
    return 0;
}

/* How many of a name are open. A page of thousands of invented names shares counts, which bounds it all the same. */
static uint32_t *open_of(Scan *scan, uint64_t name) {
    size_t slot = (name ^ (name >> 32)) % NAMES;
    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) % NAMES) {
        if (scan->open_name[slot] == name) return &scan->open[slot];
        if (scan->open_name[slot] == 0) {
            scan->open_name[slot] = name;
            return &scan->open[slot];
        }
    }
    return &scan->open[slot];
}

/* Counts a name of a tag or an attribute that was not there before. The builder keeps those it does not know in lists
   that it goes through for each, so each costs more than the one before. */
static void note_name(Scan *scan, uint64_t name) {
    if (scan->names >= DISTINCT / 2) return; /* the page is over its bound long before */
    size_t slot = (name ^ (name >> 32)) % DISTINCT;
    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) % DISTINCT) {
        if (scan->distinct[slot] == name) return;
        if (scan->distinct[slot] == 0) {
            scan->distinct[slot] = name;
            scan->taken[scan->takes++] = (uint16_t)slot;
            break;
        }
    }
    /* names made to meet in one place count each time, and bound the page all the sooner */
    scan->elements += scan->names++ / NAMES_A_TAG;
}

static int cut(Scan *scan, Py_ssize_t start, Py_ssize_t stop, int spaced, int kind) {
    scan->kinds |= kind;
    PyObject *place = Py_BuildValue("(nni)", start, stop, spaced);
    if (place == NULL) return -1;
    int failed = PyList_Append(scan->cuts, place);
    Py_DECREF(place);
    return failed;
}

static Py_ssize_t after(const Scan *scan, Py_ssize_t start, uint8_t wanted) {
    if (start >= scan->length) return scan->length;
    const uint8_t *found = memchr(scan->data + start, wanted, (size_t)(scan->length - start));
    return found ? found - scan->data + 1 : scan->length;
}

static Py_ssize_t after_comment(const Scan *scan, Py_ssize_t start) {
    const uint8_t *data = scan->data;
    for (Py_ssize_t at = start; at < scan->length;) {
        at = after(scan, at, '>');
        if (data[at - 1] != '>') break;
        if (at - 3 >= start && data[at - 2] == '-' && data[at - 3] == '-') return at;
        if (at - 4 >= start && data[at - 2] == '!' && data[at - 3] == '-' && data[at - 4] == '-') return at;
    }
    return scan->length;
}

static Py_ssize_t after_cdata(const Scan *scan, Py_ssize_t start) {
    for (Py_ssize_t at = start; at < scan->length;) {
        at = after(scan, at, '>');
        if (at - 3 >= start && memcmp(scan->data + at - 3, "]]>", 3) == 0) return at;
    }
    return scan->length;
}

/* Where the text of a raw element ends: the begin of its end tag. */
static Py_ssize_t raw_end(const Scan *scan, Py_ssize_t start, const uint8_t *name, Py_ssize_t size) {
    for (Py_ssize_t at = start; (at = after(scan, at, '<')) < scan->length;) {
        const uint8_t *data = scan->data;
        if (data[at] != '/' || at + 1 + size >= scan->length) continue;
        Py_ssize_t same = 0;
        while (same < size && lower[data[at + 1 + same]] == lower[name[same]]) same++;
        uint8_t next = data[at + 1 + size];
        if (same == size && (blank[next] || next == '/' || next == '>')) return at - 1;
    }
    return scan->length;
}

static void forget_format(Scan *scan, uint64_t name) {
    for (Py_ssize_t at = scan->formats - 1; at >= 0; at--) {
        if (scan->format[at].name == name) {
            memmove(scan->format + at, scan->format + at + 1, sizeof(Format) * (size_t)(scan->formats - at - 1));
            scan->formats--;
            return;
        }
    }
}

/* Whether a formatting element may begin here; as the tree builder, no more than three of the same are kept. */
static int note_format(Scan *scan, uint64_t name, uint64_t whole) {
    Py_ssize_t same = 0, first = -1;
    for (Py_ssize_t at = scan->formats - 1; at >= 0; at--) {
        if (scan->format[at].whole == whole) {
            same++;
            first = at;
        }
    }
    if (same >= SAME) {
        memmove(scan->format + first, scan->format + first + 1, sizeof(Format) * (size_t)(scan->formats - first - 1));
        scan->formats--;
    }
    if (scan->formats >= MOST_FORMATTING) return 0;
    scan->format[scan->formats++] = (Format){name, whole};
    return 1;
}

/* One tag from its "<"; gives where the next look begins, the length at the end of the page, or -1. */
static Py_ssize_t read_tag(Scan *scan, Py_ssize_t start) {
    const uint8_t *data = scan->data;
    Py_ssize_t length = scan->length, at = start + 1;
    int closing = data[at] == '/';
    Py_ssize_t name_start = at += closing;
    while (at < length && in_name[data[at]]) at++;
    Py_ssize_t name_size = at - name_start;
    uint64_t name = hashed(data, name_start, at);
    int kind = name_size > LONGEST_NAME ? 0 : kind_of(name);
    Py_ssize_t room = scan->most_attributes, count = 0, extra = -1;
    Py_ssize_t *merged = kind & MERGED ? &scan->merged[name == body_name] : NULL;
    if (merged) room -= *merged;
    for (;;) {
        while (at < length && (blank[data[at]] || data[at] == '/')) at++;
        if (at >= length) return length;
        if (data[at] == '>') break;
        if (count++ == room) extra = at;
        Py_ssize_t first = at++;
        while (at < length && in_attribute[data[at]]) at++;
        if (extra < 0) note_name(scan, hashed(data, first, at));
        Py_ssize_t sign = at;
        while (sign < length && blank[data[sign]]) sign++;
        if (sign >= length) return length;
        if (data[sign] != '=') continue;
        at = sign + 1;
        while (at < length && blank[data[at]]) at++;
        if (at >= length) return length;
        if (data[at] == '"' || data[at] == '\'') {
            const uint8_t *end = memchr(data + at + 1, data[at], (size_t)(length - at - 1));
            if (end == NULL) return length;
            at = end - data + 1;
        } else {
            while (at < length && !blank[data[at]] && data[at] != '>') at++;
        }
    }
    Py_ssize_t stop = at + 1, kept = extra < 0 ? count : room;
    int empty = data[at - 1] == '/';
    if (merged) *merged += kept;
    note_name(scan, name);
    scan->elements += 1 + kept;
    scan->work += scan->depth;
    if (scan->formats > FREE_FORMATTING) scan->elements += scan->formats;
    if (scan->elements > scan->most_elements) return cut(scan, start, length, 0, ELEMENTS) ? -1 : length;
    uint32_t *open = open_of(scan, name);
    int nests = !(kind & (VOID | FLAT)) && !(kind & RAW && !scan->foreign);
    if (kind & OPTION && !closing && scan->options++ >= scan->most_options)
        return cut(scan, start, stop, 1, ELEMENTS) ? -1 : stop;
    if (kind & READING) {
        if (!closing) scan->readings++;
        else if (scan->readings) scan->readings--;
        if (scan->readings > MOST_READINGS && !closing) return cut(scan, start, stop, 1, NESTING) ? -1 : stop;
    } else if (kind & RUBY && !closing) scan->readings = 0;
    if (closing) {
        if (kind & FORMATTING) forget_format(scan, name);
        if (kind & FOREIGN && scan->foreign) scan->foreign--;
        if (nests && *open) {
            --*open;
            if (scan->over) {
                scan->over--;
                return cut(scan, start, stop, !(kind & FORMATTING), NESTING) ? -1 : stop;
            }
            scan->depth--;
        }
    } else if (nests && !(empty && (scan->foreign || kind & FOREIGN))) {
        int wanted = 1;
        if (kind & FORMATTING) wanted = note_format(scan, name, hashed(data, name_start, at));
        if (scan->over || scan->depth >= scan->most_depth) {
            ++*open;
            scan->over++;
            wanted = 0;
        } else if (wanted) {
            ++*open;
            scan->depth++;
        }
        if (!wanted) return cut(scan, start, stop, !(kind & FORMATTING), NESTING) ? -1 : stop;
        if (kind & FOREIGN) scan->foreign++;
    } else if (kind & RAW && !scan->foreign) {
        if (extra >= 0 && cut(scan, extra, at, 0, ATTRIBUTES)) return -1;
        return name_size == 9 && lower[data[name_start]] == 'p' ? length : raw_end(scan, stop, data + name_start, name_size);
    }
    if (extra >= 0 && cut(scan, extra, at, 0, ATTRIBUTES)) return -1;
    return stop;
}

/* The room of the last page, for the next; NULL while one is looked at. */
static Scan *spare;

static Scan *begin(void) {
    Scan *scan = spare;
    spare = NULL;
    return scan ? scan : PyMem_Calloc(1, sizeof(Scan));
}

static void end(Scan *scan) {
    if (spare != NULL) {
        PyMem_Free(scan);
        return;
    }
    for (Py_ssize_t at = 0; at < scan->takes; at++) scan->distinct[scan->taken[at]] = 0;
    memset(&scan->takes, 0, sizeof(Scan) - offsetof(Scan, takes));
    spare = scan;
}

static PyObject *scanned(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer markup;
    Scan *scan = begin();
    if (scan == NULL) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(arguments, "y*nnnn", &markup, &scan->most_attributes, &scan->most_depth,
                          &scan->most_elements, &scan->most_options)) {
        end(scan);
        return NULL;
    }
    scan->data = markup.buf;
    scan->length = markup.len;
    scan->cuts = PyList_New(0);
    PyObject *result = NULL;
    Py_ssize_t at = 0, length = scan->length;
    if (scan->cuts == NULL) goto done;
    while ((at = after(scan, at, '<')) < length) {
        const uint8_t *data = scan->data;
        uint8_t first = data[at], second = at + 1 < length ? data[at + 1] : 0;
        uint8_t letter = lower[first == '/' ? second : first];
        if (letter >= 'a' && letter <= 'z') {
            at = read_tag(scan, at - 1);
            if (at < 0) goto done;
            continue;
        }
        if (first != '!' && first != '?' && !(first == '/' && second != '>')) continue;
        if (++scan->elements > scan->most_elements) {
            if (cut(scan, at - 1, length, 0, ELEMENTS)) goto done;
            break;
        }
        if (first == '!' && length - at > 2 && data[at + 1] == '-' && data[at + 2] == '-') at = after_comment(scan, at + 1);
        else if (first == '!' && scan->foreign && length - at > 7 && memcmp(data + at + 1, "[CDATA[", 7) == 0)
            at = after_cdata(scan, at + 8);
        else at = after(scan, at, '>');
    }
    result = Py_BuildValue("(Oin)", scan->cuts, scan->kinds, scan->work);
done:
    Py_XDECREF(scan->cuts);
    PyBuffer_Release(&markup);
    end(scan);
    return result;
}

static int prepare(void) {
    for (int byte = 0; byte < 256; byte++) {
        lower[byte] = (uint8_t)(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
        blank[byte] = byte == ' ' || byte == '\t' || byte == '\n' || byte == '\f' || byte == '\r';
        in_name[byte] = !blank[byte] && byte != '/' && byte != '>';
        in_attribute[byte] = in_name[byte] && byte != '=';
    }
    for (int each = 0; each < KNOWN; each++) {
        uint64_t name = hashed((const uint8_t *)known[each].name, 0, (Py_ssize_t)strlen(known[each].name));
        unsigned slot = name % SLOTS;
        while (slot_name[slot]) slot = (slot + 1) % SLOTS;
        slot_name[slot] = name;
        slot_kind[slot] = known[each].kind;
    }
    body_name = hashed((const uint8_t *)"body", 0, 4);
    return 0;
}

MODULE(_bounds, prepare,
    {"scanned", scanned, METH_VARARGS, "The places to cut, and which bounds were reached (see html/bounds.py)."})
