// equal ops and equal constants; 0 and -0 are two numbers
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[2] constant {1.0, 2.0}
value %2: f32[2] constant {1.0, 2.0}
phase "main" (%0) -> (%9)
  %3: f32[2] = add(%0, %1)
  %4: f32[2] = add(%0, %2)
  %5: f32[2] = mul(%3, %4)
  %6: f32[2] = leaky_relu(%5) {alpha=0.0f}
  %7: f32[2] = leaky_relu(%5) {alpha=-0.0f}
  %8: f32[2] = leaky_relu(%5) {alpha=0.0f}
  %10: f32[2] = add(%6, %7)
  %9 "y": f32[2] = add(%10, %8)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[2] constant {1.0, 2.0}
phase "main" (%0) -> (%6)
  %2: f32[2] = add(%0, %1)
  %3: f32[2] = mul(%2, %2)
  %4: f32[2] = leaky_relu(%3) {alpha=0.0f}
  %5: f32[2] = leaky_relu(%3) {alpha=-0.0f}
  %7: f32[2] = add(%4, %5)
  %6 "y": f32[2] = add(%7, %4)
// ====
// two outputs stay two
program tribunus.phaseir/1
value %0 "x": f32[2] input
phase "main" (%0) -> (%1, %2)
  %1 "a": f32[2] = relu(%0)
  %2 "b": f32[2] = relu(%0)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
phase "main" (%0) -> (%1, %2)
  %1 "a": f32[2] = relu(%0)
  %2 "b": f32[2] = relu(%0)
