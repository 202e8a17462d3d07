/* Cuts a stream into frames that overlap. `queue` holds what is waiting, `waiting[0]` how many samples of each row. */
static void npu_memplan_signal_framer(const int16_t *input, int16_t *queue, int32_t *waiting, int16_t *output,
                                      bool *valid, int32_t rows, int32_t frames, int32_t size, int32_t step,
                                      int32_t room) {
  const int32_t before = waiting[0];
  int32_t count = before;
  valid[0] = true;
  for (int32_t row = 0; row < rows; row++) {
    int16_t *const samples = queue + row * room;
    count = before;
    for (int32_t frame = row * frames; frame < (row + 1) * frames; frame++) {
      memcpy(samples + count, input + frame * step, (size_t)step * sizeof(int16_t));
      count += step;
      if (count < size) {
        valid[0] = false;
        memset(output + frame * size, 0, (size_t)size * sizeof(int16_t));
        continue;
      }
      memcpy(output + frame * size, samples, (size_t)size * sizeof(int16_t));
      count -= step;
      memmove(samples, samples + step, (size_t)count * sizeof(int16_t));
    }
  }
  waiting[0] = count;
}
