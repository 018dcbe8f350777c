"""Fuzzed records: `python -m tests.stress.fuzz_records [--records 10000]`.

Good and bad records of every format, with texts, fingerprints or signatures, go through `hsimhash ingest`. Some are bad
in a known way; some have bytes changed at random. The plainest possible reading determines which are good. `ingest`
must not print a traceback. It must list each bad record by its line in the rejects, put each good one into the index,
and count both correctly.
"""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hsimhash import HSimIndex, Profile
from hsimhash.errors import TextTooShortError
from hsimhash.fingerprint import Signature, parse_fingerprint
from tests.support.archives import PACK
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

RECORDS, SEED = 10_000, 16
LIMIT_BYTES = 16 << 20
SHARES = {"jsonl": 0.4, "tsv": 0.2, "fingerprints": 0.2, "signatures": 0.2}
READING = {
    "jsonl": ("--id-field", "id"),
    "signatures": ("--format", "jsonl", "--id-field", "id", "--fingerprint-field", "fingerprint"),
}

Good = tuple[str, str | Signature]  # an id, and a text or a signature


class BadError(Exception):
    """A record is not a document."""


# The plainest reading.


def checked_id(doc_id: str) -> str:
    size = len(doc_id.encode())  # a lone surrogate is a ValueError
    if not 1 <= size <= 2048 or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in doc_id):
        raise BadError
    return doc_id


def id_truth(record: dict[str, object]) -> str:
    doc_id = record["id"]
    if type(doc_id) is int:
        doc_id = str(doc_id)
    if not isinstance(doc_id, str):
        raise BadError
    return checked_id(doc_id)


def json_truth(line: bytes) -> Good:
    record = json.loads(line.decode())
    doc_id, text = id_truth(record), record["text"]
    if not isinstance(text, str):
        raise BadError
    text.encode()
    return doc_id, text


def number_truth(value: object) -> int:
    if type(value) is int and 0 <= value < 2**64:
        return value
    if not isinstance(value, str):
        raise BadError
    return parse_fingerprint(value, format="hex")


def signature_truth(line: bytes) -> Good:
    record = json.loads(line.decode())
    doc_id, fingerprint = id_truth(record), number_truth(record["fingerprint"])
    if record.get("sketch") is None:
        return doc_id, Signature(fingerprint)
    return doc_id, Signature(fingerprint, *(digits_truth(record.get(name)) for name in ("sketch", "key")))


def digits_truth(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, str) or len(value) != 16 or set(value) - set(string.hexdigits):
        raise BadError
    return int(value, 16)


def tsv_truth(line: bytes) -> Good:
    doc_id, text = line.removesuffix(b"\r").decode().split("\t", 1)
    return checked_id(doc_id), text


def fingerprint_truth(line: bytes) -> Good:
    doc_id, fingerprint = line.removesuffix(b"\r").decode().split("\t")
    return checked_id(doc_id), Signature(number_truth(fingerprint))


TRUTHS = {"jsonl": json_truth, "tsv": tsv_truth, "fingerprints": fingerprint_truth, "signatures": signature_truth}


def truth_of(form: str, line: bytes) -> Good | None:
    """Return what a line means; None for a bad one."""
    if len(line) > LIMIT_BYTES:
        return None
    try:
        return TRUTHS[form](line)
    except (BadError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_blank(form: str, line: bytes) -> bool:
    return not line.strip(b" \t\r" if is_json(form) else b" \r")


def is_json(form: str) -> bool:
    return form in ("jsonl", "signatures")


# Records.


@dataclass
class Maker:
    """Makes lines of one format, without line ends; `known_bad` are bad in all known ways."""

    form: str
    rng: random.Random
    number: int = 0

    def good(self) -> bytes:
        self.number += 1
        doc_id = f"{self.number}-{self._characters(self.rng.choice([0, 5, 5, 30, 600]), is_id=True)}"
        if self.form == "fingerprints":
            return self._line(doc_id, self._fingerprint())
        if self.form == "signatures":
            return self._json({"id": doc_id, **self._signature()})
        text = self._characters(self.rng.choice([0, 1, 20, 200, 200, 2_000]))
        if self.rng.random() < 0.001:
            text *= 500
        return self._json({"id": doc_id, "text": text}) if self.form == "jsonl" else self._line(doc_id, text)

    def known_bad(self) -> bytes:
        self.number += 1
        return self.rng.choice(self._bad_json() if is_json(self.form) else self._bad_lines())

    def wild(self) -> bytes:
        """A good line with some bytes changed, dropped, doubled or inserted."""
        line = bytearray(self.good())
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            at = self.rng.randrange(len(line) + 1)
            count = self.rng.choice([0, 1, 1, 8])
            junk = self.rng.choice([b"", self.rng.randbytes(count), b"\t", b'"', b"\0", b"\\u", b"\xff", b"\xc2\x85"])
            line[at : at + self.rng.choice([0, 1, 5])] = junk
        return bytes(line).replace(b"\n", b"")

    def _characters(self, count: int, *, is_id: bool = False) -> str:
        pools = ["abcdefghij klmno.,-", "近似重复的网页非常普遍，", "аябвг", "かなカナ", "ไทยไม่มี", "😀🏳️‍🌈e\u0301\u200b"]
        text = "".join(self.rng.choice(self.rng.choice(pools)) for _ in range(count))
        if is_id:
            return text.encode()[:2000].decode(errors="ignore")
        return text

    def _fingerprint(self) -> str:
        value = self.rng.getrandbits(64)
        return self.rng.choice([f"{value:016x}", f"{value:016x}", f"{value:016X}", f"{value:#x}"])

    def _signature(self) -> dict[str, object]:
        parts: dict[str, object] = {name: f"{self.rng.getrandbits(64):016x}" for name in ("sketch", "key")}
        parts["fingerprint"] = self.rng.choice([self._fingerprint(), self.rng.getrandbits(64)])
        for name in ("sketch", "key"):
            if self.rng.random() < 0.2:
                parts[name] = self.rng.choice([None, "0" * 16])
            elif self.rng.random() < 0.2:
                del parts[name]
        return parts

    def _json(self, fields: dict[str, object]) -> bytes:
        more = {"score": float("nan"), "list": [1, {"deep": None}], "id ": "no id", "other": "\ud800"}
        fields |= {name: more[name] for name in self.rng.sample(list(more), self.rng.randrange(3))}
        items = list(fields.items())
        self.rng.shuffle(items)
        # A lone surrogate cannot be written in UTF-8, only as an escape.
        is_ascii = self.rng.random() < 0.5 or "other" in fields
        return json.dumps(dict(items), ensure_ascii=is_ascii, indent=None).encode()

    def _line(self, doc_id: str, value: str) -> bytes:
        return f"{doc_id}\t{value}".encode() + self.rng.choice([b"", b"", b"\r"])

    def _bad_json(self) -> list[bytes]:
        doc_id = f"bad-{self.number}"
        wrong: list[object] = [None, True, 1.5, [], {}, [doc_id]]
        bad_numbers = [*wrong[1:], -1, 2**64, "", "0x", "-1", "123", "g" * 16, "1" * 17, "\udc80"]
        bad: dict[str, list[object]] = {"text": [*wrong, 7, "\ud800 lone"]}
        good = {"text": "a text"}
        if self.form == "signatures":
            bad = {"fingerprint": [None, *bad_numbers], "sketch": [*bad_numbers, 7], "key": [*bad_numbers, 7]}
            good = {"fingerprint": "0123456789abcdef", "sketch": "0123456789abcdef"}
        usual = json.dumps({"id": doc_id, **good}).encode()
        bad_ids = ["", "x" * 2049, "文" * 683, "a\0", "a\x85", "\x7f", "\udc80"]
        return [
            *(json.dumps({"id": value, **good}).encode() for value in [*wrong, *bad_ids]),
            *(
                json.dumps({"id": doc_id, **good, name: value}).encode()
                for name, values in bad.items()
                for value in values
            ),
            *(json.dumps(value).encode() for value in [[doc_id, good], doc_id, 7, None, {"id": doc_id}, good]),
            usual[: self.rng.randrange(1, 20)],
            usual[:-1] + b', "other": "\xff\xfe"}',
            usual + usual,
            usual[:-1] + b', "n": ' + b"1" * 5_000 + b"}",
            b"[" * 100_000,
            b'{"a":' * 50_000,
            usual[:-1] + b', "other": "tab\there"}',
            self.rng.randbytes(self.rng.randrange(1, 300)).replace(b"\n", b"") + b"\0",
        ]

    def _bad_lines(self) -> list[bytes]:
        good = b"text" if self.form == "tsv" else b"0123456789abcdef"
        lines = [
            *(doc_id + b"\t" + good for doc_id in (b"", b"x" * 2049, b"a\0", b"\xc2\x85", b"\x7f", b"\xff")),
            b"no tab",
            b"a\xff\t" + good,
        ]
        if self.form == "fingerprints":
            lines += [
                b"a\t",
                b"a\tb\t0123456789abcdef",
                b"a\t0123456789abcdeg",
                b"a\t-1",
                b"a\t12345678901234567",
                b"a\t%d" % 2**64,
                b"\xd9\xa1\t",
            ]
        return lines


def make_lines(form: str, count: int, rng: random.Random) -> list[bytes]:
    """Return `count` records with blank lines between them, and two that are too long."""
    maker = Maker(form, rng)
    lines = []
    for kind in rng.choices([maker.good, maker.known_bad, maker.wild], [5, 3, 4], k=max(0, count - 2)):
        line = kind()
        if kind == maker.good and truth_of(form, line) is None:
            raise AssertionError(f"the fuzz's own good record reads as a bad one: {line[:200]!r}")
        if kind == maker.known_bad and truth_of(form, line) is not None:
            raise AssertionError(f"the fuzz's own bad record reads as a good one: {line[:200]!r}")
        lines += [line, *[rng.choice([b"", b" ", b"\r"])] * (rng.random() < 0.02)]
    long = maker.good().removesuffix(b"\r")
    for size in (LIMIT_BYTES + 1, 2 * LIMIT_BYTES + 77):
        lines.insert(rng.randrange(len(lines) + 1), long + b" " * (size - len(long)))
    return lines


# The results.


def expected_index(form: str, lines: list[bytes], profile: Profile) -> dict[str, Signature]:
    """Return what the index must hold: for each id, the last record that has a fingerprint."""
    held: dict[str, Signature] = {}
    for line in lines:
        truth = truth_of(form, line)
        if truth is None:
            continue
        doc_id, value = truth
        with suppress(TextTooShortError):
            held[doc_id] = value if isinstance(value, Signature) else profile.signature(value)
    return held


def fuzz(form: str, count: int, folder: Path, rng: random.Random) -> list[str]:
    """Ingest fuzzed records; return what was wrong."""
    lines = make_lines(form, count, rng)
    packing = rng.choice(list(PACK))
    mode = rng.choice(["add", "tag"])
    path = folder / f"records.{'jsonl' if is_json(form) else 'tsv'}{packing}"
    path.write_bytes(PACK[packing](b"\n".join(lines) + rng.choice([b"", b"\n"])))
    url = f"lmdb://{folder / f'index-{form}'}"
    arguments = ["ingest", str(path), "--on-duplicate", mode, "--store", url, "--workers", "1"]
    arguments += READING.get(form, ("--format", form))
    arguments += ["--fingerprint-format", "hex"]
    done = subprocess.run([sys.executable, "-m", "hsimhash", *arguments], capture_output=True, check=False)
    what = f"{form}{packing}, {mode}"
    talk = done.stderr.decode(errors="replace")
    if "Traceback" in talk or done.returncode != 7:
        return [f"{what}: exit code {done.returncode}: {talk}"]
    summary = json.loads(done.stdout)
    with HSimIndex.open(url) as index:
        held = {document.doc_id: document.signature for document in index.documents()}
        expected = expected_index(form, lines, index.profile)
    records = [(number, line) for number, line in enumerate(lines, start=1) if not is_blank(form, line)]
    bad = [number for number, line in records if truth_of(form, line) is None]
    listed = [json.loads(line) for line in Path(summary["rejects"]).read_text(encoding="utf-8").splitlines()]
    found = {
        "documents": (summary["documents"], len(records)),
        "rejected": (summary["rejected"], len(bad)),
        "lines of rejects": ([reject["line"] for reject in listed], bad),
        "reasons": (all(reject["reason"] for reject in listed), True),
        "index": (held, expected),
        "sum": (sum(summary[name] for name in ("added", "unchanged", "duplicates", "rejected", "short")), len(records)),
    }
    return [f"{what}: {name} {shown(one, other)}" for name, (one, other) in found.items() if one != other]


def shown(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        found, expected = list(found.items() - expected.items())[:3], list(expected.items() - found.items())[:3]
    if isinstance(found, list) and isinstance(expected, list):
        found, expected = [x for x in found if x not in expected][:5], [x for x in expected if x not in found][:5]
    return f"{found!r:.500} instead of {expected!r:.500}"


def main() -> int:
    given = options(__doc__, records=(RECORDS, "how many, in all formats"), seed=(SEED, "of the records"))
    print_conditions("fuzzed records", records=given.records, seed=given.seed)
    faults: list[str] = []
    for form, share in SHARES.items():
        with scratch_folder(given.scratch) as folder:
            faults += fuzz(form, round(given.records * share), folder, random.Random(f"{given.seed} {form}"))
    for fault in faults:
        print(fault)
    return print_outcomes([Outcome(not faults, f"{given.records:,} fuzzed records: {len(faults)} faults (= 0)")])


if __name__ == "__main__":
    sys.exit(main())
