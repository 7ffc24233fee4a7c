program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1 "c": f32[1] constant {1.0}
phase "main" (%0) -> (%0, %2, %1, %2)
  %2 "y": f32[2] = relu(%0)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1 "c": f32[1] constant {1.0}
phase "main" (%0) -> (%3, %2, %4, %5)
  %2 "y": f32[2] = relu(%0)
  %3 "x": f32[2] = copy(%0)
  %4 "c": f32[1] = copy(%1)
  %5 "y": f32[2] = copy(%2)
