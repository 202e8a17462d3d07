"""The exact search, compiled: fill sections from below until all items lie under a ceiling.

Invariant: a state is a floor for every section and the set of items not yet placed; it
stands for all placements of these at or above the floors. The search is complete: answer
`INFEASIBLE` is a proof. What makes it fast:

* only canonical placements: an item lies on the floor of a section whose candidates
  cover nothing lower, or the section's floor is raised to where one could next begin;
* floors rise to the least start of the items that still cover them, until nothing moves;
* the state splits at points that no remaining item crosses, and the parts are solved one
  by one: a part that fails returns to the choice made before the split;
* states that failed are remembered by the headroom above each floor, so a nogood holds
  for every ceiling and across restarts;
* of equal items only the first unplaced one is tried;
* the section with the fewest candidates comes first, those that failed often before others.

This module imports numba; nobody imports it before a cheap planner has missed the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FOUND, INFEASIBLE, LIMIT = 1, 0, -1
SECTION_RULES = 5  # ways to choose the next section

_U = np.uint64


@njit(cache=True)  # type: ignore[untyped-decorator]
def _mix(x: Any) -> Any:
    x ^= x >> _U(30)
    x *= _U(0xBF58476D1CE4E5B9)
    x ^= x >> _U(27)
    x *= _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _section_key(rule: int, count: int, slack: int, floor: int, weight: float, ceiling: int) -> float:
    """The less, the sooner a section is filled. One candidate is no choice: it comes first under every rule."""
    if count <= 1:
        return -1.0
    if rule == 0:
        return count + floor / (ceiling + 1.0)
    if rule == 1:
        return floor + count * 1e-3
    if rule == 2:
        return floor + slack / (ceiling + 1.0)
    if rule == 3:
        return count / weight + floor / (ceiling + 1.0) * 1e-6
    return floor / weight + count * 1e-3


@njit(cache=True)  # type: ignore[untyped-decorator]
def fill(
    size: Any,  # int64[n], bytes
    align: Any,  # int64[n], bytes
    cover_at: Any,  # int64[n + 1]: sections of item b are cover[cover_at[b]:cover_at[b + 1]], ascending
    cover: Any,
    member_at: Any,  # int64[s + 1]: items of section s are member[member_at[s]:member_at[s + 1]]
    member: Any,
    twin: Any,  # int64[n]: an equal item that must be placed before this one, or -1
    ceiling: int,  # bytes
    nodes: int,  # choices allowed
    score: Any,  # float64[n]: items of high score are tried first
    noise: float,  # amplitude of random numbers added to the scores
    rule: int,  # which section next, in [0, SECTION_RULES)
    weight: Any,  # float64[s]: how often a section failed; kept between calls
    state: Any,  # uint64[1]: random numbers
    memo: Any,  # uint64[2, 2**k]: nogoods; kept between calls
    offset: Any,  # int64[n]: the answer
    spent: Any,  # int64[1]: choices made, added to
) -> int:
    """FOUND (offsets are filled in), INFEASIBLE (proven) or LIMIT (nodes spent)."""
    count, sections = size.shape[0], member_at.shape[0] - 1
    floor = np.zeros(sections, np.int64)
    rest = np.zeros(sections, np.int64)  # bytes not yet placed
    placed = np.zeros(count, np.bool_)
    start = np.zeros(count, np.int64)  # least offset under the present floors
    supported = np.zeros(count, np.int64)  # 2 * frame stamp + whether all its floors are its start
    # the active (not yet placed) members of section s come first in its slice; slots are swapped, and
    # swapped back in reverse order. entry[i] is the place of slot i in `cover`, slot[q] its inverse
    member = member.copy()
    active = np.zeros(sections, np.int64)
    entry = np.zeros(member.shape[0], np.int64)
    slot = np.zeros(member.shape[0], np.int64)
    for b in range(count):
        for q in range(cover_at[b], cover_at[b + 1]):
            s = cover[q]
            rest[s] += size[b]
            i = member_at[s] + active[s]
            member[i], entry[i], slot[q] = b, q, i
            active[s] += 1
    mask = _U(memo.shape[1] - 1)
    # one frame a choice; each chosen item and each raised floor moves at least one section up
    depth = 2 * count + 8 * sections + 64
    f_lo, f_hi = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    f_parent, f_agenda, f_cells = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    f_trail, f_placed, f_section = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    f_option, f_options, f_next = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    f_raise = np.zeros(depth, np.int64)
    f_h1, f_h2 = np.zeros(depth, np.uint64), np.zeros(depth, np.uint64)
    options = np.zeros(4096, np.int64)
    option_score = np.zeros(count + 1, np.float64)
    trail_section, trail_floor = np.zeros(8192, np.int64), np.zeros(8192, np.int64)
    trail = 0
    item_trail, item_start = np.zeros(8192, np.int64), np.zeros(8192, np.int64)
    item_trails = 0
    f_items = np.zeros(depth, np.int64)
    # sections whose floor moved, and sections whose candidates may have changed
    moved, moved_count = np.zeros(sections, np.int64), 0
    is_moved = np.zeros(sections, np.bool_)
    touched, touched_count = np.zeros(sections, np.int64), 0
    is_touched = np.zeros(sections, np.bool_)
    for s in range(sections):
        moved[s] = s
        is_moved[s] = True
    moved_count = sections
    order = np.zeros(count + 1, np.int64)
    placed_count = 0
    # parts still to be solved, a linked list of cells
    c_lo, c_hi = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    c_parent, c_next = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    cells = 0
    agenda = -1
    live = np.zeros(count, np.int64)
    seen = np.zeros(count, np.bool_)
    cross = np.zeros(sections + 1, np.int64)
    option_end = 0
    top = -1
    lo, hi, parent = 0, sections, -1
    left = nodes
    stamp = 0
    while True:
        # -- enter the part [lo, hi) ---------------------------------------
        entering = True
        failed = False
        h1 = h2 = _U(0)
        lives = 0
        while entering:
            while (moved_count > 0 or touched_count > 0) and not failed:
                dirty = 0
                for i in range(moved_count):
                    s = moved[i]
                    is_moved[s] = False
                    f = floor[s]
                    for k in range(member_at[s], member_at[s] + active[s]):
                        b = member[k]
                        if f > start[b]:
                            if not seen[b]:
                                seen[b] = True
                                live[dirty] = b
                                dirty += 1
                                if item_trails == item_trail.shape[0]:
                                    more = np.zeros(item_trails, np.int64)
                                    item_trail = np.concatenate((item_trail, more))
                                    item_start = np.concatenate((item_start, more))
                                item_trail[item_trails], item_start[item_trails] = b, start[b]
                                item_trails += 1
                            a = align[b]
                            start[b] = f if a == 1 else (f + a - 1) // a * a
                    if not is_touched[s]:
                        is_touched[s] = True
                        touched[touched_count] = s
                        touched_count += 1
                for k in range(dirty):
                    b = live[k]
                    seen[b] = False
                    for q in range(cover_at[b], cover_at[b + 1]):
                        x = cover[q]
                        if not is_touched[x]:
                            is_touched[x] = True
                            touched[touched_count] = x
                            touched_count += 1
                moved_count = 0
                for i in range(touched_count):
                    s = touched[i]
                    is_touched[s] = False
                    if active[s] == 0 or failed:
                        continue
                    low = np.int64(1 << 62)
                    for k in range(member_at[s], member_at[s] + active[s]):
                        low = min(low, start[member[k]])
                    if low > floor[s]:
                        if trail == trail_section.shape[0]:
                            trail_section = np.concatenate((trail_section, np.zeros(trail, np.int64)))
                            trail_floor = np.concatenate((trail_floor, np.zeros(trail, np.int64)))
                        trail_section[trail], trail_floor[trail] = s, floor[s]
                        trail += 1
                        floor[s] = low
                        is_moved[s] = True
                        moved[moved_count] = s
                        moved_count += 1
                    if floor[s] + rest[s] > ceiling:
                        failed = True
                        weight[s] += 1.0
                touched_count = 0
            if failed:
                break
            lives = 0
            for s in range(lo, hi):
                for k in range(member_at[s], member_at[s] + active[s]):
                    b = member[k]
                    if not seen[b]:
                        seen[b] = True
                        live[lives] = b
                        lives += 1
            for k in range(lives):
                seen[live[k]] = False
            if lives == 0:
                if agenda < 0:
                    spent[0] += nodes - left
                    return FOUND
                lo, hi, parent, agenda = c_lo[agenda], c_hi[agenda], c_parent[agenda], c_next[agenda]
                continue
            # split where no remaining item crosses
            for s in range(lo, hi + 1):
                cross[s] = 0
            for k in range(lives):
                b = live[k]
                cross[cover[cover_at[b]]] += 1
                cross[cover[cover_at[b + 1] - 1]] -= 1
            crossing = 0
            begin = lo
            first_lo = first_hi = np.int64(-1)
            any_rest = False
            parts = 0
            for s in range(lo, hi):
                crossing += cross[s]
                any_rest = any_rest or active[s] > 0
                if crossing == 0:
                    if any_rest:
                        parts += 1
                        if parts == 1:
                            first_lo, first_hi = begin, s + 1
                        else:
                            if cells == c_lo.shape[0]:
                                c_lo = np.concatenate((c_lo, np.zeros(cells, np.int64)))
                                c_hi = np.concatenate((c_hi, np.zeros(cells, np.int64)))
                                c_parent = np.concatenate((c_parent, np.zeros(cells, np.int64)))
                                c_next = np.concatenate((c_next, np.zeros(cells, np.int64)))
                            c_lo[cells], c_hi[cells], c_parent[cells], c_next[cells] = begin, s + 1, parent, agenda
                            agenda = cells
                            cells += 1
                    begin = s + 1
                    any_rest = False
            lo, hi = first_lo, first_hi
            if parts > 1:
                continue
            h1, h2 = _U(0x2545F4914F6CDD1D), _U(0x9E6C63D0876A9A47)
            for k in range(lives):
                z = _U(live[k]) * _U(0x9E3779B97F4A7C15) + _U(0x632BE59BD9B4E019)
                h1 += _mix(z)
                h2 += _mix(z ^ _U(0xA5A5A5A5A5A5A5A5))
            for s in range(lo, hi):
                if active[s] > 0:
                    z = _U(s) * _U(0xC2B2AE3D27D4EB4F) + _U(ceiling - floor[s]) * _U(0xD6E8FEB86659FD93)
                    h1 += _mix(z)
                    h2 += _mix(z ^ _U(0x5A5A5A5A5A5A5A5A))
            if memo[0, h1 & mask] == h1 and memo[1, h1 & mask] == h2:
                failed = True
            entering = False
        if failed:
            for i in range(moved_count):
                is_moved[moved[i]] = False
            moved_count = 0
            top = parent
        else:
            # -- choose a section and list its candidates ------------------
            stamp += 1
            chosen = -1
            chosen_key = 1e300
            for s in range(lo, hi):
                if active[s] == 0:
                    continue
                f = floor[s]
                candidates = 0
                eligible = True
                for k in range(member_at[s], member_at[s] + active[s]):
                    b = member[k]
                    if start[b] == f:
                        if supported[b] < 2 * stamp:
                            supported[b] = 2 * stamp + 1
                            for q in range(cover_at[b], cover_at[b + 1]):
                                if floor[cover[q]] < f:
                                    supported[b] = 2 * stamp
                                    break
                        if supported[b] == 2 * stamp:
                            # something may still fit below it: a lower section must decide first
                            eligible = False
                            break
                        if twin[b] < 0 or placed[twin[b]]:
                            candidates += 1
                if not eligible:
                    continue
                slack = ceiling - f - rest[s]
                if slack > 0:
                    candidates += 1
                key = _section_key(rule, candidates, slack, f, weight[s], ceiling)
                if key < chosen_key:
                    chosen, chosen_key = s, key
            f = floor[chosen]
            top += 1
            if top == f_lo.shape[0]:
                more = np.zeros(top, np.int64)
                f_lo, f_hi = np.concatenate((f_lo, more)), np.concatenate((f_hi, more))
                f_parent, f_agenda = np.concatenate((f_parent, more)), np.concatenate((f_agenda, more))
                f_cells, f_trail = np.concatenate((f_cells, more)), np.concatenate((f_trail, more))
                f_placed, f_section = np.concatenate((f_placed, more)), np.concatenate((f_section, more))
                f_option, f_options = np.concatenate((f_option, more)), np.concatenate((f_options, more))
                f_items = np.concatenate((f_items, more))
                f_next, f_raise = np.concatenate((f_next, more)), np.concatenate((f_raise, more))
                wide = np.zeros(top, np.uint64)
                f_h1, f_h2 = np.concatenate((f_h1, wide)), np.concatenate((f_h2, wide))
            f_lo[top], f_hi[top], f_parent[top] = lo, hi, parent
            f_agenda[top], f_cells[top] = agenda, cells
            f_items[top] = item_trails
            f_trail[top], f_placed[top], f_section[top] = trail, placed_count, chosen
            f_h1[top], f_h2[top] = h1, h2
            while option_end + count + 1 > options.shape[0]:
                options = np.concatenate((options, np.zeros(options.shape[0], np.int64)))
            found = 0
            for k in range(member_at[chosen], member_at[chosen] + active[chosen]):
                b = member[k]
                if start[b] == f and (twin[b] < 0 or placed[twin[b]]):
                    value = score[b]
                    if noise > 0.0:
                        x = state[0]
                        x ^= x << _U(13)
                        x ^= x >> _U(7)
                        x ^= x << _U(17)
                        state[0] = x
                        value += noise * (float(x >> _U(11)) / 9007199254740992.0)
                    j = found
                    while j > 0 and option_score[j - 1] < value:
                        option_score[j] = option_score[j - 1]
                        options[option_end + j] = options[option_end + j - 1]
                        j -= 1
                    option_score[j] = value
                    options[option_end + j] = b
                    found += 1
            # nothing begins at f: the next start is a higher item's, or the top of one that is elsewhere
            level = np.int64(1 << 62)
            for k in range(member_at[chosen], member_at[chosen] + active[chosen]):
                seen[member[k]] = True
            for k in range(lives):
                b = live[k]
                at = start[b] if seen[b] else start[b] + size[b]
                seen[b] = False
                if f < at < level:
                    level = at
            f_raise[top] = level
            if level + rest[chosen] <= ceiling:
                options[option_end + found] = -1
                found += 1
            f_option[top], f_options[top], f_next[top] = option_end, found, 0
            option_end += found
        # -- take the next option of the top frame ------------------------
        while True:
            if top < 0:
                spent[0] += nodes - left
                return INFEASIBLE
            while trail > f_trail[top]:
                trail -= 1
                floor[trail_section[trail]] = trail_floor[trail]
            while item_trails > f_items[top]:
                item_trails -= 1
                b = item_trail[item_trails]
                start[b] = item_start[item_trails]
            while placed_count > f_placed[top]:
                placed_count -= 1
                b = order[placed_count]
                placed[b] = False
                for q in range(cover_at[b], cover_at[b + 1]):
                    x = cover[q]
                    rest[x] += size[b]
                    active[x] += 1
            if f_next[top] < f_options[top]:
                break
            memo[0, f_h1[top] & mask], memo[1, f_h1[top] & mask] = f_h1[top], f_h2[top]
            top = f_parent[top]
        option_end = f_option[top] + f_options[top]
        cells, agenda = f_cells[top], f_agenda[top]
        if left <= 0:
            spent[0] += nodes
            return LIMIT
        left -= 1
        b = options[f_option[top] + f_next[top]]
        f_next[top] += 1
        s = f_section[top]
        while trail + sections + 1 > trail_section.shape[0]:
            more = np.zeros(trail_section.shape[0], np.int64)
            trail_section = np.concatenate((trail_section, more))
            trail_floor = np.concatenate((trail_floor, more))
        if b >= 0:
            f = floor[s]
            placed[b] = True
            order[placed_count] = b
            placed_count += 1
            offset[b] = f
            for q in range(cover_at[b], cover_at[b + 1]):
                x = cover[q]
                trail_section[trail], trail_floor[trail] = x, floor[x]
                trail += 1
                floor[x] = f + size[b]
                rest[x] -= size[b]
                active[x] -= 1
                i, j = slot[q], member_at[x] + active[x]
                other, e = member[j], entry[j]
                member[j], entry[j], slot[q] = b, q, j
                member[i], entry[i], slot[e] = other, e, i
                is_moved[x] = True
                moved[moved_count] = x
                moved_count += 1
        else:
            trail_section[trail], trail_floor[trail] = s, floor[s]
            trail += 1
            floor[s] = f_raise[top]
            is_moved[s] = True
            moved[moved_count] = s
            moved_count += 1
        lo, hi, parent = f_lo[top], f_hi[top], top
