// between a reduction and its reader
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
value %1: f32[] constant {0.5}
phase "main" (%0) -> (%7)
  %2: f32[2, 1] = reduce_sum(%0) {axes=[1], keepdims=1}
  %3: f32[2] = reshape(%2) {shape=[2]}
  %4: f32[2] = mul(%3, %1)
  %5: f32[2] = mul(%4, %4)
  %6: f32[2, 1] = reshape(%5) {shape=[2, 1]}
  %7 "y": f32[2, 3] = sub(%0, %6)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
value %1: f32[] constant {0.5}
phase "main" (%0) -> (%7)
  %2: f32[2, 1] = reduce_sum(%0) {axes=[1], keepdims=1}
  %3: f32[2] = reshape(%2) {shape=[2]}
  %8: f32[2, 1] = mul(%2, %1)
  %4: f32[2] = reshape(%8) {shape=[2]}
  %9: f32[2, 1] = mul(%8, %8)
  %5: f32[2] = reshape(%9) {shape=[2]}
  %6: f32[2, 1] = reshape(%5) {shape=[2, 1]}
  %7 "y": f32[2, 3] = sub(%0, %6)
// ====
// a vector follows unit extents and transpositions, but no real reshape
program tribunus.phaseir/1
value %0 "x": f32[1, 2, 3] input
value %1: f32[3] constant {1.0, 2.0, 3.0}
value %2: f32[2] constant {1.0, 2.0}
value %3: f32[6] constant {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
phase "main" (%0) -> (%5, %7, %9)
  %10: f32[1, 2, 3] = neg(%0)
  %4: f32[2, 3] = reshape(%10) {shape=[2, 3]}
  %5 "a": f32[2, 3] = add(%4, %1)
  %6: f32[1, 3, 2] = transpose(%10) {perm=[0, 2, 1]}
  %7 "b": f32[1, 3, 2] = add(%6, %2)
  %8: f32[6] = reshape(%10) {shape=[6]}
  %9 "c": f32[6] = add(%8, %3)
// ----
program tribunus.phaseir/1
value %0 "x": f32[1, 2, 3] input
value %1: f32[6] constant {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
value %9: f32[1, 1, 3] constant {1.0, 2.0, 3.0}
value %11: f32[1, 2, 1] constant {1.0, 2.0}
phase "main" (%0) -> (%3, %5, %7)
  %8: f32[1, 2, 3] = neg(%0)
  %2: f32[2, 3] = reshape(%8) {shape=[2, 3]}
  %10: f32[1, 2, 3] = add(%8, %9)
  %3 "a": f32[2, 3] = reshape(%10) {shape=[2, 3]}
  %4: f32[1, 3, 2] = transpose(%8) {perm=[0, 2, 1]}
  %12: f32[1, 2, 3] = add(%8, %11)
  %5 "b": f32[1, 3, 2] = transpose(%12) {perm=[0, 2, 1]}
  %6: f32[6] = reshape(%8) {shape=[6]}
  %7 "c": f32[6] = add(%6, %1)
// ====
// nothing to move to
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
phase "main" (%0) -> (%2)
  %1: f32[3, 2] = transpose(%0) {perm=[1, 0]}
  %2 "y": f32[3, 2] = exp(%1)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
phase "main" (%0) -> (%2)
  %1: f32[3, 2] = transpose(%0) {perm=[1, 0]}
  %2 "y": f32[3, 2] = exp(%1)
// ====
// a value that something else reads stays where it is
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
value %1: f32[2, 2] constant {1.0, 2.0, 3.0, 4.0}
phase "main" (%0) -> (%3, %4)
  %5: f32[2, 3] = neg(%0)
  %2: f32[3, 2] = transpose(%5) {perm=[1, 0]}
  %3 "a": f32[3, 2] = exp(%2)
  %4 "b": f32[3, 2] = matmul(%2, %1)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
value %1: f32[2, 2] constant {1.0, 2.0, 3.0, 4.0}
phase "main" (%0) -> (%3, %4)
  %5: f32[2, 3] = neg(%0)
  %2: f32[3, 2] = transpose(%5) {perm=[1, 0]}
  %3 "a": f32[3, 2] = exp(%2)
  %4 "b": f32[3, 2] = matmul(%2, %1)
