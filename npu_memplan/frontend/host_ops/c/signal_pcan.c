/* Automatic gain: each channel by a gain that a table gives for its noise, then shrunk; 12 bits of fraction inside, 6 out. */
static int16_t npu_memplan_signal_gain(uint32_t x, const int16_t *table) {
  int32_t interval = 0;
  if (x <= 2) return table[x];
  for (uint32_t rest = x; rest != 0; rest >>= 1) interval++;
  table += 4 * interval - 6;
  const int32_t fraction = (int32_t)((interval < 11 ? x << (11 - interval) : x >> (interval - 11)) & 0x3FF);
  int32_t value = (table[2] * fraction >> 5) + (int32_t)((uint32_t)table[1] << 5);
  value = (int32_t)((uint32_t)value * (uint32_t)fraction);
  return (int16_t)(((value + (1 << 14)) >> 15) + table[0]);
}

static void npu_memplan_signal_pcan(const uint32_t *input, const uint32_t *noise, const int16_t *table,
                                    uint32_t *output, int32_t channels, int32_t shift) {
  for (int32_t i = 0; i < channels; i++) {
    const uint32_t gain = (uint32_t)npu_memplan_signal_gain(noise[i], table);
    const uint32_t snr = (uint32_t)((uint64_t)input[i] * gain >> shift);
    output[i] = snr < 2u << 12 ? snr * snr >> 20 : (snr >> 6) - (1u << 6);
  }
}
