"""`basis-rl lab simulate`: a record of rewards whose true values are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click


@click.command(short_help="Write a simulated record, to try the other commands on.")
@click.argument("scenario", required=False)
@click.option("--out", metavar="OUT.parquet", help="File to write; SCENARIO.parquet if left out.")
@click.option("--prompts", type=int, help="Prompts.")
@click.option("--visits", type=int, help="Visits of each prompt.")
@click.option("--rollouts", type=int, help="Rollouts of a visit.")
@click.option("--cache", type=int, help="Reference rollouts of each prompt; 0 for none.")
@click.option("--batch-size", type=int, help="Prompts in a training step.")
@click.option("--drift", type=float, help="Deviation of a prompt's own change between visits.")
@click.option("--tilt", type=float, help="What all prompts gain in the course of the record.")
@click.option("--seed", type=int, help="Another seed, another record.")
@click.option("--list", "listed", is_flag=True, help="Print the scenarios and their settings.")
def simulate(scenario: str | None, out: str | None, listed: bool, **settings: Any) -> None:
    """Write a simulated record of SCENARIO.

    Options replace single settings of the scenario. Without SCENARIO, or with --list, the
    scenarios are printed.
    """
    from basis_rl.errors import ConfigError
    from basis_rl.files import check_writable
    from basis_rl.lab.read import write_record
    from basis_rl.lab.simulate import SCENARIOS
    from basis_rl.lab.simulate import scenario as named

    if listed or scenario is None:
        for name, values in SCENARIOS.items():
            shown = ", ".join(f"{key} {value}" for key, value in values.items())
            click.echo(f"{name:16} {shown or 'nothing changes'}")
        return
    given = {name: value for name, value in settings.items() if value is not None}
    path = out or f"{scenario}.parquet"
    if not path.endswith(".parquet"):
        raise ConfigError(f"--out is {path!r}: name a file that ends with .parquet")
    check_writable(path, shown=path)
    record = dataclasses.replace(named(scenario, **given).record, name=Path(path).stem)
    write_record(record, path)
    counts = {"prompt": len(record.keys), "visit": len(record), "reward": len(record.rewards)}
    shown = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items())
    click.echo(f"wrote {path}: {shown}, mean {record.rewards.mean():.3f}", err=True)
