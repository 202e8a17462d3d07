/* `group`: input channels of one sum, 1 of a depthwise one, whose weights have the output channels last. */
static void npu_memplan_hybrid_convolution(const float *input, const int8_t *weights, const float *scales,
                                           const float *bias, int8_t *stored, float *output, int32_t batches,
                                           int32_t height, int32_t width, int32_t depth, int32_t rows,
                                           int32_t columns, int32_t channels, int32_t kernel_h, int32_t kernel_w,
                                           int32_t group, int32_t step_h, int32_t step_w, int32_t apart_h,
                                           int32_t apart_w, int32_t top, int32_t left, int32_t depthwise,
                                           int32_t shifted, int32_t of_channels, double low, double high) {
  const int32_t image = height * width * depth, each = channels / (depthwise ? depth : depth / group);
  for (int32_t n = 0; n < batches; n++) {
    float scale;
    int32_t zero;
    npu_memplan_hybrid_stored(input + n * image, stored, image, shifted != 0, &scale, &zero);
    for (int32_t place = 0; place < rows * columns * channels; place++) {
      const int32_t channel = place % channels, x = place / channels % columns, y = place / channels / columns;
      int32_t sum = 0;
      for (int32_t ky = 0; ky < kernel_h; ky++) {
        const int32_t row = y * step_h + ky * apart_h - top;
        if (row < 0 || row >= height) continue;
        for (int32_t kx = 0; kx < kernel_w; kx++) {
          const int32_t column = x * step_w + kx * apart_w - left;
          if (column < 0 || column >= width) continue;
          const int8_t *from = stored + (row * width + column) * depth + channel / each * group;
          for (int32_t k = 0; k < group; k++) {
            const int32_t at = depthwise ? (ky * kernel_w + kx) * channels + channel
                                         : ((channel * kernel_h + ky) * kernel_w + kx) * group + k;
            sum += (from[k] - zero) * weights[at];
          }
        }
      }
      float value = of_channels && !depthwise ? (float)sum * scales[channel] * scale
                                              : (float)sum * (scale * scales[of_channels ? channel : 0]);
      value += bias[channel];
      value = value < (float)low ? (float)low : value;
      output[n * rows * columns * channels + place] = value > (float)high ? (float)high : value;
    }
  }
}
