/* Floats as int8 with one scale, and for `offset` != 0 a zero point, each image for itself; sums with int8 weights. */
static void npu_memplan_hybrid_stored(const float *values, int8_t *stored, int32_t count, bool shifted, float *scale,
                                      int32_t *zero) {
  float least = values[0], most = values[0];
  for (int32_t i = 1; i < count; i++) {
    least = values[i] < least ? values[i] : least;
    most = most < values[i] ? values[i] : most;
  }
  *scale = 1.0f;
  *zero = 0;
  float inverse = 1.0f;
  if (shifted) {
    const double low = least < 0.0f ? least : 0.0, high = most > 0.0f ? most : 0.0;
    if (low == high) {
      memset(stored, 0, (size_t)count);
      return;
    }
    const double step = (high - low) / 255.0, from_low = -128.0 - low / step, from_high = 127.0 - high / step;
    const double low_error = 128.0 + fabs(low / step), high_error = 127.0 + fabs(high / step);
    const double place = low_error < high_error ? from_low : from_high;
    *zero = place <= -128.0 ? -128 : place >= 127.0 ? 127 : (int32_t)round(place);
    *scale = ((float)high - (float)low) / 255.0f; /* not `step`: the zero point is of doubles, the scale of floats */
    inverse = 1.0f / *scale;
  } else {
    const float below = fabsf(least), above = fabsf(most), range = below < above ? above : below;
    if (range == 0.0f) {
      memset(stored, 0, (size_t)count);
      return;
    }
    *scale = range / 127.0f;
    inverse = 127.0f / range;
  }
  const int32_t lowest = shifted ? -128 : -127;
  for (int32_t i = 0; i < count; i++) {
    const int32_t value = (int32_t)roundf((float)*zero + values[i] * inverse);
    stored[i] = (int8_t)(value < lowest ? lowest : value > 127 ? 127 : value);
  }
}

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
