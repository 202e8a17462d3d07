"""Quantised layers to NPU operations. See `lower.lower`."""
