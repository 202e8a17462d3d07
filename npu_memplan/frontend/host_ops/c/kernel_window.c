/* Windows along one axis of an image: the first begins `before` the image. */
typedef struct {
  int32_t size, windows, kernel, stride, dilation, before;
} npu_memplan_axis;

/* The places of a window's kernel that are inside of the image: from *first, before *last; where the first one is. */
static inline int32_t npu_memplan_inside(const npu_memplan_axis *axis, int32_t window, int32_t *first, int32_t *last) {
  const int32_t start = window * axis->stride - axis->before, step = axis->dilation;
  int32_t from = 0, to = axis->kernel;
  while (from < to && start + from * step < 0) from++;
  while (to > from && start + (to - 1) * step >= axis->size) to--;
  *first = from, *last = to;
  return start + from * step;
}
