/* What is slow in Python of main content: boosted trees over rows of numbers (twin: summed_plainly in model.py), and
   the nearest element around each that is wanted (twin: nearest_plainly in features.py). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* One of model.py's NODE; a leaf has no feature (-1). */
typedef struct {
    int16_t feature, left, right;
    float value;
} Node;

/* Whether every way through the nodes stays among them, and ends: children lie behind their parent. */
static int is_sound(const Node *nodes, Py_ssize_t count, Py_ssize_t columns) {
    for (Py_ssize_t at = 0; at < count; at++) {
        const Node *node = nodes + at;
        if (node->feature < 0) continue;
        if (node->feature >= columns || node->left <= at || node->right <= at) return 0;
        if (node->left >= count || node->right >= count) return 0;
    }
    return 1;
}

/* summed(rows, columns, nodes, roots): for each row the sum of its leaves' values, as doubles. */
static PyObject *summed(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer rows, nodes, roots;
    Py_ssize_t columns;
    PyObject *answer = NULL;
    if (!PyArg_ParseTuple(arguments, "y*ny*y*", &rows, &columns, &nodes, &roots)) return NULL;
    const Node *node = nodes.buf;
    const int32_t *root = roots.buf;
    const Py_ssize_t count = nodes.len / (Py_ssize_t)sizeof(Node), trees = roots.len / (Py_ssize_t)sizeof(int32_t);
    const Py_ssize_t width = columns * (Py_ssize_t)sizeof(float);
    int sound = columns > 0 && rows.len % width == 0 && is_sound(node, count, columns);
    for (Py_ssize_t tree = 0; sound && tree < trees; tree++) sound = root[tree] >= 0 && root[tree] < count;
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "trees that do not fit the rows");
        goto done;
    }
    const Py_ssize_t height = rows.len / width;
    answer = PyBytes_FromStringAndSize(NULL, height * (Py_ssize_t)sizeof(double));
    if (answer == NULL) goto done;
    double *sums = (double *)PyBytes_AS_STRING(answer);
    for (Py_ssize_t at = 0; at < height; at++) {
        const float *row = (const float *)rows.buf + at * columns;
        double sum = 0;
        for (Py_ssize_t tree = 0; tree < trees; tree++) {
            const Node *here = node + root[tree];
            while (here->feature >= 0) here = node + (row[here->feature] <= here->value ? here->left : here->right);
            sum += here->value;
        }
        sums[at] = sum;
    }
done:
    PyBuffer_Release(&rows);
    PyBuffer_Release(&nodes);
    PyBuffer_Release(&roots);
    return answer;
}

/* nearest(parents, wanted): for each row, by int32, the nearest one up its parents, or itself, that is wanted; or -1. */
static PyObject *nearest(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer parents, wanted;
    PyObject *answer = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*", &parents, &wanted)) return NULL;
    const int32_t *parent = parents.buf;
    const uint8_t *is_wanted = wanted.buf;
    if (parents.len != wanted.len * (Py_ssize_t)sizeof(int32_t)) {
        PyErr_SetString(PyExc_ValueError, "a parent and a mark for each row");
        goto done;
    }
    answer = PyBytes_FromStringAndSize(NULL, parents.len);
    if (answer == NULL) goto done;
    int32_t *found = (int32_t *)PyBytes_AS_STRING(answer);
    for (Py_ssize_t row = 0; row < wanted.len; row++) {
        if (is_wanted[row]) found[row] = (int32_t)row;
        else found[row] = parent[row] >= 0 && parent[row] < row ? found[parent[row]] : -1;
    }
done:
    PyBuffer_Release(&parents);
    PyBuffer_Release(&wanted);
    return answer;
}

static PyMethodDef methods[] = {
    {"nearest", nearest, METH_VARARGS, "For each row the nearest one up its parents that is wanted."},
    {"summed", summed, METH_VARARGS, "For each row the sum of its leaves' values."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_model", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__model(void) { return PyModule_Create(&module); }
