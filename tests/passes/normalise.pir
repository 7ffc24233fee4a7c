// what moves nothing goes; an output keeps its name
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
phase "main" (%0) -> (%7)
  %1: f32[2, 3] = copy(%0)
  %2: f32[2, 3] = relu(%1)
  %3: f32[2, 3] = cast(%2) {to="f32"}
  %4: f32[2, 3] = slice(%3) {sizes=[2, 3], starts=[0, 0], steps=[1, 1]}
  %5: f32[3, 2] = transpose(%4) {perm=[1, 0]}
  %6: f32[2, 3] = transpose(%5) {perm=[1, 0]}
  %7 "y": f32[2, 3] = pad(%6) {after=[0, 0], before=[0, 0], mode="constant"}
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3] input
phase "main" (%0) -> (%2)
  %2 "y": f32[2, 3] = relu(%0)
  %1: f32[3, 2] = transpose(%2) {perm=[1, 0]}
// ====
// an input that is an output stays a copy
program tribunus.phaseir/1
value %0 "x": f32[2] input
phase "main" (%0) -> (%1)
  %1 "y": f32[2] = copy(%0)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
phase "main" (%0) -> (%1)
  %1 "y": f32[2] = copy(%0)
// ====
// chains of one kind, transpositions of unit extents, expansions for elementwise readers
program tribunus.phaseir/1
symbol s0 "n" 1:4:8:1
value %0 "x": f32[s0, 1, 6] input
value %1 "b": f32[1, 6] input
phase "main" (%0, %1) -> (%6, %8)
  %2: f32[1, s0, 6] = transpose(%0) {perm=[1, 0, 2]}
  %3: f32[s0, 2, 3] = reshape(%2) {shape=[s0, 2, 3]}
  %4: f32[s0, 6] = reshape(%3) {shape=[s0, 6]}
  %5: f32[s0, 6] = expand(%1) {shape=[s0, 6]}
  %6 "y": f32[s0, 6] = add(%4, %5)
  %7: f32[6, s0] = transpose(%4) {perm=[1, 0]}
  %8 "z": f32[6, s0] = neg(%7)
// ----
program tribunus.phaseir/1
symbol s0 "n" 1:4:8:1
value %0 "x": f32[s0, 1, 6] input
value %1 "b": f32[1, 6] input
phase "main" (%0, %1) -> (%6, %8)
  %2: f32[1, s0, 6] = reshape(%0) {shape=[1, s0, 6]}
  %3: f32[s0, 2, 3] = reshape(%0) {shape=[s0, 2, 3]}
  %4: f32[s0, 6] = reshape(%0) {shape=[s0, 6]}
  %5: f32[s0, 6] = expand(%1) {shape=[s0, 6]}
  %6 "y": f32[s0, 6] = add(%4, %1)
  %7: f32[6, s0] = transpose(%4) {perm=[1, 0]}
  %8 "z": f32[6, s0] = neg(%7)
// ====
// slices of slices, a cast of an expansion
program tribunus.phaseir/1
value %0 "x": f32[9, 4] input
value %1 "m": i64[3, 1] input
phase "main" (%0, %1) -> (%3, %6)
  %2: f32[4, 4] = slice(%0) {sizes=[4, 4], starts=[1, 0], steps=[2, 1]}
  %3 "y": f32[2, 3] = slice(%2) {sizes=[2, 3], starts=[3, 1], steps=[-2, 1]}
  %4: i64[3, 5] = expand(%1) {shape=[3, 5]}
  %5: f32[3, 5] = cast(%4) {to="f32"}
  %6 "z": f32[3, 5] = mul(%5, %5)
// ----
program tribunus.phaseir/1
value %0 "x": f32[9, 4] input
value %1 "m": i64[3, 1] input
phase "main" (%0, %1) -> (%3, %6)
  %2: f32[4, 4] = slice(%0) {sizes=[4, 4], starts=[1, 0], steps=[2, 1]}
  %3 "y": f32[2, 3] = slice(%0) {sizes=[2, 3], starts=[7, 1], steps=[-4, 1]}
  %4: i64[3, 5] = expand(%1) {shape=[3, 5]}
  %7: f32[3, 1] = cast(%1) {to="f32"}
  %5: f32[3, 5] = expand(%7) {shape=[3, 5]}
  %6 "z": f32[3, 5] = mul(%5, %5)
// ====
// integers move before they are dequantized
program tribunus.phaseir/1
value %0 "q": i8[2, 3] input
value %1: f32[2] constant {0.5, 2.0}
value %2: f32[] constant {0.5}
phase "main" (%0) -> (%4, %6, %7)
  %3: f32[2, 3] = dequantize_linear(%0, %1) {axis=0}
  %4 "a": f32[3, 2] = transpose(%3) {perm=[1, 0]}
  %5: f32[2, 3] = dequantize_linear(%0, %2) {axis=-1}
  %6 "b": f32[6] = reshape(%5) {shape=[6]}
  %7 "c": f32[6] = reshape(%3) {shape=[6]}
// ----
program tribunus.phaseir/1
value %0 "q": i8[2, 3] input
value %1: f32[2] constant {0.5, 2.0}
value %2: f32[] constant {0.5}
phase "main" (%0) -> (%4, %6, %7)
  %3: f32[2, 3] = dequantize_linear(%0, %1) {axis=0}
  %8: i8[3, 2] = transpose(%0) {perm=[1, 0]}
  %4 "a": f32[3, 2] = dequantize_linear(%8, %1) {axis=1}
  %5: f32[2, 3] = dequantize_linear(%0, %2) {axis=-1}
  %9: i8[6] = reshape(%0) {shape=[6]}
  %6 "b": f32[6] = dequantize_linear(%9, %2) {axis=-1}
  %7 "c": f32[6] = reshape(%3) {shape=[6]}
// ====
// two rotations are the third
program tribunus.phaseir/1
value %0 "x": f32[2, 3, 4] input
phase "main" (%0) -> (%2)
  %1: f32[3, 4, 2] = transpose(%0) {perm=[1, 2, 0]}
  %2 "y": f32[3, 2, 4] = transpose(%1) {perm=[0, 2, 1]}
// ----
program tribunus.phaseir/1
value %0 "x": f32[2, 3, 4] input
phase "main" (%0) -> (%2)
  %1: f32[3, 4, 2] = transpose(%0) {perm=[1, 2, 0]}
  %2 "y": f32[3, 2, 4] = transpose(%0) {perm=[1, 0, 2]}
