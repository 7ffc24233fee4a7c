// neutral elements, with the signs of zero
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[] constant {1.0}
value %2: f32[2] constant {-0.0, -0.0}
value %3: f32[] constant {0.0}
phase "main" (%0) -> (%8)
  %4: f32[2] = mul(%1, %0)
  %5: f32[2] = add(%4, %2)
  %6: f32[2] = sub(%5, %3)
  %7: f32[2] = add(%6, %3)
  %8 "y": f32[2] = sub(%7, %2)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[2] constant {-0.0, -0.0}
value %2: f32[] constant {0.0}
phase "main" (%0) -> (%4)
  %3: f32[2] = add(%0, %2)
  %4 "y": f32[2] = sub(%3, %1)
// ====
// zero points of zeros are none, but for those in the type of a result
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.5}
value %2: u8[] constant {0}
value %3: u8[] constant {7}
phase "main" (%0) -> (%7)
  %4: f32[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %5: u8[2] quantized() = quantize_linear(%4, %1, %2) {axis=-1, to="u8"}
  %6: f32[2] = dequantize_linear(%5, %1, %3) {axis=-1}
  %7 "y": u8[2] quantized() = quantize_linear(%6, %1, %3) {axis=-1, to="u8"}
// ----
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.5}
value %2: u8[] constant {0}
value %3: u8[] constant {7}
phase "main" (%0) -> (%7)
  %4: f32[2] = dequantize_linear(%0, %1) {axis=-1}
  %5: u8[2] quantized() = quantize_linear(%4, %1, %2) {axis=-1, to="u8"}
  %6: f32[2] = dequantize_linear(%5, %1, %3) {axis=-1}
  %7 "y": u8[2] quantized() = quantize_linear(%6, %1, %3) {axis=-1, to="u8"}
// ====
// squares, powers of two, double negation
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[] constant {2.0}
value %2: f32[] constant {8.0}
value %3: f32[] constant {3.0}
value %4: f32[] constant {0.5}
phase "main" (%0) -> (%10)
  %5: f32[2] = pow(%0, %1)
  %6: f32[2] = div(%5, %2)
  %7: f32[2] = div(%6, %3)
  %8: f32[2] = neg(%7)
  %9: f32[2] = neg(%8)
  %10 "y": f32[2] = pow(%9, %4)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[] constant {3.0}
value %2: f32[] constant {0.5}
value %8: f32[] constant {0.125}
phase "main" (%0) -> (%7)
  %3: f32[2] = mul(%0, %0)
  %4: f32[2] = mul(%3, %8)
  %5: f32[2] = div(%4, %1)
  %6: f32[2] = neg(%5)
  %7 "y": f32[2] = pow(%5, %2)
// ====
// a neutral element that changes the shape stays
program tribunus.phaseir/1
value %0 "x": f32[1] input
value %1: f32[2] constant {1.0, 1.0}
phase "main" (%0) -> (%2)
  %2 "y": f32[2] = mul(%0, %1)
// ----
program tribunus.phaseir/1
value %0 "x": f32[1] input
value %1: f32[2] constant {1.0, 1.0}
phase "main" (%0) -> (%2)
  %2 "y": f32[2] = mul(%0, %1)
// ====
// infinite bounds are none
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[] constant {-inf}
value %2: f32[] constant {inf}
phase "main" (%0) -> (%5)
  %3: f32[2] = maximum(%0, %1)
  %4: f32[2] = maximum(%3, %2)
  %5 "y": f32[2] = minimum(%4, %1)
// ----
program tribunus.phaseir/1
value %0 "x": f32[2] input
value %1: f32[] constant {-inf}
value %2: f32[] constant {inf}
phase "main" (%0) -> (%4)
  %3: f32[2] = maximum(%0, %2)
  %4 "y": f32[2] = minimum(%3, %1)
// ====
// bytes dequantized, quantized and dequantized again with the same numbers are the bytes dequantized once
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.3}
value %2: u8[] constant {7}
value %3: f32[] constant {0.25}
phase "main" (%0) -> (%8)
  %4: f32[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %5: u8[2] quantized() = quantize_linear(%4, %1, %2) {axis=-1, to="u8"}
  %6: f32[2] = dequantize_linear(%5, %1, %2) {axis=-1}
  %7: f32[2] = relu(%6)
  %8 "y": u8[2] quantized() = quantize_linear(%7, %3, %2) {axis=-1, to="u8"}
// ----
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.30000001192092896}
value %2: u8[] constant {7}
value %3: f32[] constant {0.25}
phase "main" (%0) -> (%7)
  %4: f32[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %5: u8[2] quantized() = quantize_linear(%4, %1, %2) {axis=-1, to="u8"}
  %6: f32[2] = relu(%4)
  %7 "y": u8[2] quantized() = quantize_linear(%6, %3, %2) {axis=-1, to="u8"}
// ====
// with another scale or zero point they are not
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.3}
value %2: u8[] constant {7}
value %3: f32[] constant {0.25}
value %4: u8[] constant {9}
phase "main" (%0) -> (%11)
  %5: f32[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %6: u8[2] quantized() = quantize_linear(%5, %3, %2) {axis=-1, to="u8"}
  %7: f32[2] = dequantize_linear(%6, %3, %2) {axis=-1}
  %8: f32[2] = relu(%7)
  %9: u8[2] quantized() = quantize_linear(%8, %3, %4) {axis=-1, to="u8"}
  %10: f32[2] = dequantize_linear(%9, %3, %2) {axis=-1}
  %11 "y": f32[2] = relu(%10)
// ----
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f32[] constant {0.30000001192092896}
value %2: u8[] constant {7}
value %3: f32[] constant {0.25}
value %4: u8[] constant {9}
phase "main" (%0) -> (%11)
  %5: f32[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %6: u8[2] quantized() = quantize_linear(%5, %3, %2) {axis=-1, to="u8"}
  %7: f32[2] = dequantize_linear(%6, %3, %2) {axis=-1}
  %8: f32[2] = relu(%7)
  %9: u8[2] quantized() = quantize_linear(%8, %3, %4) {axis=-1, to="u8"}
  %10: f32[2] = dequantize_linear(%9, %3, %2) {axis=-1}
  %11 "y": f32[2] = relu(%10)
// ====
// nor in a format that is too coarse
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f16[] constant {0.25}
value %2: u8[] constant {7}
phase "main" (%0) -> (%6)
  %3: f16[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %4: u8[2] quantized() = quantize_linear(%3, %1, %2) {axis=-1, to="u8"}
  %5: f16[2] = dequantize_linear(%4, %1, %2) {axis=-1}
  %6 "y": f16[2] = relu(%5)
// ----
program tribunus.phaseir/1
value %0 "x": u8[2] input
value %1: f16[] constant {0.25}
value %2: u8[] constant {7}
phase "main" (%0) -> (%6)
  %3: f16[2] = dequantize_linear(%0, %1, %2) {axis=-1}
  %4: u8[2] quantized() = quantize_linear(%3, %1, %2) {axis=-1, to="u8"}
  %5: f16[2] = dequantize_linear(%4, %1, %2) {axis=-1}
  %6 "y": f16[2] = relu(%5)
