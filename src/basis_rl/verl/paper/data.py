"""Prompts that the paper trains and evaluates on; it names them and gives no file."""

from __future__ import annotations

from dataclasses import dataclass

from basis_rl.verl.paper.setting import Setting


@dataclass(frozen=True)
class TrainingSet:
    """Training prompts.

    Attributes
    ----------
    title, source : str
        What it is, and where the paper names it.
    settings : tuple of Setting
        Options of ``basis-rl verl prepare``.
    """

    title: str
    source: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of Table 1: hub id, split, columns and problems."""

    title: str
    hub: str
    split: str
    question: str
    answer: str
    problems: int


BOXED = r"{problem} Please reason step by step, and put your final answer within \boxed{}."
DAPO = TrainingSet(
    "DAPO-Math-17K, 17,398 prompts",
    "Section 5.2, Appendix D",
    (
        Setting(
            "",
            "BytedTsinghua-SIA/DAPO-Math-17k",
            "Section 5.2 (file assumed: 17,398 prompts, each about a hundred times)",
        ),
        Setting("--answer-column", "reward_model.ground_truth", "that file's column"),
    ),
)
MATH = TrainingSet(
    "MATH, Level 3-5",
    "Section 5.1",
    (
        Setting("", "DigitalLearningGmbH/MATH-lighteval", "Section 5.1 (file and split assumed)"),
        Setting("--where", "level=[Level 3, Level 4, Level 5]", "Section 5.1"),
        Setting("--template", BOXED, "assumed: Qwen2.5-Math's own instruction"),
        Setting("--answer-column", "solution", "that file's column; the answer is in \\boxed{}"),
    ),
)

# The instruction of DAPO-Math-17K, so that benchmarks are asked as the training prompts are.
ASKED = (
    r"Solve the following math problem step by step. The last line of your response should be of "
    r"the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
    r"\n\n{QUESTION}\n\nRemember to put your answer on its own line after "
    '"Answer:".'
)
# avg@32 of sampled rollouts, and one greedy rollout (Section 5.2).
SAMPLED = {
    "aime24": Benchmark("AIME 2024", "HuggingFaceH4/aime_2024", "train", "problem", "answer", 30),
    "aime25": Benchmark("AIME 2025", "math-ai/aime25", "test", "problem", "answer", 30),
    "amc23": Benchmark("AMC 2023", "math-ai/amc23", "test", "question", "answer", 40),
    "hmmt25": Benchmark("HMMT 2025", "MathArena/hmmt_feb_2025", "train", "problem", "answer", 30),
}
GREEDY = {
    "math500": Benchmark("MATH-500", "HuggingFaceH4/MATH-500", "test", "problem", "answer", 500),
    "minerva": Benchmark("Minerva Math", "math-ai/minervamath", "test", "question", "answer", 272),
    "olympiadbench": Benchmark(
        "OlympiadBench", "math-ai/olympiadbench", "test", "question", "final_answer.0", 674
    ),
}
