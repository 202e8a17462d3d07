/* CRC-32 as in zlib: reflected 0xEDB88320, start with 0, feed pieces in order. */
#ifndef NPU_MEMPLAN_CRC32_H
#define NPU_MEMPLAN_CRC32_H

#include <stdint.h>

uint32_t crc32(uint32_t crc, const uint8_t *data, uint32_t bytes);

#endif
