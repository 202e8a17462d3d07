/* Detections of boxes that were predicted against anchors: decoded, then thinned out where they overlap. */
static inline bool npu_memplan_before_SUFFIX(const float *scores, int32_t a, int32_t b) {
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* Puts `item` into a heap whose first place is free, from place `at` down. */
static void npu_memplan_sink_SUFFIX(const float *scores, int32_t *heap, int32_t count, int32_t at, int32_t item) {
  for (int32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && npu_memplan_before_SUFFIX(scores, heap[child + 1], heap[child])) child++;
    if (npu_memplan_before_SUFFIX(scores, item, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

static void npu_memplan_make_heap_SUFFIX(const float *scores, int32_t *heap, int32_t count) {
  for (int32_t i = count / 2 - 1; i >= 0; i--) npu_memplan_sink_SUFFIX(scores, heap, count, i, heap[i]);
}

/* Takes the number of the highest score, of equal ones the least, out of a heap of `count`. */
static int32_t npu_memplan_take_SUFFIX(const float *scores, int32_t *heap, int32_t count) {
  const int32_t first = heap[0];
  npu_memplan_sink_SUFFIX(scores, heap, count - 1, 0, heap[count - 1]);
  return first;
}

static float npu_memplan_overlap_SUFFIX(const float *a, const float *b) {
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]), area_b = (b[2] - b[0]) * (b[3] - b[1]);
  if (area_a <= 0 || area_b <= 0) return 0.0f;
  const float top = a[0] < b[0] ? b[0] : a[0], left = a[1] < b[1] ? b[1] : a[1];
  const float bottom = b[2] < a[2] ? b[2] : a[2], right = b[3] < a[3] ? b[3] : a[3];
  const float height = bottom - top < 0.0f ? 0.0f : bottom - top, width = right - left < 0.0f ? 0.0f : right - left;
  return height * width / (area_a + area_b - height * width);
}

/* Chooses at most `most` boxes by score, none that overlaps a chosen one too much; how many. */
static int32_t npu_memplan_choose_SUFFIX(const float *boxes, const float *scores, int32_t count, int32_t most,
                                         int32_t *heap, int32_t *chosen) {
  int32_t kept = 0, found = 0;
  for (int32_t i = 0; i < count; i++) {
    if (scores[i] >= THRESHOLD) heap[kept++] = i;
  }
  npu_memplan_make_heap_SUFFIX(scores, heap, kept);
  for (; kept > 0 && found < most; kept--) {
    const int32_t next = npu_memplan_take_SUFFIX(scores, heap, kept);
    int32_t i = 0;
    while (i < found && !(npu_memplan_overlap_SUFFIX(boxes + 4 * chosen[i], boxes + 4 * next) > OVERLAP)) i++;
    if (i == found) chosen[found++] = next;
  }
  return found;
}

/* Corners of all boxes; false when one is empty. `halves`: of the bytes that a box may have, if BOX_VALUES, half of the
 * exponential for heights, then for widths. */
static bool npu_memplan_decode_SUFFIX(const BOX_TYPE *encoded, const ANCHOR_TYPE *anchors, double *halves,
                                      float *boxes, int32_t count, int32_t pitch) {
  for (int32_t i = 0; i < BOX_VALUES; i++) {
    halves[i] = 0.5 * exp(BOX(i) / (double)H_SCALE);
    halves[BOX_VALUES + i] = 0.5 * exp(BOX(i) / (double)W_SCALE);
  }
  for (int32_t i = 0; i < count; i++) {
    const BOX_TYPE *const code = encoded + i * pitch;
    const ANCHOR_TYPE *const anchor = anchors + 4 * i;
    const double height = ANCHOR(anchor[2]), width = ANCHOR(anchor[3]);
    const float y = (float)(BOX(code[0]) / (double)Y_SCALE * height + (double)ANCHOR(anchor[0]));
    const float x = (float)(BOX(code[1]) / (double)X_SCALE * width + (double)ANCHOR(anchor[1]));
    const double half_h = BOX_VALUES ? halves[(int32_t)code[2]] : 0.5 * exp(BOX(code[2]) / (double)H_SCALE);
    const double half_w = BOX_VALUES ? halves[BOX_VALUES + (int32_t)code[3]] : 0.5 * exp(BOX(code[3]) / (double)W_SCALE);
    const float half_height = (float)(half_h * height), half_width = (float)(half_w * width);
    boxes[4 * i] = y - half_height;
    boxes[4 * i + 1] = x - half_width;
    boxes[4 * i + 2] = y + half_height;
    boxes[4 * i + 3] = x + half_width;
    if (boxes[4 * i] >= boxes[4 * i + 2] || boxes[4 * i + 1] >= boxes[4 * i + 3]) return false;
  }
  return true;
}
