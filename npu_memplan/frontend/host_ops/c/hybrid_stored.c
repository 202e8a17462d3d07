/* Floats as int8 with one scale, and where `shifted` a zero point. */
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
