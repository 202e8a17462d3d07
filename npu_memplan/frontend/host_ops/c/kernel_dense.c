/* Rows of `units` outputs, of which `columns` are stored, each from `depth` inputs. */
static void npu_memplan_kernel_dense(const int8_t *input, const int8_t *weights, const int32_t *bias,
                                     const int32_t *multiplier, const int32_t *shift, const int32_t *left,
                                     int8_t *output, int32_t rows, int32_t columns, int32_t depth, int32_t in_zero,
                                     int32_t out_zero, int32_t low, int32_t high, int32_t one_multiplier,
                                     int32_t one_shift, int32_t one_left) {
  const npu_memplan_scale scale = {multiplier ? multiplier : &one_multiplier,
                                   multiplier ? shift : &one_shift,
                                   multiplier ? left : (one_left ? &one_left : 0),
                                   multiplier != 0, out_zero, low, high};
  const npu_memplan_part part = {1, 0, 0, depth, in_zero};
  for (int32_t row = 0; row < rows; row++, input += depth, output += columns) {
    const int8_t *kernel = weights;
    int32_t unit = 0;
    for (int32_t fours = columns >> 2; fours > 0; fours--, unit += 4, kernel += 4 * depth) {
      int32_t total[4] = {0, 0, 0, 0};
      if (bias) memcpy(total, bias + unit, sizeof total);
      npu_memplan_dot_four(total, input, kernel, depth, &part);
      npu_memplan_scale_four(&scale, unit, total, output + unit);
    }
    for (int32_t rest = columns & 3; rest > 0; rest--, unit++, kernel += depth) {
      output[unit] = npu_memplan_scaled(&scale, unit, npu_memplan_dot(bias ? bias[unit] : 0, input, kernel, &part));
    }
  }
}
