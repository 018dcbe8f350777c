"""Inputs: find files, read their records, and turn them into documents."""

from hsimhash.inputs.files import FORMATS, Input, InputOptions
from hsimhash.inputs.find import find_inputs

__all__ = ["FORMATS", "Input", "InputOptions", "find_inputs"]
