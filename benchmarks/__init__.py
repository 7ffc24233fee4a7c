"""Models to measure, and the engines to be measured against.  Run from the repository; not part of the wheel.

Imported by: tests/benchmarks and the commands in this folder.  Imports: tribunus.errors.
"""
