"""Inputs: which files, how their lines are read, and the documents in them."""

from hsimhash.inputs.files import FORMATS, Input, InputOptions
from hsimhash.inputs.find import find_inputs

__all__ = ["FORMATS", "Input", "InputOptions", "find_inputs"]
