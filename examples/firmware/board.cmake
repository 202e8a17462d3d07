# Corstone-300: where this board has what. -D on CMake's command line goes before it.
set(NPU_CONSTANTS SRAM CACHE STRING "Memory of weights and streams: one that the NPU reads (SRAM, ISRAM, DDR)")
set(NPU_POOLS ISRAM CACHE STRING "Memory of the planned pools: one that CPU and NPU read and write (ISRAM, SRAM, DDR)")
set(BOARD_STACK_BYTES 0x8000)
