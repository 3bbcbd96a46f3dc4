/* The footer walk, compiled: the same function as footer_walk_py.walk, results and faults alike.
 *
 * Every read goes through the primitives below, each of which compares with what is left before it touches a
 * byte. Tables grow with what was really read, not with what a length promises. Field numbers are those of
 * parquet.thrift (apache/parquet-format), the encoding is thrift's compact protocol.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../../_module.h"

enum { T_STOP, T_TRUE, T_FALSE, T_I8, T_I16, T_I32, T_I64, T_DOUBLE, T_BINARY, T_LIST, T_SET, T_MAP, T_STRUCT, T_UUID };

enum { MAX_DEPTH = 32, MAX_FIELD = 32767, VARINT_BYTES = 10, MAX_ROW_GROUPS = 32767, MAX_NAMES = 256, MAX_COLUMNS = 256 };
enum { ENCODING_BITS = 62, LARGEST_ENUM = 127 };

enum { RG_ROWS, RG_TOTAL, RG_COMPRESSED, RG_FILE_OFFSET, RG_CHUNKS, RG_FIRST, RG_END, RG_FIELDS };
enum {
    C_FLAGS, C_TYPE, C_CODEC, C_ENCODINGS, C_VALUES, C_UNCOMPRESSED, C_COMPRESSED, C_DATA, C_DICTIONARY,
    C_OFFSET_INDEX, C_OFFSET_INDEX_LENGTH, C_COLUMN_INDEX, C_COLUMN_INDEX_LENGTH, C_BLOOM, C_BLOOM_LENGTH,
    C_NULLS, C_ORDINAL, C_FIELDS
};
enum { PRESENT = 1, ELSEWHERE = 2, ENCRYPTED = 4, MIN_KNOWN = 8, MIN_EXACT = 16, MAX_KNOWN = 32, MAX_EXACT = 64 };
enum { VALUES = 4 };

typedef struct {
    const uint8_t *data;
    Py_ssize_t pos, end;
    Py_ssize_t fault_at;
    const char *fault; /* NULL while all is well */
    int too_large;     /* the fault is a bound of ours, not broken bytes */
} Reader;

/* A stretch of the input; start is -1 where there is none. */
typedef struct {
    Py_ssize_t start, end;
} Span;

typedef struct {
    int64_t *cells;
    size_t used, room;
} Table;

typedef struct {
    const char *text;
    Py_ssize_t length;
} Name;

typedef struct {
    Reader in;
    Name names[MAX_NAMES];
    int name_count, stat_count;
    int64_t limit;
    Table groups, chunks;
    Table values; /* start and end of each statistic kept, -1 where there is none */
    Table orders; /* one number for each column */
} Walk;

static int broken(Reader *in, Py_ssize_t at, const char *reason) {
    if (!in->fault) {
        in->fault = reason;
        in->fault_at = at;
    }
    return -1;
}

/* ---- the protocol; all give 0, or -1 for a fault ---- */

static inline int read_byte(Reader *in, uint8_t *value) {
    if (in->pos >= in->end) return broken(in, in->pos, "the metadata ends inside a structure");
    *value = in->data[in->pos++];
    return 0;
}

static inline int read_varint(Reader *in, uint64_t *value) {
    Py_ssize_t start = in->pos;
    uint64_t found = 0;
    if (start < in->end && in->data[start] < 0x80) { /* most numbers are this short */
        *value = in->data[start];
        in->pos = start + 1;
        return 0;
    }
    for (int index = 0; index < VARINT_BYTES; index++) {
        if (start + index >= in->end) return broken(in, start, "a number runs past the end");
        uint8_t octet = in->data[start + index];
        if (index == VARINT_BYTES - 1 && octet > 1) break;
        found |= (uint64_t)(octet & 0x7F) << (7 * index);
        if (octet < 0x80) {
            in->pos = start + index + 1;
            *value = found;
            return 0;
        }
    }
    return broken(in, start, "a number is longer than 64 bits");
}

static inline int read_zigzag(Reader *in, int64_t *value) {
    uint64_t raw;
    if (read_varint(in, &raw)) return -1;
    *value = (int64_t)((raw >> 1) ^ (~(raw & 1) + 1));
    return 0;
}

static inline int read_span(Reader *in, Span *span) {
    Py_ssize_t start = in->pos;
    uint64_t length;
    if (read_varint(in, &length)) return -1;
    if (length > (uint64_t)(in->end - in->pos)) {
        in->pos = start;
        return broken(in, start, "a string is longer than the metadata");
    }
    span->start = in->pos;
    in->pos += (Py_ssize_t)length;
    span->end = in->pos;
    return 0;
}

static int read_odd_field(Reader *in, int *last, int *kind) {
    Py_ssize_t start = in->pos;
    uint8_t octet;
    if (read_byte(in, &octet)) return -1;
    *kind = octet & 15;
    if (*kind == T_STOP || *kind > T_UUID) return broken(in, start, "a field of unknown type");
    int64_t number = *last + (octet >> 4);
    if (octet >> 4 == 0 && read_zigzag(in, &number)) return -1;
    if (number < -MAX_FIELD || number > MAX_FIELD) return broken(in, start, "a field number out of bounds");
    *last = (int)number;
    return 0;
}

/* Nearly every field has a known type and follows the one before it closely. */
static inline int read_field(Reader *in, int *last, int *kind) {
    if (in->pos < in->end) {
        int octet = in->data[in->pos], number = *last + (octet >> 4);
        *kind = octet & 15;
        if (octet == T_STOP) {
            in->pos++;
            *last = 0;
            return 0;
        }
        if (octet > 15 && *kind != T_STOP && *kind <= T_UUID && number <= MAX_FIELD) {
            in->pos++;
            *last = number;
            return 0;
        }
    }
    return read_odd_field(in, last, kind);
}

static int read_collection(Reader *in, uint64_t *count, int *kind) {
    Py_ssize_t start = in->pos;
    uint8_t octet;
    if (read_byte(in, &octet)) return -1;
    *count = octet >> 4;
    *kind = octet & 15;
    if (*count == 15 && read_varint(in, count)) return -1;
    if (*count > (uint64_t)(in->end - in->pos)) return broken(in, start, "a list is longer than the metadata");
    if (*count && (*kind == T_STOP || *kind > T_UUID)) return broken(in, start, "a list of unknown type");
    return 0;
}

/* The same for a list with an element for each column. */
static int read_column_list(Reader *in, uint64_t *count, int *kind) {
    Py_ssize_t start = in->pos;
    if (read_collection(in, count, kind)) return -1;
    if (*count <= MAX_COLUMNS) return 0;
    in->too_large = 1;
    return broken(in, start, "more columns than are read here");
}

static inline int is_integer(int kind) { return kind == T_I16 || kind == T_I32 || kind == T_I64; }
static inline int is_boolean(int kind) { return kind == T_TRUE || kind == T_FALSE; }

static inline int leap(Reader *in, Py_ssize_t length) {
    if (length > in->end - in->pos) return broken(in, in->pos, "the metadata ends inside a structure");
    in->pos += length;
    return 0;
}

static int skip_element(Reader *in, int kind, int depth);

static inline int skip_field(Reader *in, int kind, int depth) {
    return is_boolean(kind) ? 0 : skip_element(in, kind, depth);
}

static int skip_list(Reader *in, int depth) {
    uint64_t count, number;
    int element;
    if (read_collection(in, &count, &element)) return -1;
    if (is_integer(element) && depth < MAX_DEPTH) {
        for (uint64_t i = 0; i < count; i++)
            if (read_varint(in, &number)) return -1;
        return 0;
    }
    for (uint64_t i = 0; i < count; i++)
        if (skip_element(in, element, depth + 1)) return -1;
    return 0;
}

static int skip_map(Reader *in, int depth) {
    Py_ssize_t start = in->pos;
    uint64_t count;
    uint8_t kinds;
    if (read_varint(in, &count)) return -1;
    if (!count) return 0;
    if (count > (uint64_t)((in->end - in->pos) / 2)) return broken(in, start, "a map is longer than the metadata");
    if (read_byte(in, &kinds)) return -1;
    int key = kinds >> 4, value = kinds & 15;
    if (key == T_STOP || value == T_STOP || key > T_UUID || value > T_UUID)
        return broken(in, start, "a map of unknown type");
    for (uint64_t i = 0; i < count; i++)
        if (skip_element(in, key, depth + 1) || skip_element(in, value, depth + 1)) return -1;
    return 0;
}

static int skip_struct(Reader *in, int depth) {
    for (int last = 0;;) {
        int kind;
        uint64_t number;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) return 0;
        if (is_integer(kind) && depth < MAX_DEPTH) {
            if (read_varint(in, &number)) return -1;
        } else if (skip_field(in, kind, depth + 1)) {
            return -1;
        }
    }
}

static int skip_element(Reader *in, int kind, int depth) {
    uint8_t octet;
    uint64_t number;
    Span span;
    if (depth > MAX_DEPTH) return broken(in, in->pos, "structures are nested too deeply");
    switch (kind) {
    case T_TRUE:
    case T_FALSE:
    case T_I8: return read_byte(in, &octet);
    case T_I16:
    case T_I32:
    case T_I64: return read_varint(in, &number);
    case T_DOUBLE: return leap(in, 8);
    case T_UUID: return leap(in, 16);
    case T_BINARY: return read_span(in, &span);
    case T_LIST:
    case T_SET: return skip_list(in, depth);
    case T_MAP: return skip_map(in, depth);
    default: return skip_struct(in, depth);
    }
}

/* ---- what is kept ---- */

/* -2 where memory is out, as for every -2 below. Called without Python's lock: only raw memory. */
static int table_add(Table *table, const int64_t *cells, size_t count) {
    if (table->used + count > table->room) {
        size_t room = table->room ? table->room * 2 : 1024;
        while (room < table->used + count) room *= 2;
        int64_t *grown = PyMem_RawRealloc(table->cells, room * sizeof(int64_t));
        if (!grown) return -2;
        table->cells = grown;
        table->room = room;
    }
    if (count) memcpy(table->cells + table->used, cells, count * sizeof(int64_t));
    table->used += count;
    return 0;
}

static int64_t at_least(int64_t value, int64_t least) { return value < least ? least : value; }

static int64_t chunk_start(const int64_t *chunk) {
    int64_t data = chunk[C_DATA], dictionary = chunk[C_DICTIONARY];
    return 0 < dictionary && dictionary < data ? dictionary : data;
}

static void tidy(int64_t *chunk) {
    if (chunk[C_TYPE] < 0 || chunk[C_TYPE] > LARGEST_ENUM) chunk[C_TYPE] = -1;
    if (chunk[C_CODEC] < 0 || chunk[C_CODEC] > LARGEST_ENUM) chunk[C_CODEC] = -1;
    chunk[C_VALUES] = at_least(chunk[C_VALUES], -1);
    chunk[C_UNCOMPRESSED] = at_least(chunk[C_UNCOMPRESSED], -1);
    chunk[C_NULLS] = at_least(chunk[C_NULLS], -1);
}

static void keep_inside(int64_t *chunk, int64_t limit, int offset_field, int length_field) {
    int64_t offset = chunk[offset_field], length = chunk[length_field];
    if (offset < 0 || offset > limit || at_least(length, 0) > limit - offset)
        chunk[offset_field] = chunk[length_field] = -1;
    else if (length < 0)
        chunk[length_field] = -1;
}

/* ---- the parts of the metadata ---- */

static int read_encodings(Reader *in, int64_t *bits) {
    Py_ssize_t start = in->pos;
    uint64_t count;
    int kind;
    if (read_collection(in, &count, &kind)) return -1;
    if (count && !is_integer(kind)) return broken(in, start, "encodings are no numbers");
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t encoding;
        if (read_zigzag(in, &encoding)) return -1;
        if (0 <= encoding && encoding <= ENCODING_BITS) found |= (uint64_t)1 << encoding;
    }
    *bits = (int64_t)found;
    return 0;
}

/* Whether the validated path at `list` (`count` names) spells `name`, its parts joined by dots. */
static int path_is(const Reader *in, Py_ssize_t list, uint64_t count, const Name *name) {
    Reader again = *in;
    Py_ssize_t done = 0;
    again.pos = list;
    for (uint64_t part = 0; part < count; part++) {
        Span span;
        if (part) {
            if (done >= name->length || name->text[done] != '.') return 0;
            done++;
        }
        if (read_span(&again, &span)) return 0;
        Py_ssize_t length = span.end - span.start;
        if (length > name->length - done) return 0;
        if (length && memcmp(name->text + done, again.data + span.start, (size_t)length)) return 0;
        done += length;
    }
    return done == name->length;
}

/* Gives which of the names the path is in `wanted`, -1 for none. */
static int read_path(Walk *walk, int *wanted) {
    Reader *in = &walk->in;
    Py_ssize_t start = in->pos;
    uint64_t count;
    int kind;
    Span span = {0, 0};
    if (read_collection(in, &count, &kind)) return -1;
    if (count && kind != T_BINARY) return broken(in, start, "a column path is no list of names");
    Py_ssize_t list = in->pos;
    for (uint64_t i = 0; i < count; i++)
        if (read_span(in, &span)) return -1;
    *wanted = -1;
    for (int i = 0; i < walk->name_count; i++) {
        const Name *name = &walk->names[i];
        /* the last name of the path tells most of them apart */
        if (!count || !name->length || (count == 1 && span.end - span.start != name->length)) continue;
        if (path_is(in, list, count, name)) {
            *wanted = i;
            break;
        }
    }
    return 0;
}

static int read_statistics(Reader *in, int64_t *chunk, Span *found) {
    for (int last = 0;;) {
        int kind;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) return 0;
        int place = last == 1 ? 0 : last == 2 ? 1 : last == 5 ? 2 : last == 6 ? 3 : -1;
        if (place >= 0 && kind == T_BINARY) {
            if (read_span(in, &found[place])) return -1;
        } else if (last == 3 && is_integer(kind)) {
            if (read_zigzag(in, &chunk[C_NULLS])) return -1;
        } else if ((last == 7 || last == 8) && is_boolean(kind)) {
            int known = last == 7 ? MAX_KNOWN : MIN_KNOWN, exact = last == 7 ? MAX_EXACT : MIN_EXACT;
            chunk[C_FLAGS] = ((chunk[C_FLAGS] | known) & ~(int64_t)exact) | (kind == T_TRUE ? exact : 0);
        } else if (skip_field(in, kind, 5)) {
            return -1;
        }
    }
}

static int metadata_cell(int field) {
    switch (field) {
    case 1: return C_TYPE;
    case 4: return C_CODEC;
    case 5: return C_VALUES;
    case 6: return C_UNCOMPRESSED;
    case 7: return C_COMPRESSED;
    case 9: return C_DATA;
    case 11: return C_DICTIONARY;
    case 14: return C_BLOOM;
    case 15: return C_BLOOM_LENGTH;
    default: return -1;
    }
}

static int read_column_metadata(Walk *walk, int64_t *chunk, Span *found, int *wanted) {
    Reader *in = &walk->in;
    *wanted = -1;
    for (int last = 0;;) {
        int kind;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) return 0;
        int cell = metadata_cell(last);
        if (cell >= 0 && is_integer(kind)) {
            if (read_zigzag(in, &chunk[cell])) return -1;
        } else if (last == 2 && kind == T_LIST) {
            if (read_encodings(in, &chunk[C_ENCODINGS])) return -1;
        } else if (last == 3 && kind == T_LIST) {
            if (read_path(walk, wanted)) return -1;
        } else if (last == 12 && kind == T_STRUCT) {
            if (read_statistics(in, chunk, found)) return -1;
        } else if (skip_field(in, kind, 4)) {
            return -1;
        }
    }
}

static int read_column(Walk *walk, int64_t *chunk, Span *found, int *wanted) {
    static const int cells[] = {C_OFFSET_INDEX, C_OFFSET_INDEX_LENGTH, C_COLUMN_INDEX, C_COLUMN_INDEX_LENGTH};
    Reader *in = &walk->in;
    for (int i = 0; i < C_FIELDS; i++) chunk[i] = -1;
    for (int i = 0; i < VALUES; i++) found[i].start = -1;
    chunk[C_FLAGS] = PRESENT;
    *wanted = -1;
    for (int last = 0;;) {
        int kind;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) return 0;
        if (last == 1 && kind == T_BINARY) {
            Span span;
            if (read_span(in, &span)) return -1;
            if (span.end > span.start) chunk[C_FLAGS] |= ELSEWHERE;
        } else if (last == 3 && kind == T_STRUCT) {
            if (read_column_metadata(walk, chunk, found, wanted)) return -1;
        } else if (last >= 4 && last <= 7 && is_integer(kind)) {
            if (read_zigzag(in, &chunk[cells[last - 4]])) return -1;
        } else {
            if (last == 8 || last == 9) chunk[C_FLAGS] |= ENCRYPTED;
            if (skip_field(in, kind, 3)) return -1;
        }
    }
}

typedef struct {
    int64_t count, total, first, end;
} Columns;

/* `row` holds one chunk for each name, `spans` the statistics of each name. */
static int read_columns(Walk *walk, int64_t *row, Span *spans, Columns *columns) {
    Reader *in = &walk->in;
    Py_ssize_t start = in->pos;
    uint64_t count;
    int kind;
    if (read_column_list(in, &count, &kind)) return -1;
    if (count && kind != T_STRUCT) return broken(in, start, "column chunks are no structures");
    columns->count = (int64_t)count;
    columns->total = 0;
    columns->first = columns->end = -1;
    for (uint64_t ordinal = 0; ordinal < count; ordinal++) {
        Py_ssize_t at = in->pos;
        int64_t chunk[C_FIELDS];
        Span found[VALUES];
        int wanted;
        if (read_column(walk, chunk, found, &wanted)) return -1;
        int64_t offset = chunk_start(chunk), size = chunk[C_COMPRESSED];
        int inside = offset >= 0 && size >= 0 && offset <= walk->limit && size <= walk->limit - offset;
        if (inside && !(chunk[C_FLAGS] & ELSEWHERE)) {
            if (columns->first < 0 || offset < columns->first) columns->first = offset;
            columns->end = at_least(columns->end, offset + size);
        }
        int64_t more = at_least(size, 0);
        columns->total = more > INT64_MAX - columns->total ? INT64_MAX : columns->total + more;
        if (wanted < 0 || row[wanted * C_FIELDS] & PRESENT) continue;
        if (!inside) return broken(in, at, "a column chunk lies outside the file");
        tidy(chunk);
        chunk[C_ORDINAL] = (int64_t)ordinal;
        keep_inside(chunk, walk->limit, C_OFFSET_INDEX, C_OFFSET_INDEX_LENGTH);
        keep_inside(chunk, walk->limit, C_COLUMN_INDEX, C_COLUMN_INDEX_LENGTH);
        keep_inside(chunk, walk->limit, C_BLOOM, C_BLOOM_LENGTH);
        memcpy(row + wanted * C_FIELDS, chunk, sizeof chunk);
        if (wanted < walk->stat_count) memcpy(spans + wanted * VALUES, found, sizeof found);
    }
    return 0;
}

static int keep_values(Walk *walk, const Span *spans) {
    for (int i = 0; i < walk->stat_count * VALUES; i++) {
        const int64_t cells[2] = {spans[i].start, spans[i].end};
        if (table_add(&walk->values, cells, 2)) return -2;
    }
    return 0;
}

static int read_row_group(Walk *walk) {
    Reader *in = &walk->in;
    Py_ssize_t start = in->pos;
    int64_t rows = -1, total = -1, compressed = -1, offset = -1;
    Columns columns = {-1, 0, -1, -1};
    int64_t row[MAX_NAMES * C_FIELDS];
    Span spans[MAX_NAMES * VALUES];
    for (int i = 0; i < walk->name_count * C_FIELDS; i++) row[i] = i % C_FIELDS == C_FLAGS ? 0 : -1;
    for (int i = 0; i < walk->stat_count * VALUES; i++) spans[i].start = -1;
    for (int last = 0;;) {
        Py_ssize_t at = in->pos;
        int kind;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) break;
        if (last == 1 && kind == T_LIST) {
            if (columns.count >= 0) return broken(in, at, "a row group lists its columns twice");
            if (read_columns(walk, row, spans, &columns)) return -1;
        } else if (last == 2 && is_integer(kind)) {
            if (read_zigzag(in, &total)) return -1;
        } else if (last == 3 && is_integer(kind)) {
            if (read_zigzag(in, &rows)) return -1;
        } else if (last == 5 && is_integer(kind)) {
            if (read_zigzag(in, &offset)) return -1;
        } else if (last == 6 && is_integer(kind)) {
            if (read_zigzag(in, &compressed)) return -1;
        } else if (skip_field(in, kind, 2)) {
            return -1;
        }
    }
    if (columns.count < 0) return broken(in, start, "a row group has no columns");
    if (rows < 0) return broken(in, start, "a row group has no row count");
    const int64_t group[RG_FIELDS] = {
        rows, at_least(total, -1), compressed < 0 ? columns.total : compressed, at_least(offset, -1),
        columns.count, columns.first, columns.end};
    if (table_add(&walk->groups, group, RG_FIELDS)) return -2;
    if (table_add(&walk->chunks, row, (size_t)walk->name_count * C_FIELDS)) return -2;
    return keep_values(walk, spans);
}

static int read_row_groups(Walk *walk) {
    Reader *in = &walk->in;
    Py_ssize_t start = in->pos;
    uint64_t count;
    int kind;
    if (read_collection(in, &count, &kind)) return -1;
    if (count && kind != T_STRUCT) return broken(in, start, "row groups are no structures");
    if (count > MAX_ROW_GROUPS) return broken(in, start, "more row groups than the format can number");
    for (uint64_t i = 0; i < count; i++) {
        int failed = read_row_group(walk);
        if (failed) return failed;
    }
    return 0;
}

/* Replaces the orders by one number for each column. */
static int read_orders(Walk *walk) {
    Reader *in = &walk->in;
    Py_ssize_t start = in->pos;
    uint64_t count;
    int kind;
    if (read_column_list(in, &count, &kind)) return -1;
    if (count && kind != T_STRUCT) return broken(in, start, "column orders are no structures");
    walk->orders.used = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t first = 0;
        for (int last = 0;;) {
            if (read_field(in, &last, &kind)) return -1;
            if (kind == T_STOP) break;
            if (skip_field(in, kind, 2)) return -1;
            if (!first) first = last < 0 || last > 255 ? 255 : last;
        }
        if (table_add(&walk->orders, &first, 1)) return -2;
    }
    return 0;
}

typedef struct {
    int64_t version, rows;
    Span created_by, schema;
    int seen_groups;
} File;

static int read_file(Walk *walk, File *file) {
    Reader *in = &walk->in;
    for (int last = 0;;) {
        Py_ssize_t at = in->pos;
        int kind, failed = 0;
        if (read_field(in, &last, &kind)) return -1;
        if (kind == T_STOP) break;
        if (last == 1 && is_integer(kind)) {
            failed = read_zigzag(in, &file->version);
        } else if (last == 2 && kind == T_LIST) {
            if (file->schema.start >= 0) return broken(in, at, "the schema is there twice");
            uint64_t count;
            int element;
            file->schema.start = in->pos;
            if (read_column_list(in, &count, &element)) return -1;
            in->pos = file->schema.start;
            failed = skip_field(in, kind, 1);
            file->schema.end = in->pos;
        } else if (last == 3 && is_integer(kind)) {
            failed = read_zigzag(in, &file->rows);
        } else if (last == 4 && kind == T_LIST) {
            if (file->seen_groups) return broken(in, at, "the row groups are there twice");
            file->seen_groups = 1;
            failed = read_row_groups(walk);
        } else if (last == 6 && kind == T_BINARY) {
            failed = read_span(in, &file->created_by);
        } else if (last == 7 && kind == T_LIST) {
            failed = read_orders(walk);
        } else {
            failed = skip_field(in, kind, 1);
        }
        if (failed) return failed;
    }
    if (file->schema.start < 0) return broken(in, in->pos, "the metadata has no schema");
    if (!file->seen_groups) return broken(in, in->pos, "the metadata has no list of row groups");
    if (file->rows < 0) return broken(in, in->pos, "the metadata has no row count");
    return 0;
}

/* ---- Python ---- */

static PyObject *table_bytes(const Table *table) {
    return PyBytes_FromStringAndSize((const char *)table->cells, (Py_ssize_t)(table->used * sizeof(int64_t)));
}

/* The bytes of a stretch of the input, None where there is none. */
static PyObject *span_bytes(const Reader *in, int64_t start, int64_t end) {
    if (start < 0) return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)in->data + start, (Py_ssize_t)(end - start));
}

static PyObject *orders_bytes(const Walk *walk) {
    PyObject *orders = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)walk->orders.used);
    for (size_t i = 0; orders && i < walk->orders.used; i++)
        PyBytes_AS_STRING(orders)[i] = (char)walk->orders.cells[i];
    return orders;
}

static PyObject *values_list(const Walk *walk) {
    size_t count = walk->values.used / 2;
    PyObject *values = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; values && i < count; i++) {
        PyObject *value = span_bytes(&walk->in, walk->values.cells[2 * i], walk->values.cells[2 * i + 1]);
        if (value)
            PyList_SET_ITEM(values, (Py_ssize_t)i, value);
        else
            Py_CLEAR(values);
    }
    return values;
}

static PyObject *result(const Walk *walk, const File *file) {
    PyObject *parts[] = {
        span_bytes(&walk->in, file->created_by.start, file->created_by.end), orders_bytes(walk),
        table_bytes(&walk->groups), table_bytes(&walk->chunks), values_list(walk)};
    PyObject *found = NULL;
    if (parts[0] && parts[1] && parts[2] && parts[3] && parts[4])
        found = Py_BuildValue("LLO(nn)OOOOn", (long long)file->version, (long long)file->rows, parts[0],
                              file->schema.start, file->schema.end, parts[1], parts[2], parts[3], parts[4],
                              walk->in.pos);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) Py_XDECREF(parts[i]);
    return found;
}

static int take_names(Walk *walk, PyObject *names) {
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (count > MAX_NAMES) {
        PyErr_SetString(PyExc_OverflowError, "more names than a walk can look for");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *text;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(names, i), &text, &walk->names[i].length)) return -1;
        walk->names[i].text = text;
    }
    walk->name_count = (int)count;
    return 0;
}

static PyObject *py_walk(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer metadata;
    PyObject *names;
    int stat_count;
    long long limit;
    if (!PyArg_ParseTuple(args, "y*O!iL", &metadata, &PyTuple_Type, &names, &stat_count, &limit)) return NULL;
    PyObject *found = NULL;
    File file = {-1, -1, {-1, -1}, {-1, -1}, 0};
    Walk *walk = PyMem_Calloc(1, sizeof *walk);
    if (!walk) {
        PyErr_NoMemory();
        goto done;
    }
    walk->in = (Reader){metadata.buf, 0, metadata.len, 0, NULL, 0};
    walk->limit = limit;
    if (take_names(walk, names)) goto done;
    if (stat_count < 0 || stat_count > walk->name_count) {
        PyErr_SetString(PyExc_OverflowError, "statistics of more columns than there are names");
        goto done;
    }
    walk->stat_count = stat_count;
    int failed;
    Py_BEGIN_ALLOW_THREADS /* the caller's bytes are held by the buffer, the names by the caller */
    failed = read_file(walk, &file);
    Py_END_ALLOW_THREADS
    if (!failed) {
        found = result(walk, &file);
    } else if (failed == -2) {
        PyErr_NoMemory();
    } else {
        PyObject *reason = walk->in.too_large
                               ? Py_BuildValue("nsO", walk->in.fault_at, walk->in.fault, Py_True)
                               : Py_BuildValue("ns", walk->in.fault_at, walk->in.fault);
        if (reason) PyErr_SetObject(PyExc_ValueError, reason);
        Py_XDECREF(reason);
    }
done:
    if (walk) {
        PyMem_RawFree(walk->groups.cells);
        PyMem_RawFree(walk->chunks.cells);
        PyMem_RawFree(walk->values.cells);
        PyMem_RawFree(walk->orders.cells);
    }
    PyMem_Free(walk);
    PyBuffer_Release(&metadata);
    return found;
}

MODULE(_footerwalk, NOTHING_FIRST,
    {"walk", py_walk, METH_VARARGS, "walk(metadata, names, stat_count, limit): see footer_walk_py.walk"})
