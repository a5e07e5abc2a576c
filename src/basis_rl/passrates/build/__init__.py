"""Building a table of pass rates: sample, verify, keep a journal, write one file."""

from __future__ import annotations

from basis_rl.passrates.build.builder import build_cache
from basis_rl.passrates.build.identity import journal_path
from basis_rl.passrates.build.later import LaterEngine
from basis_rl.passrates.build.progress import BuildProgress

__all__ = ["BuildProgress", "LaterEngine", "build_cache", "journal_path"]
