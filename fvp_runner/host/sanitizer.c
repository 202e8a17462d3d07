/* What the compiler's sanitizers call, in place of their own libraries.
 *
 * Invariant: the first access that the running step may not make, and the first undefined operation, end the run, before
 * they happen. Every byte of a pool has flags of its own; the runner sets them for each step. Reads and writes elsewhere
 * are right in constants that the program registers, and on the stack.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { READABLE = 1, WRITABLE = 2, WRITTEN = 4 };
enum { OUTSIDE = 1, UNWRITTEN = 2, UNDEFINED = 3 };

#define POOLS 16
#define TABLES 64 /* one a source file */
#define TAKEN_IN 4096
#define STACK_BYTES ((uintptr_t)8 << 20)

typedef struct {
  uintptr_t base, size;
  uint8_t *flags; /* one a byte */
} pool_t;

typedef struct {
  int32_t kind, step, is_write, line;
  uint64_t address, size;
  const char *text; /* of undefined operations: what it is; of constants: the name of the one before the address */
  const char *file;
} finding_t;

typedef struct {
  uintptr_t address, size, with_gap;
  const char *name, *module;
  uintptr_t dynamic;
  const void *location;
  uintptr_t indicator;
} constant_t;

typedef int32_t (*step_t)(uint8_t *const pools[]);

static pool_t pools[POOLS];
static int pool_count;
static struct {
  const constant_t *constants;
  size_t count;
} tables[TABLES];
static int table_count;
static constant_t taken_in[TAKEN_IN];
static size_t taken_in_count;
static const constant_t **sorted; /* the constants of all tables, by address */
static size_t sorted_count;
static const constant_t *last_constant;
static jmp_buf way_out;
static uintptr_t stack_top;
static uintptr_t arguments; /* the array of pools that steps are given */
static int foreign; /* C of others, which may have memory of its own */
static void (*enter_step)(int32_t);
static finding_t finding;

static int by_address(const void *a, const void *b) {
  const uintptr_t one = (*(const constant_t *const *)a)->address, other = (*(const constant_t *const *)b)->address;
  return (one > other) - (one < other);
}

void npu_memplan_sanitizer_begin(const pool_t *given, int32_t count, int32_t others, void (*enter)(int32_t));
void npu_memplan_sanitizer_begin(const pool_t *given, int32_t count, int32_t others, void (*enter)(int32_t)) {
  memcpy(pools, given, sizeof(pool_t) * (size_t)count);
  pool_count = count;
  foreign = others;
  enter_step = enter;
  sorted_count = 0;
  for (int i = 0; i < table_count; ++i) sorted_count += tables[i].count;
  free(sorted);
  sorted = malloc(sizeof *sorted * (sorted_count + 1));
  if (sorted == NULL) abort();
  sorted_count = 0;
  for (int i = 0; i < table_count; ++i) {
    for (size_t k = 0; k < tables[i].count; ++k) sorted[sorted_count++] = &tables[i].constants[k];
  }
  qsort(sorted, sorted_count, sizeof *sorted, by_address);
}

const finding_t *npu_memplan_sanitizer_finding(void);
const finding_t *npu_memplan_sanitizer_finding(void) { return finding.kind ? &finding : NULL; }

/* What the steps of `<name>_run` say before they begin. */
void npu_memplan_sanitizer_step(int32_t step);
void npu_memplan_sanitizer_step(int32_t step) {
  finding.step = step;
  enter_step(step);
}

/* Runs `step` (call `number` of the program, or all of it: -1) until it ends or does what it may not: then -3. */
int32_t npu_memplan_sanitizer_run(step_t step, uint8_t *const given[], int32_t number);
int32_t npu_memplan_sanitizer_run(step_t step, uint8_t *const given[], int32_t number) {
  memset(&finding, 0, sizeof finding);
  stack_top = (uintptr_t)__builtin_frame_address(0);
  arguments = (uintptr_t)given;
  if (setjmp(way_out)) return -3;
  npu_memplan_sanitizer_step(number);
  return step(given);
}

static void stop(int kind, uintptr_t address, uintptr_t size, int is_write, const char *text) {
  finding.kind = kind;
  finding.address = address;
  finding.size = size;
  finding.is_write = is_write;
  finding.text = text;
  longjmp(way_out, 1);
}

/* The last of the constants, which are in the order of their addresses, that begins at or before `address`. */
static const constant_t *constant_before(uintptr_t address) {
  size_t low = 0, high = sorted_count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (sorted[middle]->address <= address) low = middle + 1;
    else high = middle;
  }
  return low == 0 ? NULL : sorted[low - 1];
}

static void check_elsewhere(uintptr_t address, uintptr_t size, int is_write) {
  const constant_t *c = last_constant;
  if (c != NULL && !is_write && address - c->address < c->size && size <= c->address + c->size - address) return;
  if (!is_write && address - arguments < sizeof(void *) * (uintptr_t)pool_count) return;
  if (address < stack_top && stack_top - address < STACK_BYTES) return;
  c = constant_before(address);
  if (c != NULL && address - c->address >= c->with_gap) c = NULL;
  if (c != NULL && !is_write && address - c->address + size <= c->size) {
    last_constant = c;
    return;
  }
  if (foreign && c == NULL) return;
  stop(OUTSIDE, address, size, is_write, c == NULL ? "" : c->name);
}

/* Whether each of `size` flags has all of `wanted`. */
static inline int all_have(const uint8_t *flags, uintptr_t size, uint8_t wanted) {
  uint8_t common = wanted;
  for (uintptr_t i = 0; i < size; ++i) common &= flags[i];
  return common == wanted;
}

static inline void check(uintptr_t address, uintptr_t size, int is_write) {
  for (int index = 0; index < pool_count; ++index) {
    const uintptr_t offset = address - pools[index].base;
    if (offset >= pools[index].size) continue;
    if (size > pools[index].size - offset) stop(OUTSIDE, address, size, is_write, "");
    uint8_t *flags = pools[index].flags + offset;
    if (!all_have(flags, size, is_write ? WRITABLE : READABLE | WRITTEN)) {
      for (uintptr_t i = 0; i < size; ++i) {
        if (!(flags[i] & (is_write ? WRITABLE : READABLE))) stop(OUTSIDE, address + i, size, is_write, "");
        if (!is_write && !(flags[i] & WRITTEN)) stop(UNWRITTEN, address + i, size, is_write, "");
      }
    }
    if (is_write) {
      for (uintptr_t i = 0; i < size; ++i) flags[i] |= WRITTEN;
    }
    return;
  }
  check_elsewhere(address, size, is_write);
}

/* AddressSanitizer's interface for kernels: one function for each size of access. */
#define ACCESS(bytes)                                                                   \
  void __asan_load##bytes##_noabort(uintptr_t address);                                 \
  void __asan_load##bytes##_noabort(uintptr_t address) { check(address, bytes, 0); }    \
  void __asan_store##bytes##_noabort(uintptr_t address);                                \
  void __asan_store##bytes##_noabort(uintptr_t address) { check(address, bytes, 1); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __asan_loadN_noabort(uintptr_t address, uintptr_t size);
void __asan_loadN_noabort(uintptr_t address, uintptr_t size) { check(address, size, 0); }
void __asan_storeN_noabort(uintptr_t address, uintptr_t size);
void __asan_storeN_noabort(uintptr_t address, uintptr_t size) { check(address, size, 1); }
void __asan_handle_no_return(void);
void __asan_handle_no_return(void) {}
void __asan_register_globals(const constant_t *table, size_t count);
void __asan_register_globals(const constant_t *table, size_t count) {
  if (table_count >= TABLES) return;
  tables[table_count].constants = table;
  tables[table_count++].count = count;
}
/* A constant that the assembler took in from a file. */
void npu_memplan_sanitizer_constant(uintptr_t address, uintptr_t size, const char *name);
void npu_memplan_sanitizer_constant(uintptr_t address, uintptr_t size, const char *name) {
  if (taken_in_count == 0) __asan_register_globals(taken_in, 0);
  if (taken_in_count >= TAKEN_IN) return;
  const constant_t made = {address, size, size, name, "", 0, NULL, 0};
  taken_in[taken_in_count++] = made;
  for (int i = 0; i < table_count; ++i) {
    if (tables[i].constants == taken_in) tables[i].count = taken_in_count;
  }
}
void __asan_unregister_globals(const constant_t *table, size_t count);
void __asan_unregister_globals(const constant_t *table, size_t count) {
  (void)table;
  (void)count;
}

/* In place of the C library's, which is not instrumented. */
void *npu_memplan_checked_memcpy(void *target, const void *source, size_t size);
void *npu_memplan_checked_memcpy(void *target, const void *source, size_t size) {
  if (size) check((uintptr_t)source, size, 0), check((uintptr_t)target, size, 1);
  return memcpy(target, source, size);
}
void *npu_memplan_checked_memmove(void *target, const void *source, size_t size);
void *npu_memplan_checked_memmove(void *target, const void *source, size_t size) {
  if (size) check((uintptr_t)source, size, 0), check((uintptr_t)target, size, 1);
  return memmove(target, source, size);
}
void *npu_memplan_checked_memset(void *target, int value, size_t size);
void *npu_memplan_checked_memset(void *target, int value, size_t size) {
  if (size) check((uintptr_t)target, size, 1);
  return memset(target, value, size);
}

/* UndefinedBehaviorSanitizer's: their argument begins with the place in the source. */
typedef struct {
  const char *file;
  uint32_t line, column;
} place_t;

static void undefined(const place_t *place, const char *text) {
  finding.file = place->file;
  finding.line = (int32_t)place->line;
  stop(UNDEFINED, 0, 0, 0, text);
}

#define UNDEFINED_OPERATION(name, text)                \
  void __ubsan_handle_##name(const place_t *place);    \
  void __ubsan_handle_##name(const place_t *place) { undefined(place, text); }
UNDEFINED_OPERATION(add_overflow, "a signed sum overflows")
UNDEFINED_OPERATION(sub_overflow, "a signed difference overflows")
UNDEFINED_OPERATION(mul_overflow, "a signed product overflows")
UNDEFINED_OPERATION(negate_overflow, "a signed negation overflows")
UNDEFINED_OPERATION(divrem_overflow, "a division is by zero or overflows")
UNDEFINED_OPERATION(shift_out_of_bounds, "a shift is negative, too far, or of a negative number")
UNDEFINED_OPERATION(out_of_bounds, "an index is outside of its array")
UNDEFINED_OPERATION(type_mismatch_v1, "a pointer is null, misaligned or to too small an object")
UNDEFINED_OPERATION(pointer_overflow, "a pointer overflows")
UNDEFINED_OPERATION(float_cast_overflow, "a floating-point number is out of the range of its integer type")
UNDEFINED_OPERATION(load_invalid_value, "a bool has a value other than 0 and 1")
UNDEFINED_OPERATION(builtin_unreachable, "code that cannot be reached is reached")
UNDEFINED_OPERATION(missing_return, "a function ends without its result")
UNDEFINED_OPERATION(vla_bound_not_positive, "an array has no elements")
UNDEFINED_OPERATION(nonnull_arg, "a null pointer is passed where none may be")
UNDEFINED_OPERATION(nonnull_return_v1, "a null pointer is returned where none may be")
UNDEFINED_OPERATION(invalid_builtin, "a function of the compiler has no result for 0")
UNDEFINED_OPERATION(alignment_assumption, "an assumed alignment does not hold")
UNDEFINED_OPERATION(function_type_mismatch, "a function is called as one of another type")
