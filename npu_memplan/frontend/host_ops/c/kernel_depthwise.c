/* total[i] += sum of (input[i] - zero) * weights[i] over rows x columns places of a window, for four channels. */
static inline void npu_memplan_places_four(int32_t *total, const int8_t *input, const int8_t *weights, int32_t rows,
                                           int32_t columns, int32_t in_row, int32_t in_column, int32_t row,
                                           int32_t column, int32_t zero) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  int32x4_t sum = vldrwq_s32(total);
  for (int32_t ky = 0; ky < rows; ky++, input += in_row, weights += row) {
    const int8_t *x = input, *w = weights;
    for (int32_t kx = columns; kx > 0; kx--, x += in_column, w += column) {
      sum = vaddq_s32(sum, vmulq_s32(vsubq_n_s32(vldrbq_s32(x), zero), vldrbq_s32(w)));
    }
  }
  vstrwq_s32(total, sum);
#elif defined(NPU_MEMPLAN_DSP)
  const int32_t centre = (int32_t)(((uint32_t)-zero & 0xFFFFu) * 0x10001u);
  int32_t t0 = total[0], t1 = total[1], t2 = total[2], t3 = total[3];
  for (int32_t ky = 0; ky < rows; ky++, input += in_row, weights += row) {
    const int8_t *x = input, *w = weights;
    for (int32_t kx = columns; kx > 0; kx--, x += in_column, w += column) {
      const int32_t xs = npu_memplan_four(x), ws = npu_memplan_four(w);
      const int32_t even = npu_memplan_even(centre, xs), odd = npu_memplan_odd(centre, xs);
      const int32_t even_w = npu_memplan_evens(ws), odd_w = npu_memplan_odds(ws);
      t0 = npu_memplan_low(t0, even, even_w);
      t1 = npu_memplan_low(t1, odd, odd_w);
      t2 = npu_memplan_high(t2, even, even_w);
      t3 = npu_memplan_high(t3, odd, odd_w);
    }
  }
  total[0] = t0, total[1] = t1, total[2] = t2, total[3] = t3;
#else
  uint32_t s0 = (uint32_t)total[0], s1 = (uint32_t)total[1], s2 = (uint32_t)total[2], s3 = (uint32_t)total[3];
  for (int32_t ky = 0; ky < rows; ky++, input += in_row, weights += row) {
    const int8_t *x = input, *w = weights;
    for (int32_t kx = columns; kx > 0; kx--, x += in_column, w += column) {
      s0 += (uint32_t)((x[0] - zero) * w[0]);
      s1 += (uint32_t)((x[1] - zero) * w[1]);
      s2 += (uint32_t)((x[2] - zero) * w[2]);
      s3 += (uint32_t)((x[3] - zero) * w[3]);
    }
  }
  total[0] = (int32_t)s0, total[1] = (int32_t)s1, total[2] = (int32_t)s2, total[3] = (int32_t)s3;
#endif
}

/* The same of one input channel, from which all four are made. */
static inline void npu_memplan_places_of_one(int32_t *total, const int8_t *input, const int8_t *weights, int32_t rows,
                                             int32_t columns, int32_t in_row, int32_t in_column, int32_t row,
                                             int32_t column, int32_t zero) {
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1)
  int32x4_t sum = vldrwq_s32(total);
  for (int32_t ky = 0; ky < rows; ky++, input += in_row, weights += row) {
    const int8_t *x = input, *w = weights;
    for (int32_t kx = columns; kx > 0; kx--, x += in_column, w += column) {
      sum = vmlaq_n_s32(sum, vldrbq_s32(w), x[0] - zero);
    }
  }
  vstrwq_s32(total, sum);
#else
  uint32_t s0 = (uint32_t)total[0], s1 = (uint32_t)total[1], s2 = (uint32_t)total[2], s3 = (uint32_t)total[3];
  for (int32_t ky = 0; ky < rows; ky++, input += in_row, weights += row) {
    const int8_t *x = input, *w = weights;
    for (int32_t kx = columns; kx > 0; kx--, x += in_column, w += column) {
      const int32_t xs = x[0] - zero;
      s0 += (uint32_t)(xs * w[0]);
      s1 += (uint32_t)(xs * w[1]);
      s2 += (uint32_t)(xs * w[2]);
      s3 += (uint32_t)(xs * w[3]);
    }
  }
  total[0] = (int32_t)s0, total[1] = (int32_t)s1, total[2] = (int32_t)s2, total[3] = (int32_t)s3;
#endif
}

/* A depthwise convolution in NHWC, `times` outputs from each input channel; weights [1, h, w, out_c]. An output is
 * stored before the inputs of later ones are read for the last time: they may share bytes as the plan says. */
static void npu_memplan_kernel_depthwise(
    const int8_t *input, const int8_t *weights, const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
    const int32_t *left, int8_t *output, int32_t images, int32_t times, int32_t in_c, int32_t out_c, int32_t in_h,
    int32_t out_h, int32_t kernel_h, int32_t stride_h, int32_t dilation_h, int32_t before_h, int32_t in_w,
    int32_t out_w, int32_t kernel_w, int32_t stride_w, int32_t dilation_w, int32_t before_w, int32_t in_zero,
    int32_t out_zero, int32_t low, int32_t high, int32_t one_multiplier, int32_t one_shift, int32_t one_left) {
  const npu_memplan_scale scale = {multiplier ? multiplier : &one_multiplier,
                                   multiplier ? shift : &one_shift,
                                   multiplier ? left : (one_left ? &one_left : 0),
                                   multiplier != 0, out_zero, low, high};
  const npu_memplan_axis down = {in_h, out_h, kernel_h, stride_h, dilation_h, before_h};
  const npu_memplan_axis across = {in_w, out_w, kernel_w, stride_w, dilation_w, before_w};
  const int32_t in_row = in_w * in_c, row_of_kernel = kernel_w * out_c;
  const int32_t in_blocks = times == 1 || times % 4 == 0 ? out_c & ~3 : 0; /* of four channels */
  const int32_t below = dilation_h * in_row, right = dilation_w * in_c;
  for (int32_t image = 0; image < images; image++, input += in_h * in_row) {
    for (int32_t y = 0; y < out_h; y++) {
      int32_t top, bottom, begin, end;
      const int32_t row = npu_memplan_inside(&down, y, &top, &bottom);
      for (int32_t x = 0; x < out_w; x++, output += out_c) {
        const int32_t column = npu_memplan_inside(&across, x, &begin, &end);
        const int8_t *const corner = input + row * in_row + column * in_c;
        const int8_t *const kernel = weights + top * row_of_kernel + begin * out_c;
        int32_t channel = 0;
        for (int32_t fours = in_blocks >> 2; fours > 0; fours--, channel += 4) {
          int32_t total[4] = {0, 0, 0, 0};
          if (bias) memcpy(total, bias + channel, sizeof total);
          if (times == 1) {
            npu_memplan_places_four(total, corner + channel, kernel + channel, bottom - top, end - begin, below, right,
                                    row_of_kernel, out_c, in_zero);
          } else {
            npu_memplan_places_of_one(total, corner + channel / times, kernel + channel, bottom - top, end - begin,
                                      below, right, row_of_kernel, out_c, in_zero);
          }
          npu_memplan_scale_four(&scale, channel, total, output + channel);
        }
        for (int32_t rest = out_c - in_blocks; rest > 0; rest--, channel++) {
          const int8_t *const first = corner + channel / times;
          uint32_t total = bias ? (uint32_t)bias[channel] : 0u;
          for (int32_t ky = 0; ky < bottom - top; ky++) {
            for (int32_t kx = 0; kx < end - begin; kx++) {
              total += (uint32_t)((first[ky * below + kx * right] - in_zero) *
                                  kernel[ky * row_of_kernel + kx * out_c + channel]);
            }
          }
          output[channel] = npu_memplan_scaled(&scale, channel, (int32_t)total);
        }
      }
    }
  }
}
