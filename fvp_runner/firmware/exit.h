/* How a run ends: its exit code as text, then both marks that simulators stop at. No semihosting. */
#ifndef NPU_MEMPLAN_EXIT_H
#define NPU_MEMPLAN_EXIT_H

#include <stdint.h>

_Noreturn void firmware_exit(uint32_t code);

#endif
