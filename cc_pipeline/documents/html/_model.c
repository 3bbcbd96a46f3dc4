/* How likely each block of a page is content, in one pass: what it looks like in numbers, and boosted trees over them. The
   twins are features() in features.py, second_features() and scored_plainly() in model.py: the same columns in the same
   order, by whole columns there and by rows here, since small arrays cost numpy most of its time. All sums are of whole
   numbers or in the order of the twin, so that both come to the same. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>

#include "../../_module.h"

enum { PARENT, TAG, FIRST, LAST, HOLDER, KIND_OF, HINTS, ABOVE, INSIDE, DEPTH, ELEMENT_COLUMNS };
enum { ELEMENT, START, CHARS, WORDS, LINKED, LINKS, STRONG, COMMAS, ENDS, SIGNS, DIGITS, UPPERS, IMAGES, KIND, FLAGS,
       BLOCK_COLUMNS };
enum { CLOSED_FLAG = 4, TAGS = 256, MOST_NUMBERS = 32, TOP_PARTS = 4, WIDEST = 512, ABREAST = 16 };
/* What a tag is to the features. */
enum { HEADING = 1, UNIT = 2, NAMED = 4, UNNAMED = 8 };
/* What is summed over blocks. */
enum { READ, SIZE, LINKED_SIZE, CLOSED, PROSE, SUMS };
enum { NEAR = 3, ANCESTORS = 4, REACHES = 3, PLACES = 6, OWN_HINTS = 2, LOOK = 8 + OWN_HINTS, LIKENESS = 6, BESIDE = 3 };
/* Columns that the second stage has before those of the first. */
enum { SECOND = 1 + 2 * BESIDE + ANCESTORS + 1 + 1 + 1 + REACHES + 7 };

/* The numbers of features.py: by tag what it is; kinds, and bits of hints and of what an element is in. */
static uint8_t marks_of[TAGS], kinds[MOST_NUMBERS];
static uint32_t above_bits[MOST_NUMBERS], inside_bits[MOST_NUMBERS], own_hints[OWN_HINTS], beside_hints, comment_hints, furniture;
static size_t kind_count, above_count, inside_count;

/* One of model.py's NODE; a leaf has no feature (-1). */
typedef struct {
    int16_t feature, left, right;
    float value;
} Node;

/* A node as rows go through it: at most `value` is next[0], else next[1]; a leaf is next to itself. `depth` is that below it. */
typedef struct {
    float value;
    uint16_t feature, next[2], depth;
} Step;

typedef struct {
    const Node *nodes;
    const int32_t *roots;
    Py_ssize_t count, trees;
    Step *steps;
} Trees;

typedef struct {
    double sums[SUMS]; /* of what is before the block */
    double weighed, kept; /* characters by the first stage's likelihood, and those it would keep */
} Before;

typedef struct {
    double sums[SUMS], count, weighed;
} Group;

typedef struct {
    int32_t chain[ANCESTORS + 1], group, repeated, prose_before, prose_after, section, section_end;
    float likeness[LIKENESS]; /* log of characters, share of links, closed, prose, heading, log of those outside links */
    double own, value;
    float likely;
    uint8_t titled, out;
} Block;

typedef struct {
    double score, points;
    int32_t near[NEAR]; /* the unit, what is named for content and what for furniture around it; -1 for none */
    float look[LOOK];
} Element;

typedef struct {
    PyObject *text, *title;
    const int32_t *element[ELEMENT_COLUMNS], *block[BLOCK_COLUMNS];
    const uint64_t *path;
    int32_t elements, count;
    Before *before; /* one more than blocks */
    Block *blocks;
    Element *seen;
    Group *groups;
    int32_t *order, places[PLACES], opens, closes;
    double total, paragraphs;
} Page;

static double parted(double numerator, double denominator) { return numerator / (denominator > 1 ? denominator : 1); }
static double logged(double value) { return log1p(value > 0 ? value : 0); }
static double between(const Page *page, int sum, int32_t first, int32_t last) {
    return page->before[last].sums[sum] - page->before[first].sums[sum];
}

/* Whether the tables hold together: nothing below follows a number out of them. */
static int is_sound(const Page *page) {
    const int32_t *const *element = page->element, *const *block = page->block;
    const Py_ssize_t length = PyUnicode_GET_LENGTH(page->text);
    for (int32_t at = 0; at < page->elements; at++) {
        if (element[PARENT][at] >= at || element[PARENT][at] < -1 || (at > 0 && element[PARENT][at] < 0)) return 0;
        if (element[HOLDER][at] < 0 || element[HOLDER][at] > at || element[TAG][at] < 0 || element[TAG][at] >= TAGS) return 0;
        if (element[FIRST][at] < 0 || element[FIRST][at] > element[LAST][at] || element[LAST][at] > page->count) return 0;
    }
    for (int32_t at = 0; at < page->count; at++) {
        if (block[ELEMENT][at] < 0 || block[ELEMENT][at] >= page->elements) return 0;
        if (block[KIND][at] < 0 || block[KIND][at] >= TAGS || block[START][at] < 0 || block[CHARS][at] < 0) return 0;
        if ((Py_ssize_t)block[START][at] + block[CHARS][at] > length) return 0;
    }
    return 1;
}

static const Page *sorted; /* what qsort's comparisons are about; set and used while the interpreter's lock is held */

static const char *text_at(const Page *page, int32_t block) {
    return (const char *)PyUnicode_DATA(page->text) + (Py_ssize_t)page->block[START][block] * PyUnicode_KIND(page->text);
}

static int by_text(const void *one, const void *other) {
    const int32_t left = *(const int32_t *)one, right = *(const int32_t *)other, *chars = sorted->block[CHARS];
    if (chars[left] != chars[right]) return chars[left] < chars[right] ? -1 : 1;
    return memcmp(text_at(sorted, left), text_at(sorted, right), (size_t)chars[left] * PyUnicode_KIND(sorted->text));
}

static int by_path(const void *one, const void *other) {
    const int32_t *element = sorted->block[ELEMENT];
    const uint64_t left = sorted->path[element[*(const int32_t *)one]], right = sorted->path[element[*(const int32_t *)other]];
    return left < right ? -1 : left > right;
}

/* Sorts the blocks; what is the same then stands together. */
static void sort(const Page *page, int (*compare)(const void *, const void *)) {
    for (int32_t at = 0; at < page->count; at++) page->order[at] = at;
    sorted = page;
    qsort(page->order, (size_t)page->count, sizeof(int32_t), compare);
}

static void find_repeated(const Page *page) {
    sort(page, by_text);
    for (int32_t at = 0, end; at < page->count; at = end) {
        for (end = at + 1; end < page->count && by_text(&page->order[at], &page->order[end]) == 0;) end++;
        for (int32_t each = at; each < end; each++) page->blocks[page->order[each]].repeated = end - at;
    }
}

static void find_groups(const Page *page) {
    sort(page, by_path);
    for (int32_t at = 0, group = 0; at < page->count; at++) {
        if (at > 0 && by_path(&page->order[at - 1], &page->order[at]) != 0) group++;
        page->blocks[page->order[at]].group = group;
    }
    for (int32_t at = 0; at < page->count; at++) {
        Group *group = &page->groups[page->blocks[at].group];
        group->count++;
        for (int sum = 0; sum < SUMS; sum++) group->sums[sum] += between(page, sum, at, at + 1);
    }
}

/* Whether the page's title begins with the block. */
static int is_titled(const Page *page, int32_t block) {
    const int32_t chars = page->block[CHARS][block], start = page->block[START][block];
    if (chars <= 8 || chars > PyUnicode_GET_LENGTH(page->title)) return 0;
    for (int32_t at = 0; at < chars; at++) {
        if (PyUnicode_READ_CHAR(page->text, start + at) != PyUnicode_READ_CHAR(page->title, at)) return 0;
    }
    return 1;
}

static void add_up(const Page *page) {
    memset(page->before, 0, sizeof(Before));
    for (int32_t at = 0; at < page->count; at++) {
        const Block *block = &page->blocks[at];
        const double of[SUMS] = {block->value, page->block[CHARS][at], page->block[LINKED][at], block->likeness[2], block->likeness[3]};
        for (int sum = 0; sum < SUMS; sum++) page->before[at + 1].sums[sum] = page->before[at].sums[sum] + of[sum];
    }
}

/* Which blocks are prose, and which of these are in what is no content by its name. */
static void find_prose(const Page *page) {
    const int32_t *const *element = page->element, *const *given = page->block;
    int any = 0;
    for (int less = 0; less < 2 && !any; less++) {
        for (int32_t at = 0; at < page->count; at++) {
            Block *block = &page->blocks[at];
            const double chars = given[CHARS][at], linked = given[LINKED][at];
            const int heading = (marks_of[given[KIND][at]] & HEADING) != 0;
            block->own = chars - linked;
            const double share = parted(linked, chars);
            const int some = block->own >= 25, many = given[COMMAS][at] + given[ENDS][at] >= 2 && (double)given[WORDS][at] * 8 < block->own;
            const int prose = share < 0.5 && !heading && (less ? some : block->own >= 60 || (some && many));
            const float likeness[LIKENESS] = {(float)logged(chars), (float)share, (given[FLAGS][at] & CLOSED_FLAG) != 0, (float)prose, (float)heading, (float)logged(block->own)};
            memcpy(block->likeness, likeness, sizeof(likeness));
            block->value = block->own * prose;
            any |= prose;
        }
    }
    add_up(page);
    const double all = page->before[page->count].sums[READ];
    int32_t *steps = page->order;
    memset(steps, 0, sizeof(int32_t) * ((size_t)page->count + 1));
    for (int32_t at = 1; at < page->elements; at++) {
        const uint32_t hints = (uint32_t)element[HINTS][at];
        if (element[HOLDER][at] != at || !(hints & furniture)) continue;
        const double read = between(page, READ, element[FIRST][at], element[LAST][at]);
        const int spared = hints & own_hints[1] || read > 0.6 * (all > 1 ? all : 1);
        if (!(hints & comment_hints || (hints & beside_hints && !spared)) || read >= 0.9 * all) continue;
        steps[element[FIRST][at]]++;
        steps[element[LAST][at]]--;
    }
    for (int32_t at = 0, inside = 0; at < page->count; at++) {
        Block *block = &page->blocks[at];
        inside += steps[at];
        block->out = inside > 0;
        block->titled = (uint8_t)is_titled(page, at);
        if (block->out || block->titled) block->likeness[3] = 0, block->value = 0;
    }
    add_up(page);
}

static void look_at_elements(const Page *page) {
    const int32_t *const *element = page->element;
    for (int32_t at = 0; at < page->elements; at++) {
        Element *seen = &page->seen[at];
        const int32_t first = element[FIRST][at], last = element[LAST][at], tag = element[TAG][at];
        const uint32_t hints = (uint32_t)element[HINTS][at];
        const int stands = element[HOLDER][at] == at, marks = marks_of[tag];
        const int wanted[NEAR] = {marks & UNIT, stands && (marks & NAMED || hints & own_hints[1]),
                                  stands && (marks & UNNAMED || hints & furniture)};
        for (int each = 0; each < NEAR; each++)
            seen->near[each] = wanted[each] ? at : at > 0 ? page->seen[element[PARENT][at]].near[each] : -1;
        if (!stands && !wanted[0]) continue;
        const double count = last - first, size = between(page, SIZE, first, last), read = between(page, READ, first, last);
        const double look[LOOK] = {logged(size), read / page->total, parted(between(page, LINKED_SIZE, first, last), size),
                                   parted(read, size), logged(count), parted(between(page, CLOSED, first, last), count),
                                   parted(between(page, PROSE, first, last), count), tag, (hints & own_hints[0]) != 0,
                                   (hints & own_hints[1]) != 0};
        for (int each = 0; each < LOOK; each++) seen->look[each] = (float)look[each];
    }
    for (int32_t at = 0; at < page->count; at++) {
        int32_t holder = page->block[ELEMENT][at];
        for (int up = 0; up <= ANCESTORS; up++) {
            page->blocks[at].chain[up] = holder;
            holder = holder > 0 ? element[HOLDER][element[PARENT][holder]] : 0;
        }
    }
}

/* The element with most of the prose, and the inmost ones with this much of it. */
static void find_places(Page *page) {
    static const double parts[TOP_PARTS] = {1.0, 1.0, 0.5, 0.33}, shares[] = {0.5, 0.7, 0.9, 0.98};
    const int32_t *const *element = page->element;
    for (int part = 0; part < TOP_PARTS; part++) {
        for (int32_t at = 0; at < page->count; at++) {
            const Block *block = &page->blocks[at];
            const double more = block->own / 100 < 3 ? block->own / 100 : 3;
            if (block->likeness[3] != 0) page->seen[block->chain[part]].points += parts[part] * (1 + page->block[COMMAS][at] + more);
        }
        for (int32_t at = 0; at < page->elements; at++) {
            page->seen[at].score += page->seen[at].points;
            page->seen[at].points = 0;
        }
    }
    double best = -1;
    memset(page->places, 0, sizeof(page->places));
    for (int32_t at = 0; at < page->elements; at++) {
        const int32_t first = element[FIRST][at], last = element[LAST][at];
        if (page->seen[at].score > 0 || best < 0) {
            const double score = page->seen[at].score * (1 - parted(between(page, LINKED_SIZE, first, last), between(page, SIZE, first, last)));
            if (score > best) best = score, page->places[0] = at;
        }
        if (element[HOLDER][at] != at) continue;
        for (int share = 0; share < PLACES - 2; share++) {
            if (between(page, READ, first, last) >= page->total * shares[share]) page->places[2 + share] = at;
        }
    }
    const int32_t parent = element[PARENT][page->places[0]];
    page->places[1] = element[HOLDER][parent > 0 ? parent : 0];
}

/* The prose before and behind each block, and from which heading to which it lies. */
static void find_neighbours(Page *page) {
    int32_t prose = -1, heading = 0;
    page->opens = 0, page->closes = page->count - 1, page->paragraphs = 0;
    for (int32_t at = 0; at < page->count; at++) {
        Block *block = &page->blocks[at];
        if (block->likeness[3] != 0) {
            if (prose < 0) page->opens = at;
            page->closes = prose = at;
            if (page->block[KIND][at] == kinds[0]) page->paragraphs += block->value;
        }
        if (block->likeness[4] != 0) heading = at;
        block->prose_before = prose;
        block->section = heading;
    }
    page->paragraphs /= page->total;
    prose = heading = page->count;
    for (int32_t at = page->count - 1; at >= 0; at--) {
        Block *block = &page->blocks[at];
        if (block->likeness[3] != 0) prose = at;
        block->prose_after = prose;
        block->section_end = heading;
        if (block->likeness[4] != 0) heading = at;
    }
}

/* The two ends of a block's surroundings. */
static int32_t low_of(int32_t at, int32_t reach) { return at > reach ? at - reach : 0; }
static int32_t high_of(const Page *page, int32_t at, int32_t reach) {
    return at + reach + 1 < page->count ? at + reach + 1 : page->count;
}

static float *put_beside(const Page *page, float *to, int32_t at, int32_t distance) {
    const int there = at + distance >= 0 && at + distance < page->count;
    for (int each = 0; each < LIKENESS; each++) *to++ = there ? page->blocks[at + distance].likeness[each] : -1;
    return to;
}

/* Whether the block and the one before it are held by the same; all where there is none. */
static float *put_alike(const Page *page, float *to, int32_t at) {
    const int only = at == 0 || at == page->count;
    const Block *here = &page->blocks[only ? 0 : at], *before = &page->blocks[only ? 0 : at - 1];
    for (int up = 0; up < 3; up++) *to++ = here->chain[up] == before->chain[up];
    *to++ = page->path[here->chain[0]] == page->path[before->chain[0]];
    return to;
}

/* One row of the first stage; where it ends. */
static float *put_row(const Page *page, int32_t at, float *to) {
    static const int32_t reaches[REACHES] = {2, 5, 12};
    const int32_t *const *given = page->block, *const *element = page->element;
    const Block *block = &page->blocks[at];
    const int32_t inmost = block->chain[0], third = block->chain[2], count = page->count;
    const double chars = given[CHARS][at], total = page->total, all = page->before[count].sums[SIZE];
    const Group *group = &page->groups[block->group];
#define PUT(value) *to++ = (float)(value)
    PUT(block->likeness[0]);
    PUT(block->likeness[5]);
    PUT(block->likeness[1]);
    PUT(given[LINKS][at]);
    PUT(parted(given[COMMAS][at], chars));
    PUT(parted(given[ENDS][at], chars));
    PUT(given[COMMAS][at] + given[ENDS][at]);
    PUT(parted(given[DIGITS][at], chars));
    PUT(parted(given[UPPERS][at], chars));
    PUT(parted(chars, given[WORDS][at]));
    PUT(given[SIGNS][at]);
    PUT(parted(given[STRONG][at], chars));
    PUT(given[IMAGES][at]);
    PUT(given[FLAGS][at]);
    PUT(block->likeness[2]);
    PUT(block->repeated);
    PUT(block->titled);
    PUT(block->out);
    PUT(block->likeness[3]);
    for (size_t kind = 0; kind < kind_count; kind++) PUT(given[KIND][at] == kinds[kind]);
    PUT(block->likeness[4]);
    PUT(element[TAG][inmost]);
    PUT(element[DEPTH][inmost]);
    PUT((double)at / count);
    PUT(page->before[at].sums[SIZE] / all);
    PUT(page->before[at].sums[READ] / total);
    PUT(logged(at));
    PUT(logged(count - at));
    for (size_t bit = 0; bit < above_count; bit++) PUT(((uint32_t)element[ABOVE][inmost] & above_bits[bit]) != 0);
    for (size_t bit = 0; bit < inside_count; bit++) PUT(((uint32_t)element[INSIDE][inmost] & inside_bits[bit]) != 0);
    /* what holds it */
    for (int up = 0; up <= ANCESTORS; up++, to += LOOK) memcpy(to, page->seen[block->chain[up]].look, sizeof(float) * LOOK);
    PUT(at - element[FIRST][third]);
    PUT(element[LAST][third] - at);
    PUT(parted(at - element[FIRST][third], element[LAST][third] - element[FIRST][third]));
    /* the list, the table, the one that is named for content */
    for (int each = 0; each < NEAR; each++) {
        static const int of_near[] = {1, 2, 0, 4, 5};
        const int32_t near = page->seen[inmost].near[each];
        for (int look = 0; look < 5; look++) PUT(near < 0 ? -1 : page->seen[near].look[of_near[look]]);
        PUT(near < 0 ? -1 : element[DEPTH][inmost] - element[DEPTH][near]);
    }
    /* blocks of the same tags and classes */
    PUT(group->sums[READ] / total);
    for (int sum = SIZE; sum < SUMS; sum++) PUT(parted(group->sums[sum], group->count));
    PUT(logged(group->count));
    /* where it lies */
    for (int each = 0; each < PLACES; each++) {
        const int32_t begins = element[FIRST][page->places[each]], ends = element[LAST][page->places[each]];
        const int32_t off = (begins > at ? begins - at : 0) + (ends - 1 < at ? ends - 1 - at : 0);
        PUT(off == 0);
        PUT(off);
        PUT(parted(at - begins, ends - begins));
    }
    PUT(at - page->opens);
    PUT(at - page->closes);
    /* neighbours */
    for (int32_t distance = -BESIDE; distance < 0; distance++) to = put_beside(page, to, at, distance);
    to = put_alike(page, to, at);
    to = put_beside(page, to, at, 1);
    to = put_alike(page, to, at + 1);
    for (int32_t distance = 2; distance <= BESIDE; distance++) to = put_beside(page, to, at, distance);
    for (int each = 0; each < REACHES; each++) {
        const int32_t low = low_of(at, reaches[each]), high = high_of(page, at, reaches[each]);
        const double nearby = between(page, SIZE, low, high);
        PUT(parted(between(page, READ, low, high), nearby));
        PUT(parted(between(page, LINKED_SIZE, low, high), nearby));
        PUT(logged(nearby));
        PUT(parted(between(page, READ, at, high), between(page, SIZE, at, high)));
        PUT(parted(between(page, READ, low, at), between(page, SIZE, low, at)));
    }
    PUT(logged(at - block->prose_before));
    PUT(logged(block->prose_after - at));
    /* from heading to heading */
    const int32_t starts = block->section, stops = block->section_end;
    const double section = between(page, SIZE, starts, stops);
    PUT(logged(section));
    PUT(parted(between(page, LINKED_SIZE, starts, stops), section));
    PUT(parted(between(page, READ, starts, stops), section));
    PUT(given[KIND][starts]);
    PUT(logged(stops - starts));
    PUT(at - starts);
    PUT(page->blocks[starts].likeness[1]);
    PUT(between(page, READ, starts, stops) / total);
    /* the page */
    PUT(log1p(count));
    PUT(log1p(all));
    PUT(log(total));
    PUT(page->before[count].sums[LINKED_SIZE] / all);
    PUT(total / all);
    PUT(page->paragraphs);
    return to;
}

/* Characters by likelihood, over characters. */
static double mean_of(const Page *page, int32_t first, int32_t last) {
    return parted(page->before[last].weighed - page->before[first].weighed, between(page, SIZE, first, last));
}

/* What the second stage sees of the first's likelihoods, before its row. */
static void put_second(const Page *page, float *rows, size_t width) {
    static const int32_t reaches[REACHES] = {2, 5, 10};
    int32_t begins = -1, ends = page->count;
    page->before[0].weighed = page->before[0].kept = 0;
    for (int32_t at = 0; at < page->count; at++) {
        const double chars = page->block[CHARS][at], weighed = (double)page->blocks[at].likely * chars;
        const int sure = weighed > 0.5 * chars;
        page->before[at + 1].weighed = page->before[at].weighed + weighed;
        page->before[at + 1].kept = page->before[at].kept + chars * sure;
        page->groups[page->blocks[at].group].weighed += weighed;
        if (!sure) continue;
        if (begins < 0) begins = at;
        ends = at;
    }
    if (begins < 0) begins = 0;
    const double kept = page->before[page->count].kept, all = page->before[page->count].sums[SIZE];
    for (int32_t at = 0; at < page->count; at++) {
        const Block *block = &page->blocks[at];
        const Group *group = &page->groups[block->group];
        float *to = rows + (size_t)at * width;
        PUT(block->likely);
        for (int32_t distance = -BESIDE; distance <= BESIDE; distance++) {
            if (distance) PUT(at + distance >= 0 && at + distance < page->count ? page->blocks[at + distance].likely : -1);
        }
        for (int up = 0; up <= ANCESTORS; up++)
            PUT(mean_of(page, page->element[FIRST][block->chain[up]], page->element[LAST][block->chain[up]]));
        const int32_t unit = page->seen[block->chain[0]].near[0];
        PUT(unit < 0 ? -1 : mean_of(page, page->element[FIRST][unit], page->element[LAST][unit]));
        PUT(parted(group->weighed, group->sums[SIZE]));
        for (int each = 0; each < REACHES; each++) PUT(mean_of(page, low_of(at, reaches[each]), high_of(page, at, reaches[each])));
        PUT(mean_of(page, 0, at));
        PUT(mean_of(page, at + 1, page->count));
        PUT(page->before[at].kept / (kept > 1 ? kept : 1));
        PUT(parted(kept, all));
        PUT(log1p(kept));
        PUT(at - begins);
        PUT(at - ends);
    }
}

/* Makes the steps, where every way through the nodes stays among them, and ends: children lie behind their parent. */
static int fits(const Trees *trees, size_t columns) {
    if (trees->count > UINT16_MAX) return 0;
    for (Py_ssize_t at = trees->count - 1; at >= 0; at--) {
        const Node *node = trees->nodes + at;
        Step *step = trees->steps + at;
        *step = (Step){0, 0, {(uint16_t)at, (uint16_t)at}, 0};
        if (node->feature < 0) continue;
        if ((size_t)node->feature >= columns || node->left <= at || node->right <= at) return 0;
        if (node->left >= trees->count || node->right >= trees->count) return 0;
        const uint16_t left = trees->steps[node->left].depth, right = trees->steps[node->right].depth;
        const uint16_t below = left > right ? left : right;
        *step = (Step){node->value, (uint16_t)node->feature, {(uint16_t)node->left, (uint16_t)node->right}, (uint16_t)(below + 1)};
    }
    for (Py_ssize_t tree = 0; tree < trees->trees; tree++) {
        if (trees->roots[tree] < 0 || trees->roots[tree] >= trees->count) return 0;
    }
    return 1;
}

/* Gives the blocks their likelihoods by trees over rows. Some rows go down a tree abreast and without a branch: most would be
   guessed wrong. */
static void score(const Page *page, const Trees *trees, const float *rows, size_t width) {
    const Step *const steps = trees->steps;
    for (int32_t at = 0; at < page->count; at += ABREAST) {
        const int32_t some = page->count - at < ABREAST ? page->count - at : ABREAST;
        const float *row[ABREAST];
        double sums[ABREAST] = {0};
        for (int32_t lane = 0; lane < ABREAST; lane++) row[lane] = rows + (size_t)(at + (lane < some ? lane : 0)) * width;
        for (Py_ssize_t tree = 0; tree < trees->trees; tree++) {
            const int32_t root = trees->roots[tree];
            uint32_t here[ABREAST];
            for (int lane = 0; lane < ABREAST; lane++) here[lane] = (uint32_t)root;
            for (int left = steps[root].depth; left > 0; left--) {
                for (int lane = 0; lane < ABREAST; lane++) {
                    const Step *step = steps + here[lane];
                    here[lane] = step->next[!(row[lane][step->feature] <= step->value)];
                }
            }
            for (int lane = 0; lane < ABREAST; lane++) sums[lane] += trees->nodes[here[lane]].value;
        }
        for (int32_t lane = 0; lane < some; lane++) page->blocks[at + lane].likely = (float)(1 / (1 + exp(-sums[lane])));
    }
}

/* A tuple of columns as pointers to them; how long each is, -1 where they are none. */
static Py_ssize_t columns_of(PyObject *tuple, Py_ssize_t count, const int32_t **columns, Py_buffer *buffers) {
    Py_ssize_t length = -1;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
        PyErr_SetString(PyExc_TypeError, "tables are tuples of columns");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(tuple, at), &buffers[at], PyBUF_SIMPLE)) return -1;
        if (at > 0 && buffers[at].len != buffers[0].len) {
            PyErr_SetString(PyExc_ValueError, "columns differ in length");
            return -1;
        }
        columns[at] = buffers[at].buf;
        length = buffers[at].len / (Py_ssize_t)sizeof(int32_t);
    }
    return length;
}

/* likelihoods(text, elements, blocks, paths, title, nodes, roots, nodes of the second stage, its roots): for each block, by
   float32; and all rows that the second stage saw, by float32, those of the first at their end. */
static PyObject *likelihoods(PyObject *self, PyObject *arguments) {
    (void)self;
    Page page = {0};
    PyObject *elements, *blocks, *answer = NULL, *likely = NULL, *rows = NULL;
    Py_buffer of_elements[ELEMENT_COLUMNS] = {0}, of_blocks[BLOCK_COLUMNS] = {0}, paths, stages[4];
    if (!PyArg_ParseTuple(arguments, "UOOy*Uy*y*y*y*", &page.text, &elements, &blocks, &paths, &page.title, &stages[0], &stages[1],
                          &stages[2], &stages[3])) return NULL;
    const Py_ssize_t rows_of_elements = columns_of(elements, ELEMENT_COLUMNS, page.element, of_elements);
    const Py_ssize_t count = rows_of_elements < 0 ? -1 : columns_of(blocks, BLOCK_COLUMNS, page.block, of_blocks);
    Trees trees[2] = {0};
    if (count < 0) goto done;
    page.path = paths.buf;
    int sound = rows_of_elements > 0 && count > 0 && rows_of_elements < INT32_MAX && count < INT32_MAX &&
                paths.len == rows_of_elements * (Py_ssize_t)sizeof(uint64_t);
    page.elements = (int32_t)rows_of_elements;
    page.count = (int32_t)count;
    for (int stage = 0; stage < 2; stage++) {
        const Py_buffer *nodes = &stages[2 * stage], *roots = &stages[2 * stage + 1];
        trees[stage] = (Trees){nodes->buf, roots->buf, nodes->len / (Py_ssize_t)sizeof(Node), roots->len / (Py_ssize_t)sizeof(int32_t),
                               PyMem_Malloc((size_t)nodes->len / sizeof(Node) * sizeof(Step) + 1)};
    }
    if (!sound || !is_sound(&page)) {
        PyErr_SetString(PyExc_ValueError, "tables that do not fit");
        goto done;
    }
    page.before = PyMem_Calloc((size_t)count + 1, sizeof(Before));
    page.blocks = PyMem_Calloc((size_t)count, sizeof(Block));
    page.groups = PyMem_Calloc((size_t)count, sizeof(Group));
    page.order = PyMem_Calloc((size_t)count + 1, sizeof(int32_t));
    page.seen = PyMem_Calloc((size_t)page.elements, sizeof(Element));
    if (!page.before || !page.blocks || !page.groups || !page.order || !page.seen || !trees[0].steps || !trees[1].steps) {
        PyErr_NoMemory();
        goto done;
    }
    find_prose(&page);
    page.total = page.before[count].sums[READ] > 1 ? page.before[count].sums[READ] : 1;
    find_repeated(&page);
    find_groups(&page);
    look_at_elements(&page);
    find_places(&page);
    find_neighbours(&page);
    float widest[WIDEST];
    const size_t own = (size_t)(put_row(&page, 0, widest) - widest), width = SECOND + own;
    if (!fits(&trees[0], own) || !fits(&trees[1], width)) {
        PyErr_SetString(PyExc_ValueError, "trees that do not fit the rows");
        goto done;
    }
    rows = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)(width * sizeof(float)));
    likely = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(float));
    if (!rows || !likely) goto done;
    float *first = (float *)PyBytes_AS_STRING(rows), *to = (float *)PyBytes_AS_STRING(likely);
    for (int32_t at = 0; at < page.count; at++) put_row(&page, at, first + (size_t)at * width + SECOND);
    score(&page, &trees[0], first + SECOND, width);
    put_second(&page, first, width);
    score(&page, &trees[1], first, width);
    for (int32_t at = 0; at < page.count; at++) to[at] = page.blocks[at].likely;
    answer = PyTuple_Pack(2, likely, rows);
done:
    Py_XDECREF(rows);
    Py_XDECREF(likely);
    PyMem_Free(page.before);
    PyMem_Free(page.blocks);
    PyMem_Free(page.groups);
    PyMem_Free(page.order);
    PyMem_Free(page.seen);
    for (int stage = 0; stage < 2; stage++) PyMem_Free(trees[stage].steps);
    for (int at = 0; at < ELEMENT_COLUMNS; at++) PyBuffer_Release(&of_elements[at]);
    for (int at = 0; at < BLOCK_COLUMNS; at++) PyBuffer_Release(&of_blocks[at]);
    for (int at = 0; at < 4; at++) PyBuffer_Release(&stages[at]);
    PyBuffer_Release(&paths);
    return answer;
}

/* set_up(marks by tag, kinds, bits of above, of inside, own hints, hints of what is beside, of comments) */
static PyObject *set_up(PyObject *self, PyObject *arguments) {
    (void)self;
    Py_buffer marks, kind, above, inside, hints;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*II", &marks, &kind, &above, &inside, &hints, &beside_hints, &comment_hints)) return NULL;
    const int fit = marks.len <= TAGS && kind.len <= MOST_NUMBERS && above.len <= (Py_ssize_t)sizeof(above_bits) &&
                    inside.len <= (Py_ssize_t)sizeof(inside_bits) && hints.len == sizeof(own_hints);
    if (fit) {
        memcpy(marks_of, marks.buf, (size_t)marks.len);
        memcpy(kinds, kind.buf, kind_count = (size_t)kind.len);
        memcpy(above_bits, above.buf, (size_t)above.len);
        memcpy(inside_bits, inside.buf, (size_t)inside.len);
        memcpy(own_hints, hints.buf, sizeof(own_hints));
        above_count = (size_t)above.len / sizeof(uint32_t);
        inside_count = (size_t)inside.len / sizeof(uint32_t);
        furniture = beside_hints | comment_hints;
    }
    PyBuffer_Release(&marks);
    PyBuffer_Release(&kind);
    PyBuffer_Release(&above);
    PyBuffer_Release(&inside);
    PyBuffer_Release(&hints);
    if (!fit) return PyErr_Format(PyExc_ValueError, "more numbers than there is room for");
    Py_RETURN_NONE;
}

MODULE(_model, NOTHING_FIRST,
    {"likelihoods", likelihoods, METH_VARARGS, "How likely each block is content, and the numbers by which that was found."},
    {"set_up", set_up, METH_VARARGS, "Takes the numbers of tags and hints. Before all else."})
