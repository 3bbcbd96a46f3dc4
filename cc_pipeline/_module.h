/* What each compiled module ends with. Include after Python.h. */
#ifndef CC_PIPELINE_MODULE_H
#define CC_PIPELINE_MODULE_H

/* What a module is made for, MADE_FOR of cc_pipeline/__init__.py: raised there and here with what a function takes or gives. */
enum { MADE_FOR = 6 };

/* MODULE(name, prepare, functions…): its table of functions, and how it is made. `prepare` is called once, before anything
   else, and says 0 where all went well. */
#define MODULE(module_name, prepare, ...)                                                                          \
    static PyMethodDef methods[] = {__VA_ARGS__, {NULL, NULL, 0, NULL}};                                           \
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, #module_name, NULL, 0, methods, NULL, NULL, NULL, NULL}; \
    PyMODINIT_FUNC PyInit_##module_name(void) {                                                                    \
        PyObject *made = prepare() ? NULL : PyModule_Create(&module);                                              \
        if (made != NULL && PyModule_AddIntConstant(made, "made_for", MADE_FOR)) Py_CLEAR(made);                   \
        return made;                                                                                               \
    }

#define NOTHING_FIRST() 0

#endif
