"""Text → 64-bit fingerprint, as a profile says; nothing heavy is loaded before the first text."""

from hsimhash.fingerprint.bits import distance, distances, format_fingerprint
from hsimhash.fingerprint.features import EXACT, TOO_SHORT, VOTED
from hsimhash.fingerprint.formats import parse_fingerprint
from hsimhash.fingerprint.profile import Feature, Fingerprints, Profile
from hsimhash.fingerprint.stream import fingerprint_stream

__all__ = [
    "EXACT",
    "TOO_SHORT",
    "VOTED",
    "Feature",
    "Fingerprints",
    "Profile",
    "distance",
    "distances",
    "fingerprint_stream",
    "format_fingerprint",
    "parse_fingerprint",
]
