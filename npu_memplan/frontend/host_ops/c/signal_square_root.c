/* Rounded integer square roots, shifted down. The reference takes another path for numbers of 32 bits. */
static uint32_t npu_memplan_signal_root(uint64_t number) {
  const uint64_t most = number >> 32 == 0 ? 0xFFFFu : 0xFFFFFFFFu;
  uint64_t bit = number >> 32 == 0 ? (uint64_t)1 << 30 : (uint64_t)1 << 62, root = 0;
  while (bit > number) bit >>= 2;
  for (; bit != 0; bit >>= 2) {
    if (number >= root + bit) {
      number -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  if (number > root && root != most) root++;
  return (uint32_t)root;
}

static void npu_memplan_signal_square_root(const uint64_t *input, const int32_t *bits, uint32_t *output, int32_t size) {
  for (int32_t i = 0; i < size; i++) {
    /* the 32-bit path results in a uint16 */
    const uint32_t root = npu_memplan_signal_root(input[i]);
    output[i] = (input[i] >> 32 == 0 ? (uint32_t)(uint16_t)root : root) >> bits[0];
  }
}
