"""The compute image as a file: container, content, evidence, trust.

Imported by: runtime, certification, reports, cli.  Imports: errors, canon.  Standard library and cryptography only.

Reading: ``read`` (``open_image``), ``policy`` (``find_policy``), ``marks``.  Writing: ``write`` (``write_image``),
``normalize``, ``keys``.  Comparing: ``diff``.  The format itself: ``media``, ``tar``, ``content``, ``statement``,
``dsse``, ``merkle``.  This package imports none of them by itself, so that a reader pays only for what it uses.
"""
