/* `group`: input channels of one sum, 1 of a depthwise one, whose weights have the output channels last. */
static void npu_memplan_hybrid_convolution(const float *input, const int8_t *weights, const float *scales,
                                           const float *bias, int8_t *stored, float *output, int32_t batches,
                                           int32_t height, int32_t width, int32_t depth, int32_t rows,
                                           int32_t columns, int32_t channels, int32_t kernel_h, int32_t kernel_w,
                                           int32_t group, int32_t step_h, int32_t step_w, int32_t apart_h,
                                           int32_t apart_w, int32_t before_h, int32_t before_w, int32_t depthwise,
                                           int32_t shifted, int32_t of_channels, double low, double high) {
  const npu_memplan_axis down = {height, rows, kernel_h, step_h, apart_h, before_h};
  const npu_memplan_axis across = {width, columns, kernel_w, step_w, apart_w, before_w};
  const int32_t image = height * width * depth, each = channels / (depthwise ? depth : depth / group);
  const int32_t below = apart_h * width * depth, right = apart_w * depth;
  const int32_t column_of_kernel = depthwise ? channels : group, row_of_kernel = kernel_w * column_of_kernel;
  const int32_t of_kernel = kernel_h * row_of_kernel;
  const int32_t joined = group == depth && right == group; /* a row of a window is without gaps */
  for (int32_t n = 0; n < batches; n++) {
    float scale;
    int32_t zero;
    npu_memplan_hybrid_stored(input + n * image, stored, image, shifted != 0, &scale, &zero);
    for (int32_t y = 0; y < rows; y++) {
      int32_t top, bottom, begin, end;
      const int32_t row = npu_memplan_inside(&down, y, &top, &bottom);
      for (int32_t x = 0; x < columns; x++, output += channels) {
        const int32_t column = npu_memplan_inside(&across, x, &begin, &end);
        const int32_t pieces = joined ? 1 : end - begin;
        const npu_memplan_part part = {bottom - top, below, row_of_kernel, joined ? (end - begin) * depth : group, zero};
        const int8_t *const corner = stored + (row * width + column) * depth;
        const int8_t *const kernel = weights + top * row_of_kernel + begin * column_of_kernel;
        for (int32_t channel = 0; channel < channels;) {
          const int8_t *const from = corner + channel / each * group;
          int32_t total[4] = {0, 0, 0, 0}, made = 1;
          if (depthwise) {
            for (int32_t ky = 0; ky < bottom - top; ky++) {
              for (int32_t kx = 0; kx < end - begin; kx++)
                total[0] += (from[ky * below + kx * right] - zero) * kernel[ky * row_of_kernel + kx * channels + channel];
            }
          } else if (each - channel % each >= 4) {
            made = 4;
            for (int32_t piece = 0; piece < pieces; piece++)
              npu_memplan_dot_four(total, from + piece * right, kernel + channel * of_kernel + piece * group, of_kernel, &part);
          } else {
            for (int32_t piece = 0; piece < pieces; piece++)
              total[0] = npu_memplan_dot(total[0], from + piece * right, kernel + channel * of_kernel + piece * group, &part);
          }
          for (int32_t i = 0; i < made; i++, channel++) {
            float value = of_channels && !depthwise ? (float)total[i] * scales[channel] * scale
                                                    : (float)total[i] * (scale * scales[of_channels ? channel : 0]);
            value += bias[channel];
            value = value < (float)low ? (float)low : value;
            output[channel] = value > (float)high ? (float)high : value;
          }
        }
      }
    }
  }
}
