"""Measure super-resolution as in publications: resizing, metrics, protocol, tables and figures."""
