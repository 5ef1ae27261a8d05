"""Programs as PyTorch's users write them in tutorials, courses and repositories: texts, by name.

Each ends with `result`, its losses in order. None may be changed to suit tape.
"""

from tests.nn.programs import agents, derivatives, images, regression, sequences

PROGRAMS: dict[str, str] = (
    regression.PROGRAMS | images.PROGRAMS | sequences.PROGRAMS | agents.PROGRAMS | derivatives.PROGRAMS
)
