/* What tree.py asks of every node of a page, in one look: links, meta tags, scripts of data; nodes by tag or attribute; and
   texts. What html/scan_py.py does with selectolax's own nodes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../_module.h"
#include "_lexbor.h"

enum { TAGS = 256, MOST_KEYS = 2, NAMES = 512, MOST_RULES = 64, LONGEST_RULE = 32 };
/* What a tag is to the scan: scan.py's numbers. */
enum { TEXT = 1, SRCSET = 2, SCRIPT = 4, META = 8, TITLE = 16, BASE = 32, HTML = 64, REMOVED = 128, UNREAD = 256, HOLDS_TITLE = 512, APART = 1024 };
/* How the text nodes of an element are joined: as they are; collapsed, with a space at each end of an element that is shown
   apart from its neighbours; collapsed, with a space between all of them. */
enum { AS_IT_IS, AS_SHOWN, SPACED };
enum { PRESENT, CONTAINS, TOKEN, EQUAL };

typedef struct {
    PyObject *tag, *keys[MOST_KEYS];
    int count, flags;
} Plan;

static Plan plans[TAGS];
static int ready;
static PyObject *names[NAMES], *empty, *srcset, *type_name, *rel_name;
static uint8_t space[256], lower[256];
/* Bytes with which white space may begin. */
static uint8_t maybe_space[256];
/* What a host of small letters is made of, and what no part of a URL has to escape. */
static uint8_t in_host[256], in_url[256];

static const Plan *plan_of(Node node) {
    static const Plan other;
    uintptr_t id = lexbor.tag(node);
    return id < TAGS ? &plans[id] : &other;
}

static int flags_of(Node node) { return lexbor.type(node) == ELEMENT_NODE ? plan_of(node)->flags : 0; }

/* The node behind this one in the order of the document and below root, its own inside left out if so wanted. depth
   follows it down and up; passed gets the flags of elements that end in between. */
static Node stepped(Node node, Node root, int inside, Py_ssize_t *depth, int *passed) {
    Node next = inside ? lexbor.first_child(node) : NULL;
    if (next != NULL) ++*depth;
    while (next == NULL) {
        if (node == root) return NULL;
        *passed |= flags_of(node);
        next = lexbor.next(node);
        if (next != NULL) break;
        --*depth;
        if ((node = lexbor.parent(node)) == NULL) return NULL;
    }
    return next;
}

static Node following(Node node, Node root, int inside) {
    Py_ssize_t depth = 0;
    int passed = 0;
    return stepped(node, root, inside, &depth, &passed);
}

typedef struct {
    char *data;
    size_t used, room;
} Buffer;

static int grow(Buffer *buffer, size_t more) {
    if (buffer->used + more <= buffer->room) return 0;
    size_t room = (buffer->used + more) * 2 + 256;
    char *data = PyMem_Realloc(buffer->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->data = data;
    buffer->room = room;
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
static int append_collapsed(Buffer *buffer, Text data, size_t length, int *space_pending) {
    if (grow(buffer, length + 1)) return -1;
    char *to = buffer->data + buffer->used;
    int pending = *space_pending;
    for (size_t at = 0; at < length;) {
        int blank = data[at] < 128 ? space[data[at]] : wide_space(data + at, length - at);
        if (blank) {
            pending = 1;
            at += (size_t)blank;
            continue;
        }
        if (pending && to != buffer->data) *to++ = ' ';
        pending = 0;
        do *to++ = (char)data[at++];
        while (at < length && !maybe_space[data[at]]);
    }
    buffer->used = (size_t)(to - buffer->data);
    *space_pending = pending;
    return 0;
}

static int append_as_it_is(Buffer *buffer, Text data, size_t length) {
    if (grow(buffer, length)) return -1;
    memcpy(buffer->data + buffer->used, data, length);
    buffer->used += length;
    return 0;
}

/* All text below root, without that of elements with one of the flags. The bytes that were read are added to size. */
static PyObject *text_below(Node root, int without, int joined, Py_ssize_t *size) {
    Buffer buffer = {NULL, 0, 0};
    int pending = 0, passed = 0;
    Py_ssize_t depth = 0;
    for (Node node = lexbor.first_child(root); node != NULL;) {
        int inside = 1, flags = flags_of(node);
        passed |= flags;
        if (lexbor.type(node) == ELEMENT_NODE) inside = !(flags & without);
        else if (lexbor.type(node) == TEXT_NODE) {
            size_t length = 0;
            Text data = text_of(node, &length);
            *size += (Py_ssize_t)length;
            pending |= joined == SPACED || passed & APART;
            passed = 0;
            if (data != NULL && (joined == AS_IT_IS ? append_as_it_is(&buffer, data, length) : append_collapsed(&buffer, data, length, &pending))) {
                PyMem_Free(buffer.data);
                return NULL;
            }
        }
        node = stepped(node, root, inside, &depth, &passed);
    }
    PyObject *result = PyUnicode_DecodeUTF8(buffer.data ? buffer.data : "", (Py_ssize_t)buffer.used, "replace");
    PyMem_Free(buffer.data);
    return result;
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

/* The attributes of an element; without says what stands for no value. The characters of the values are counted. */
static PyObject *attributes_of(Node node, PyObject *without, Py_ssize_t *chars) {
    PyObject *result = PyDict_New();
    if (result == NULL || lexbor.type(node) != ELEMENT_NODE) return result;
    for (Node each = lexbor.first_attribute(node); each; each = lexbor.next_attribute(each)) {
        size_t size = 0, length = 0;
        Text written = lexbor.attribute_name(each, &size), data = lexbor.attribute_value(each, &length);
        if (written == NULL) continue;
        PyObject *name = name_of(written, size);
        PyObject *value = data == NULL ? Py_NewRef(without) : PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)length, "replace");
        int failed = name == NULL || value == NULL || PyDict_SetItem(result, name, value);
        if (!failed && PyUnicode_Check(value)) *chars += PyUnicode_GET_LENGTH(value);
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

/* A node, with what keeps its tree alive. What LexborNode has of it under the same names. */
typedef struct {
    PyObject_HEAD
    Node node;
    PyObject *tree;
} Held;

static PyTypeObject Held_Type;

static PyObject *held(Node node, PyObject *tree) {
    Held *result = PyObject_New(Held, &Held_Type);
    if (result == NULL) return NULL;
    result->node = node;
    result->tree = Py_NewRef(tree);
    return (PyObject *)result;
}

static void let_go(PyObject *self) {
    Py_DECREF(((Held *)self)->tree);
    PyObject_Free(self);
}

static PyObject *get_tag(PyObject *self, void *closure) {
    (void)closure;
    Node node = ((Held *)self)->node;
    if (lexbor.type(node) != ELEMENT_NODE) Py_RETURN_NONE;
    const Plan *plan = plan_of(node);
    if (plan->tag) return Py_NewRef(plan->tag);
    size_t length = 0;
    Text name = lexbor.name(node, &length);
    return PyUnicode_DecodeUTF8(name ? (const char *)name : "", (Py_ssize_t)length, "replace");
}

static PyObject *get_attributes(PyObject *self, void *closure) {
    (void)closure;
    Py_ssize_t chars = 0;
    return attributes_of(((Held *)self)->node, Py_None, &chars);
}

static PyObject *get_parent(PyObject *self, void *closure) {
    (void)closure;
    Node parent = lexbor.parent(((Held *)self)->node);
    if (parent == NULL) Py_RETURN_NONE;
    return held(parent, ((Held *)self)->tree);
}

static PyObject *get_mem_id(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr((void *)((Held *)self)->node);
}

static PyGetSetDef held_getters[] = {
    {"tag", get_tag, NULL, NULL, NULL},
    {"attributes", get_attributes, NULL, NULL, NULL},
    {"parent", get_parent, NULL, NULL, NULL},
    {"mem_id", get_mem_id, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject Held_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "cc_pipeline.documents.html._scan.Node",
    .tp_basicsize = sizeof(Held),
    .tp_dealloc = let_go,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getset = held_getters,
};

typedef struct {
    const char *attribute, *value;
    size_t attribute_length, length;
    int how;
} Rule;

typedef struct {
    Rule rules[MOST_RULES];
    int count;
    const uint8_t *tags;
    uint64_t lengths; /* bit n: an attribute of n bytes is in a rule */
    uint8_t starts[256]; /* a letter with which a value that is looked for begins */
} Rules;

static int same_letters(Text text, const char *wanted, size_t length) {
    for (size_t at = 0; at < length; at++) {
        if (lower[text[at]] != (uint8_t)wanted[at]) return 0;
    }
    return 1;
}

static int html_space(uint8_t character) {
    return character == ' ' || character == '\t' || character == '\n' || character == '\f' || character == '\r';
}

static int fits(const Rules *rules, Text name, size_t size, Node attribute) {
    Text value = NULL;
    size_t length = 0;
    int first = -1, last = -1;
    for (int at = 0; at < rules->count; at++) {
        const Rule *rule = &rules->rules[at];
        if (rule->attribute_length != size || memcmp(rule->attribute, name, size) != 0) continue;
        if (rule->how == PRESENT) return 1;
        if (first < 0) first = at;
        last = at;
    }
    if (first < 0 || (value = lexbor.attribute_value(attribute, &length)) == NULL) return 0;
    for (size_t place = 0; place < length; place++) {
        if (!rules->starts[value[place]]) continue;
        for (int at = first; at <= last; at++) {
            const Rule *rule = &rules->rules[at];
            size_t end = place + rule->length;
            if (end > length || rule->attribute_length != size || memcmp(rule->attribute, name, size) != 0) continue;
            if (!same_letters(value + place, rule->value, rule->length)) continue;
            if (rule->how == EQUAL && (place != 0 || end != length)) continue;
            if (rule->how == TOKEN && ((place > 0 && !html_space(value[place - 1])) || (end < length && !html_space(value[end])))) continue;
            return 1;
        }
    }
    return 0;
}

static int is_selected(const Rules *rules, Node node) {
    uintptr_t id = lexbor.tag(node);
    if (id < TAGS && rules->tags[id]) return 1;
    for (Node each = lexbor.first_attribute(node); each; each = lexbor.next_attribute(each)) {
        size_t size = 0;
        Text name = lexbor.attribute_name(each, &size);
        if (name && size < 64 && rules->lengths >> size & 1 && fits(rules, name, size, each)) return 1;
    }
    return 0;
}

static int read_rules(PyObject *list, Rules *rules) {
    Py_ssize_t count = PyTuple_GET_SIZE(list);
    if (count > MOST_RULES) {
        PyErr_SetString(PyExc_ValueError, "too many rules");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Rule *rule = &rules->rules[at];
        Py_ssize_t attribute, value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list, at), "y#iy#", &rule->attribute, &attribute, &rule->how, &rule->value, &value))
            return -1;
        if (attribute > LONGEST_RULE || (rule->how != PRESENT && value < 1)) {
            PyErr_SetString(PyExc_ValueError, "a rule is too long, or about nothing");
            return -1;
        }
        rule->attribute_length = (size_t)attribute;
        rule->length = (size_t)value;
        rules->lengths |= (uint64_t)1 << attribute;
        if (value) {
            rules->starts[(uint8_t)rule->value[0]] = 1;
            if (rule->value[0] >= 'a' && rule->value[0] <= 'z') rules->starts[rule->value[0] - 32] = 1;
        }
    }
    rules->count = (int)count;
    return 0;
}

static int is_ready(unsigned long long root) {
    if (ready && root != 0) return 1;
    PyErr_SetString(PyExc_ValueError, "the scan needs a node, and set_up() before");
    return 0;
}

static PyObject *selected(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long address;
    PyObject *tree, *list;
    Py_buffer tags;
    Rules rules;
    memset(&rules, 0, sizeof(rules));
    if (!PyArg_ParseTuple(arguments, "KOy*O!", &address, &tree, &tags, &PyTuple_Type, &list)) return NULL;
    PyObject *result = NULL;
    rules.tags = tags.buf;
    if (tags.len != TAGS) PyErr_SetString(PyExc_ValueError, "tags are not 256 bytes");
    else if (is_ready(address) && read_rules(list, &rules) == 0) result = PyList_New(0);
    Node root = (Node)(uintptr_t)address;
    for (Node node = root; result != NULL && node != NULL;) {
        int inside = 1;
        if (lexbor.type(node) == ELEMENT_NODE) {
            if (plan_of(node)->flags & REMOVED) inside = 0;
            else if (is_selected(&rules, node)) {
                PyObject *one = held(node, tree);
                if (one == NULL || PyList_Append(result, one)) Py_CLEAR(result);
                Py_XDECREF(one);
            }
        }
        node = following(node, root, inside);
    }
    PyBuffer_Release(&tags);
    return result;
}

static PyObject *node_text(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long root;
    int is_spaced;
    if (!PyArg_ParseTuple(arguments, "Kp", &root, &is_spaced) || !is_ready(root)) return NULL;
    Py_ssize_t size = 0;
    PyObject *text = text_below((Node)(uintptr_t)root, REMOVED, is_spaced ? SPACED : AS_SHOWN, &size);
    return text == NULL ? NULL : Py_BuildValue("(Nn)", text, size);
}

static PyObject *body_text(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long root;
    if (!PyArg_ParseTuple(arguments, "K", &root) || !is_ready(root)) return NULL;
    /* a body that a frameset has taken the place of is in the tree no more, and read as it is */
    Node body = (Node)(uintptr_t)root, top = body;
    for (Node above; (above = lexbor.parent(top)) != NULL;) top = above;
    Py_ssize_t size = 0;
    return text_below(body, lexbor.type(top) == DOCUMENT_NODE ? REMOVED | UNREAD : 0, SPACED, &size);
}

typedef struct {
    Py_ssize_t room, most_metas, most_attributes, most_chars, text_room;
    PyObject *bounded, *links, *metas, *titles, *bases, *roots, *scripts;
    int links_cut, metas_cut, removed; /* removed: what is looked at is in an element that is never read */
} Collected;

static int append(PyObject *list, PyObject *item) {
    int failed = item == NULL || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static PyObject *attributes_within(Collected *collected, Node node) {
    Py_ssize_t chars = 0;
    PyObject *attributes = attributes_of(node, empty, &chars);
    if (attributes == NULL || (PyDict_GET_SIZE(attributes) <= collected->most_attributes && chars <= collected->most_chars))
        return attributes;
    PyObject *within = PyObject_CallOneArg(collected->bounded, attributes);
    Py_DECREF(attributes);
    if (within != NULL && !PyDict_Check(within)) {
        PyErr_SetString(PyExc_TypeError, "attributes within their bounds are a dict");
        Py_CLEAR(within);
    }
    return within;
}

static int add_link(Collected *collected, const Plan *plan, PyObject *key, PyObject *href, PyObject *others, Node node) {
    if (PyList_GET_SIZE(collected->links) >= collected->room) {
        collected->links_cut = 1;
        return 0;
    }
    PyObject *text = NULL;
    Py_ssize_t size = 0;
    if (!(plan->flags & TEXT)) text = Py_NewRef(empty);
    else if (collected->text_room < 0) text = Py_NewRef(Py_None);
    else if (collected->removed) text = Py_NewRef(empty);
    else {
        text = text_below(node, REMOVED, AS_SHOWN, &size);
        if (text == NULL) return -1;
        collected->text_room -= PyUnicode_GET_LENGTH(text);
    }
    PyObject *link = PyTuple_Pack(5, plan->tag, key, href, others, text);
    Py_DECREF(text);
    return append(collected->links, link);
}

static int is_reference(PyObject *href) {
    return href && PyUnicode_Check(href) && PyUnicode_GET_LENGTH(href) > 0 && PyUnicode_READ_CHAR(href, 0) != '#';
}

static int collect_links(Collected *collected, const Plan *plan, Node node, PyObject *attributes) {
    for (int at = 0; at < plan->count; at++) {
        PyObject *key = plan->keys[at], *href = Py_XNewRef(PyDict_GetItemWithError(attributes, key));
        if (href == NULL) {
            if (PyErr_Occurred()) return -1;
            continue;
        }
        int failed = 0;
        if (plan->count > 1) {
            if (is_reference(href)) {
                PyObject *others = PyDict_Copy(attributes);
                failed = others == NULL || PyDict_DelItem(others, key) || add_link(collected, plan, key, href, others, node);
                Py_XDECREF(others);
            }
        } else failed = PyDict_DelItem(attributes, key) || (is_reference(href) && add_link(collected, plan, key, href, attributes, node));
        Py_DECREF(href);
        if (failed) return -1;
    }
    if (!(plan->flags & SRCSET) || PyList_GET_SIZE(collected->links) >= collected->room) return 0;
    PyObject *candidates = PyDict_GetItemWithError(attributes, srcset);
    if (candidates == NULL) return PyErr_Occurred() ? -1 : 0;
    return append(collected->links, PyTuple_Pack(5, plan->tag, srcset, candidates, Py_None, empty));
}

static int collect(Collected *collected, Node node) {
    const Plan *plan = plan_of(node);
    if (plan->flags & (TITLE | BASE)) {
        Node parent = lexbor.parent(node);
        if (parent != NULL && !(flags_of(parent) & HOLDS_TITLE)) return 0;
    }
    if (plan->flags & TITLE && PyList_GET_SIZE(collected->titles) == 0) {
        Py_ssize_t size = 0;
        PyObject *text = text_below(node, 0, AS_IT_IS, &size);
        if (text != NULL && PyUnicode_GET_LENGTH(text) == 0) Py_DECREF(text);
        else if (append(collected->titles, text)) return -1;
    }
    if (!plan->count && !(plan->flags & (META | BASE | HTML))) return 0;
    PyObject *attributes = attributes_within(collected, node);
    if (attributes == NULL) return -1;
    int failed = 0;
    if (plan->flags & META) {
        if (PyList_GET_SIZE(collected->metas) < collected->most_metas) failed = PyList_Append(collected->metas, attributes);
        else collected->metas_cut = 1;
    } else if (plan->flags & BASE) failed = PyList_Append(collected->bases, attributes);
    else if (plan->flags & HTML) failed = PyList_Append(collected->roots, attributes);
    else {
        if (plan->flags & SCRIPT) {
            PyObject *type = PyDict_GetItemWithError(attributes, type_name);
            failed = type == NULL && PyErr_Occurred();
            /* no shorter one is application/ld+json */
            if (type != NULL && PyUnicode_GET_LENGTH(type) >= 19) {
                Py_ssize_t size = 0;
                PyObject *text = text_below(node, 0, AS_IT_IS, &size);
                failed = text == NULL || append(collected->scripts, PyTuple_Pack(2, type, text));
                Py_XDECREF(text);
            }
        }
        failed = failed || collect_links(collected, plan, node, attributes);
    }
    Py_DECREF(attributes);
    return failed ? -1 : 0;
}

static PyObject *collected_from(PyObject *self, PyObject *arguments) {
    (void)self;
    unsigned long long address;
    Collected found;
    memset(&found, 0, sizeof(found));
    if (!PyArg_ParseTuple(arguments, "KnnnnnO", &address, &found.room, &found.most_metas, &found.most_attributes,
                          &found.most_chars, &found.text_room, &found.bounded) || !is_ready(address)) return NULL;
    PyObject **lists[] = {&found.links, &found.metas, &found.titles, &found.bases, &found.roots, &found.scripts};
    int failed = 0;
    for (size_t at = 0; at < 6; at++) failed |= (*lists[at] = PyList_New(0)) == NULL;
    Node root = (Node)(uintptr_t)address, behind = NULL;
    Py_ssize_t depth = 1, deepest = 0;
    int passed = 0;
    for (Node node = root; !failed && node != NULL; node = stepped(node, root, 1, &depth, &passed)) {
        if (node == behind) found.removed = 0;
        if (lexbor.type(node) != ELEMENT_NODE) continue;
        if (depth > deepest) deepest = depth;
        failed = collect(&found, node);
        if (plan_of(node)->flags & REMOVED && !found.removed) {
            found.removed = 1;
            behind = following(node, root, 0);
        }
    }
    if (!failed) {
        return Py_BuildValue("(NNNNNNOOn)", found.links, found.metas, found.titles, found.bases, found.roots, found.scripts,
                             found.links_cut ? Py_True : Py_False, found.metas_cut ? Py_True : Py_False, deepest);
    }
    for (size_t at = 0; at < 6; at++) Py_XDECREF(*lists[at]);
    return NULL;
}

/* What links are made with: their type; a dict of what is known of references, and who says it of others; the page's own root,
   or None; and a dict of others: by scheme and host as browsers write them what is known of these. */
typedef struct {
    PyTypeObject *type;
    PyObject *made, *places, *place, *own, *roots, *item;
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

/* Adds a link; takes over the text, which may be NULL where that failed. */
static int add_row(const Linking *linking, PyObject *tag, PyObject *key, PyObject *href, PyObject *attributes, PyObject *text) {
    PyObject *absolute = NULL, *place = text == NULL ? NULL : place_of(linking, href, &absolute), *rel = NULL, *row = NULL;
    if (absolute != NULL) rel = Py_XNewRef(PyDict_GetItemWithError(attributes, rel_name));
    if (absolute != NULL && !PyErr_Occurred()) row = linking->type->tp_alloc(linking->type, 11);
    if (row != NULL) {
        PyObject *of[] = {tag, href, absolute, text, rel ? rel : Py_None, attributes, PyTuple_GET_ITEM(place, 1),
                          PyTuple_GET_ITEM(place, 2), linking->item, key, PyTuple_GET_ITEM(place, 3)};
        for (int at = 0; at < 11; at++) PyTuple_SET_ITEM(row, at, Py_NewRef(of[at]));
    }
    Py_XDECREF(absolute);
    Py_XDECREF(place);
    Py_XDECREF(rel);
    Py_XDECREF(text);
    return append(linking->made, row);
}

/* Adds the pictures of a srcset, each with no attributes; 1 where it failed. */
static int add_pictures(const Linking *linking, PyObject *tag, PyObject *key, PyObject *pictures) {
    int failed = pictures == NULL || !PyList_Check(pictures);
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(pictures); at++) {
        PyObject *none = PyDict_New();
        failed = none == NULL || add_row(linking, tag, key, PyList_GET_ITEM(pictures, at), none, Py_NewRef(empty));
        Py_XDECREF(none);
    }
    Py_XDECREF(pictures);
    return failed;
}

/* links(raw, type, places, place, own, roots, pictures, item, most, bound): links as rows, whether there were more, and whether one had
   more text than the bound. */
static PyObject *links_of(PyObject *self, PyObject *arguments) {
    (void)self;
    Linking linking;
    PyObject *raw, *pictures;
    Py_ssize_t most, bound;
    int failed = 0, more = 0, cut = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!O!OOO!OOnn", &PyList_Type, &raw, &PyType_Type, &linking.type, &PyDict_Type, &linking.places,
                          &linking.place, &linking.own, &PyDict_Type, &linking.roots, &pictures, &linking.item, &most, &bound)) return NULL;
    if (!PyType_IsSubtype(linking.type, &PyTuple_Type)) return PyErr_Format(PyExc_TypeError, "links are tuples");
    if ((linking.made = PyList_New(0)) == NULL) return NULL;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(raw); at++) {
        PyObject *tag, *key, *href, *attributes, *text;
        const Py_ssize_t room = most - PyList_GET_SIZE(linking.made);
        if (!PyArg_ParseTuple(PyList_GET_ITEM(raw, at), "OOUOO", &tag, &key, &href, &attributes, &text)) failed = 1;
        else if (attributes == Py_None) failed = add_pictures(&linking, tag, key, PyObject_CallFunction(pictures, "On", href, room));
        else if (room <= 0) {
            more = 1;
            break;
        } else if (text == Py_None || !PyUnicode_Check(text)) cut = 1, failed = add_row(&linking, tag, key, href, attributes, Py_NewRef(empty));
        else {
            /* links can nest by way of other elements, each with the text of all inside it */
            cut |= PyUnicode_GET_LENGTH(text) > bound;
            failed = add_row(&linking, tag, key, href, attributes, PyUnicode_Substring(text, 0, bound));
        }
    }
    if (failed) {
        Py_DECREF(linking.made);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "pictures are a list");
        return NULL;
    }
    return Py_BuildValue("(NOO)", linking.made, more ? Py_True : Py_False, cut ? Py_True : Py_False);
}

/* Of each of Lexbor's small numbers of tags: None, or our name of it, the attributes that hold links, and its flags. */
static int read_plans(PyObject *list) {
    if (PyList_GET_SIZE(list) != TAGS) {
        PyErr_SetString(PyExc_ValueError, "plans are not for 256 tags");
        return -1;
    }
    for (Py_ssize_t at = 0; at < TAGS; at++) {
        PyObject *one = PyList_GET_ITEM(list, at), *tag, *keys;
        int flags;
        if (one == Py_None) continue;
        if (!PyArg_ParseTuple(one, "UO!i", &tag, &PyTuple_Type, &keys, &flags)) return -1;
        Plan *plan = &plans[at];
        plan->flags = flags;
        plan->count = (int)PyTuple_GET_SIZE(keys);
        if (plan->count > MOST_KEYS) {
            PyErr_SetString(PyExc_ValueError, "too many attributes with links");
            return -1;
        }
        Py_XSETREF(plan->tag, Py_NewRef(tag));
        for (int key = 0; key < plan->count; key++) Py_XSETREF(plan->keys[key], Py_NewRef(PyTuple_GET_ITEM(keys, key)));
    }
    return 0;
}

static PyObject *set_up(PyObject *self, PyObject *arguments) {
    (void)self;
    PyObject *known, *list;
    ready = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyTuple_Type, &known, &PyList_Type, &list)) return NULL;
    if (read_plans(list) || lexbor_found(known)) return NULL;
    ready = 1;
    Py_RETURN_NONE;
}

static int prepare(void) {
    for (int character = 0; character < 256; character++) {
        space[character] = character < 128 && Py_UNICODE_ISSPACE((Py_UCS4)character) != 0;
        maybe_space[character] = space[character] || character == 0xc2 || (character >= 0xe1 && character <= 0xe3);
        lower[character] = (uint8_t)(character >= 'A' && character <= 'Z' ? character + 32 : character);
        int letter = (lower[character] >= 'a' && lower[character] <= 'z') || (character >= '0' && character <= '9');
        in_host[character] = (letter && lower[character] == character) || character == '-' || character == '.';
        in_url[character] = letter || (character != 0 && strchr("._~!$&()*+,;=:@%-", character) != NULL);
    }
    empty = PyUnicode_FromString("");
    srcset = PyUnicode_InternFromString("srcset");
    type_name = PyUnicode_InternFromString("type");
    rel_name = PyUnicode_InternFromString("rel");
    if (empty == NULL || srcset == NULL || type_name == NULL || rel_name == NULL || PyType_Ready(&Held_Type)) return -1;
    return 0;
}

MODULE(_scan, prepare,
    {"set_up", set_up, METH_VARARGS, "Finds Lexbor, and takes the plans for tags. Before all else."},
    {"collected", collected_from, METH_VARARGS, "Links, meta tags, titles, bases, roots, scripts, which were cut, and the depth of elements."},
    {"links", links_of, METH_VARARGS, "Links as rows, whether there were more, and whether one had too long a text."},
    {"selected", selected, METH_VARARGS, "The elements that a selection means."},
    {"node_text", node_text, METH_VARARGS, "The text of a node, as it is shown or with a space between all its parts."},
    {"body_text", body_text, METH_VARARGS, "All text that is the page's."})
