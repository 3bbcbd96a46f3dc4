/* The nodes of selectolax's tree, read where they lie: the accessors are Lexbor's own, found in selectolax's module.
   Two offsets in its structs have no accessor; lexbor_open() finds them on nodes whose content is known. */
#ifndef CC_PIPELINE_LEXBOR_H
#define CC_PIPELINE_LEXBOR_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ELEMENT_NODE = 1, TEXT_NODE = 3, DOCUMENT_NODE = 9 };
/* Where a struct's own fields may lie: after those of every node, and within the smallest allocation. */
enum { FIRST_OFFSET = 64, LAST_OFFSET = 184 };

typedef const void *Node;
typedef const uint8_t *Text;

static struct {
    Node (*first_child)(Node), (*next)(Node), (*parent)(Node);
    int (*type)(Node);
    uintptr_t (*tag)(Node);
    Text (*name)(Node, size_t *);
    Node (*first_attribute)(Node), (*next_attribute)(Node);
    Text (*attribute_name)(Node, size_t *), (*attribute_value)(Node, size_t *);
    size_t text_at, content_at;
} lexbor;

static Text text_of(Node node, size_t *length) {
    const uint8_t *at = (const uint8_t *)node + lexbor.text_at;
    Text data;
    memcpy(&data, at, sizeof(data));
    memcpy(length, at + sizeof(data), sizeof(*length));
    return data;
}

/* What a template of HTML's own namespace holds: it is no child of it. */
static Node template_content(Node node) {
    Node content;
    memcpy(&content, (const uint8_t *)node + lexbor.content_at, sizeof(content));
    return content;
}

/* Finds Lexbor in the module at path, and the two offsets by a text node with a known text and by a template whose
   content's address is known. What is missing, NULL for nothing. */
static const char *lexbor_open(const char *path, Node text, const char *expected, size_t length, Node template,
                               Node content) {
    void *module = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (module == NULL) return "selectolax's module is not loaded from that file";
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"lxb_dom_node_first_child_noi", &lexbor.first_child},
        {"lxb_dom_node_next_noi", &lexbor.next},
        {"lxb_dom_node_parent_noi", &lexbor.parent},
        {"lxb_dom_node_type_noi", &lexbor.type},
        {"lxb_dom_node_tag_id_noi", &lexbor.tag},
        {"lxb_dom_element_qualified_name", &lexbor.name},
        {"lxb_dom_element_first_attribute_noi", &lexbor.first_attribute},
        {"lxb_dom_element_next_attribute_noi", &lexbor.next_attribute},
        {"lxb_dom_attr_qualified_name", &lexbor.attribute_name},
        {"lxb_dom_attr_value_noi", &lexbor.attribute_value},
    };
    for (size_t at = 0; at < sizeof(wanted) / sizeof(wanted[0]); at++) {
        void *found = dlsym(module, wanted[at].name);
        if (found == NULL) return wanted[at].name;
        memcpy(wanted[at].function, &found, sizeof(found));
    }
    for (size_t at = FIRST_OFFSET; at <= LAST_OFFSET; at += sizeof(void *)) {
        size_t size;
        lexbor.text_at = at;
        Text data = text_of(text, &size);
        if (size == length && data != NULL && memcmp(data, expected, length) == 0) break;
        if (at == LAST_OFFSET) return "the text of a text node";
    }
    for (size_t at = FIRST_OFFSET; at <= LAST_OFFSET; at += sizeof(void *)) {
        lexbor.content_at = at;
        if (template_content(template) == content) return NULL;
    }
    return "the content of a template";
}

/* The same by what lexbor.py knows, `Known`; -1 and ImportError where something is missing. */
static int lexbor_found(PyObject *known) {
    const char *path, *expected;
    unsigned long long text, template, content;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(known, "sKy#KK", &path, &text, &expected, &length, &template, &content)) return -1;
    const char *missing = lexbor_open(path, (Node)(uintptr_t)text, expected, (size_t)length, (Node)(uintptr_t)template,
                                      (Node)(uintptr_t)content);
    if (missing != NULL) PyErr_Format(PyExc_ImportError, "selectolax is another than is known here: %s", missing);
    return missing == NULL ? 0 : -1;
}

#endif
