"""Ordinary differential equations, solved by adaptive and fixed steps, with exact gradients of what is computed."""

from __future__ import annotations

from tape.ode.solving import Solution, StepError, solve

__all__ = ["Solution", "StepError", "solve"]
