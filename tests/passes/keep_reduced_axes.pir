program tribunus.phaseir/1
value %0 "x": f32[2, 3, 4] input
value %1 "w": f32[4, 1] constant {1.0, 2.0, 3.0, 4.0}
phase "main" (%0) -> (%4, %5, %3)
  %2: f32[2, 4] = reduce_sum(%0) {axes=[1], keepdims=0}
  %3 "kept": f32[2, 3] = reduce_mean(%0) {axes=[2], keepdims=0}
  %4 "y": f32[2, 4] = neg(%2)
  %6: f32[2, 4] = reduce_max(%0) {axes=[1], keepdims=0}
  %5 "z": f32[2, 1] = matmul(%6, %1)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3, 4] input
value %1 "w": f32[4, 1] constant {1.0, 2.0, 3.0, 4.0}
phase "main" (%0) -> (%4, %5, %3)
  %7: f32[2, 1, 4] = reduce_sum(%0) {axes=[1], keepdims=1}
  %2: f32[2, 4] = reshape(%7) {shape=[2, 4]}
  %3 "kept": f32[2, 3] = reduce_mean(%0) {axes=[2], keepdims=0}
  %4 "y": f32[2, 4] = neg(%2)
  %6: f32[2, 4] = reduce_max(%0) {axes=[1], keepdims=0}
  %5 "z": f32[2, 1] = matmul(%6, %1)
