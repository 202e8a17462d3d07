/* An image of uint8 in another size, in float32 as the reference computes it. `rows` and `columns` have two places for
 * each place of the output, the weights what each counts. */
static void npu_memplan_kernel_bilinear(const uint8_t *input, const int32_t *rows, const float *row_weights,
                                        const int32_t *columns, const float *column_weights, uint8_t *output,
                                        int32_t images, int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w,
                                        int32_t depth) {
  for (int32_t image = 0; image < images; image++, input += in_h * in_w * depth) {
    for (int32_t y = 0; y < out_h; y++) {
      const uint8_t *const top = input + rows[2 * y] * in_w * depth;
      const uint8_t *const bottom = input + rows[2 * y + 1] * in_w * depth;
      const float d0 = row_weights[2 * y], d1 = row_weights[2 * y + 1];
      for (int32_t x = 0; x < out_w; x++, output += depth) {
        const uint8_t *a = top + columns[2 * x] * depth, *b = bottom + columns[2 * x] * depth;
        const uint8_t *c = top + columns[2 * x + 1] * depth, *d = bottom + columns[2 * x + 1] * depth;
        const float a0 = column_weights[2 * x], a1 = column_weights[2 * x + 1];
        int32_t k = 0;
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
        const float32x4_t vd0 = vdupq_n_f32(d0), vd1 = vdupq_n_f32(d1), va0 = vdupq_n_f32(a0), va1 = vdupq_n_f32(a1);
        for (int32_t fours = depth >> 2; fours > 0; fours--, k += 4, a += 4, b += 4, c += 4, d += 4) {
          NPU_MEMPLAN_STEP(a);
          NPU_MEMPLAN_STEP(b);
          NPU_MEMPLAN_STEP(c);
          NPU_MEMPLAN_STEP(d);
          float32x4_t sum = vmulq_f32(vmulq_f32(vcvtq_f32_u32(vldrbq_u32(a)), vd0), va0);
          sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(vldrbq_u32(b)), vd1), va0));
          sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(vldrbq_u32(c)), vd0), va1));
          sum = vaddq_f32(sum, vmulq_f32(vmulq_f32(vcvtq_f32_u32(vldrbq_u32(d)), vd1), va1));
          vstrbq_u32(output + k, vreinterpretq_u32_s32(vcvtq_s32_f32(vaddq_n_f32(sum, 0.5f))));
        }
#endif
        for (; k < depth; k++) {
          float sum = (float)*a++ * d0 * a0;
          sum = sum + (float)*b++ * d1 * a0;
          sum = sum + (float)*c++ * d0 * a1;
          sum = sum + (float)*d++ * d1 * a1;
          output[k] = (uint8_t)(int32_t)(sum + 0.5f);
        }
      }
    }
  }
}
