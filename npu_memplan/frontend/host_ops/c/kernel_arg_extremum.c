/* The place of the first largest of `depth` bytes, each of which counts as itself XOR `flip`. */
static int32_t npu_memplan_first_largest(const uint8_t *given, int32_t depth, uint32_t flip) {
#if defined(__ARM_FEATURE_MVE)
  const uint8x16_t flips = vdupq_n_u8((uint8_t)flip);
  const mve_pred16_t rest = vctp8q((uint32_t)depth & 15u);
  const uint8_t *at = given;
  uint8x16_t lanes = vdupq_n_u8(0);
  for (int32_t blocks = depth >> 4; blocks > 0; blocks--, at += 16) {
    NPU_MEMPLAN_STEP(at);
    lanes = vmaxq_u8(lanes, veorq_u8(vldrbq_u8(at), flips));
  }
  lanes = vmaxq_m_u8(lanes, lanes, veorq_u8(vldrbq_z_u8(at, rest), flips), rest);
  const uint8_t wanted = (uint8_t)(vmaxvq_u8(0, lanes) ^ flip);
  at = given;
  for (int32_t blocks = depth >> 4; blocks > 0; blocks--, at += 16) {
    NPU_MEMPLAN_STEP(at);
    const mve_pred16_t equal = vcmpeqq_n_u8(vldrbq_u8(at), wanted);
    if (equal != 0) return (int32_t)(at - given) + __builtin_ctz(equal);
  }
  return (int32_t)(at - given) + __builtin_ctz(vcmpeqq_m_n_u8(vldrbq_z_u8(at, rest), wanted, rest));
#elif defined(NPU_MEMPLAN_DSP)
  const uint32_t flips = flip * 0x01010101u;
  uint32_t lanes = 0;
  int32_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const uint32_t four = (uint32_t)npu_memplan_four((const int8_t *)given + k) ^ flips;
    uint32_t larger;
    __asm__("usub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(larger) : "r"(four), "r"(lanes) : "cc");
    lanes = larger;
  }
  uint32_t most = 0;
  for (; lanes != 0; lanes >>= 8) most = (lanes & 255u) > most ? (lanes & 255u) : most;
  for (; k < depth; k++) most = (given[k] ^ flip) > most ? (given[k] ^ flip) : most;
  const uint32_t wanted = flips ^ (most * 0x01010101u);
  for (k = 0; k + 4 <= depth; k += 4) {
    const uint32_t other = (uint32_t)npu_memplan_four((const int8_t *)given + k) ^ wanted;
    const uint32_t zeros = (other - 0x01010101u) & ~other & 0x80808080u; /* the lowest one is a byte of zero */
    if (zeros != 0) return k + (__builtin_ctz(zeros) >> 3);
  }
  while ((given[k] ^ flip) != most) k++;
  return k;
#else
  uint32_t most = given[0] ^ flip;
  int32_t where = 0;
  for (int32_t k = 1; k < depth; k++) {
    const uint32_t value = given[k] ^ flip;
    where = value > most ? k : where;
    most = value > most ? value : most;
  }
  return where;
#endif
}

/* The places of the largest or smallest bytes of rows, as int32 or int64. `flip` orders bytes as the numbers that are
 * looked for: 0 for the largest of uint8, 0x80 of int8, 0xff for the smallest of uint8, 0x7f of int8. */
static void npu_memplan_kernel_arg_extremum(const void *input, void *output, int32_t rows, int32_t depth, int32_t flip,
                                            int32_t is_wide) {
  const uint8_t *given = (const uint8_t *)input;
  if (is_wide) {
    for (int64_t *made = (int64_t *)output; rows > 0; rows--, given += depth)
      *made++ = npu_memplan_first_largest(given, depth, (uint32_t)flip);
  } else {
    for (int32_t *made = (int32_t *)output; rows > 0; rows--, given += depth)
      *made++ = npu_memplan_first_largest(given, depth, (uint32_t)flip);
  }
}
