/* Natural logarithms of shifted numbers, scaled, by a table of log2's distance from a straight line. */
static uint32_t npu_memplan_signal_logarithm(uint32_t x, uint32_t scale, const uint16_t *table) {
  uint32_t whole = 0;
  for (uint32_t rest = x; rest > 1; rest >>= 1) whole++;
  int32_t fraction = (int32_t)(x - (1u << whole));
  fraction = whole < 16 ? (int32_t)((uint32_t)fraction << (16 - whole)) : fraction >> (whole - 16);
  const int32_t segment = fraction >> 9;
  const int32_t within = (table[segment + 1] - table[segment]) * (fraction - 512 * segment) >> 16;
  const uint32_t log2 = (whole << 16) + (uint32_t)(fraction + table[segment] + within);
  const uint32_t natural = (uint32_t)(((uint64_t)45426 * log2 + 32768) >> 16);
  return (scale * natural + 32768) >> 16;
}

static void npu_memplan_signal_log(const uint32_t *input, const uint16_t *table, int16_t *output, int32_t channels,
                                   int32_t scale, int32_t shift) {
  for (int32_t i = 0; i < channels; i++) {
    const uint32_t value = input[i] << shift;
    const uint32_t log = value > 1 ? npu_memplan_signal_logarithm(value, (uint32_t)scale, table) : 0u;
    output[i] = (int16_t)(log < 32767u ? log : 32767u);
  }
}
