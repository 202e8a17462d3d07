/* A place of an 8-bit image that is resized. Each output is the sum of four inputs, two of them `right` elements after
 * the others; what these count is in `weights`: numbers with `bits` fraction bits (one at least), one in sum. Halves are
 * rounded away from zero. */
typedef struct {
  const uint8_t *top, *bottom;
  int32_t right, depth, bits, weights[4]; /* of top, bottom, top right, bottom right */
} npu_memplan_place;

/* The outputs from number `k` on. */
static inline void npu_memplan_mix(const npu_memplan_place *place, uint8_t *output, int32_t k, int32_t is_signed) {
  const uint8_t *a = place->top + k, *b = place->bottom + k;
  const uint8_t *c = a + place->right, *d = b + place->right;
  const int32_t wa = place->weights[0], wb = place->weights[1], wc = place->weights[2], wd = place->weights[3];
  const int32_t bits = place->bits, half = 1 << (bits - 1);
  int32_t left = place->depth - k;
  output += k;
#if defined(__ARM_FEATURE_MVE)
  for (; is_signed && left > 3; left -= 4, a += 4, b += 4, c += 4, d += 4, output += 4) {
    int32x4_t sum = vmulq_n_s32(vldrbq_s32((const int8_t *)a), wa);
    sum = vmlaq_n_s32(sum, vldrbq_s32((const int8_t *)b), wb);
    sum = vmlaq_n_s32(sum, vldrbq_s32((const int8_t *)c), wc);
    sum = vmlaq_n_s32(sum, vldrbq_s32((const int8_t *)d), wd);
    sum = vaddq_s32(sum, vshrq_n_s32(sum, 31));
    vstrbq_s32((int8_t *)output, vrshlq_s32(sum, vdupq_n_s32(-bits)));
  }
#endif
  for (; left > 0; left--) {
    if (is_signed) {
      const int8_t *const x = (const int8_t *)a++, *const y = (const int8_t *)b++;
      const int8_t *const z = (const int8_t *)c++, *const v = (const int8_t *)d++;
      const int32_t sum = *x * wa + *y * wb + *z * wc + *v * wd;
      *output++ = (uint8_t)((sum + half - (sum < 0)) >> bits);
    } else {
      *output++ = (uint8_t)((*a++ * wa + *b++ * wb + *c++ * wc + *d++ * wd + half) >> bits);
    }
  }
}

#if defined(__ARM_FEATURE_MVE)
/* The same where `bits` is at most 8, so that sums have 16: all outputs; returns their number. A signed byte counts 128
 * more until its sum is rounded. */
static inline int32_t npu_memplan_mix_packed(const npu_memplan_place *place, uint8_t *output, int32_t is_signed) {
  const uint8_t *a = place->top, *b = place->bottom;
  const uint8_t *c = a + place->right, *d = b + place->right;
  const uint16_t wa = (uint16_t)place->weights[0], wb = (uint16_t)place->weights[1];
  const uint16_t wc = (uint16_t)place->weights[2], wd = (uint16_t)place->weights[3];
  const int32_t bits = place->bits;
  const uint16x8_t half = vdupq_n_u16((uint16_t)((1u << (bits - 1)) - (uint32_t)is_signed));
  const uint16x8_t flip = vdupq_n_u16(is_signed ? 0x80 : 0);
  for (int32_t left = place->depth; left > 0; left -= 8, a += 8, b += 8, c += 8, d += 8, output += 8) {
    const mve_pred16_t some = vctp16q((uint32_t)left);
    uint16x8_t sum = vmulq_n_u16(veorq_u16(vldrbq_z_u16(a, some), flip), wa);
    sum = vmlaq_n_u16(sum, veorq_u16(vldrbq_z_u16(b, some), flip), wb);
    sum = vmlaq_n_u16(sum, veorq_u16(vldrbq_z_u16(c, some), flip), wc);
    sum = vmlaq_n_u16(sum, veorq_u16(vldrbq_z_u16(d, some), flip), wd);
    if (is_signed) sum = vaddq_u16(sum, vshlq_r_u16(sum, -7 - bits));
    vstrbq_p_u16(output, veorq_u16(vshlq_r_u16(vaddq_u16(sum, half), -bits), flip), some);
  }
  return place->depth;
}
#else
#if defined(NPU_MEMPLAN_DSP)
static inline uint32_t npu_memplan_even_bytes(uint32_t four) {
  uint32_t pair;
  __asm__("uxtb16 %0, %1" : "=r"(pair) : "r"(four));
  return pair;
}
static inline uint32_t npu_memplan_odd_bytes(uint32_t four) {
  uint32_t pair;
  __asm__("uxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(four));
  return pair;
}
#else
#define npu_memplan_even_bytes(four) ((four) & 0x00FF00FFu)
#define npu_memplan_odd_bytes(four) ((four) >> 8 & 0x00FF00FFu)
#endif
static inline uint32_t npu_memplan_four_bytes(const uint8_t *at, int32_t is_signed) {
  uint32_t four;
  memcpy(&four, at, 4);
  return is_signed ? four ^ 0x80808080u : four;
}
/* The same where `bits` is at most 8, so that sums have 16: one multiplication makes two of them. All outputs but the
 * rest of fours; returns their number. A signed byte counts 128 more until its sum is rounded. */
static inline int32_t npu_memplan_mix_packed(const npu_memplan_place *place, uint8_t *output, int32_t is_signed) {
  const uint8_t *a = place->top, *b = place->bottom;
  const uint32_t wa = (uint32_t)place->weights[0], wb = (uint32_t)place->weights[1];
  const uint32_t wc = (uint32_t)place->weights[2], wd = (uint32_t)place->weights[3];
  const int32_t right = place->right, bits = place->bits, sign = 7 + bits;
  const uint32_t half = ((1u << (bits - 1)) - (uint32_t)is_signed) * 0x10001u;
  for (int32_t fours = place->depth >> 2; fours > 0; fours--, a += 4, b += 4, output += 4) {
    uint32_t four = npu_memplan_four_bytes(a + right, is_signed);
    uint32_t even = npu_memplan_even_bytes(four) * wc, odd = npu_memplan_odd_bytes(four) * wc;
    NPU_MEMPLAN_STEP(a);
    four = npu_memplan_four_bytes(a, is_signed);
    even += npu_memplan_even_bytes(four) * wa, odd += npu_memplan_odd_bytes(four) * wa;
    four = npu_memplan_four_bytes(b + right, is_signed);
    even += npu_memplan_even_bytes(four) * wd, odd += npu_memplan_odd_bytes(four) * wd;
    NPU_MEMPLAN_STEP(b);
    four = npu_memplan_four_bytes(b, is_signed);
    even += npu_memplan_even_bytes(four) * wb, odd += npu_memplan_odd_bytes(four) * wb;
    if (is_signed) even += even >> sign & 0x10001u, odd += odd >> sign & 0x10001u;
    even = (even + half) >> bits & 0x00FF00FFu, odd = (odd + half) >> bits & 0x00FF00FFu;
    four = even | odd << 8;
    if (is_signed) four ^= 0x80808080u;
    memcpy(output, &four, 4);
  }
  return place->depth & ~3;
}
#endif

NPU_MEMPLAN_APART static void npu_memplan_mix_place(const npu_memplan_place *place, uint8_t *output,
                                                    int32_t is_signed) {
  const int32_t is_packed = place->bits <= 8;
  if (is_signed) {
    npu_memplan_mix(place, output, is_packed ? npu_memplan_mix_packed(place, output, 1) : 0, 1);
  } else {
    npu_memplan_mix(place, output, is_packed ? npu_memplan_mix_packed(place, output, 0) : 0, 0);
  }
}

/* An 8-bit image in another size. `rows` and `columns` have two places for each of the output, and what the second
 * counts with 10 fraction bits, of which `row_bits` and `column_bits` are used. */
static void npu_memplan_kernel_resize(const void *image, const int32_t *rows, const int32_t *columns, void *resized,
                                      int32_t images, int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w,
                                      int32_t depth, int32_t row_bits, int32_t column_bits, int32_t is_signed) {
  const uint8_t *input = (const uint8_t *)image;
  uint8_t *output = (uint8_t *)resized;
  npu_memplan_place place;
  place.depth = depth, place.bits = row_bits + column_bits;
  for (; images > 0; images--, input += in_h * in_w * depth) {
    const int32_t *row = rows;
    for (int32_t y = 0; y < out_h; y++, row += 3) {
      const uint8_t *const top = input + row[0] * in_w * depth, *const bottom = input + row[1] * in_w * depth;
      const int32_t down = row[2] >> (10 - row_bits), up = (1 << row_bits) - down;
      const int32_t *column = columns;
      for (int32_t x = 0; x < out_w; x++, output += depth, column += 3) {
        const int32_t left = column[0] * depth;
        const int32_t after = column[2] >> (10 - column_bits), before = (1 << column_bits) - after;
        place.top = top + left, place.bottom = bottom + left, place.right = column[1] * depth - left;
        place.weights[0] = up * before, place.weights[1] = down * before;
        place.weights[2] = up * after, place.weights[3] = down * after;
        if (depth > 3) {
          npu_memplan_mix_place(&place, output, is_signed);
        } else {
          const npu_memplan_place same = place;
          npu_memplan_mix(&same, output, 0, is_signed);
        }
      }
    }
  }
}
