/* White space collapsed, compiled: the same text as " ".join(text.split()), without a string for every word. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../../_module.h"

enum { NEAR = 128 };

/* Of the characters below 256, which nearly all are. */
static uint8_t is_space[256];

#define NARROW_SPACE(character) is_space[character]
#define WIDE_SPACE(character) ((character) < 256 ? is_space[character] : (uint8_t)(Py_UNICODE_ISSPACE(character) != 0))

/* Writes at most as many characters as it reads, and never ahead of them. */
#define COLLAPSE(name, unit, SPACE)                                            \
    static Py_ssize_t name(const unit *from, Py_ssize_t length, unit *to) {    \
        Py_ssize_t kept = 0;                                                   \
        uint8_t after_space = 1;                                               \
        for (Py_ssize_t at = 0; at < length; at++) {                           \
            unit character = from[at];                                         \
            uint8_t space = SPACE(character);                                  \
            to[kept] = space ? (unit)' ' : character;                          \
            kept += !(space & after_space);                                    \
            after_space = space;                                               \
        }                                                                      \
        return kept > 0 && after_space ? kept - 1 : kept;                      \
    }

COLLAPSE(collapse_1, Py_UCS1, NARROW_SPACE)
COLLAPSE(collapse_2, Py_UCS2, WIDE_SPACE)
COLLAPSE(collapse_4, Py_UCS4, WIDE_SPACE)

static PyObject *collapsed(PyObject *self, PyObject *text) {
    (void)self;
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "collapsed takes a str");
        return NULL;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_UCS4 near[NEAR];
    void *room = near;
    if (length > NEAR) {
        room = PyMem_Malloc((size_t)length * (size_t)kind);
        if (room == NULL) return PyErr_NoMemory();
    }
    Py_ssize_t kept;
    if (kind == PyUnicode_1BYTE_KIND) kept = collapse_1(data, length, room);
    else if (kind == PyUnicode_2BYTE_KIND) kept = collapse_2(data, length, room);
    else kept = collapse_4(data, length, room);
    PyObject *result = PyUnicode_FromKindAndData(kind, room, kept);
    if (room != near) PyMem_Free(room);
    return result;
}

static int prepare(void) {
    for (int character = 0; character < 256; character++) {
        is_space[character] = Py_UNICODE_ISSPACE((Py_UCS4)character) != 0;
    }
    return 0;
}

MODULE(_whitespace, prepare,
    {"collapsed", collapsed, METH_O, "A text with each run of white space made one space, and none at either end."})
