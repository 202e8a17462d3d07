#include "inputs.h"

#include "program.h"

/* In a section of its own with contents in the file, so that a loader can put inputs there. */
__attribute__((used, aligned(16), section(".npu_memplan_inputs"))) uint32_t npu_memplan_inputs[4 + INPUT_STEPS * PROGRAM_INPUT_WORDS] = {
    0};
