/* One look at every node below an element of selectolax's tree: its elements and its blocks of text, as tables.
   What html/walk_py.py does in Python, step by step; the tables of tags and words (tags.py) are handed over. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../_module.h"
#include "_lexbor.h"

enum { TAGS = 256, MOST_WORDS = 256, LONGEST_WORD = 24, VALUE = 512 };
/* What a tag is to the walk: the names and numbers of tags.py. */
enum { BLOCK = 1, SKIPPED = 2, LEAF = 4, KIND = 8, LINK = 16, STRONG = 32, PRE = 64, BREAK = 128, IMAGE = 256,
       TEMPLATE = 512, SCRIPT = 1024, DIALOG = 2048, SHOWN = 4096, MATH = 8192 };
/* What a character is. */
enum { COMMA = 1, END = 2, SIGN = 4, DIGIT = 8, UPPER = 16, SPACE = 32, CLOSING = 64 };
/* Flags of a block. */
enum { AFTER_BREAKS = 1, BEFORE_BREAKS = 2, CLOSED = 4, VERBATIM = 8 };
enum { NOTHING, A_SPACE, A_BREAK };

enum { PARENT, TAG, ENTRY, FINISH, FIRST, LAST, HOLDER, KIND_OF, HINTS, ABOVE, INSIDE, DEPTH, ELEMENT_COLUMNS };
enum { ELEMENT, START, CHARS, WORDS, LINKED, LINKS, STRONG_CHARS, COMMAS, ENDS, SIGNS, DIGITS, UPPERS, IMAGES, KIND_OF_BLOCK,
       FLAGS, BLOCK_COLUMNS };

typedef struct {
    char letters[LONGEST_WORD];
    uint8_t length, exact;
    uint32_t hint;
} Word;

static uint8_t number_of[TAGS];
static uint16_t class_of[TAGS];
static uint32_t inside_of[TAGS];
static Word words[MOST_WORDS], roles[MOST_WORDS], names[MOST_WORDS];
static int word_count, role_count, name_count, words_from[27];
static uint8_t ascii[128];
static int ready;

typedef struct {
    int32_t column[ELEMENT_COLUMNS];
    int32_t link; /* the element that is the link around, 0 for none */
    uint16_t state; /* STRONG, PRE and MATH of it and its ancestors */
    uint64_t path, address;
} Element;

typedef struct {
    int32_t column[BLOCK_COLUMNS];
} Block;

typedef struct {
    Node next;
    int32_t element;
    int ends_it;
} Frame;

typedef struct {
    void *data;
    size_t used, room, size;
} Rows;

typedef struct {
    Rows elements, blocks, frames, text; /* text is UTF-8 */
    int32_t chars, most_chars, most_elements;
    Block block;
    size_t kept_bytes; /* up to the last character that is no white space; and as many of each count */
    int32_t kept_chars, kept_linked, kept_strong, last_link;
    int open, pending, cut, last_class;
    uint8_t last;
} Walk;

static void *row(Rows *rows, size_t at) { return (char *)rows->data + at * rows->size; }

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
        if (memcmp(word->letters, letters, word->length) == 0) hint |= word->hint;
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
    int empty = walk->kept_chars == column[START], separated = walk->blocks.used > 0;
    walk->text.used = walk->kept_bytes;
    walk->chars = walk->kept_chars;
    walk->open = 0;
    walk->pending = NOTHING;
    if (empty) {
        walk->text.used -= (size_t)separated;
        walk->chars -= separated;
        memset(&walk->block, 0, sizeof(walk->block));
        return 0;
    }
    column[CHARS] = walk->chars - column[START];
    column[LINKED] = walk->kept_linked;
    column[STRONG_CHARS] = walk->kept_strong;
    if (walk->last_class & CLOSING) column[FLAGS] |= CLOSED;
    Block *block = added(&walk->blocks, 1);
    if (block == NULL) return -1;
    *block = walk->block;
    memset(&walk->block, 0, sizeof(walk->block));
    return 0;
}

/* Appends one character to the block, and opens one where none is. */
static int put(Walk *walk, const Element *element, Text data, int size, int class) {
    int32_t *column = walk->block.column;
    if (!walk->open) {
        if (walk->blocks.used > 0) {
            uint8_t *between = added(&walk->text, 1);
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
        walk->kept_bytes = walk->text.used;
        walk->kept_chars = walk->chars;
        walk->kept_linked = walk->kept_strong = 0;
        walk->last_class = SPACE;
    }
    if (walk->chars >= walk->most_chars) {
        walk->cut = 1;
        return 0;
    }
    uint8_t *place = added(&walk->text, (size_t)size);
    if (place == NULL) return -1;
    memcpy(place, data, (size_t)size);
    walk->chars++;
    walk->last = data[size - 1];
    column[LINKED] += element->link != 0;
    column[STRONG_CHARS] += (element->state & STRONG) != 0;
    if (!(class & SPACE)) {
        column[WORDS] += (walk->last_class & SPACE) != 0;
        column[COMMAS] += (class & COMMA) != 0;
        column[ENDS] += (class & END) != 0;
        column[SIGNS] += (class & SIGN) != 0;
        column[DIGITS] += (class & DIGIT) != 0;
        column[UPPERS] += (class & UPPER) != 0;
        if (element->link && element->link != walk->last_link) {
            column[LINKS]++;
            walk->last_link = element->link;
        }
        walk->kept_bytes = walk->text.used;
        walk->kept_chars = walk->chars;
        walk->kept_linked = column[LINKED];
        walk->kept_strong = column[STRONG_CHARS];
    }
    walk->last_class = class;
    return 0;
}

static int read_text(Walk *walk, const Element *element, Node node) {
    size_t length;
    Text data = text_of(node, &length);
    if (data == NULL) return 0;
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
                if (put(walk, element, (Text) "\xef\xbf\xbd", 3, 0)) return -1;
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
            if (walk->open && put(walk, element, (Text)(walk->pending == A_BREAK ? "\n" : " "), 1, SPACE)) return -1;
            walk->pending = NOTHING;
        }
        if (put(walk, element, from, size, class)) return -1;
    }
    return 0;
}

/* Where a block begins or ends: within pre a line does. */
static int boundary(Walk *walk, const Element *around) {
    if (!(around->state & PRE)) return end_block(walk);
    if (walk->open && walk->last != '\n') return put(walk, around, (Text) "\n", 1, SPACE);
    return 0;
}

static int line_break(Walk *walk, const Element *around) {
    if (around->state & PRE) return walk->open ? put(walk, around, (Text) "\n", 1, SPACE) : 0;
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

/* Whether a style says display:none. */
static int not_displayed(Text value, size_t length) {
    static const char wanted[] = "display:none";
    size_t same = 0;
    for (size_t at = 0; at < length; at++) {
        uint8_t character = value[at];
        if (character == ' ') continue;
        if (character >= 'A' && character <= 'Z') character += 32;
        if (character != (uint8_t)wanted[same]) same = 0;
        if (character == (uint8_t)wanted[same] && wanted[++same] == 0) return 1;
    }
    return 0;
}

/* Whether a text is that. */
static int text_is(Text text, size_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, length) == 0;
}

/* Whether a class is that of links to edit a section, which wikis put into its heading. */
static int edits(Text value, size_t length) {
    for (size_t at = 0, from = 0; at <= length; at++) {
        if (at < length && value[at] != ' ' && (value[at] < '\t' || value[at] > '\r')) continue;
        if (text_is(value + from, at - from, "mw-editsection") || text_is(value + from, at - from, "editsection")) return 1;
        from = at + 1;
    }
    return 0;
}

typedef struct {
    Text class;
    size_t class_length;
    uint32_t hints;
    int hidden, linked, open, shadow, mathematics;
} Attributes;

static void read_attributes(Node node, Attributes *found) {
    memset(found, 0, sizeof(*found));
    for (Node each = lexbor.first_attribute(node); each; each = lexbor.next_attribute(each)) {
        size_t size = 0, length = 0;
        Text name = lexbor.attribute_name(each, &size), value = lexbor.attribute_value(each, &length);
        if (name == NULL) continue;
        if (value == NULL) length = 0;
        if (length > VALUE) length = VALUE;
        switch (size) {
        case 2: if (text_is(name, size, "id")) found->hints |= hints_of(value, length); break;
        case 4:
            if (text_is(name, size, "role")) {
                found->hints |= word_hint(roles, 0, role_count, (const char *)value, (int)length);
            } else if (text_is(name, size, "href")) found->linked = 1;
            else if (text_is(name, size, "open")) found->open = 1;
            else if (text_is(name, size, "type")) found->mathematics = length >= 8 && memcmp(value, "math/tex", 8) == 0;
            break;
        case 5:
            if (text_is(name, size, "class")) {
                uint32_t hints = hints_of(value, length);
                found->hints |= hints;
                found->hidden |= hints && edits(value, length);
                found->class = value;
                found->class_length = length;
            } else if (text_is(name, size, "style")) found->hidden |= not_displayed(value, length);
            break;
        case 6: if (text_is(name, size, "hidden")) found->hidden |= !text_is(value, length, "until-found"); break;
        case 8: if (text_is(name, size, "itemprop")) found->hints |= hints_of(value, length); break;
        case 11: if (text_is(name, size, "aria-hidden")) found->hidden |= text_is(value, length, "true"); break;
        case 14: if (text_is(name, size, "shadowrootmode")) found->shadow = 1; break;
        default: break;
        }
    }
}

static int go_into(Walk *walk, Node parent, int32_t element, int ends_it) {
    Frame *frame = added(&walk->frames, 1);
    if (frame == NULL) return -1;
    *frame = (Frame){lexbor.first_child(parent), element, ends_it};
    return 0;
}

/* A tag by our number; Lexbor has no small number for some that we know. */
static uint8_t tag_number(Node node) {
    uintptr_t id = lexbor.tag(node);
    if (id < TAGS) return number_of[id];
    size_t length = 0;
    Text name = lexbor.name(node, &length);
    return name && length < LONGEST_WORD ? (uint8_t)word_hint(names, 0, name_count, (const char *)name, (int)length) : 0;
}

static int enter(Walk *walk, Node node, int32_t parent) {
    uint8_t number = tag_number(node);
    uint16_t class = class_of[number];
    Element *around = parent >= 0 ? row(&walk->elements, (size_t)parent) : NULL;
    if (around) {
        if (class & BREAK && line_break(walk, around)) return -1;
        if (class & IMAGE) walk->block.column[IMAGES]++;
        if (class & SKIPPED) return 0;
    }
    Attributes found;
    read_attributes(node, &found);
    if (around && class & TEMPLATE) return found.shadow && !(around->state & MATH) ? go_into(walk, template_content(node), parent, 0) : 0;
    if (class & SCRIPT && !found.mathematics) return 0;
    if ((found.hidden || (class & DIALOG && !found.open)) && !(class & SHOWN)) return 0;
    if (walk->elements.used >= (size_t)walk->most_elements) {
        walk->cut = 1;
        return 0;
    }
    if (around && class & BLOCK && boundary(walk, around)) return -1;
    int32_t index = (int32_t)walk->elements.used;
    Element *element = added(&walk->elements, 1);
    if (element == NULL) return -1;
    memset(element, 0, sizeof(*element));
    int32_t *column = element->column;
    uint64_t path = 14695981039346656037u;
    column[PARENT] = parent;
    if (parent >= 0) {
        around = row(&walk->elements, (size_t)parent);
        column[HOLDER] = around->column[HOLDER];
        column[KIND_OF] = around->column[KIND_OF];
        column[INSIDE] = around->column[INSIDE];
        column[ABOVE] = around->column[ABOVE] | (int32_t)found.hints;
        column[DEPTH] = around->column[DEPTH] + 1;
        element->link = around->link;
        element->state = around->state;
        path = around->path;
    }
    column[TAG] = number;
    column[ENTRY] = walk->chars;
    column[FIRST] = (int32_t)walk->blocks.used;
    column[HINTS] = (int32_t)found.hints;
    column[INSIDE] |= (int32_t)inside_of[number];
    element->address = (uint64_t)(uintptr_t)node;
    if (class & BLOCK || parent < 0) column[HOLDER] = index;
    if (class & KIND) column[KIND_OF] = number;
    if (class & LINK && found.linked) element->link = index;
    element->state |= class & (STRONG | PRE | MATH);
    if (number) path = hashed(path, &number, 1);
    else {
        size_t length = 0;
        Text name = lexbor.name(node, &length);
        if (name) path = hashed(path, name, length);
    }
    path = hashed(path, (Text) "", 1);
    element->path = hashed(path, found.class, found.class_length);
    if (class & LEAF) {
        column[FINISH] = index + 1;
        column[LAST] = (int32_t)walk->blocks.used + walk->open;
        return 0;
    }
    return go_into(walk, node, index, 1);
}

static int leave(Walk *walk, int32_t index) {
    Element *element = row(&walk->elements, (size_t)index);
    int32_t parent = element->column[PARENT];
    if (parent < 0 ? end_block(walk) :
        class_of[element->column[TAG]] & BLOCK && boundary(walk, row(&walk->elements, (size_t)parent))) return -1;
    element->column[FINISH] = (int32_t)walk->elements.used;
    element->column[LAST] = (int32_t)walk->blocks.used + walk->open;
    return 0;
}

static int walk_from(Walk *walk, Node root) {
    if (enter(walk, root, -1)) return -1;
    while (walk->frames.used > 0) {
        Frame *frame = row(&walk->frames, walk->frames.used - 1);
        Node node = frame->next;
        int32_t element = frame->element;
        if (node == NULL || walk->cut) {
            walk->frames.used--;
            if (frame->ends_it && leave(walk, element)) return -1;
            continue;
        }
        frame->next = lexbor.next(node);
        int type = lexbor.type(node);
        if (type == TEXT_NODE && read_text(walk, row(&walk->elements, (size_t)element), node)) return -1;
        if (type == ELEMENT_NODE && enter(walk, node, element)) return -1;
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

static PyObject *walked(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long root;
    Walk walk;
    memset(&walk, 0, sizeof(walk));
    if (!PyArg_ParseTuple(arguments, "Kii", &root, &walk.most_chars, &walk.most_elements)) return NULL;
    if (!ready || root == 0) {
        PyErr_SetString(PyExc_ValueError, "the walk needs an element, and set_up() before");
        return NULL;
    }
    walk.elements.size = sizeof(Element);
    walk.blocks.size = sizeof(Block);
    walk.frames.size = sizeof(Frame);
    walk.text.size = 1;
    PyObject *result = NULL;
    if (walk_from(&walk, (Node)(uintptr_t)root)) PyErr_NoMemory();
    else {
        PyObject *text = PyUnicode_DecodeUTF8(walk.text.data ? walk.text.data : "", (Py_ssize_t)walk.text.used, NULL);
        if (text != NULL) {
            result = Py_BuildValue("(NNNNNO)", text, columns_of(&walk.elements, ELEMENT_COLUMNS),
                                   columns_of(&walk.blocks, BLOCK_COLUMNS), longs_of(&walk.elements, offsetof(Element, path)),
                                   longs_of(&walk.elements, offsetof(Element, address)), walk.cut ? Py_True : Py_False);
        }
    }
    PyMem_Free(walk.elements.data);
    PyMem_Free(walk.blocks.data);
    PyMem_Free(walk.frames.data);
    PyMem_Free(walk.text.data);
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
        if (length < 1 || length >= LONGEST_WORD) {
            PyErr_SetString(PyExc_ValueError, "a word is too long");
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

static PyObject *set_up(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer numbers, classes, insides;
    PyObject *known, *name_list, *word_list, *role_list;
    ready = 0;
    if (!PyArg_ParseTuple(arguments, "O!y*O!y*y*O!O!", &PyTuple_Type, &known, &numbers, &PyList_Type, &name_list,
                          &classes, &insides, &PyList_Type, &word_list, &PyList_Type, &role_list)) return NULL;
    if (numbers.len != sizeof(number_of) || classes.len > (Py_ssize_t)sizeof(class_of) ||
        insides.len > (Py_ssize_t)sizeof(inside_of)) {
        PyErr_SetString(PyExc_ValueError, "tables of tags do not fit");
    } else {
        memcpy(number_of, numbers.buf, sizeof(number_of));
        memcpy(class_of, classes.buf, (size_t)classes.len);
        memcpy(inside_of, insides.buf, (size_t)insides.len);
    }
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&classes);
    PyBuffer_Release(&insides);
    if (PyErr_Occurred()) return NULL;
    if ((word_count = read_words(word_list, words)) < 0 || (role_count = read_words(role_list, roles)) < 0 ||
        (name_count = read_words(name_list, names)) < 0) return NULL;
    for (int letter = 0, at = 0; letter <= 26; letter++) {
        while (at < word_count && words[at].letters[0] < 'a' + letter) at++;
        words_from[letter] = at;
    }
    if (lexbor_found(known)) return NULL;
    ready = 1;
    Py_RETURN_NONE;
}

static int prepare(void) {
    for (int character = 0; character < 128; character++) {
        ascii[character] = (uint8_t)(
            (character == ',' || character == ';') * COMMA | (character == '.' || character == '!' || character == '?') * END |
            (character == '|') * SIGN | (character >= '0' && character <= '9') * DIGIT |
            (character >= 'A' && character <= 'Z') * UPPER | (Py_UNICODE_ISSPACE((Py_UCS4)character) != 0) * SPACE |
            (character != 0 && strchr(".!?\"')]:;", character) != NULL) * CLOSING);
    }
    return 0;
}

MODULE(_walk, prepare,
    {"set_up", set_up, METH_VARARGS, "Finds Lexbor, and takes the tables of tags and words. Before all else."},
    {"walked", walked, METH_VARARGS, "Text, columns of elements and of blocks, paths, addresses, and whether cut."})
