"""The paper's models, and what Appendix D says about each."""

from __future__ import annotations

from dataclasses import dataclass

from basis_rl.verl.paper.setting import Setting

MAX_PROMPT = 1024


@dataclass(frozen=True)
class PaperModel:
    """A model that the paper trains.

    Attributes
    ----------
    hub : str
        Hub id.
    parameters, layers, hidden, vocabulary, key_heads : int
        As in the model's own configuration: what the size of a run depends on.
    max_response : Setting
        Longest response in tokens.
    offline : Setting
        Rollouts of each prompt under the reference policy.
    max_prompt : Setting
        Longest prompt in tokens.
    sampling : tuple of Setting
        How rollouts are sampled online.
    chat : tuple of Setting
        How the chat template is used.
    """

    hub: str
    parameters: int
    layers: int
    hidden: int
    vocabulary: int
    key_heads: int
    max_prompt: Setting
    max_response: Setting
    offline: Setting
    sampling: tuple[Setting, ...]
    chat: tuple[Setting, ...] = ()

    @property
    def sequence(self) -> int:
        """Tokens of the longest prompt with the longest response."""
        return int(self.max_prompt.value) + int(self.max_response.value)

    @property
    def offline_sequence(self) -> int:
        """Tokens that pass rates are sampled with: verl leaves longer prompts out, a build stops.

        A prompt may be twice as long as in training, which is all that Qwen2.5-Math-7B takes.
        """
        return 2 * int(self.max_prompt.value) + int(self.max_response.value)


_ROLLOUT = "actor_rollout_ref.rollout."
_OTHER = "assumed: Appendix D gives it for Qwen2.5-Math-7B alone"


def _sampling(source: str) -> tuple[Setting, ...]:
    return (
        Setting(f"{_ROLLOUT}temperature", 1.0, "Appendix D"),
        Setting(f"{_ROLLOUT}top_p", 1.0, source),
        Setting(f"{_ROLLOUT}top_k", -1, source),
    )


MODELS = {
    "qwen3-4b": PaperModel(
        hub="Qwen/Qwen3-4B",
        parameters=4_022_468_096,
        layers=36,
        hidden=2560,
        vocabulary=151_936,
        key_heads=8,
        max_prompt=Setting("data.max_prompt_length", MAX_PROMPT, _OTHER),
        max_response=Setting("data.max_response_length", 4096, "Appendix D"),
        offline=Setting("--n", 64, "Appendix D"),
        sampling=_sampling(_OTHER),
        chat=(
            Setting(
                "data.apply_chat_template_kwargs",
                "{}",
                "assumed: verl's default, so Qwen3 may think; the pass rates' prompts too",
            ),
        ),
    ),
    "qwen2.5-math-7b": PaperModel(
        hub="Qwen/Qwen2.5-Math-7B",
        parameters=7_615_616_512,
        layers=28,
        hidden=3584,
        vocabulary=152_064,
        key_heads=4,
        max_prompt=Setting("data.max_prompt_length", MAX_PROMPT, "Appendix D"),
        max_response=Setting("data.max_response_length", 2048, "Appendix D"),
        offline=Setting("--n", 32, "Appendix D"),
        sampling=_sampling("Appendix D"),
    ),
}
