program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1 "unread": f32[2] input
value %2: f32[2] constant {1.0, 2.0}
phase "main" (%0, %1) -> (%5)
  %3: f32[2] = add(%1, %2)
  %4: f32[2] = relu(%3)
  %5 "y": f32[2] = relu(%0)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1 "unread": f32[2] input
phase "main" (%0, %1) -> (%2)
  %2 "y": f32[2] = relu(%0)
