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
#endif
  if (is_signed) {
    for (; left > 0; left--) *output++ = (float)((int8_t)*given++ - zero) * scale;
  } else {
    for (; left > 0; left--) *output++ = (float)(*given++ - zero) * scale;
  }
}
