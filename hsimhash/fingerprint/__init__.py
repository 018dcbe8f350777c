"""Turn text into a 64-bit fingerprint or a signature, as defined by a profile.

Dictionaries and tables are loaded when the first text is processed, not on import.
"""

from hsimhash.fingerprint.bits import distance, distances, format_fingerprint, parse_fingerprint
from hsimhash.fingerprint.features import Fingerprints
from hsimhash.fingerprint.profile import Feature, Profile
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.signature import EXACT, TOO_SHORT, VOTED, Signature, Signatures

__all__ = [
    "DEFAULT_PROFILE",
    "EXACT",
    "TOO_SHORT",
    "VOTED",
    "Feature",
    "Fingerprints",
    "Profile",
    "Signature",
    "Signatures",
    "distance",
    "distances",
    "format_fingerprint",
    "parse_fingerprint",
]
