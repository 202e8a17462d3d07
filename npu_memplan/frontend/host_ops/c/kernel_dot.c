/* A part of an input and of weights, which a sum is made of: `rows` of `count` elements, each `input_row` or
 * `weights_row` elements after the one before. */
typedef struct {
  int32_t rows, input_row, weights_row, count, zero;
} npu_memplan_part;

/* total[i] += sum of (input - zero) * weights over the part, for four kernels that are `stride` elements apart. */
NPU_MEMPLAN_APART static void npu_memplan_dot_four(int32_t *total, const int8_t *input, const int8_t *weights,
                                                   int32_t stride, const npu_memplan_part *part) {
  int32_t t0 = total[0], t1 = total[1], t2 = total[2], t3 = total[3];
  const int32_t count = part->count;
#if defined(NPU_MEMPLAN_DSP)
  const int32_t centre = (int32_t)(((uint32_t)-part->zero & 0xFFFFu) * 0x10001u);
  int32_t thrice = 3 * stride;
  NPU_MEMPLAN_STEP(thrice);
#else
  const int32_t zero = part->zero;
#endif
  for (int32_t rows = part->rows; rows > 0; rows--, input += part->input_row, weights += part->weights_row) {
    const int8_t *x = input, *w0 = weights, *w1 = w0 + stride, *w2 = w1 + stride, *w3 = w2 + stride;
    int32_t left = count;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
    for (int32_t eights = left >> 3; eights > 0; eights--, x += 8, w0 += 8, w1 += 8, w2 += 8, w3 += 8) {
      NPU_MEMPLAN_STEP(x);
      NPU_MEMPLAN_STEP(w0);
      NPU_MEMPLAN_STEP(w1);
      NPU_MEMPLAN_STEP(w2);
      NPU_MEMPLAN_STEP(w3);
      const int16x8_t xs = vsubq_n_s16(vldrbq_s16(x), (int16_t)zero);
      t0 = vmladavaq_s16(t0, xs, vldrbq_s16(w0));
      t1 = vmladavaq_s16(t1, xs, vldrbq_s16(w1));
      t2 = vmladavaq_s16(t2, xs, vldrbq_s16(w2));
      t3 = vmladavaq_s16(t3, xs, vldrbq_s16(w3));
    }
    left &= 7;
    if (left > 0) {
      const mve_pred16_t some = vctp16q((uint32_t)left); /* weights that are not loaded are zero */
      const int16x8_t xs = vsubq_n_s16(vldrbq_z_s16(x, some), (int16_t)zero);
      t0 = vmladavaq_s16(t0, xs, vldrbq_z_s16(w0, some));
      t1 = vmladavaq_s16(t1, xs, vldrbq_z_s16(w1, some));
      t2 = vmladavaq_s16(t2, xs, vldrbq_z_s16(w2, some));
      t3 = vmladavaq_s16(t3, xs, vldrbq_z_s16(w3, some));
    }
#elif defined(NPU_MEMPLAN_DSP)
    for (int32_t fours = left >> 2; fours > 0; fours--, x += 4, w0 += 4) {
      NPU_MEMPLAN_STEP(x);
      NPU_MEMPLAN_STEP(w0);
      const int32_t xs = npu_memplan_four(x);
      const int32_t even = npu_memplan_even(centre, xs), odd = npu_memplan_odd(centre, xs);
      t0 = npu_memplan_products(t0, even, odd, npu_memplan_four(w0));
      t1 = npu_memplan_products(t1, even, odd, npu_memplan_four(w0 + stride));
      t2 = npu_memplan_products(t2, even, odd, npu_memplan_four(w0 + 2 * stride));
      t3 = npu_memplan_products(t3, even, odd, npu_memplan_four(w0 + thrice));
    }
    w1 = w0 + stride, w2 = w1 + stride, w3 = w2 + stride;
    for (left &= 3; left > 0; left--) {
      const int32_t xs = npu_memplan_half(centre, *x++);
      t0 = npu_memplan_low(t0, xs, *w0++);
      t1 = npu_memplan_low(t1, xs, *w1++);
      t2 = npu_memplan_low(t2, xs, *w2++);
      t3 = npu_memplan_low(t3, xs, *w3++);
    }
#else
    uint32_t s0 = (uint32_t)t0, s1 = (uint32_t)t1, s2 = (uint32_t)t2, s3 = (uint32_t)t3;
    for (int32_t k = 0; k < left; k++) {
      const int32_t xs = x[k] - zero;
      s0 += (uint32_t)(xs * w0[k]);
      s1 += (uint32_t)(xs * w1[k]);
      s2 += (uint32_t)(xs * w2[k]);
      s3 += (uint32_t)(xs * w3[k]);
    }
    t0 = (int32_t)s0, t1 = (int32_t)s1, t2 = (int32_t)s2, t3 = (int32_t)s3;
#endif
  }
  total[0] = t0, total[1] = t1, total[2] = t2, total[3] = t3;
}

/* The same of one kernel. */
NPU_MEMPLAN_APART static int32_t npu_memplan_dot(int32_t total, const int8_t *input, const int8_t *weights,
                                                 const npu_memplan_part *part) {
  const int32_t count = part->count, zero = part->zero;
  uint32_t sum = (uint32_t)total;
  for (int32_t rows = part->rows; rows > 0; rows--, input += part->input_row, weights += part->weights_row) {
    for (int32_t k = 0; k < count; k++) sum += (uint32_t)((input[k] - zero) * weights[k]);
  }
  return (int32_t)sum;
}
