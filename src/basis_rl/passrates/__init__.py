"""Pass rates of prompts under a reference policy: table, Parquet file, keys, provenance."""

from __future__ import annotations

from basis_rl.passrates.keys import prompt_hash, prompt_key
from basis_rl.passrates.provenance import Difference, Provenance
from basis_rl.passrates.table import PassRates

__all__ = ["Difference", "PassRates", "Provenance", "prompt_hash", "prompt_key"]
