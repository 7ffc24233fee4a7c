program tribunus.phaseir/1
value %0 "q": i8[2, 2] input
value %1: f32[] constant {0.5}
phase "main" (%0) -> (%3, %4)
  %2: f32[2, 2] = dequantize_linear(%0, %1) {axis=-1}
  %3 "a": f32[2, 2] = matmul(%2, %2)
  %4 "b": f32[2, 2] = relu(%2)
// ----
program tribunus.phaseir/1
value %0 "q": i8[2, 2] input
value %1: f32[] constant {0.5}
phase "main" (%0) -> (%3, %4)
  %2: f32[2, 2] = dequantize_linear(%0, %1) {axis=-1}
  %3 "a": f32[2, 2] = matmul(%2, %2)
  %5: f32[2, 2] = dequantize_linear(%0, %1) {axis=-1}
  %4 "b": f32[2, 2] = relu(%5)
