"""The whole pipeline, from a model to a signed compute image.  Read ``pipeline.py`` first.

Imported by: certify (the pytest plug-in), cli, tests.  Knows no pytest.
"""
