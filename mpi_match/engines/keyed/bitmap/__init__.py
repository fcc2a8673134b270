"""Bitmap blocks: the filters that no key excludes, as rows of bits."""
