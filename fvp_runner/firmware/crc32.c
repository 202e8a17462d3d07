#include "crc32.h"

static uint32_t table[256];

uint32_t crc32(uint32_t crc, const uint8_t *data, uint32_t bytes) {
  if (table[1] == 0) {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; bit++) value = value & 1u ? value >> 1 ^ 0xEDB88320u : value >> 1;
      table[i] = value;
    }
  }
  crc = ~crc;
  while (bytes-- > 0) crc = table[(crc ^ *data++) & 0xFFu] ^ crc >> 8;
  return ~crc;
}
