/* What each compiled module ends with. Include after Python.h. */
#ifndef CC_PIPELINE_MODULE_H
#define CC_PIPELINE_MODULE_H

/* MODULE(name, prepare, functions…): its table of functions, and how it is made. `prepare` is called once, before anything
   else, and says 0 where all went well. */
#define MODULE(module_name, prepare, ...)                                                                          \
    static PyMethodDef methods[] = {__VA_ARGS__, {NULL, NULL, 0, NULL}};                                           \
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, #module_name, NULL, 0, methods, NULL, NULL, NULL, NULL}; \
    PyMODINIT_FUNC PyInit_##module_name(void) { return prepare() ? NULL : PyModule_Create(&module); }

#define NOTHING_FIRST() 0

#endif
