#if defined(__ARM_ARCH) && __ARM_ARCH >= 8 && !defined(__aarch64__) && defined(__GNUC__) && defined(__ARM_FP) && \
    (__ARM_FP & 4)
#define NPU_MEMPLAN_FPV5
#endif
/* The quotient, rounded with halves away from zero, plus `zero`, within the 8 bits. */
static inline uint8_t npu_memplan_quantised(float value, float scale, int32_t zero, int32_t is_signed) {
  const float y = value / scale;
#if defined(NPU_MEMPLAN_FPV5)
  float rounded;
  int32_t made;
  __asm__("vminnm.f32 %0, %1, %2\n\tvmaxnm.f32 %0, %0, %3\n\tvcvta.s32.f32 %0, %0"
          : "=&t"(rounded)
          : "t"(y), "t"(1e9f), "t"(-1e9f));
  memcpy(&made, &rounded, 4);
  made += zero;
  if (is_signed) {
    __asm__("ssat %0, #8, %1" : "=r"(made) : "r"(made));
  } else {
    __asm__("usat %0, #8, %1" : "=r"(made) : "r"(made));
  }
  return (uint8_t)made;
#else
  const float below = y < 1e9f ? y : 1e9f; /* a number that is none counts as large */
  const int32_t made = (int32_t)roundf(below > -1e9f ? below : -1e9f) + zero;
  const int32_t least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
  return (uint8_t)(made < least ? least : made > most ? most : made);
#endif
}

/* Floats as 8-bit numbers: `inverse` of the scale decides unless it is near a half, where the quotient does. */
static void npu_memplan_kernel_quantise(const float *input, void *output, double real_scale, int32_t count,
                                        int32_t zero, int32_t is_signed) {
  const float scale = (float)real_scale;
  uint8_t *made = (uint8_t *)output;
  int32_t left = count;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
  const float inverse = 1.0f / scale;
  const int32x4_t low = vdupq_n_s32(is_signed ? -128 : 0), high = vdupq_n_s32(is_signed ? 127 : 255);
  for (; left >= 4; left -= 4, input += 4, made += 4) {
    const float32x4_t y = vmulq_n_f32(vldrwq_f32(input), inverse);
    const int32x4_t n = vcvtaq_s32_f32(y);
    /* Both are within 2^-22 of the quotient, and what is beyond 511 is out of range. */
    if (vcmpltq_n_f32(vabdq_f32(y, vcvtq_f32_s32(n)), 0.4997f) != 0xFFFF) {
      for (int32_t i = 0; i < 4; i++) made[i] = npu_memplan_quantised(input[i], scale, zero, is_signed);
    } else {
      vstrbq_s32((int8_t *)made, vminq_s32(vmaxq_s32(vqaddq_n_s32(n, zero), low), high));
    }
  }
#endif
  if (is_signed) {
    for (; left > 0; left--) *made++ = npu_memplan_quantised(*input++, scale, zero, 1);
  } else {
    for (; left > 0; left--) *made++ = npu_memplan_quantised(*input++, scale, zero, 0);
  }
}
