/* The input image: the loader of the ELF writes the test's inputs into it beforehand. */
#ifndef NPU_MEMPLAN_INPUTS_H
#define NPU_MEMPLAN_INPUTS_H

#include <stdint.h>

#define INPUTS_MAGIC 0x494D504Eu /* "NPMI" */

#ifndef INPUT_STEPS /* inferences one after another, each with inputs of its own */
#define INPUT_STEPS 1
#endif

struct input_image {
  uint32_t magic;
  uint32_t bytes; /* of data */
  uint32_t crc;   /* of data */
  uint32_t reserved;
  uint8_t data[]; /* all inputs in order, without gaps, step by step */
};

extern uint32_t npu_memplan_inputs[];

#endif
