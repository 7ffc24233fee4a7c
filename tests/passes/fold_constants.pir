// a transposed and reshaped weight becomes a weight
program tribunus.phaseir/1
value %0 "x": f32[1, 2] input
value %1 "w": f32[3, 2] constant {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
phase "main" (%0) -> (%3)
  %2 "wt": f32[2, 3] = transpose(%1) {perm=[1, 0]}
  %3 "y": f32[1, 3] = matmul(%0, %2)
// ----
program tribunus.phaseir/1
value %0 "x": f32[1, 2] input
value %2 "wt": f32[2, 3] constant {1.0, 3.0, 5.0, 2.0, 4.0, 6.0}
phase "main" (%0) -> (%1)
  %1 "y": f32[1, 3] = matmul(%0, %2)
// ====
// one rounding is allowed, a transcendental is not folded
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[2] constant {1.0, 3.0}
value %2: f32[] constant {3.0}
phase "main" (%0) -> (%6)
  %3: f32[2] = div(%1, %2)
  %4: f32[2] = exp(%1)
  %5: f32[2] = add(%0, %3)
  %6 "y": f32[2] = add(%5, %4)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[2] constant {1.0, 3.0}
value %5: f32[2] constant {0.3333333432674408, 1.0}
phase "main" (%0) -> (%4)
  %2: f32[2] = exp(%1)
  %3: f32[2] = add(%0, %5)
  %4 "y": f32[2] = add(%3, %2)
// ====
// integers divide toward zero; dividing by zero and casts out of range stay
program tribunus.phaseir/1
value %0 "x": i64[2] input
value %1: i64[2] constant {-7, 7}
value %2: i64[2] constant {2, 2}
value %3: i64[2] constant {0, 1}
value %4: f32[1] constant {3e9}
phase "main" (%0) -> (%8, %9)
  %5: i64[2] = div(%1, %2)
  %6: i64[2] = div(%1, %3)
  %7: i64[2] = add(%0, %5)
  %8 "y": i64[2] = add(%7, %6)
  %9 "z": i32[1] = cast(%4) {to="i32"}
// ----
program tribunus.phaseir/1
value %0 "x": i64[2] input
value %1: i64[2] constant {-7, 7}
value %2: i64[2] constant {0, 1}
value %3: f32[1] constant {3000000000.0}
value %8: i64[2] constant {-3, 3}
phase "main" (%0) -> (%6, %7)
  %4: i64[2] = div(%1, %2)
  %5: i64[2] = add(%0, %8)
  %6 "y": i64[2] = add(%5, %4)
  %7 "z": i32[1] = cast(%3) {to="i32"}
// ====
// weights in integers stay in integers
program tribunus.phaseir/1
value %0 "x": f32[1, 2] input
value %1: i8[2, 1] constant {1, -2}
value %2: f32[] constant {0.5}
phase "main" (%0) -> (%4)
  %3: f32[2, 1] = dequantize_linear(%1, %2) {axis=-1}
  %4 "y": f32[1, 1] = matmul(%0, %3)
// ----
program tribunus.phaseir/1
value %0 "x": f32[1, 2] input
value %1: i8[2, 1] constant {1, -2}
value %2: f32[] constant {0.5}
phase "main" (%0) -> (%4)
  %3: f32[2, 1] = dequantize_linear(%1, %2) {axis=-1}
  %4 "y": f32[1, 1] = matmul(%0, %3)
// ====
// scattered and gathered weights
program tribunus.phaseir/1
value %0 "x": f32[1, 4] input
value %1: f32[4] constant {0.0, 0.0, 0.0, 0.0}
value %2: i64[2] constant {-1, 1}
value %3: f32[2] constant {5.0, 7.0}
value %4: i64[2] constant {1, 1}
phase "main" (%0) -> (%9)
  %5: f32[4] = scatter_elements(%1, %2, %3) {axis=0, reduction="none"}
  %6: f32[4] = scatter_elements(%1, %4, %3) {axis=0, reduction="none"}
  %7: f32[2] = gather_elements(%5, %2) {axis=0}
  %8: f32[1, 4] = add(%0, %5)
  %9 "y": f32[1, 4] = add(%8, %6)
// ----
program tribunus.phaseir/1
value %0 "x": f32[1, 4] input
value %1: f32[4] constant {0.0, 0.0, 0.0, 0.0}
value %2: f32[2] constant {5.0, 7.0}
value %3: i64[2] constant {1, 1}
value %7: f32[4] constant {0.0, 7.0, 0.0, 5.0}
phase "main" (%0) -> (%6)
  %4: f32[4] = scatter_elements(%1, %3, %2) {axis=0, reduction="none"}
  %5: f32[1, 4] = add(%0, %7)
  %6 "y": f32[1, 4] = add(%5, %4)
