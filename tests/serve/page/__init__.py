"""Tests of the page that `serve` shows."""
