/* One walk over all nodes of a page: its text as a browser shows it, the elements that are read one by one (marks), and the
   tables of its main content. html/walk_py.py is the same in Python, step by step; tags.py has the tables of tags and words. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../_module.h"
#include "_lexbor.h"

enum { TAGS = 256, MOST_WORDS = 256, LONGEST_WORD = 24, VALUE = 512, NAMES = 512, AROUND = 8, JSON_LD_TYPE = 19 };
/* The roles of a tag: the names and numbers of tags.py. */
enum { BLOCK = 1, SKIPPED = 2, LEAF = 4, KIND = 8, LINK = 16, STRONG = 32, PRE = 64, BREAK = 128, IMAGE = 256, TEMPLATE = 512,
       SCRIPT = 1024, DIALOG = 2048, ROOT = 4096, MAIN = 8192, UNSEEN = 1 << 14, FOREIGN = 1 << 15, INTEGRATION = 1 << 16,
       NOSCRIPT = 1 << 17, LINKED = 1 << 18, META = 1 << 19, FACT = 1 << 20, RAW = 1 << 21, HOST = 1 << 22, BODY = 1 << 23,
       INPUT = 1 << 24, DRAWING = 1 << 25 };
/* The state of an element, which those inside inherit; the first three are a mark's. A part aside is shown, and no
   content; within a drawing all is, HTML in it too. */
enum { IS_UNSEEN = 1, IS_FOREIGN = 2, IS_INERT = 4, IS_ASIDE = 8, IS_DRAWN = 16 };
/* What a character is. */
enum { COMMA = 1, END = 2, SIGN = 4, DIGIT = 8, UPPER = 16, SPACE = 32, CLOSING = 64 };
/* The first five are counted: COMMAS to UPPERS of a block, each in twelve bits of a number for as many characters as that has room for. */
enum { COUNTED = 5, COUNT_BITS = 12, MOST_AT_ONCE = (1 << COUNT_BITS) - 1 };
/* Flags of a block. */
enum { AFTER_BREAKS = 1, BEFORE_BREAKS = 2, CLOSED = 4, VERBATIM = 8 };
enum { NOTHING, A_SPACE, A_BREAK };

enum { PARENT, TAG, FIRST, LAST, HOLDER, KIND_OF, HINTS, ABOVE, INSIDE, DEPTH, ELEMENT_COLUMNS };
enum { ELEMENT, START, CHARS, WORDS, LINKED_CHARS, LINKS, STRONG_CHARS, COMMAS, ENDS, SIGNS, DIGITS, UPPERS, IMAGES, KIND_OF_BLOCK,
       FLAGS, BLOCK_COLUMNS };

typedef struct {
    char letters[LONGEST_WORD];
    uint8_t length, exact;
    uint32_t hint;
} Word;

static uint8_t number_of[TAGS];
static uint32_t roles_of[TAGS], inside_of[TAGS], foreign_roles, byline, edits, beside;
static Word words[MOST_WORDS], aria_roles[MOST_WORDS], tag_names[MOST_WORDS];
static int word_count, aria_count, name_count, words_from[27], ready;
static uint64_t counts_of[1 << COUNTED];
static uint8_t ascii[128], space[256], maybe_space[256], in_host[256], in_url[256];
/* Our names of tags by number, the attributes with links by name of a tag, and those of SVG's; Mark and Link. */
static PyObject *tags, *link_keys, *svg_link_keys, *srcsets;
static PyTypeObject *mark_type, *link_type;
static PyObject *names[NAMES], *empty, *rel_name;

typedef struct {
    int32_t column[ELEMENT_COLUMNS];
    int32_t link; /* the element that is the link around, 0 for none */
    uint16_t state; /* STRONG and PRE of it and its ancestors */
    uint64_t path, address;
} Element;

typedef struct {
    int32_t column[BLOCK_COLUMNS];
} Block;

/* An open element: its next child, and what those inherit. `element` is the inmost row of the content around, `fact` the inmost mark
   of a fact, -1 for none; `mark` its own mark, `is_element` whether the row is its own; `own_state` is its own, `state` that of its
   children. */
typedef struct {
    Node next;
    int32_t element, fact, mark;
    uint32_t roles, hints;
    uint8_t state, own_state, is_element, has_shadow;
} Frame;

typedef struct {
    PyObject *attributes, *raw;
    int32_t start, end, parent;
    uint32_t hints, around;
    size_t at; /* where it starts in the bytes of its text */
    uint8_t number, state, is_fact, is_link;
} Mark;

typedef struct {
    void *data;
    size_t used, room, size;
} Rows;

/* A text with white space collapsed; a space is pending after white space, and at an end of an element shown apart. */
typedef struct {
    Rows bytes;
    int32_t chars;
    int pending;
} Collapsed;

typedef struct {
    Rows elements, blocks, frames, marks, seams, shadows, content; /* content is UTF-8 */
    Collapsed texts[2]; /* shown, unseen */
    int32_t chars, most_chars, most_elements;
    Block block;
    size_t kept_bytes; /* up to the last character that is no white space; and as many of each count */
    int32_t kept_chars, kept_linked, kept_strong, last_link;
    int open, pending, cut, last_class, with_content, with_ids, depth, deepest;
    uint8_t last;
    Py_ssize_t most_links, links_left, metas_left, facts_left, most_attributes, most_value_chars;
    int32_t facts;
    int links_cut, metas_cut, facts_cut, link_texts_cut, references;
    PyObject *bound, *parse, *link, *inner_root; /* inner_root: that of the last noscript, whose tree it keeps alive */
} Walk;

static void *row(const Rows *rows, size_t at) { return (char *)rows->data + at * rows->size; }

/* Room for more at the end of rows; they count as used. NULL where memory is out. */
static void *added(Rows *rows, size_t more) {
    if (rows->used + more > rows->room) {
        size_t room = (rows->used + more) * 2;
        void *data = PyMem_Realloc(rows->data, room * rows->size);
        if (data == NULL) return NULL;
        rows->data = data;
        rows->room = room;
    }
    void *first = row(rows, rows->used);
    rows->used += more;
    return first;
}

static uint32_t word_hint(const Word *among, int from, int to, const char *letters, int length) {
    uint32_t hint = 0;
    for (int at = from; at < to; at++) {
        const Word *word = &among[at];
        if (word->length > length || (word->exact && word->length != length)) continue;
        if (word->letters[1] == letters[1] && memcmp(word->letters, letters, word->length) == 0) hint |= word->hint;
    }
    return hint;
}

/* The hints of the words of a class, an id or the like: split where no letter or digit is, and before capitals. */
static uint32_t hints_of(Text value, size_t length) {
    uint32_t hints = 0;
    char letters[LONGEST_WORD];
    int size = 0, low = 0;
    for (size_t at = 0; at <= length; at++) {
        uint8_t character = at < length ? value[at] : ' ';
        int upper = character >= 'A' && character <= 'Z';
        int lower = (character >= 'a' && character <= 'z') || (character >= '0' && character <= '9');
        if (size > 0 && (!(upper || lower) || (upper && low))) {
            if (letters[0] >= 'a' && letters[0] <= 'z') {
                int first = letters[0] - 'a';
                hints |= word_hint(words, words_from[first], words_from[first + 1], letters, size);
            }
            size = 0;
        }
        if ((upper || lower) && size < LONGEST_WORD) letters[size++] = (char)(upper ? character + 32 : character);
        low = lower;
    }
    return hints;
}

static uint64_t hashed(uint64_t value, Text data, size_t length) {
    for (size_t at = 0; at < length; at++) value = (value ^ data[at]) * 1099511628211u;
    return value;
}

/* One character from UTF-8; how many bytes it takes, 0 where there is none. */
static int decoded(Text data, size_t left, uint32_t *character) {
    uint8_t first = data[0];
    int size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (size == 0 || (size_t)size > left) return 0;
    uint32_t value = first & (0x7f >> size);
    for (int at = 1; at < size; at++) {
        if ((data[at] & 0xc0) != 0x80) return 0;
        value = value << 6 | (data[at] & 0x3f);
    }
    if (value < (size == 2 ? 0x80u : size == 3 ? 0x800u : 0x10000u) || value > 0x10ffff) return 0;
    if (value >= 0xd800 && value < 0xe000) return 0;
    *character = value;
    return size;
}

static int class_of_wide(uint32_t character) {
    switch (character) {
    case 0x60c: case 0x61b: case 0x3001: case 0xff0c: case 0xff1b: return COMMA;
    case 0x61f: return END;
    case 0x2026: case 0x3002: case 0xff01: case 0xff1f: case 0x964: return END | CLOSING;
    case 0xa9: case 0x2022: case 0x203a: case 0xb7: case 0x2192: return SIGN;
    case 0xbb: return SIGN | CLOSING;
    case 0x201d: case 0x2019: return CLOSING;
    default: return Py_UNICODE_ISSPACE(character) ? SPACE : 0;
    }
}

/* Ends the block that is open; one without text was none. */
static int end_block(Walk *walk) {
    if (!walk->open) {
        walk->block.column[IMAGES] = 0;
        walk->block.column[FLAGS] = 0;
        return 0;
    }
    int32_t *column = walk->block.column;
    int is_empty = walk->kept_chars == column[START], separated = walk->blocks.used > 0;
    walk->content.used = walk->kept_bytes;
    walk->chars = walk->kept_chars;
    walk->open = 0;
    walk->pending = NOTHING;
    if (is_empty) {
        walk->content.used -= (size_t)separated;
        walk->chars -= separated;
        memset(&walk->block, 0, sizeof(walk->block));
        return 0;
    }
    column[CHARS] = walk->chars - column[START];
    column[LINKED_CHARS] = walk->kept_linked;
    column[STRONG_CHARS] = walk->kept_strong;
    if (walk->last_class & CLOSING) column[FLAGS] |= CLOSED;
    Block *block = added(&walk->blocks, 1);
    if (block == NULL) return -1;
    *block = walk->block;
    memset(&walk->block, 0, sizeof(walk->block));
    return 0;
}

/* Appends characters to the block, and opens one where none is: one, or some that are no white space. They are counted;
   `class` is that of the last. */
static int put(Walk *walk, const Element *element, Text data, size_t size, int32_t chars, uint64_t counts, int class) {
    int32_t *column = walk->block.column;
    if (!walk->open) {
        if (walk->blocks.used > 0) {
            uint8_t *between = added(&walk->content, 1);
            if (between == NULL) return -1;
            *between = '\n';
            walk->chars++;
        }
        walk->open = 1;
        walk->last_link = 0;
        column[ELEMENT] = element->column[HOLDER];
        column[KIND_OF_BLOCK] = element->column[KIND_OF];
        column[START] = walk->chars;
        if (element->state & PRE) column[FLAGS] |= VERBATIM;
        walk->kept_bytes = walk->content.used;
        walk->kept_chars = walk->chars;
        walk->kept_linked = walk->kept_strong = 0;
        walk->last_class = SPACE;
    }
    if (walk->chars >= walk->most_chars) {
        walk->cut = 1;
        return 0;
    }
    uint8_t *place = added(&walk->content, size);
    if (place == NULL) return -1;
    memcpy(place, data, size);
    walk->chars += chars;
    walk->last = data[size - 1];
    if (element->link) column[LINKED_CHARS] += chars;
    if (element->state & STRONG) column[STRONG_CHARS] += chars;
    if (!(class & SPACE)) {
        column[WORDS] += (walk->last_class & SPACE) != 0;
        for (int kind = 0; kind < COUNTED; kind++) column[COMMAS + kind] += (int32_t)(counts >> (kind * COUNT_BITS)) & MOST_AT_ONCE;
        if (element->link && element->link != walk->last_link) {
            column[LINKS]++;
            walk->last_link = element->link;
        }
        walk->kept_bytes = walk->content.used;
        walk->kept_chars = walk->chars;
        walk->kept_linked = column[LINKED_CHARS];
        walk->kept_strong = column[STRONG_CHARS];
    }
    walk->last_class = class;
    return 0;
}

static int read_content(Walk *walk, const Element *element, Text data, size_t length) {
    int verbatim = element->state & PRE;
    for (size_t at = 0; at < length && !walk->cut;) {
        Text from = data + at;
        int size = 1, class;
        if (*from < 128) class = ascii[*from];
        else {
            uint32_t character;
            size = decoded(from, length - at, &character);
            class = size ? class_of_wide(character) : 0;
            if (size == 0) {
                if (put(walk, element, (Text) "\xef\xbf\xbd", 3, 1, 0, 0)) return -1;
                at++;
                continue;
            }
        }
        at += (size_t)size;
        if (verbatim) {
            if (!walk->open && *from == '\n') continue;
        } else if (class & SPACE) {
            if (walk->pending == NOTHING) walk->pending = A_SPACE;
            continue;
        } else if (walk->pending) {
            if (walk->open && put(walk, element, (Text)(walk->pending == A_BREAK ? "\n" : " "), 1, 1, 0, SPACE)) return -1;
            walk->pending = NOTHING;
        }
        uint64_t counts = counts_of[class & (SPACE - 1)];
        int32_t chars = 1;
        if (*from < 128 && !(class & SPACE)) { /* with what follows it, as far as there is surely room */
            const int32_t room = walk->most_chars - walk->chars - 1, most = room < MOST_AT_ONCE ? room : MOST_AT_ONCE;
            for (; chars < most && at < length && data[at] < 128 && !(ascii[data[at]] & SPACE); chars++) {
                class = ascii[data[at++]];
                counts += counts_of[class & (SPACE - 1)];
            }
            size = chars;
        }
        if (put(walk, element, from, (size_t)size, chars, counts, class)) return -1;
    }
    return 0;
}

/* Where a block begins or ends: within pre a line does. */
static int boundary(Walk *walk, const Element *around) {
    if (!(around->state & PRE)) return end_block(walk);
    if (walk->open && walk->last != '\n') return put(walk, around, (Text) "\n", 1, 1, 0, SPACE);
    return 0;
}

static int line_break(Walk *walk, const Element *around) {
    if (around->state & PRE) return walk->open ? put(walk, around, (Text) "\n", 1, 1, 0, SPACE) : 0;
    if (!walk->open) return 0;
    if (walk->pending != A_BREAK) {
        walk->pending = A_BREAK;
        return 0;
    }
    walk->block.column[FLAGS] |= BEFORE_BREAKS;
    if (end_block(walk)) return -1;
    walk->block.column[FLAGS] = AFTER_BREAKS;
    return 0;
}

/* The bytes of white space at the begin of UTF-8, as str.isspace has it; 0 for anything else. */
static int wide_space(Text data, size_t left) {
    if (left >= 2 && data[0] == 0xc2) return data[1] == 0x85 || data[1] == 0xa0 ? 2 : 0;
    if (left < 3) return 0;
    if (data[0] == 0xe1) return data[1] == 0x9a && data[2] == 0x80 ? 3 : 0;
    if (data[0] == 0xe2 && data[1] == 0x80)
        return (data[2] >= 0x80 && data[2] <= 0x8a) || data[2] == 0xa8 || data[2] == 0xa9 || data[2] == 0xaf ? 3 : 0;
    if (data[0] == 0xe2) return data[1] == 0x81 && data[2] == 0x9f ? 3 : 0;
    return data[0] == 0xe3 && data[1] == 0x80 && data[2] == 0x80 ? 3 : 0;
}

/* Appends a text with each run of white space made one space; after a space if one is pending, which it may leave too. */
static int append_collapsed(Collapsed *text, Text data, size_t length) {
    const size_t used = text->bytes.used;
    uint8_t *from = added(&text->bytes, length + 1), *to = from;
    if (from == NULL) return -1;
    int pending = text->pending;
    int32_t chars = text->chars;
    for (size_t at = 0; at < length;) {
        int blank = data[at] < 128 ? space[data[at]] : wide_space(data + at, length - at);
        if (blank) {
            pending = 1;
            at += (size_t)blank;
            continue;
        }
        if (pending && chars > 0) *to++ = ' ', chars++;
        pending = 0;
        const size_t begin = at;
        uint8_t bits = 0;
        do bits |= data[at++];
        while (at < length && !maybe_space[data[at]]);
        memcpy(to, data + begin, at - begin);
        to += at - begin;
        chars += (int32_t)(at - begin);
        if (bits & 0x80) for (size_t each = begin; each < at; each++) chars -= (data[each] & 0xc0) == 0x80;
    }
    text->bytes.used = used + (size_t)(to - from);
    text->chars = chars;
    text->pending = pending;
    return 0;
}

/* Whether a text is that. */
static int text_is(Text text, size_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, length) == 0;
}

/* Whether letters of any case are a word in small letters. */
static int is_word(Text letters, size_t size, const char *word) {
    for (size_t at = 0; at < size; at++) {
        if ((letters[at] >= 'A' && letters[at] <= 'Z' ? letters[at] + 32 : letters[at]) != (uint8_t)word[at]) return 0;
    }
    return 1;
}

static int is_blank(uint8_t character) { return character == ' ' || (character >= '\t' && character <= '\r'); }

/* Whether a list of words has a word, whatever its case. */
static int has_word(Text value, size_t length, const char *word) {
    const size_t size = strlen(word);
    for (size_t at = 0, from = 0; at <= length; at++) {
        if (at < length && !is_blank(value[at])) continue;
        if (at - from == size && is_word(value + from, size, word)) return 1;
        from = at + 1;
    }
    return 0;
}

/* Whether an inline style hides an element: 1 if so, -1 if it displays it in any way, 0 if it leaves that open. */
static int style_hides(Text value, size_t length) {
    int display = 0, hidden = 0;
    for (size_t at = 0; at < length; at++) {
        char said[24] = "";
        for (size_t size = 0; at < length && value[at] != ';'; at++) {
            if (!is_blank(value[at]) && size < sizeof(said) - 1) said[size++] = (char)(value[at] >= 'A' && value[at] <= 'Z' ? value[at] + 32 : value[at]);
        }
        if (strncmp(said, "display:", 8) == 0) display = strncmp(said + 8, "none", 4) == 0 && (!said[12] || said[12] == '!') ? 1 : -1;
        else if (strncmp(said, "visibility:", 11) == 0) hidden = strncmp(said + 11, "hidden", 6) == 0 || strncmp(said + 11, "collapse", 8) == 0;
    }
    return hidden ? 1 : display;
}

typedef struct {
    Text class;
    size_t class_length;
    uint32_t hints;
    int hidden, style, aside, copy, linked, open, shadow, mathematics, data, image, item, id, author, references;
} Attributes;

static void read_type(Text value, size_t length, Attributes *found) {
    found->mathematics = length >= 8 && memcmp(value, "math/tex", 8) == 0;
    found->image = length == 5 && is_word(value, 5, "image");
    found->data = length >= JSON_LD_TYPE;
}

static void read_attributes(Node node, Attributes *found) {
    memset(found, 0, sizeof(*found));
    for (Node each = lexbor.first_attribute(node); each; each = lexbor.next_attribute(each)) {
        size_t size = 0, length = 0;
        Text name = lexbor.attribute_name(each, &size), value = lexbor.attribute_value(each, &length);
        if (name == NULL) continue;
        if (value == NULL) length = 0;
        if (length > VALUE) length = VALUE;
        switch (size) {
        case 2:
            if (text_is(name, size, "id")) {
                found->hints |= hints_of(value, length);
                found->id = 1;
            }
            break;
        case 3: if (text_is(name, size, "rel")) found->author = has_word(value, length, "author"); break;
        case 4:
            if (text_is(name, size, "role")) found->hints |= word_hint(aria_roles, 0, aria_count, (const char *)value, (int)length);
            else if (text_is(name, size, "href")) found->linked = 1;
            else if (text_is(name, size, "open")) found->open = 1;
            else if (text_is(name, size, "type")) read_type(value, length, found);
            break;
        case 5:
            if (text_is(name, size, "class")) {
                uint32_t hints = hints_of(value, length);
                found->hints |= hints;
                /* links to edit a section, which wikis put into its heading */
                found->aside |= hints & edits && (has_word(value, length, "mw-editsection") || has_word(value, length, "editsection"));
                found->class = value;
                found->class_length = length;
            } else if (text_is(name, size, "style")) found->style = style_hides(value, length);
            break;
        case 6: if (text_is(name, size, "hidden")) found->hidden |= !(length == 11 && is_word(value, 11, "until-found")); break;
        case 7:
            found->references |= text_is(name, size, "itemref");
            found->hidden |= text_is(name, size, "popover");
            break;
        case 8:
            if (text_is(name, size, "itemprop")) {
                found->hints |= hints_of(value, length) & ~byline;
                found->item = 1;
            }
            break;
        case 9: if (text_is(name, size, "itemscope")) found->item = 1; break;
        case 11: if (text_is(name, size, "aria-hidden")) found->copy = text_is(value, length, "true"); break;
        case 14:
            if (text_is(name, size, "shadowrootmode"))
                found->shadow = (length == 4 && is_word(value, 4, "open")) || (length == 6 && is_word(value, 6, "closed"));
            break;
        default: break;
        }
    }
}

/* The name of an attribute as text; the last of those that share a place is kept. */
static PyObject *name_of(Text name, size_t length) {
    size_t slot = length;
    for (size_t at = 0; at < length && at < 32; at++) slot = slot * 31 + name[at];
    PyObject **kept = &names[slot % NAMES];
    if (*kept != NULL) {
        Py_ssize_t size;
        const char *known = PyUnicode_AsUTF8AndSize(*kept, &size);
        if (known == NULL) return NULL;
        if ((size_t)size == length && memcmp(known, name, length) == 0) return Py_NewRef(*kept);
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)length, "replace");
    Py_ssize_t size;
    if (text == NULL || length > 32) return text;
    if (PyUnicode_AsUTF8AndSize(text, &size) == NULL) PyErr_Clear();
    else Py_XSETREF(*kept, Py_NewRef(text));
    return text;
}

/* The attributes of an element within the limits, each with a text. */
static PyObject *attributes_of(const Walk *walk, Node node) {
    Py_ssize_t chars = 0;
    PyObject *result = PyDict_New();
    for (Node each = lexbor.first_attribute(node); result && each; each = lexbor.next_attribute(each)) {
        size_t size = 0, length = 0;
        Text written = lexbor.attribute_name(each, &size), data = lexbor.attribute_value(each, &length);
        if (written == NULL) continue;
        PyObject *name = name_of(written, size);
        PyObject *value = data == NULL ? Py_NewRef(empty) : PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)length, "replace");
        if (name == NULL || value == NULL || PyDict_SetItem(result, name, value)) Py_CLEAR(result);
        else chars += PyUnicode_GET_LENGTH(value);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    if (result == NULL || (PyDict_GET_SIZE(result) <= walk->most_attributes && chars <= walk->most_value_chars)) return result;
    PyObject *within = PyObject_CallOneArg(walk->bound, result);
    Py_DECREF(result);
    if (within != NULL && !PyDict_Check(within)) {
        PyErr_SetString(PyExc_TypeError, "attributes within their limits are a dict");
        Py_CLEAR(within);
    }
    return within;
}

/* A tag by our number; Lexbor has no small number for some that we know. */
static uint8_t tag_number(Node node) {
    uintptr_t id = lexbor.tag(node);
    if (id < TAGS) return number_of[id];
    size_t length = 0;
    Text name = lexbor.name(node, &length);
    return name && length < LONGEST_WORD ? (uint8_t)word_hint(tag_names, 0, name_count, (const char *)name, (int)length) : 0;
}

static int is_custom(Node node) {
    size_t length = 0;
    Text name = lexbor.type(node) == ELEMENT_NODE ? lexbor.name(node, &length) : NULL;
    return name != NULL && memchr(name, '-', length) != NULL;
}

/* The text of an element that has nothing but text. */
static PyObject *raw_text(Node node) {
    Rows bytes = {.size = 1};
    for (Node child = lexbor.first_child(node); child != NULL; child = lexbor.next(child)) {
        size_t length = 0;
        Text data = lexbor.type(child) == TEXT_NODE ? text_of(child, &length) : NULL;
        uint8_t *to = data == NULL ? NULL : added(&bytes, length);
        if (to != NULL) memcpy(to, data, length);
    }
    PyObject *text = PyUnicode_DecodeUTF8(bytes.data ? bytes.data : "", (Py_ssize_t)bytes.used, "replace");
    PyMem_Free(bytes.data);
    return text;
}

static int is_reference(PyObject *href) {
    return href && PyUnicode_GET_LENGTH(href) > 0 && PyUnicode_READ_CHAR(href, 0) != '#';
}

static PyObject *keys_of(uint8_t number, int state) {
    return PyDict_GetItem(state & IS_FOREIGN ? svg_link_keys : link_keys, PyTuple_GET_ITEM(tags, number));
}

/* Whether one of the attributes with links has an address. */
static int has_reference(PyObject *attributes, PyObject *keys) {
    for (Py_ssize_t at = 0; keys && at < PyTuple_GET_SIZE(keys); at++) {
        PyObject *value = PyDict_GetItem(attributes, PyTuple_GET_ITEM(keys, at));
        if (value != NULL && is_reference(value)) return 1;
    }
    return 0;
}

/* The hints of an element and of the next ones around it. One that is named for an author may be beside the text. */
static uint32_t hints_around(const Walk *walk, uint32_t hints) {
    if (hints & byline) hints &= ~beside;
    for (size_t up = 1; up < AROUND && up <= walk->frames.used; up++) {
        const Frame *frame = row(&walk->frames, walk->frames.used - up);
        if (frame->roles & ROOT) break;
        hints |= frame->hints & byline ? frame->hints & ~beside : frame->hints;
    }
    return hints;
}

/* Whether there is room for one more of a kind. */
static int takes(Py_ssize_t *left, int *is_cut) {
    if (*left > 0) return (*left)--, 1;
    *is_cut = 1;
    return 0;
}

/* Marks an element if anything of it is read by itself: 1 if so, 0 if not. */
static int mark(Walk *walk, Node node, uint8_t number, uint32_t roles, const Attributes *found, const Frame *outer, int state) {
    const int is_data = roles & SCRIPT && found->data, is_inert = state & IS_INERT;
    int fact = !is_inert && (roles & FACT || found->item || found->author || found->hints & byline || is_data || (walk->with_ids && found->id));
    int link = roles & LINKED && (!(roles & INPUT) || found->image), meta = roles & META;
    if (!fact && !link && !meta) return 0;
    PyObject *attributes = attributes_of(walk, node);
    if (attributes == NULL) return -1;
    state = (state & (IS_UNSEEN | IS_INERT)) | (outer->state & IS_FOREIGN);
    link = link && has_reference(attributes, keys_of(number, state)) && takes(&walk->links_left, &walk->links_cut);
    fact = meta ? takes(&walk->metas_left, &walk->metas_cut) : fact && takes(&walk->facts_left, &walk->facts_cut);
    Mark *made = link || fact ? added(&walk->marks, 1) : NULL;
    if (made == NULL) {
        Py_DECREF(attributes);
        return link || fact ? -1 : 0;
    }
    const Collapsed *text = &walk->texts[(state & IS_UNSEEN) != 0];
    *made = (Mark){attributes, NULL, text->chars, text->chars, outer->fact, found->hints, 0, text->bytes.used, number, (uint8_t)state,
                   (uint8_t)fact, (uint8_t)link};
    if (fact) made->around = hints_around(walk, found->hints);
    if (roles & RAW && fact) made->raw = raw_text(node);
    return roles & RAW && fact && made->raw == NULL ? -1 : 1;
}

static int push(Walk *walk, const Frame *frame) {
    Frame *room = added(&walk->frames, 1);
    if (room == NULL) return -1;
    *room = *frame;
    return 0;
}

/* Adds a row of the content's table of elements; -1 where that is full. */
static int32_t add_element(Walk *walk, Node node, uint8_t number, uint32_t roles, const Attributes *found, int32_t parent) {
    int32_t index = (int32_t)walk->elements.used;
    if (index >= walk->most_elements) {
        walk->cut = 1;
        return -1;
    }
    Element *element = added(&walk->elements, 1);
    if (element == NULL) return -2;
    memset(element, 0, sizeof(*element));
    int32_t *column = element->column;
    uint64_t path = 14695981039346656037u;
    column[PARENT] = parent;
    if (parent >= 0) {
        const Element *around = row(&walk->elements, (size_t)parent);
        column[HOLDER] = around->column[HOLDER];
        column[KIND_OF] = around->column[KIND_OF];
        column[INSIDE] = around->column[INSIDE];
        column[ABOVE] = around->column[ABOVE] | (int32_t)found->hints;
        column[DEPTH] = around->column[DEPTH] + 1;
        element->link = around->link;
        element->state = around->state;
        path = around->path;
    }
    column[TAG] = number;
    column[FIRST] = (int32_t)walk->blocks.used;
    column[LAST] = (int32_t)walk->blocks.used + walk->open;
    column[HINTS] = (int32_t)found->hints;
    column[INSIDE] |= (int32_t)inside_of[number];
    element->address = (uint64_t)(uintptr_t)node;
    if (roles & BLOCK || parent < 0) column[HOLDER] = index;
    if (roles & KIND) column[KIND_OF] = number;
    if (roles & LINK && found->linked) element->link = index;
    element->state |= roles & (STRONG | PRE);
    if (number) path = hashed(path, &number, 1);
    else {
        size_t length = 0;
        Text name = lexbor.name(node, &length);
        if (name) path = hashed(path, name, length);
    }
    path = hashed(path, (Text) "", 1);
    element->path = hashed(path, found->class, found->class_length);
    return index;
}

/* Where the children of a noscript begin: in a tree of their own if the page's has them as text. -1 where that failed. */
static int children_of_noscript(Walk *walk, Node *child) {
    size_t length = 0;
    Text data = *child != NULL && lexbor.type(*child) == TEXT_NODE ? text_of(*child, &length) : NULL;
    if (data == NULL || memchr(data, '<', length) == NULL) return 0;
    PyObject *root = PyObject_CallFunction(walk->parse, "y#", data, (Py_ssize_t)length), *address = NULL;
    *child = NULL;
    if (root != NULL && root != Py_None && (address = PyObject_GetAttrString(root, "mem_id")) != NULL) *child = (Node)PyLong_AsVoidPtr(address);
    Py_XDECREF(address);
    Py_XSETREF(walk->inner_root, root); /* there is no noscript within one */
    return PyErr_Occurred() ? -1 : 0;
}

static int enter(Walk *walk, Node node) {
    const Frame outer = *(const Frame *)row(&walk->frames, walk->frames.used - 1);
    const uint8_t number = tag_number(node);
    uint32_t roles = roles_of[number];
    if (outer.state & IS_FOREIGN) roles &= foreign_roles;
    else if (roles & DRAWING) roles = 0;
    if ((int)walk->frames.used > walk->deepest) walk->deepest = (int)walk->frames.used;
    Element *around = outer.element >= 0 && !(outer.state & (IS_UNSEEN | IS_ASIDE)) && !walk->cut ? row(&walk->elements, (size_t)outer.element) : NULL;
    if (around && roles & BREAK && line_break(walk, around)) return -1;
    if (around && roles & IMAGE) walk->block.column[IMAGES]++;
    Attributes found;
    read_attributes(node, &found);
    walk->references |= found.references;
    Frame inner = {lexbor.first_child(node), outer.element, outer.fact, -1, roles, found.hints, outer.state, outer.state, 0, 0};
    if (roles & TEMPLATE) {
        if (!found.shadow || outer.has_shadow || outer.state & (IS_DRAWN | IS_INERT) || !(outer.roles & HOST || is_custom(lexbor.parent(node)))) return 0;
        ((Frame *)row(&walk->frames, walk->frames.used - 1))->has_shadow = 1;
        inner.next = lexbor.first_child(template_content(node));
        inner.roles = 0;
        uint64_t *shadow = added(&walk->shadows, 1);
        if (shadow == NULL) return -1;
        *shadow = (uint64_t)(uintptr_t)node;
        return push(walk, &inner);
    }
    int state = outer.state;
    const int hidden = found.style ? found.style > 0 : found.hidden || (roles & DIALOG && !found.open);
    if (hidden && !(roles & ROOT)) state |= IS_UNSEEN;
    if (roles & SKIPPED || found.aside || (found.copy && !(roles & MAIN)) || (roles & SCRIPT && !found.mathematics)) state |= IS_ASIDE;
    if (roles & (BLOCK | BREAK)) walk->texts[(state & IS_UNSEEN) != 0].pending = 1;
    const int is_body = roles & BODY && walk->with_content && walk->elements.used == 0 && !(state & IS_INERT);
    if (is_body || (around && !(state & (IS_UNSEEN | IS_ASIDE)))) {
        if (!is_body && roles & BLOCK && boundary(walk, around)) return -1;
        const int32_t index = add_element(walk, node, number, roles, &found, is_body ? -1 : outer.element);
        if (index < -1) return -1;
        if (index >= 0) inner.element = index, inner.is_element = !(roles & LEAF);
    }
    const int marked = mark(walk, node, number, roles, &found, &outer, state);
    if (marked < 0) return -1;
    if (marked) inner.mark = (int32_t)walk->marks.used - 1;
    if (marked && ((Mark *)row(&walk->marks, (size_t)inner.mark))->is_fact) inner.fact = walk->facts++;
    inner.own_state = (uint8_t)state;
    if (roles & UNSEEN) state |= IS_UNSEEN;
    if (roles & LEAF) state |= IS_ASIDE;
    if (roles & INTEGRATION) state &= ~IS_FOREIGN;
    if (roles & FOREIGN) state |= IS_FOREIGN | IS_DRAWN;
    if (roles & NOSCRIPT && !(state & IS_INERT)) {
        state |= IS_INERT;
        if (children_of_noscript(walk, &inner.next)) return -1;
    }
    if (roles & RAW) inner.next = NULL;
    inner.state = (uint8_t)state;
    return push(walk, &inner);
}

static int read_text_node(Walk *walk, const Frame *frame, Node node) {
    size_t length = 0;
    Text data = text_of(node, &length);
    if (data == NULL || length == 0) return 0;
    const int is_unseen = (frame->state & IS_UNSEEN) != 0;
    Collapsed *text = &walk->texts[is_unseen];
    if (!is_unseen) {
        int32_t *seam = added(&walk->seams, 1);
        if (seam == NULL) return -1;
        *seam = text->chars;
    }
    if (append_collapsed(text, data, length)) return -1;
    if (frame->element < 0 || frame->state & (IS_UNSEEN | IS_ASIDE) || walk->cut) return 0;
    return read_content(walk, row(&walk->elements, (size_t)frame->element), data, length);
}

static int leave(Walk *walk, const Frame *frame) {
    if (frame->is_element) {
        Element *element = row(&walk->elements, (size_t)frame->element);
        const int32_t parent = element->column[PARENT];
        if (parent < 0 ? end_block(walk) : frame->roles & BLOCK && boundary(walk, row(&walk->elements, (size_t)parent))) return -1;
        element->column[LAST] = (int32_t)walk->blocks.used + walk->open;
    }
    Collapsed *text = &walk->texts[(frame->own_state & IS_UNSEEN) != 0];
    if (frame->mark >= 0) {
        Mark *mark = row(&walk->marks, (size_t)frame->mark);
        mark->end = text->chars;
        /* the space before it is not its own */
        if (mark->end > mark->start && ((const char *)text->bytes.data)[mark->at] == ' ') mark->start++;
    }
    if (frame->roles & (BLOCK | BREAK)) text->pending = 1;
    return 0;
}

static int walk_from(Walk *walk, Node root) {
    const Frame outermost = {root, -1, -1, -1, 0, 0, 0, 0, 0, 0};
    if (push(walk, &outermost)) return -1;
    while (walk->frames.used > 0) {
        Frame *frame = row(&walk->frames, walk->frames.used - 1);
        Node node = frame->next;
        if (node == NULL) {
            const Frame left = *frame;
            walk->frames.used--;
            if (leave(walk, &left)) return -1;
            continue;
        }
        frame->next = lexbor.next(node);
        const int type = lexbor.type(node);
        if (type == TEXT_NODE && read_text_node(walk, frame, node)) return -1;
        if (type == ELEMENT_NODE && enter(walk, node)) return -1;
    }
    for (size_t at = 0; at < walk->elements.used; at++) { /* one may have shared a block that came to nothing */
        int32_t *column = ((Element *)row(&walk->elements, at))->column;
        if (column[LAST] > (int32_t)walk->blocks.used) column[LAST] = (int32_t)walk->blocks.used;
    }
    return 0;
}

/* Rows of a table as bytes, one column behind the other. */
static PyObject *columns_of(const Rows *rows, size_t columns) {
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows->used * columns * sizeof(int32_t)));
    if (result == NULL) return NULL;
    int32_t *to = (int32_t *)PyBytes_AS_STRING(result);
    for (size_t column = 0; column < columns; column++) {
        const char *from = (const char *)rows->data + column * sizeof(int32_t);
        for (size_t at = 0; at < rows->used; at++, from += rows->size) memcpy(to++, from, sizeof(int32_t));
    }
    return result;
}

static PyObject *longs_of(const Rows *elements, size_t offset) {
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(elements->used * sizeof(uint64_t)));
    if (result == NULL) return NULL;
    char *to = PyBytes_AS_STRING(result);
    const char *from = (const char *)elements->data + offset;
    for (size_t at = 0; at < elements->used; at++, to += sizeof(uint64_t), from += elements->size)
        memcpy(to, from, sizeof(uint64_t));
    return result;
}

static PyObject *text_from(const Rows *bytes) {
    return PyUnicode_DecodeUTF8(bytes->data ? bytes->data : "", (Py_ssize_t)bytes->used, "replace");
}

static int append(PyObject *list, PyObject *item) {
    int failed = item == NULL || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* A row of a type of named tuples; takes over the items, which may be NULL where one failed. */
static PyObject *made(PyTypeObject *type, PyObject **items, Py_ssize_t count) {
    int failed = 0;
    for (Py_ssize_t at = 0; at < count; at++) failed |= items[at] == NULL;
    PyObject *result = failed ? NULL : type->tp_alloc(type, count);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (result != NULL) PyTuple_SET_ITEM(result, at, items[at]);
        else Py_XDECREF(items[at]);
    }
    return result;
}

static PyObject *facts_of(const Walk *walk) {
    PyObject *result = PyList_New(0);
    for (size_t at = 0; result != NULL && at < walk->marks.used; at++) {
        const Mark *mark = row(&walk->marks, at);
        if (!mark->is_fact) continue;
        PyObject *items[] = {Py_NewRef(PyTuple_GET_ITEM(tags, mark->number)), Py_NewRef(mark->attributes), PyLong_FromLong(mark->start),
                             PyLong_FromLong(mark->end), PyLong_FromLong(mark->parent), PyLong_FromLong(mark->state),
                             PyLong_FromUnsignedLong(mark->hints), PyLong_FromUnsignedLong(mark->around), Py_NewRef(mark->raw ? mark->raw : empty)};
        if (append(result, made(mark_type, items, sizeof(items) / sizeof(items[0])))) Py_CLEAR(result);
    }
    return result;
}

/* Text, elements, blocks, paths, addresses, shadow trees of the content, and whether it was cut; or None. */
static PyObject *content_of(const Walk *walk) {
    if (walk->elements.used == 0) Py_RETURN_NONE;
    return Py_BuildValue("(NNNNNy#O)", text_from(&walk->content), columns_of(&walk->elements, ELEMENT_COLUMNS),
                         columns_of(&walk->blocks, BLOCK_COLUMNS), longs_of(&walk->elements, offsetof(Element, path)),
                         longs_of(&walk->elements, offsetof(Element, address)), walk->shadows.data ? walk->shadows.data : "",
                         (Py_ssize_t)(walk->shadows.used * sizeof(uint64_t)), walk->cut ? Py_True : Py_False);
}

/* What links are made with, as in marks.py: a dict of resolved references, and who resolves others; the page's own root, or None;
   and a dict of the roots of others, by scheme and host as browsers write them. */
typedef struct {
    PyObject *made, *places, *place, *own, *roots, *split, *item;
} Linking;

/* The root that a reference lies under, if nothing else has to be known of it: a path without empty or dotted segments, a
   query, a fragment, all of characters that none of them escapes. Its absolute URL too then. Both are new. */
static PyObject *root_of(const Linking *linking, PyObject *href, PyObject **absolute) {
    if (!PyUnicode_IS_ASCII(href)) return NULL;
    const Py_ssize_t length = PyUnicode_GET_LENGTH(href);
    const char *text = (const char *)PyUnicode_1BYTE_DATA(href); /* ends with a zero */
    Py_ssize_t root = 0;
    if (strncmp(text, "http", 4) == 0) {
        root = text[4] == 's' ? 5 : 4;
        if (strncmp(text + root, "://", 3) != 0) return NULL;
        for (root += 3; in_host[(uint8_t)text[root]];) root++;
    }
    char part = '/';
    for (Py_ssize_t at = root; at < length; at++) {
        const char here = text[at];
        if (here == '#' && part != '#') part = '#';
        else if (here == '?' && part == '/') part = '?';
        else if (here == '/' && part == '/') {
            if (text[at + 1] == '/' || text[at + 1] == '.' || text[at + 1] == '%') return NULL;
        } else if (!in_url[(uint8_t)here] && !(part != '/' && (here == '/' || here == '?'))) return NULL;
    }
    if (text[root] != '/') return NULL;
    PyObject *place = NULL;
    if (root) {
        PyObject *name = PyUnicode_Substring(href, 0, root);
        if (name != NULL) place = Py_XNewRef(PyDict_GetItemWithError(linking->roots, name));
        Py_XDECREF(name);
    } else if (linking->own != Py_None) place = Py_NewRef(linking->own);
    if (place != NULL) *absolute = root ? Py_NewRef(href) : PyUnicode_Concat(PyTuple_GET_ITEM(place, 0), href);
    return place;
}

static PyObject *place_of(const Linking *linking, PyObject *href, PyObject **absolute) {
    PyObject *place = root_of(linking, href, absolute);
    if (place != NULL || PyErr_Occurred()) return place;
    place = Py_XNewRef(PyDict_GetItemWithError(linking->places, href));
    if (place == NULL && !PyErr_Occurred()) place = PyObject_CallOneArg(linking->place, href);
    if (place != NULL && !(PyTuple_Check(place) && PyTuple_GET_SIZE(place) == 4)) {
        PyErr_SetString(PyExc_TypeError, "a place is a tuple of four");
        Py_CLEAR(place);
    }
    if (place != NULL) *absolute = Py_NewRef(PyTuple_GET_ITEM(place, 0));
    return place;
}

/* Adds a link; takes over attributes and text, which may be NULL where one failed. */
static int add_link(const Linking *linking, PyObject *tag, PyObject *key, PyObject *href, PyObject *attributes, PyObject *text) {
    PyObject *absolute = NULL, *place = attributes && text ? place_of(linking, href, &absolute) : NULL;
    if (place == NULL || absolute == NULL) {
        Py_XDECREF(attributes);
        Py_XDECREF(text);
        Py_XDECREF(place);
        return -1;
    }
    PyObject *rel = PyDict_GetItem(attributes, rel_name);
    PyObject *items[] = {Py_NewRef(tag), Py_NewRef(href), absolute, text, Py_NewRef(rel ? rel : Py_None), attributes,
                         Py_NewRef(PyTuple_GET_ITEM(place, 1)), Py_NewRef(PyTuple_GET_ITEM(place, 2)), Py_NewRef(linking->item),
                         Py_NewRef(key), Py_NewRef(PyTuple_GET_ITEM(place, 3))};
    Py_DECREF(place);
    return append(linking->made, made(link_type, items, sizeof(items) / sizeof(items[0])));
}

/* Adds the pictures of a srcset, each with no attributes; takes over the list, NULL where that failed. */
static int add_pictures(const Linking *linking, PyObject *tag, PyObject *key, PyObject *pictures) {
    int failed = pictures == NULL || !PyList_Check(pictures);
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(pictures); at++)
        failed = add_link(linking, tag, key, PyList_GET_ITEM(pictures, at), PyDict_New(), Py_NewRef(empty));
    Py_XDECREF(pictures);
    return failed;
}

/* The attributes but one. They are taken from those that belong to this link alone: others copy them. */
static PyObject *without(PyObject *attributes, PyObject *key, int is_own) {
    PyObject *others = is_own ? Py_NewRef(attributes) : PyDict_Copy(attributes);
    if (others != NULL && PyDict_DelItem(others, key)) Py_CLEAR(others);
    return others;
}

/* Adds the links of an element. */
static int add_links(Walk *walk, const Linking *linking, const Mark *mark, PyObject *const *texts, Py_ssize_t *room) {
    PyObject *tag = PyTuple_GET_ITEM(tags, mark->number), *keys = keys_of(mark->number, mark->state);
    const int is_own = !mark->is_fact && (PyTuple_GET_SIZE(keys) == 1 || PySequence_Contains(srcsets, PyTuple_GET_ITEM(keys, 1)));
    int failed = 0;
    for (Py_ssize_t each = 0; !failed && each < PyTuple_GET_SIZE(keys); each++) {
        PyObject *key = PyTuple_GET_ITEM(keys, each), *href = PyDict_GetItem(mark->attributes, key);
        const Py_ssize_t left = walk->most_links - PyList_GET_SIZE(linking->made);
        if (href == NULL) continue;
        if (PySequence_Contains(srcsets, key)) {
            failed = add_pictures(linking, tag, key, PyObject_CallFunction(linking->split, "On", href, left));
            continue;
        }
        if (!is_reference(href)) continue;
        if ((walk->links_cut |= left <= 0)) break;
        const Py_ssize_t length = PyUnicode_CompareWithASCIIString(tag, "a") ? 0 : mark->end - mark->start;
        /* links can nest by way of other elements, each with the text of all inside it */
        const Py_ssize_t taken = *room < 0 ? 0 : length < walk->most_value_chars ? length : walk->most_value_chars;
        walk->link_texts_cut |= taken < length;
        *room -= length;
        Py_INCREF(href);
        failed = add_link(linking, tag, key, href, without(mark->attributes, key, is_own),
                          PyUnicode_Substring(texts[mark->state & IS_UNSEEN], mark->start, mark->start + taken));
        Py_DECREF(href);
        if (mark->state & IS_FOREIGN) break; /* its old name does not count beside the new one */
    }
    return failed;
}

/* The marks that are links as rows; facts are what tells of the page's base. */
static PyObject *links_of(Walk *walk, PyObject *facts, PyObject *const *texts) {
    Linking linking;
    PyObject *given = facts ? PyObject_CallOneArg(walk->link, facts) : NULL;
    Py_ssize_t room = walk->most_chars;
    if (given == NULL || !PyArg_ParseTuple(given, "O!OOO!OO", &PyDict_Type, &linking.places, &linking.place, &linking.own, &PyDict_Type,
                                           &linking.roots, &linking.split, &linking.item) || (linking.made = PyList_New(0)) == NULL) {
        Py_XDECREF(given);
        return NULL;
    }
    int failed = 0, full = walk->links_cut;
    walk->links_cut = 0;
    for (size_t at = 0; !failed && !walk->links_cut && at < walk->marks.used; at++) {
        const Mark *mark = row(&walk->marks, at);
        if (mark->is_link) failed = add_links(walk, &linking, mark, texts, &room);
    }
    walk->links_cut |= full;
    Py_DECREF(given);
    if (!failed) return linking.made;
    Py_DECREF(linking.made);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "pictures are a list");
}

static PyObject *walked(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long root;
    Walk walk;
    memset(&walk, 0, sizeof(walk));
    if (!PyArg_ParseTuple(arguments, "KiinnnnnppOOO", &root, &walk.most_chars, &walk.most_elements, &walk.most_links, &walk.metas_left,
                          &walk.facts_left, &walk.most_attributes, &walk.most_value_chars, &walk.with_content, &walk.with_ids,
                          &walk.bound, &walk.parse, &walk.link)) return NULL;
    if (!ready || root == 0) return PyErr_Format(PyExc_ValueError, "the walk needs an element, and set_up() before");
    Rows *const rows[] = {&walk.elements, &walk.blocks, &walk.frames, &walk.marks, &walk.seams, &walk.shadows, &walk.content, &walk.texts[0].bytes, &walk.texts[1].bytes};
    const size_t sizes[] = {sizeof(Element), sizeof(Block), sizeof(Frame), sizeof(Mark), sizeof(int32_t), sizeof(uint64_t), 1, 1, 1};
    for (size_t at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) rows[at]->size = sizes[at];
    PyObject *result = NULL;
    walk.links_left = walk.most_links;
    if (walk_from(&walk, (Node)(uintptr_t)root) == 0) {
        PyObject *const texts[] = {text_from(&walk.texts[0].bytes), text_from(&walk.texts[1].bytes)};
        PyObject *facts = facts_of(&walk), *links = texts[0] && texts[1] ? links_of(&walk, facts, texts) : NULL;
        result = Py_BuildValue("(NNy#NNNiOOOOO)", texts[0], texts[1], walk.seams.data ? walk.seams.data : "",
                               (Py_ssize_t)(walk.seams.used * sizeof(int32_t)), links, facts, content_of(&walk), walk.deepest,
                               walk.references ? Py_True : Py_False, walk.links_cut ? Py_True : Py_False, walk.link_texts_cut ? Py_True : Py_False,
                               walk.metas_cut ? Py_True : Py_False, walk.facts_cut ? Py_True : Py_False);
    } else if (!PyErr_Occurred()) PyErr_NoMemory();
    for (size_t at = 0; at < walk.marks.used; at++) {
        const Mark *mark = row(&walk.marks, at);
        Py_XDECREF(mark->attributes);
        Py_XDECREF(mark->raw);
    }
    for (size_t at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) PyMem_Free(rows[at]->data);
    Py_XDECREF(walk.inner_root);
    return result;
}

/* A list of (word, hint, whether it must be the whole word), sorted by word; -1 where it is none. */
static int read_words(PyObject *list, Word *into) {
    Py_ssize_t count = PyList_Size(list);
    if (count < 0) return -1;
    if (count > MOST_WORDS) {
        PyErr_SetString(PyExc_ValueError, "too many words");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        const char *letters;
        Py_ssize_t length;
        unsigned int hint;
        int exact;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, at), "y#Ip", &letters, &length, &hint, &exact)) return -1;
        if (length < 2 || length >= LONGEST_WORD) {
            PyErr_SetString(PyExc_ValueError, "a word is too short or too long");
            return -1;
        }
        Word *word = &into[at];
        memcpy(word->letters, letters, (size_t)length);
        word->length = (uint8_t)length;
        word->exact = (uint8_t)exact;
        word->hint = hint;
    }
    return (int)count;
}

/* set_up(known nodes, numbers by Lexbor's, roles, insides, roles of foreign elements, hints of bylines, of links to edit and of what is beside
   the text, names of tags, words, roles of
   ARIA, tags, keys of links, those of SVG's, srcsets, Mark, Link) */
static PyObject *set_up(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer numbers, of_roles, insides;
    PyObject *known, *name_list, *word_list, *role_list, *given[4], *mark, *link;
    ready = 0;
    if (!PyArg_ParseTuple(arguments, "O!y*y*y*IIIIO!O!O!O!O!O!O!O!O!", &PyTuple_Type, &known, &numbers, &of_roles, &insides, &foreign_roles,
                          &byline, &edits, &beside, &PyList_Type, &name_list, &PyList_Type, &word_list, &PyList_Type, &role_list, &PyTuple_Type, &given[0],
                          &PyDict_Type, &given[1], &PyDict_Type, &given[2], &PyTuple_Type, &given[3], &PyType_Type, &mark,
                          &PyType_Type, &link)) return NULL;
    const int fit = numbers.len == sizeof(number_of) && of_roles.len <= (Py_ssize_t)sizeof(roles_of) && insides.len <= (Py_ssize_t)sizeof(inside_of);
    if (fit) {
        memcpy(number_of, numbers.buf, sizeof(number_of));
        memcpy(roles_of, of_roles.buf, (size_t)of_roles.len);
        memcpy(inside_of, insides.buf, (size_t)insides.len);
    }
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&of_roles);
    PyBuffer_Release(&insides);
    if (!fit) return PyErr_Format(PyExc_ValueError, "tables of tags do not fit");
    if ((word_count = read_words(word_list, words)) < 0 || (aria_count = read_words(role_list, aria_roles)) < 0 ||
        (name_count = read_words(name_list, tag_names)) < 0) return NULL;
    for (int letter = 0, at = 0; letter <= 26; letter++) {
        while (at < word_count && words[at].letters[0] < 'a' + letter) at++;
        words_from[letter] = at;
    }
    PyObject **kept[] = {&tags, &link_keys, &svg_link_keys, &srcsets, (PyObject **)&mark_type, (PyObject **)&link_type};
    PyObject *of[] = {given[0], given[1], given[2], given[3], mark, link};
    for (size_t at = 0; at < sizeof(kept) / sizeof(kept[0]); at++) Py_XSETREF(*kept[at], Py_NewRef(of[at]));
    if (lexbor_found(known)) return NULL;
    ready = 1;
    Py_RETURN_NONE;
}

static int prepare(void) {
    for (int character = 0; character < 256; character++) {
        const int is_space = character < 128 && Py_UNICODE_ISSPACE((Py_UCS4)character) != 0;
        const int lower = character | 32, letter = character < 128 && ((lower >= 'a' && lower <= 'z') || (character >= '0' && character <= '9'));
        space[character] = (uint8_t)is_space;
        maybe_space[character] = is_space || character == 0xc2 || (character >= 0xe1 && character <= 0xe3);
        in_host[character] = (letter && !(character >= 'A' && character <= 'Z')) || character == '-' || character == '.';
        in_url[character] = letter || (character != 0 && strchr("._~!$&()*+,;=:@%-", character) != NULL);
        if (character >= 128) continue;
        ascii[character] = (uint8_t)(
            (character == ',' || character == ';') * COMMA | (character == '.' || character == '!' || character == '?') * END |
            (character == '|') * SIGN | (character >= '0' && character <= '9') * DIGIT |
            (character >= 'A' && character <= 'Z') * UPPER | is_space * SPACE |
            (character != 0 && strchr(".!?\"')]:;", character) != NULL) * CLOSING);
    }
    for (int class = 0; class < 1 << COUNTED; class++) {
        for (int kind = 0; kind < COUNTED; kind++) counts_of[class] |= (uint64_t)(class >> kind & 1) << (kind * COUNT_BITS);
    }
    empty = PyUnicode_FromString("");
    rel_name = PyUnicode_InternFromString("rel");
    return empty == NULL || rel_name == NULL ? -1 : 0;
}

MODULE(_walk, prepare,
    {"set_up", set_up, METH_VARARGS, "Finds Lexbor, and takes the tables of tags and words. Before all else."},
    {"walked", walked, METH_VARARGS, "Texts, seams, links, facts, content, depth, and which were cut."})
