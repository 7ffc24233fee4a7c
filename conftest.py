"""Loads the certification plug-in, so that ``pytest certify/ --model M`` works from the repository."""

pytest_plugins = ("tribunus_certify.plugin",)
