"""Compare profiles and distances on a sample of your own texts, and recommend one of each."""

from hsimhash.calibrate.job import calibrate
from hsimhash.calibrate.options import CalibrateOptions
from hsimhash.calibrate.page import calibration_page
from hsimhash.calibrate.results import Calibration

__all__ = ["CalibrateOptions", "Calibration", "calibrate", "calibration_page"]
