"""Text → 64-bit fingerprint or signature, as a profile says; nothing heavy is loaded before the first text."""

from hsimhash.fingerprint.bits import distance, distances, format_fingerprint, parse_fingerprint
from hsimhash.fingerprint.features import EXACT, TOO_SHORT, VOTED, Fingerprints
from hsimhash.fingerprint.profile import Feature, Profile
from hsimhash.fingerprint.signature import Signature, Signatures

__all__ = [
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
