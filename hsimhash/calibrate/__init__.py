"""Which profile and which distance fit somebody's own texts: compared on a sample of them, and recommended."""

from hsimhash.calibrate.job import calibrate
from hsimhash.calibrate.options import CalibrateLimits, CalibrateOptions
from hsimhash.calibrate.page import calibration_page
from hsimhash.calibrate.results import Calibration

__all__ = ["CalibrateLimits", "CalibrateOptions", "Calibration", "calibrate", "calibration_page"]
