"""The one prompt of the VinePPO paper's tasks (`configs/prompt_library` in the authors' repository,
commit efe7228): the same for SFT, reinforcement learning, value rollouts and evaluation."""

STOP = ("\n\n\nProblem:",)


def solve(problem: str) -> str:
    """Nothing follows the colon: the response begins with a newline of the model's."""
    return f"[MATH_TASK] Problem:\n{problem}\n\nSolution:"
