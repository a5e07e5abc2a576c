"""BASIS in verl: what ``actor_rollout_ref.model.external_lib=basis_rl.verl`` imports.

In a process of verl the import registers the estimators and puts the adapter into the trainer (see
`basis_rl.verl.plugin`). Elsewhere it does nothing, so that the command line needs no verl.
"""

from __future__ import annotations

import sys

if "verl" in sys.modules:
    from basis_rl.verl.plugin import activate

    activate()
