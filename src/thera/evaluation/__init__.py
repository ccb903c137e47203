"""Measuring super-resolution as it is published: resizing, metrics, protocol, tables and figures."""
