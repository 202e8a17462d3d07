#if defined(NPU_MEMPLAN_DSP)
/* `plus` and a byte of `four`. */
#define npu_memplan_byte(plus, four, bits)                                                  \
  __extension__({                                                                           \
    int32_t npu_memplan_sum;                                                                \
    __asm__("sxtab %0, %1, %2, ror #" #bits : "=r"(npu_memplan_sum) : "r"(plus), "r"(four)); \
    npu_memplan_sum;                                                                        \
  })
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
#elif defined(NPU_MEMPLAN_DSP)
  if (is_signed) {
    const int32_t centre = -zero;
    for (; left >= 8; left -= 8, given += 8, output += 8) {
      const int32_t first = npu_memplan_four((const int8_t *)given), then = npu_memplan_four((const int8_t *)given + 4);
      const float a = (float)npu_memplan_byte(centre, first, 0), b = (float)npu_memplan_byte(centre, first, 8);
      const float c = (float)npu_memplan_byte(centre, first, 16), d = (float)npu_memplan_byte(centre, first, 24);
      output[0] = a * scale, output[1] = b * scale, output[2] = c * scale, output[3] = d * scale;
      const float e = (float)npu_memplan_byte(centre, then, 0), f = (float)npu_memplan_byte(centre, then, 8);
      const float g = (float)npu_memplan_byte(centre, then, 16), h = (float)npu_memplan_byte(centre, then, 24);
      output[4] = e * scale, output[5] = f * scale, output[6] = g * scale, output[7] = h * scale;
    }
  }
#endif
  if (is_signed) {
    for (; left > 0; left--) *output++ = (float)((int8_t)*given++ - zero) * scale;
  } else {
    for (; left > 0; left--) *output++ = (float)(*given++ - zero) * scale;
  }
}
