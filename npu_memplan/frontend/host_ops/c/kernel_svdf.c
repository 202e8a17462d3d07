/* How int32 sums become other numbers: rounded twice, as TFLite's reference does, and limited. */
typedef struct {
  int32_t multiplier, shift, left, low, high;
} npu_memplan_rescale;

static inline void npu_memplan_rescale_four(int32_t *total, const npu_memplan_rescale *scale) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  const int32x4_t shift = vdupq_n_s32(-scale->shift);
  int32x4_t value = vshlq_s32(vldrwq_s32(total), vdupq_n_s32(scale->left));
  value = vqrdmulhq_n_s32(value, scale->multiplier);
  value = vqaddq_s32(value, vshrq_n_s32(vandq_s32(value, shift), 31)); /* halves away from zero */
  value = vrshlq_s32(value, shift);
  vstrwq_s32(total, vminq_s32(vmaxq_s32(value, vdupq_n_s32(scale->low)), vdupq_n_s32(scale->high)));
#else
  const int32_t mask = (int32_t)((1u << scale->shift) - 1u);
  for (int32_t i = 0; i < 4; i++) {
    const int32_t given = (int32_t)((uint32_t)total[i] << scale->left);
    const int32_t high = (int32_t)(((int64_t)given * scale->multiplier + (1 << 30)) >> 31);
    const int32_t value = (high >> scale->shift) + ((high & mask) > (mask >> 1) + (high < 0));
    total[i] = value < scale->low ? scale->low : value > scale->high ? scale->high : value;
  }
#endif
}

/* `total` and the products of `count` halfwords. */
static inline int32_t npu_memplan_dot_halves(int32_t total, const int16_t *a, const int16_t *b, int32_t count) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  for (int32_t left = count; left > 0; left -= 8, a += 8, b += 8) {
    const mve_pred16_t some = vctp16q((uint32_t)left);
    total = vmladavaq_s16(total, vldrhq_z_s16(a, some), vldrhq_z_s16(b, some));
  }
  return total;
#else
  uint32_t sum = (uint32_t)total;
  for (int32_t m = 0; m < count; m++) sum += (uint32_t)(a[m] * b[m]);
  return (int32_t)sum;
#endif
}
/* The same of bytes, from each of which of `state` `zero` is subtracted. */
static inline int32_t npu_memplan_dot_bytes(int32_t total, const int8_t *state, const int8_t *weights, int32_t count,
                                            int32_t zero) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  int32_t sum = 0; /* of the weights */
  for (int32_t left = count; left > 0; left -= 16, state += 16, weights += 16) {
    const mve_pred16_t some = vctp8q((uint32_t)left);
    const int8x16_t given = vldrbq_z_s8(weights, some);
    total = vmladavaq_s8(total, given, vldrbq_z_s8(state, some));
    sum = vaddvaq_s8(sum, given);
  }
  return (int32_t)((uint32_t)total - (uint32_t)(zero * sum));
#else
  int32_t left = count;
#if defined(NPU_MEMPLAN_DSP)
  const int32_t centre = (int32_t)(((uint32_t)-zero & 0xFFFFu) * 0x10001u);
  for (; left >= 4; left -= 4, state += 4, weights += 4) {
    const int32_t four = npu_memplan_four(state);
    const int32_t even = npu_memplan_even(centre, four), odd = npu_memplan_odd(centre, four);
    total = npu_memplan_products(total, even, odd, npu_memplan_four(weights));
  }
#endif
  uint32_t sum = (uint32_t)total;
  for (; left > 0; left--) sum += (uint32_t)((*state++ - zero) * *weights++);
  return (int32_t)sum;
#endif
}

/* `at` holds what was `step` bytes behind it. */
static inline void npu_memplan_move_down(uint8_t *at, int32_t step, int32_t bytes) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  for (; bytes > 0; bytes -= 16, at += 16) {
    const mve_pred16_t some = vctp8q((uint32_t)bytes);
    vstrbq_p_u8(at, vldrbq_z_u8(at + step, some), some);
  }
#else
  for (; bytes >= 4; bytes -= 4, at += 4) {
    uint32_t four;
    memcpy(&four, at + step, 4);
    memcpy(at, &four, 4);
  }
  for (; bytes > 0; bytes--, at++) *at = at[step];
#endif
}

/* The last `memory` activations of each filter, and the units that are made of `rank` filters each; the state is int16
 * without a zero point if it is `wide`, else int8, and so are the time weights. */
static void npu_memplan_kernel_svdf(const int8_t *input, const int8_t *features, const void *times,
                                    const int32_t *bias, void *state, int8_t *output, int32_t batches, int32_t depth,
                                    int32_t filters, int32_t memory, int32_t units, int32_t wide, int32_t in_zero,
                                    int32_t zero, int32_t out_zero, int32_t multiplier, int32_t shift, int32_t left,
                                    int32_t out_multiplier, int32_t out_shift, int32_t out_left) {
  const npu_memplan_part part = {1, 0, 0, depth, in_zero};
  const int32_t step = wide ? 2 : 1, most = wide ? 32767 : 127;
  const int32_t each = filters / units * memory; /* activations of a unit, whose filters are neighbours */
  const npu_memplan_rescale scale = {multiplier, shift, left, -most - 1, most};
  const npu_memplan_rescale out_scale = {out_multiplier, out_shift, out_left, -128 - out_zero, 127 - out_zero};
  int32_t at = memory - 1, total[4];
  npu_memplan_move_down((uint8_t *)state, step, (batches * filters * memory - 1) * step);
  for (int32_t b = 0; b < batches; b++, input += depth) {
    const int8_t *kernel = features;
    for (int32_t f = 0; f < filters; f += 4, kernel += 4 * depth) {
      const int32_t count = filters - f < 4 ? filters - f : 4;
      for (int32_t i = 0; i < 4; i++) total[i] = 0;
      if (count == 4) {
        npu_memplan_dot_four(total, input, kernel, depth, &part);
      } else {
        for (int32_t i = 0; i < count; i++) total[i] = npu_memplan_dot(0, input, kernel + i * depth, &part);
      }
      npu_memplan_rescale_four(total, &scale);
      for (int32_t i = 0; i < count; i++, at += memory) {
        if (wide) {
          ((int16_t *)state)[at] = (int16_t)total[i];
        } else {
          ((int8_t *)state)[at] = (int8_t)(total[i] + zero);
        }
      }
    }
  }
  at = 0;
  for (int32_t b = 0; b < batches; b++) {
    for (int32_t u = 0, time = 0; u < units; u += 4) {
      const int32_t count = units - u < 4 ? units - u : 4;
      for (int32_t i = 0; i < 4; i++) total[i] = 0;
      for (int32_t i = 0; i < count; i++, at += each, time += each) {
        const int32_t start = bias ? bias[u + i] : 0;
        if (wide) {
          total[i] = npu_memplan_dot_halves(start, (const int16_t *)state + at, (const int16_t *)times + time, each);
        } else {
          total[i] = npu_memplan_dot_bytes(start, (const int8_t *)state + at, (const int8_t *)times + time, each, zero);
        }
      }
      npu_memplan_rescale_four(total, &out_scale);
      for (int32_t i = 0; i < count; i++) *output++ = (int8_t)(total[i] + out_zero);
    }
  }
}
