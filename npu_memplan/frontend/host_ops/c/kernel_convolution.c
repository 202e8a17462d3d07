/* A convolution in NHWC of `groups`, each from `depth` channels to out_c / groups; weights [out_c, h, w, depth]. An
 * output is stored before the inputs of later ones are read for the last time: they may share bytes as the plan says. */
static void npu_memplan_kernel_convolution(
    const int8_t *input, const int8_t *weights, const int32_t *bias, const int32_t *multiplier, const int32_t *shift,
    const int32_t *left, int8_t *output, int32_t images, int32_t groups, int32_t depth, int32_t out_c, int32_t in_h,
    int32_t out_h, int32_t kernel_h, int32_t stride_h, int32_t dilation_h, int32_t before_h, int32_t in_w,
    int32_t out_w, int32_t kernel_w, int32_t stride_w, int32_t dilation_w, int32_t before_w, int32_t in_zero,
    int32_t out_zero, int32_t low, int32_t high, int32_t one_multiplier, int32_t one_shift, int32_t one_left) {
  const npu_memplan_scale scale = {multiplier ? multiplier : &one_multiplier,
                                   multiplier ? shift : &one_shift,
                                   multiplier ? left : (one_left ? &one_left : 0),
                                   multiplier != 0, out_zero, low, high};
  const npu_memplan_axis down = {in_h, out_h, kernel_h, stride_h, dilation_h, before_h};
  const npu_memplan_axis across = {in_w, out_w, kernel_w, stride_w, dilation_w, before_w};
  const int32_t in_c = groups * depth, in_row = in_w * in_c, of_group = out_c / groups;
  const int32_t row_of_kernel = kernel_w * depth, of_kernel = kernel_h * row_of_kernel;
  const int32_t joined = groups == 1 && dilation_w == 1; /* a row of a window is without gaps */
  for (int32_t image = 0; image < images; image++, input += in_h * in_row) {
    for (int32_t y = 0; y < out_h; y++) {
      int32_t top, bottom, begin, end;
      const int32_t row = npu_memplan_inside(&down, y, &top, &bottom);
      for (int32_t x = 0; x < out_w; x++, output += out_c) {
        const int32_t column = npu_memplan_inside(&across, x, &begin, &end);
        const int8_t *const corner = input + row * in_row + column * in_c;
        const int32_t pieces = joined ? 1 : end - begin;
        const npu_memplan_part part = {bottom - top, dilation_h * in_row, row_of_kernel,
                                       joined ? (end - begin) * depth : depth, in_zero};
        for (int32_t group = 0; group < groups; group++) {
          const int8_t *const first = corner + group * depth;
          int32_t channel = group * of_group;
          const int8_t *kernel = weights + channel * of_kernel + top * row_of_kernel + begin * depth;
          for (int32_t fours = of_group >> 2; fours > 0; fours--, channel += 4, kernel += 4 * of_kernel) {
            int32_t total[4] = {0, 0, 0, 0};
            if (bias) memcpy(total, bias + channel, sizeof total);
            for (int32_t piece = 0; piece < pieces; piece++) {
              npu_memplan_dot_four(total, first + piece * dilation_w * in_c, kernel + piece * depth, of_kernel, &part);
            }
            npu_memplan_scale_four(&scale, channel, total, output + channel);
          }
          for (int32_t rest = of_group & 3; rest > 0; rest--, channel++, kernel += of_kernel) {
            int32_t total = bias ? bias[channel] : 0;
            for (int32_t piece = 0; piece < pieces; piece++) {
              total = npu_memplan_dot(total, first + piece * dilation_w * in_c, kernel + piece * depth, &part);
            }
            output[channel] = npu_memplan_scaled(&scale, channel, total);
          }
        }
      }
    }
  }
}
