#if defined(NPU_MEMPLAN_DSP) && defined(__ARM_FP) && (__ARM_FP & 4)
#define NPU_MEMPLAN_EIGHT
/* Eight bytes, each plus `centre`, as floats times `scale`: two at a time go to the registers of floats, one instruction
 * stores them all. `add` is the instruction that adds a byte. */
#define NPU_MEMPLAN_FLOAT(at) "vcvt.f32.s32 " at ", " at "\n\tvmul.f32 " at ", " at ", %[scale]\n\t"
#define NPU_MEMPLAN_PAIR(add, four, one, two, first, second)                                  \
  add " %[x], %[centre], " four ", ror #" first "\n\t" add " %[y], %[centre], " four ", ror #" second \
  "\n\tvmov " one ", " two ", %[x], %[y]\n\t" NPU_MEMPLAN_FLOAT(one) NPU_MEMPLAN_FLOAT(two)
#define NPU_MEMPLAN_FOUR(add, four, a, b, c, d) \
  NPU_MEMPLAN_PAIR(add, four, a, b, "0", "8") NPU_MEMPLAN_PAIR(add, four, c, d, "16", "24")
#define NPU_MEMPLAN_DEQUANTISE_EIGHT(add)                                                          \
  do {                                                                                             \
    const int32_t low = npu_memplan_four((const int8_t *)given);                                   \
    const int32_t high = npu_memplan_four((const int8_t *)given + 4);                              \
    int32_t x, y;                                                                                  \
    __asm__ volatile(NPU_MEMPLAN_FOUR(add, "%[low]", "s0", "s1", "s2", "s3")                       \
                         NPU_MEMPLAN_FOUR(add, "%[high]", "s4", "s5", "s6", "s7") "vstmia %[output]!, {s0-s7}" \
                     : [x] "=&r"(x), [y] "=&r"(y), [output] "+&r"(output)                          \
                     : [low] "r"(low), [high] "r"(high), [centre] "r"(centre), [scale] "t"(scale)  \
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "memory");                  \
  } while (0)
#endif
/* 8-bit numbers as floats. */
static void npu_memplan_kernel_dequantise(const void *input, float *output, double real_scale, int32_t count,
                                          int32_t zero, int32_t is_signed) {
  const float scale = (float)real_scale;
  const uint8_t *given = (const uint8_t *)input;
  int32_t left = count;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
  if (is_signed) {
    for (int32_t fours = left >> 2; fours > 0; fours--, given += 4, output += 4) {
      const int32x4_t x = vsubq_n_s32(vldrbq_s32((const int8_t *)given), zero);
      vstrwq_f32(output, vmulq_n_f32(vcvtq_f32_s32(x), scale));
    }
  } else {
    for (int32_t fours = left >> 2; fours > 0; fours--, given += 4, output += 4) {
      const int32x4_t x = vsubq_n_s32(vreinterpretq_s32_u32(vldrbq_u32(given)), zero);
      vstrwq_f32(output, vmulq_n_f32(vcvtq_f32_s32(x), scale));
    }
  }
  left &= 3;
#elif defined(NPU_MEMPLAN_EIGHT)
  const int32_t centre = -zero;
  if (is_signed) {
    for (; left >= 8; left -= 8, given += 8) NPU_MEMPLAN_DEQUANTISE_EIGHT("sxtab");
  } else {
    for (; left >= 8; left -= 8, given += 8) NPU_MEMPLAN_DEQUANTISE_EIGHT("uxtab");
  }
#endif
  if (is_signed) {
    for (; left > 0; left--) *output++ = (float)((int8_t)*given++ - zero) * scale;
  } else {
    for (; left > 0; left--) *output++ = (float)(*given++ - zero) * scale;
  }
}
