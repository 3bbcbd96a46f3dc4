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
enum { BREAKOUT = 512, INTEGRATION = 1024, SELECT = 2048, TEMPLATE = 4096, COLUMN = 8192, FRAMES = 16384 };
enum { NAMES = 4096, PROBES = 64, MOST_FORMATTING = 24, SAME = 3, FREE_FORMATTING = 8, LONGEST_NAME = 16, MOST_READINGS = 256 };
/* A power of two well above the names that a page may have: see note_name(). */
enum { DISTINCT = 1 << 16, NAMES_A_TAG = 400 };
/* Foreign elements whose names are kept; bytes that may be looked at again where the parser's state is in doubt. */
enum { MOST_FOREIGN = 64, MOST_AGAIN = 1 << 26 };

typedef struct {
    Py_ssize_t at, size;
} Name;

typedef struct {
    uint64_t name, whole;
} Format;

typedef struct {
    Name written[DISTINCT]; /* where the name of a place in distinct stands */
    uint64_t distinct[DISTINCT]; /* all zero before a page: only what a page put there is cleared behind it */
    uint16_t taken[DISTINCT / 2];
    Py_ssize_t takes;
    const uint8_t *data;
    Py_ssize_t length, most_attributes, most_depth, most_elements, most_options;
    Py_ssize_t depth, over, elements, tags, options, foreign, formats, readings, work, again;
    int in_doubt, in_select, templates;
    Name foreigns[MOST_FOREIGN];
    uint64_t open_name[NAMES];
    Name open_written[NAMES];
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
    {"area", VOID}, {"base", VOID}, {"basefont", VOID}, {"bgsound", VOID}, {"br", VOID | BREAKOUT}, {"col", VOID | COLUMN},
    {"embed", VOID | BREAKOUT}, {"frame", VOID}, {"hr", VOID | BREAKOUT}, {"image", VOID}, {"img", VOID | BREAKOUT}, {"input", VOID},
    {"link", VOID}, {"meta", VOID | BREAKOUT}, {"param", VOID}, {"source", VOID}, {"track", VOID}, {"wbr", VOID},
    {"body", FLAT | MERGED | BREAKOUT}, {"html", FLAT | MERGED}, {"head", FLAT | BREAKOUT}, {"dd", FLAT | BREAKOUT}, {"dt", FLAT | BREAKOUT}, {"li", FLAT | BREAKOUT},
    {"optgroup", FLAT | OPTION}, {"option", FLAT | OPTION}, {"p", FLAT | BREAKOUT}, {"rp", FLAT | READING}, {"rt", FLAT | READING},
    {"ruby", RUBY | BREAKOUT},
    {"tbody", FLAT}, {"td", FLAT}, {"tfoot", FLAT}, {"th", FLAT}, {"thead", FLAT}, {"tr", FLAT},
    {"script", RAW}, {"style", RAW}, {"title", RAW | INTEGRATION}, {"textarea", RAW}, {"xmp", RAW}, {"iframe", RAW},
    {"noembed", RAW}, {"noframes", RAW}, {"noscript", RAW}, {"plaintext", RAW},
    {"a", FLAT}, {"b", FORMATTING | BREAKOUT}, {"big", FORMATTING | BREAKOUT}, {"code", FORMATTING | BREAKOUT}, {"em", FORMATTING | BREAKOUT},
    {"font", FORMATTING | BREAKOUT}, {"i", FORMATTING | BREAKOUT}, {"nobr", FORMATTING | BREAKOUT}, {"s", FORMATTING | BREAKOUT}, {"small", FORMATTING | BREAKOUT},
    {"strike", FORMATTING | BREAKOUT}, {"strong", FORMATTING | BREAKOUT}, {"tt", FORMATTING | BREAKOUT}, {"u", FORMATTING | BREAKOUT},
    {"svg", FOREIGN}, {"math", FOREIGN}, {"select", SELECT}, {"template", TEMPLATE}, {"frameset", FRAMES}, {"colgroup", COLUMN},
    {"annotation-xml", INTEGRATION}, {"desc", INTEGRATION}, {"foreignobject", INTEGRATION}, {"mi", INTEGRATION},
    {"mn", INTEGRATION}, {"mo", INTEGRATION}, {"ms", INTEGRATION}, {"mtext", INTEGRATION},
    {"blockquote", BREAKOUT}, {"center", BREAKOUT}, {"div", BREAKOUT}, {"dl", BREAKOUT}, {"h1", BREAKOUT}, {"h2", BREAKOUT},
    {"h3", BREAKOUT}, {"h4", BREAKOUT}, {"h5", BREAKOUT}, {"h6", BREAKOUT}, {"listing", BREAKOUT}, {"menu", BREAKOUT},
    {"ol", BREAKOUT}, {"pre", BREAKOUT}, {"span", BREAKOUT}, {"sub", BREAKOUT}, {"sup", BREAKOUT}, {"table", BREAKOUT},
    {"ul", BREAKOUT}, {"var", BREAKOUT},
};
enum { KNOWN = sizeof(known) / sizeof(known[0]), SLOTS = 256 };

static const Known *slots[SLOTS];
static uint8_t blank[256], in_name[256], in_attribute[256], lower[256];
static uint64_t body_name;

static uint64_t hashed(const uint8_t *data, Py_ssize_t start, Py_ssize_t stop) {
    uint64_t value = 1469598103934665603u;
    for (; start < stop; start++) value = (value ^ lower[data[start]]) * 1099511628211u;
    return value;
}

/* Whether a name is a known one, or one that stands elsewhere, in small letters or capitals. */
static int same_name(const uint8_t *one, const uint8_t *other, Py_ssize_t size) {
    for (Py_ssize_t at = 0; at < size; at++) {
        if (lower[one[at]] != lower[other[at]]) return 0;
    }
    return 1;
}

static int is_written(const uint8_t *data, Name one, Name other) {
    return one.size == other.size && same_name(data + one.at, data + other.at, one.size);
}

static int kind_of(uint64_t hash, const uint8_t *name, Py_ssize_t size) {
    for (unsigned slot = hash % SLOTS; slots[slot]; slot = (slot + 1) % SLOTS) {
        const char *wanted = slots[slot]->name;
        if (strlen(wanted) == (size_t)size && same_name(name, (const uint8_t *)wanted, size)) return slots[slot]->kind;
    }
    return 0;
}

/* How many of a name are open. A page of thousands of invented names shares counts, which bounds it all the same. */
static uint32_t *open_of(Scan *scan, uint64_t name, Name written) {
    size_t slot = (name ^ (name >> 32)) % NAMES;
    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) % NAMES) {
        if (scan->open_name[slot] == name && is_written(scan->data, scan->open_written[slot], written)) return &scan->open[slot];
        if (scan->open_name[slot] == 0) {
            scan->open_name[slot] = name;
            scan->open_written[slot] = written;
            return &scan->open[slot];
        }
    }
    return &scan->open[slot];
}

/* Counts a name of a tag or an attribute that was not there before. The builder keeps those it does not know in lists
   that it goes through for each, so each costs more than the one before. */
static void note_name(Scan *scan, uint64_t name, Name written) {
    if (scan->names >= DISTINCT / 2) return; /* the page is over its bound long before */
    size_t slot = (name ^ (name >> 32)) % DISTINCT;
    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) % DISTINCT) {
        if (scan->distinct[slot] == name && is_written(scan->data, scan->written[slot], written)) return;
        if (scan->distinct[slot] == 0) {
            scan->distinct[slot] = name;
            scan->written[slot] = written;
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
        /* of the begin, no dash counts here */
        if (at - 6 >= start && data[at - 2] == '!' && data[at - 3] == '-' && data[at - 4] == '-') return at;
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

/* Whether a tag of that name, or with a slash its end, stands at a "<". */
static int is_tag_of(const Scan *scan, Py_ssize_t at, const char *name) {
    Py_ssize_t size = (Py_ssize_t)strlen(name);
    if (at + 1 + size >= scan->length || !same_name(scan->data + at + 1, (const uint8_t *)name, size)) return 0;
    uint8_t next = scan->data[at + 1 + size];
    return blank[next] || next == '/' || next == '>';
}

/* Where the text of a script ends: its own comments hide an end tag behind the begin of a script. */
static Py_ssize_t script_end(const Scan *scan, Py_ssize_t start) {
    enum { PLAIN, ESCAPED, TWICE } state = PLAIN;
    const uint8_t *data = scan->data;
    for (Py_ssize_t at = start; at < scan->length; at++) {
        if (state == PLAIN) {
            at = after(scan, at, '<') - 1;
            if (data[at] != '<') break;
        }
        if (data[at] == '-') {
            if (scan->length - at > 2 && data[at + 1] == '-' && data[at + 2] == '>') state = PLAIN;
        } else if (data[at] != '<') continue;
        else if (is_tag_of(scan, at, "/script")) {
            if (state != TWICE) return at;
            state = ESCAPED;
        } else if (state == ESCAPED && is_tag_of(scan, at, "script")) state = TWICE;
        else if (state == PLAIN && scan->length - at > 3 && memcmp(data + at + 1, "!--", 3) == 0) {
            state = ESCAPED;
            at++;
        }
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

/* Where the attributes of a tag end, its ">", or -1 where nothing ends it. Counts them, and says where the first beyond
   the room begins and whether the tag ends itself. */
static Py_ssize_t tag_end(Scan *scan, Py_ssize_t at, Py_ssize_t room, Py_ssize_t *count, Py_ssize_t *extra, int *empty,
                          int noting) {
    const uint8_t *data = scan->data;
    const Py_ssize_t length = scan->length;
    *count = 0;
    *extra = -1;
    for (;;) {
        *empty = 0; /* a slash ends an element only outside of a value */
        for (; at < length && (blank[data[at]] || data[at] == '/'); at++) *empty = data[at] == '/';
        if (at >= length) return -1;
        if (data[at] == '>') return at;
        if ((*count)++ == room) *extra = at;
        Py_ssize_t first = at++;
        while (at < length && in_attribute[data[at]]) at++;
        if (noting && *extra < 0) note_name(scan, hashed(data, first, at), (Name){first, at - first});
        Py_ssize_t sign = at;
        while (sign < length && blank[data[sign]]) sign++;
        if (sign >= length) return -1;
        if (data[sign] != '=') continue;
        at = sign + 1;
        while (at < length && blank[data[at]]) at++;
        if (at >= length) return -1;
        if (data[at] == '"' || data[at] == '\'') {
            const uint8_t *end = memchr(data + at + 1, data[at], (size_t)(length - at - 1));
            if (end == NULL) return -1;
            at = end - data + 1;
        } else {
            while (at < length && !blank[data[at]] && data[at] != '>') at++;
        }
    }
}

static int is_called(const Scan *scan, Name name, const char *wanted) {
    Py_ssize_t size = (Py_ssize_t)strlen(wanted);
    return name.size == size && same_name(scan->data + name.at, (const uint8_t *)wanted, size);
}

/* Takes a tag of foreign content into account; 1 where the parser may leave that content, or be in HTML inside of it. */
static int leaves_foreign(Scan *scan, int kind, Name name, int closing, int empty) {
    if (closing) {
        if (is_called(scan, name, "p") || is_called(scan, name, "br")) return 1;
        for (Py_ssize_t at = scan->foreign - 1; at >= 0; at--) {
            if (!is_written(scan->data, scan->foreigns[at], name)) continue;
            scan->foreign = at;
            return 0;
        }
        return 1;
    }
    Name top = scan->foreigns[scan->foreign - 1];
    int inside = kind_of(hashed(scan->data, top.at, top.at + top.size), scan->data + top.at, top.size);
    if (kind & BREAKOUT || inside & INTEGRATION || scan->foreign == MOST_FOREIGN) return 1;
    if (!empty) scan->foreigns[scan->foreign++] = name;
    return 0;
}

/* Takes a tag into account; 1 where it is no longer sure from here on in which state the parser reads. */
static int is_doubtful(Scan *scan, int kind, Name name, int closing, int empty) {
    if (scan->foreign) return leaves_foreign(scan, kind, name, closing, empty);
    if (kind & SELECT) scan->in_select = !closing;
    if (closing) return 0;
    if (kind & TEMPLATE) scan->templates = 1;
    if (kind & FRAMES || (kind & COLUMN && scan->templates)) return 1;
    if (scan->in_select && kind & (RAW | FOREIGN | TEMPLATE)) return !is_called(scan, name, "script");
    if (kind & FOREIGN && !empty) scan->foreigns[scan->foreign++] = name;
    return 0;
}

/* Takes a tag out. */
static Py_ssize_t cut_tag(Scan *scan, Py_ssize_t start, Py_ssize_t stop, int kind, int reached) {
    if (scan->foreign || scan->in_select || kind & (SELECT | TEMPLATE | FOREIGN)) scan->in_doubt = 1;
    return cut(scan, start, stop, reached == ELEMENTS || !(kind & FORMATTING), reached) ? -1 : stop;
}

/* Takes a tag into account that may be one, where the parser's state is in doubt; gives where the next look begins. */
static Py_ssize_t read_in_doubt(Scan *scan, Py_ssize_t start, Py_ssize_t stop, int option, int many) {
    scan->again += stop - start;
    int reached = many ? ATTRIBUTES : 0;
    if ((option && scan->options++ >= scan->most_options) || scan->again > MOST_AGAIN) reached = ELEMENTS;
    if (reached) return cut(scan, start, scan->length, 2, reached) ? -1 : scan->length;
    return start + 1;
}

/* One tag from its "<"; gives where the next look begins, the length at the end of the page, or -1. */
static Py_ssize_t read_tag(Scan *scan, Py_ssize_t start) {
    const uint8_t *data = scan->data;
    Py_ssize_t length = scan->length, at = start + 1;
    int closing = data[at] == '/';
    Py_ssize_t name_start = at += closing;
    while (at < length && in_name[data[at]]) at++;
    Py_ssize_t name_size = at - name_start, name_stop = at;
    uint64_t hash = hashed(data, name_start, at);
    Name name = {name_start, name_size};
    int kind = name_size > LONGEST_NAME ? 0 : kind_of(hash, data + name_start, name_size);
    Py_ssize_t room = scan->most_attributes, count, extra;
    int empty;
    Py_ssize_t *merged = kind & MERGED ? &scan->merged[hash == body_name] : NULL;
    if (merged) room -= *merged;
    if (scan->in_doubt && tag_end(scan, name_stop, room, &count, &extra, &empty, 0) < 0) {
        if (++scan->elements > scan->most_elements) return cut(scan, start, length, 0, ELEMENTS) ? -1 : length;
        return read_in_doubt(scan, start, length, 0, 0);
    }
    if ((at = tag_end(scan, name_stop, room, &count, &extra, &empty, 1)) < 0) return length;
    Py_ssize_t stop = at + 1, kept = extra < 0 ? count : room;
    /* a tag that ends itself still does when attributes are gone */
    const Py_ssize_t extra_end = at - empty;
    if (merged) *merged += kept;
    note_name(scan, hash, name);
    scan->elements += 1 + kept;
    scan->work += scan->depth;
    scan->tags++;
    if (scan->formats > FREE_FORMATTING) scan->elements += scan->formats;
    if (scan->elements > scan->most_elements) return cut(scan, start, length, 0, ELEMENTS) ? -1 : length;
    if (scan->in_doubt) return read_in_doubt(scan, start, stop, kind & OPTION && !closing, extra >= 0);
    if (is_doubtful(scan, kind, name, closing, empty)) {
        scan->in_doubt = 1;
        return extra >= 0 && cut(scan, extra, extra_end, 0, ATTRIBUTES) ? -1 : stop;
    }
    uint32_t *open = open_of(scan, hash, name);
    int nests = !(kind & (VOID | FLAT)) && !(kind & RAW && !scan->foreign);
    if (kind & OPTION && !closing && scan->options++ >= scan->most_options) return cut_tag(scan, start, stop, kind, ELEMENTS);
    if (kind & READING) {
        if (!closing) scan->readings++;
        else if (scan->readings) scan->readings--;
        if (scan->readings > MOST_READINGS && !closing) return cut_tag(scan, start, stop, kind, NESTING);
    } else if (kind & RUBY && !closing) scan->readings = 0;
    if (closing) {
        if (kind & FORMATTING) forget_format(scan, hash);
        if (nests && *open) {
            --*open;
            if (scan->over) {
                scan->over--;
                return cut_tag(scan, start, stop, kind, NESTING);
            }
            scan->depth--;
        }
    } else if (nests && !(empty && (scan->foreign || kind & FOREIGN))) {
        int wanted = 1;
        if (kind & FORMATTING) wanted = note_format(scan, hash, hashed(data, name_start, at));
        if (scan->over || scan->depth >= scan->most_depth) {
            ++*open;
            scan->over++;
            wanted = 0;
        } else if (wanted) {
            ++*open;
            scan->depth++;
        }
        if (!wanted) return cut_tag(scan, start, stop, kind, NESTING);
    } else if (kind & RAW && !scan->foreign) {
        if (extra >= 0 && cut(scan, extra, extra_end, 0, ATTRIBUTES)) return -1;
        if (is_called(scan, name, "plaintext")) return length;
        return is_called(scan, name, "script") ? script_end(scan, stop) : raw_end(scan, stop, data + name_start, name_size);
    }
    if (extra >= 0 && cut(scan, extra, extra_end, 0, ATTRIBUTES)) return -1;
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
        if (scan->in_doubt) continue;
        if (first == '!' && length - at > 2 && data[at + 1] == '-' && data[at + 2] == '-') at = after_comment(scan, at + 1);
        else if (first == '!' && scan->foreign && length - at > 7 && memcmp(data + at + 1, "[CDATA[", 7) == 0)
            at = after_cdata(scan, at + 8);
        else at = after(scan, at, '>');
    }
    result = Py_BuildValue("(Oinn)", scan->cuts, scan->kinds, scan->work, scan->in_doubt ? (Py_ssize_t)-1 : scan->tags);
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
        while (slots[slot]) slot = (slot + 1) % SLOTS;
        slots[slot] = &known[each];
    }
    body_name = hashed((const uint8_t *)"body", 0, 4);
    return 0;
}

MODULE(_bounds, prepare,
    {"scanned", scanned, METH_VARARGS, "The places to cut, and which bounds were reached (see html/bounds.py)."})
