program tribunus.phaseir/1
symbol s0 "n" 1:4:8:1
value %0 "x": i64[s0, 3] input
phase "main" (%0) -> (%7, %8)
  %1: i64[2, 3] = iota() {axis=1, dtype="i64", shape=[2, 3], start=5, step=-2}
  %2: i64[3] = extents() {dtype="i64", shape=[3], values=[7, 8, 9]}
  %3: i64[1] = extents() {dtype="i64", shape=[1], values=[s0]}
  %4: i64[1] = fill() {dtype="i64", shape=[1], value=6}
  %5: i64[s0, 3] = add(%0, %2)
  %6: i64[s0, 3] = add(%5, %3)
  %7 "y": i64[s0, 3] = add(%6, %4)
  %8 "z": i64[2, 3] = neg(%1)
// ----
program tribunus.phaseir/1
symbol s0 "n" 1:4:8:1
value %0 "x": i64[s0, 3] input
value %6: i64[2, 3] constant {5, 3, 1, 5, 3, 1}
value %7: i64[3] constant {7, 8, 9}
value %8: i64[1] constant {6}
phase "main" (%0) -> (%4, %5)
  %1: i64[1] = extents() {dtype="i64", shape=[1], values=[s0]}
  %2: i64[s0, 3] = add(%0, %7)
  %3: i64[s0, 3] = add(%2, %1)
  %4 "y": i64[s0, 3] = add(%3, %8)
  %5 "z": i64[2, 3] = neg(%6)
