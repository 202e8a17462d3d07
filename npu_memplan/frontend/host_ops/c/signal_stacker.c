/* Puts frames side by side with their neighbours. `progress`: samples waiting, and whether a frame has come already. */
static void npu_memplan_signal_stacker(const int16_t *input, int16_t *queue, int32_t *progress, int16_t *output,
                                       bool *valid, int32_t channels, int32_t left, int32_t size, int32_t step) {
  for (int32_t copy = progress[1] ? left : 0; copy <= left; copy++) { /* the first frame stands for those before it */
    memcpy(queue + progress[0], input, (size_t)channels * sizeof(int16_t));
    progress[0] += channels;
  }
  progress[1] = 1;
  valid[0] = progress[0] >= size;
  if (!valid[0]) {
    memset(output, 0, (size_t)size * sizeof(int16_t));
    return;
  }
  memcpy(output, queue, (size_t)size * sizeof(int16_t));
  progress[0] -= step;
  memmove(queue, queue + step, (size_t)progress[0] * sizeof(int16_t));
}
