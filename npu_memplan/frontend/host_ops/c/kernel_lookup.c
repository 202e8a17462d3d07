/* The entries of a table for 8-bit numbers, the first for the least of them. */
static void npu_memplan_kernel_lookup(const void *input, const void *table, void *output, int32_t count,
                                      int32_t is_signed) {
  const uint8_t *given = (const uint8_t *)input, *const entries = (const uint8_t *)table;
  uint8_t *made = (uint8_t *)output;
  int32_t left = count;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  const uint8x16_t flip = vdupq_n_u8(is_signed ? 0x80 : 0);
  for (; left >= 16; left -= 16, given += 16, made += 16) {
    vstrbq_u8(made, vldrbq_gather_offset_u8(entries, veorq_u8(vldrbq_u8(given), flip)));
  }
#endif
  if (is_signed) {
    const uint8_t *const zero = entries + 128;
    for (; left >= 4; left -= 4, given += 4, made += 4) {
      const uint8_t a = zero[(int8_t)given[0]], b = zero[(int8_t)given[1]];
      const uint8_t c = zero[(int8_t)given[2]], d = zero[(int8_t)given[3]];
      made[0] = a, made[1] = b, made[2] = c, made[3] = d;
    }
    for (; left > 0; left--) *made++ = zero[(int8_t)*given++];
  } else {
    for (; left >= 4; left -= 4, given += 4, made += 4) {
      const uint8_t a = entries[given[0]], b = entries[given[1]], c = entries[given[2]], d = entries[given[3]];
      made[0] = a, made[1] = b, made[2] = c, made[3] = d;
    }
    for (; left > 0; left--) *made++ = entries[*given++];
  }
}
