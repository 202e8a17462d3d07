/* The planned pools, in their order, for main.c. The sizes are the model's; the checks are for arrays of other sizes. */
#define POOL(name) __attribute__((aligned(32), section(".bss.npu_memplan." #name)))
static POOL(sram) uint8_t pool_sram[MODEL(SRAM_BYTES) > 0 ? MODEL(SRAM_BYTES) : 1];
MODEL(SRAM_CHECK)(pool_sram);

static uint8_t *const pools[] = {pool_sram};
static_assert(MODEL(POOL_COUNT) == sizeof pools / sizeof *pools, "another pool: give it an array that the NPU reaches");
