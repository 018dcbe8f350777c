"""Make `hsimhash/fingerprint/general.rarity`, a fixed table of how rare features are in general text in 16 languages.

Run `python schema/make_rarity_table.py FOLDER hsimhash/fingerprint/general.rarity`. FOLDER must contain a checkout of
each source, named after its repository, at the commit below, and each Debian package, unpacked in a folder named after
it. The table does not contain any text, only how rare each feature is.

English paragraphs in translations are left out, and so are repeated paragraphs in a language. The remaining text is cut
into documents of 300 to 3,000 characters. `_SOURCES` limits the number of documents from each source, so that neither
novels nor manuals dominate. Each language has at most 6,000 documents.

First, a separate table is made for each language. A feature that is in several of these tables gets the lowest of its
rarities. The 400,000 features with the lowest rarity are kept. Fingerprints in stored indexes depend on this table, so
a new table needs a new name.

| source, commit or version | text | licence |
|---|---|---|
| mozilla/voice-web, e0bfbc4b | sentences by volunteers, and from Wikipedia (zh) | CC0 |
| MicrosoftTranslator/NTREX, 8561f6a6 | news | CC BY-SA 4.0 |
| google-deepmind/xquad, 60cac411 | paragraphs from Wikipedia | CC BY-SA 4.0 |
| facebookresearch/LASER, 74bc6ae7 | sentences from Tatoeba | CC BY 2.0 FR |
| tico-19/tico-19.github.io, d97615f9 | health: news, articles, Wikipedia | CC0 |
| UniversalDependencies/UD_Chinese-GSDSimp, eb3aed31 | Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Japanese-GSD, 7bc20119 | Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Korean-Kaist, ef244243 | news, essays, fiction | CC BY-SA 4.0 |
| UniversalDependencies/UD_Russian-GSD, 5400f2fd | Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Russian-Taiga, 3c64a056 | blogs, news, poetry | CC BY-SA 4.0 |
| UniversalDependencies/UD_German-GSD, 297fcf35 | news, reviews, Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_French-GSD, 830e2782 | blogs, news, reviews, Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Spanish-GSD, 57c04564 | blogs, news, reviews, Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Portuguese-GSD, 691a8b59 | blogs, news | CC BY-SA 4.0 |
| UniversalDependencies/UD_Arabic-PUD, be733f45 | news, Wikipedia | CC BY-SA 3.0 |
| UniversalDependencies/UD_Persian-PerDT, d728a98d | news, fiction, essays | CC BY-SA 4.0 |
| UniversalDependencies/UD_Persian-Seraji, e53af38f | news, fiction, law, medicine | CC BY-SA 4.0 |
| UniversalDependencies/UD_Hindi-PUD, 8bc630f7 | news, Wikipedia | CC BY-SA 3.0 |
| UniversalDependencies/UD_Thai-TUD, 58c2058b | news, Wikipedia | CC BY-SA 4.0 |
| UniversalDependencies/UD_Vietnamese-VTB, e8fa5483 | news | CC BY-SA 4.0 |
| UniversalDependencies/UD_Indonesian-GSD, 89491e4d | blogs, news | CC BY-SA 4.0 |
| UniversalDependencies/UD_Turkish-BOUN, f828b028 | news, essays | CC BY-SA 4.0 |
| UniversalDependencies/UD_Turkish-Kenet, acefbad9 | examples from a dictionary | CC BY-SA 4.0 |
| google-research-datasets/turkish-treebanks, 40838e5c | web pages | Apache 2.0 |
| motazsaad/comparableWikiCoprus, 6e4a6e27 | Wikipedia (ar) | CC BY-SA 4.0 |
| ku-nlp/WikipediaAnnotatedCorpus, 7d87af5e | Wikipedia (ja) | CC BY-SA 4.0 |
| aozorahack/aozorabunko_text, 0984f7dc | fiction and essays (ja) out of copyright | public domain |
| d0rj/RusLit, 45096804 | fiction (ru) | public domain |
| COST-ELTeC/ELTeC-eng, 3db3b673; -deu, d1eed488; -fra, 83f0a43f; -spa, 83e2a22d; -por, 88868689 | novels | \
public domain; mark-up CC BY 4.0 |
| dracor-org/gerdracor, 1a985284 | plays (de) | CC0 |
| e9t/nsmc, cc0670e8 | film reviews (ko) | CC0 |
| KLUE-benchmark/KLUE, 3efd9870 | news, reviews, Wikipedia (ko) | CC BY-SA 4.0 |
| PyThaiNLP/wisesight-sentiment, c1d06364 | social media (th) | CC0 |
| GSA/digitalgov.gov, 49795832 | news (en) | public domain |
| factbook/factbook.json, 8662a8b1 | encyclopaedic (en) | public domain |
| Anduin2017/HowToCook, cbeb5367 | recipes (zh) | Unlicense |
| python/peps, ba4deeb7 | documentation (en) | public domain |
| python/python-docs-zh-cn, bfdf9589; -ja, 7eb90aaa; -ko, d0c58403; -fr, b279d876; -es, 91f4ccc0; -pt-br, a30c8afd; \
-id, 425c128c; -tr, be1c5a49 | documentation | CC0 (PEP 545) |
| github/opensource.guide, ebc9678e | guides | CC BY 4.0 |
| cncf/glossary, ca1dc403 | documentation | CC BY 4.0 |
| open-telemetry/opentelemetry.io, dd5997c8 | documentation | CC BY 4.0 |
| expressjs/expressjs.com, b9d51069 | documentation | CC BY 4.0 |
| kubernetes/kubernetes-docs-zh, e0dfea22 | documentation (zh, en) | CC BY 4.0 |
| microsoft/IoT-For-Beginners, 8bd53553 | course, machine-translated | MIT |
| microsoft/Security-101, 2e6e0f30 | course, machine-translated | CC0 |
| fastapi/fastapi, c3f316b7 | documentation | MIT |
| monero-project/monero-site, db1cb28c | documentation | BSD 3-clause |
| Snailclimb/JavaGuide, fd4c37ab | documentation (zh) | Apache 2.0 |
| OI-wiki/OI-wiki, 76fa67c1 | algorithms (zh) | CC BY-SA 4.0 |
| wangdoc/javascript-tutorial, 84d50bb6; wangdoc/html-tutorial, 37cd9975 | courses (zh) | CC BY-SA 4.0 |
| Debian's libreoffice-help-*, 7.4.7 | manual | MPL 2.0 |
| Debian's gnome-user-docs, 43.0 | manual | CC BY-SA 3.0 |
| Debian's debian-handbook, 11.20220922 | manual | CC BY-SA 3.0 |
"""

from __future__ import annotations

import html
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from hsimhash import Profile
from hsimhash.fingerprint.features import feature_hashes
from hsimhash.fingerprint.profile import split_batch
from hsimhash.fingerprint.rarity import RarityTable

LANGUAGES = ("zh", "en", "ja", "ko", "ru", "de", "fr", "es", "pt", "ar", "fa", "hi", "th", "vi", "id", "tr")
MOST_DOCUMENTS = 6_000  # maximum for a language
SHORTEST, LONGEST = 300, 3_000  # characters of a document
_ENOUGH = {"zh": 500, "ja": 500, "ko": 700, "th": 1_000}  # characters after which a document ends
_USUALLY_ENOUGH = 1_200
_SHORTEST_PARAGRAPH = 10
_LATIN = ("en", "de", "fr", "es", "pt", "vi", "id", "tr")
_ENGLISH = frozenset(
    ("and", "are", "be", "by", "for", "from", "if", "is", "of", "or", "that", "the", "this", "to", "you")
)
_MOST_ENGLISH = 0.12  # maximum share of English words in a paragraph in another language

_CODE = re.compile(
    r"\A---\n.*?\n---\n|^ *(```|~~~).*?^ *\1|<(script|style|pre|code)\b.*?</\2>|\{%.*?%\}|\{\{.*?\}\}|<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
_MARKUP = re.compile(r"<[^<>]*>|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|\bhttps?://\S+|^(:::|import ).*$|:[a-z:]+:(?=`)", re.M)
_SIGNS = re.compile(r"[`*_|#>\[\]{}\\]+|[-=~]{3,}")
_NOT_PROSE = re.compile(r"<(head|info|teiHeader|script|style|front|back|speaker|stage|nav|footer)\b.*?</\1>", re.DOTALL)
_PROSE = re.compile(r"<(p|desc|l|ab)\b[^>]*>(.*?)</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_AOZORA = re.compile(r"《[^》]*》|［＃[^］]*］|[｜※]|-{20,}.*?-{20,}|\n底本：.*", re.DOTALL)


def markdown(text: str) -> Iterator[str]:
    """Yield the text of a page in Markdown or reStructuredText."""
    yield html.unescape(_MARKUP.sub("", _CODE.sub("\n\n", text)))


def messages(text: str) -> Iterator[str]:
    """Yield the translations in a gettext catalogue."""
    found = re.findall(r'^msgstr ((?:".*"\n)+)', text, re.MULTILINE)
    strings = ("".join(line[1:-1] for line in one.splitlines()) for one in found)
    yield from markdown("\n\n".join(one.replace(r"\"", '"').replace(r"\n", "\n") for one in strings))


def xml(text: str) -> Iterator[str]:
    """Yield the paragraphs of a file in HTML, Mallard or TEI."""
    found = _PROSE.findall(_NOT_PROSE.sub("", text))
    yield "\n\n".join(html.unescape(_TAG.sub("", one)).strip().replace("\n", " ") for _, one in found)


def sentences(text: str) -> Iterator[str]:
    """Yield unrelated sentences, in an order that does not depend on their first letters."""
    yield "\n\n".join(sorted(text.splitlines(), key=lambda line: crc32(line.encode())))


def article(text: str) -> Iterator[str]:
    """Yield a text with a paragraph on each line."""
    yield text.replace("\n", "\n\n")


def treebank(text: str) -> Iterator[str]:
    """Yield the documents in a CoNLL-U file."""
    for one in text.split("# newdoc"):
        yield "\n\n".join(re.findall(r"^# text = (.*)", one, re.MULTILINE))


def annotated(text: str) -> Iterator[str]:
    """Yield the sentences in a KNP file, which has one word per line."""
    words = (line.split(" ", 1)[0] for line in text.splitlines() if not line.startswith(("#", "*", "+")))
    yield "".join("\n\n" if word == "EOS" else word for word in words)


def aozora(text: str) -> Iterator[str]:
    """Yield a work from Aozora Bunko, unless it mentions copyright."""
    if "著作権" not in text and "クリエイティブ" not in text:
        yield _AOZORA.sub("", text).replace("\n", "\n\n")


def wikipedia(text: str) -> Iterator[str]:
    """Yield the articles in a file that WikiExtractor wrote."""
    yield from (one.replace("\n", "\n\n") for one in re.findall(r"<doc[^>]*>(.*?)</doc>", text, re.DOTALL))


def translations(text: str) -> Iterator[str]:
    """Yield the translated half of a translation memory."""
    yield "\n\n".join(html.unescape(one) for one in re.findall(r"<seg>([^<]*)</seg></tuv>\s*</tu>", text))


def strings(text: str) -> Iterator[str]:
    """Yield the strings in a JSON document, except names, numbers and dates."""

    def found(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            yield from chain.from_iterable(map(found, value))
        elif isinstance(value, str) and (len(value) >= 2 * _SHORTEST_PARAGRAPH or not value.isascii()):
            yield value

    yield from markdown("\n\n".join(dict.fromkeys(found(json.loads(text)))))


def contexts(text: str) -> Iterator[str]:
    """Yield the articles of a data set in SQuAD format."""
    for one in json.loads(text)["data"]:
        yield "\n\n".join(paragraph["context"] for paragraph in one["paragraphs"])


class Source(NamedTuple):
    """Files, how to read them, and the maximum number of documents to take from them for each language.

    In `pattern`, `{}` stands for the source's name of a language. `languages` has these names, as in `zh=zh-cn ja`.
    """

    read: Callable[[str], Iterator[str]]
    pattern: str
    languages: str
    most: int = 1_500


_SOURCES = (
    Source(sentences, "voice-web/server/data/{}/*.txt", "zh=zh-CN zh=zh-TW zh=zh-HK " + " ".join(LANGUAGES[1:]), 2_000),
    Source(
        article,
        "NTREX/NTREX-128/newstest2019-???.{}.txt",
        "zh=zho-CN en=eng ja=jpn ko=kor ru=rus de=deu fr=fra es=spa pt=por ar=arb fa=fas hi=hin th=tha vi=vie id=ind "
        "tr=tur",
    ),
    Source(contexts, "xquad/xquad.{}.json", "zh en ru de es ar hi th vi tr"),
    Source(
        sentences,
        "LASER/data/tatoeba/v1/tatoeba.{}-eng.???",
        "zh=cmn ja=jpn ko=kor ru=rus de=deu fr=fra es=spa pt=por ar=ara fa=pes hi=hin th=tha vi=vie id=ind tr=tur",
    ),
    Source(translations, "tico-19.github.io/data/TM/all.en-{}.tmx", "zh ru es=es-419 fr pt=pt-BR hi id", 300),
    Source(
        treebank,
        "UD_{}/*-ud-*.conllu",
        "zh=Chinese-GSDSimp ja=Japanese-GSD ko=Korean-Kaist ru=Russian-GSD ru=Russian-Taiga de=German-GSD "
        "fr=French-GSD es=Spanish-GSD pt=Portuguese-GSD ar=Arabic-PUD fa=Persian-PerDT fa=Persian-Seraji "
        "hi=Hindi-PUD th=Thai-TUD vi=Vietnamese-VTB id=Indonesian-GSD tr=Turkish-BOUN tr=Turkish-Kenet",
    ),
    Source(treebank, "turkish-treebanks/data/web.conllu", "tr"),
    Source(wikipedia, "comparableWikiCoprus/ar-arz/20170120/ar/*[05].txt", "ar", 3_000),
    Source(annotated, "WikipediaAnnotatedCorpus/knp/*/*.knp", "ja"),
    Source(aozora, "aozorabunko_text/cards/*/files/*7/*.txt", "ja", 2_500),
    Source(article, "RusLit/prose/**/*.txt", "ru", 2_500),
    Source(xml, "ELTeC-{}/level1/*.xml", "en=eng de=deu fr=fra es=spa pt=por"),
    Source(xml, "gerdracor/tei/*.xml", "de", 500),
    Source(strings, "nsmc/raw/*7.json", "ko", 1_500),
    Source(strings, "KLUE/klue_benchmark/klue-nli*/*dev.json", "ko"),
    Source(sentences, "wisesight-sentiment/ne[ug].txt", "th", 1_000),
    Source(markdown, "digitalgov.gov/content/**/*.md", "en", 2_000),
    Source(strings, "factbook.json/*/*.json", "en"),
    Source(markdown, "HowToCook/dishes/**/*.md", "zh", 500),
    Source(markdown, "peps/peps/pep-*.rst", "en", 1_000),
    Source(messages, "python-docs-{}/**/*.po", "zh=zh-cn ja ko fr es pt=pt-br id tr", 1_000),
    Source(markdown, "opensource.guide/_articles/{}/*.md", "zh=zh-hans ja ko ru de fr es pt ar fa hi id tr"),
    Source(markdown, "glossary/content/{}/*.md", "zh=zh-cn en ja ko ru de fr es pt=pt-br hi vi tr"),
    Source(markdown, "opentelemetry.io/content/{}/**/*.md", "zh en ja fr es pt", 500),
    Source(markdown, "expressjs.com/src/content/*/{}/**/*.md*", "zh=zh-cn en ja ko de fr es pt=pt-br", 300),
    Source(markdown, "kubernetes-docs-zh/content/{}/**/*.md", "zh=cn en", 1_000),
    Source(markdown, "*/translations/{}/**/*.md", "zh ja ko ru de fr es pt=br ar fa hi th vi id tr", 1_000),
    Source(markdown, "fastapi/docs/{}/docs/**/*.md", "zh en ja ko ru de fr es pt hi tr", 300),
    Source(markdown, "monero-site/_i18n/{}/**/*.md", "zh=zh-cn en ru de fr es pt=pt-br ar tr", 300),
    Source(markdown, "JavaGuide/docs/**/*.md", "zh", 1_000),
    Source(markdown, "OI-wiki/docs/**/*.md", "zh", 500),
    Source(markdown, "javascript-tutorial/docs/**/*.md", "zh", 300),
    Source(markdown, "html-tutorial/docs/**/*.md", "zh", 100),
    Source(
        xml,
        "libreoffice-help-*/usr/share/libreoffice/help/{}/text/**/*.html",
        "zh=zh-CN en=en-US ja ko ru de fr es pt=pt-BR hi vi id tr",
        1_000,
    ),
    Source(
        xml,
        "gnome-user-docs/usr/share/help/{}/*/*.page",
        "zh=zh_CN en=C ja ko ru de fr es pt=pt_BR fa hi vi id tr",
        500,
    ),
    Source(
        xml,
        "debian-handbook/usr/share/doc/debian-handbook/html/{}/*.html",
        "zh=zh-CN en=en-US ja=ja-JP ko=ko-KR ru=ru-RU de=de-DE fr=fr-FR es=es-ES pt=pt-BR ar=ar-MA fa=fa-IR vi=vi-VN "
        "id=id-ID tr=tr-TR",
        500,
    ),
)


def is_prose(language: str, paragraph: str) -> bool:
    """Return whether most of a paragraph consists of letters of the language."""
    letters = [one for one in paragraph if unicodedata.category(one)[0] in "LM"]
    if len(paragraph) < _SHORTEST_PARAGRAPH or len(letters) < 0.5 * len(paragraph):
        return False
    if language not in _LATIN:
        return sum(one < "\u0250" for one in letters) < 0.5 * len(letters)
    words = paragraph.lower().split()
    return language == "en" or sum(word in _ENGLISH for word in words) < _MOST_ENGLISH * len(words)


def cut(language: str, paragraphs: list[str]) -> Iterator[str]:
    """Yield documents made from an article's paragraphs."""
    enough = _ENOUGH.get(language, _USUALLY_ENOUGH)
    document = ""
    for paragraph in paragraphs:
        for start in range(0, len(paragraph), LONGEST - enough):
            document += paragraph[start : start + LONGEST - enough] + "\n"
            if len(document) >= enough:
                yield document
                document = ""
    if len(document) >= SHORTEST:
        yield document


def documents_of(folder: Path, source: Source, language: str, seen: set[str]) -> Iterator[str]:
    """Yield the documents in a source for a language, without paragraphs that are in `seen`."""
    names = [one.partition("=") for one in source.languages.split()]
    patterns = [source.pattern.replace("{}", own or name) for name, _, own in names if name == language]
    for path in chain.from_iterable(sorted(folder.glob(pattern)) for pattern in patterns):
        text = path.read_text(encoding="cp932" if source.read is aozora else "utf-8", errors="replace")
        for read in source.read(text):
            paragraphs = (" ".join(_SIGNS.sub(" ", one).split()) for one in re.split(r"\n\s*\n", read))
            kept = [one for one in dict.fromkeys(paragraphs) if one not in seen and is_prose(language, one)]
            seen.update(kept)
            yield from cut(language, kept)


def some_of(documents: list[str], most: int) -> list[str]:
    """Return at most `most` documents, chosen and ordered by a hash of their content, regardless of their source."""
    return sorted(documents, key=lambda one: crc32(one.encode()))[:most]


def documents_in(folder: Path, language: str) -> list[str]:
    """Return the documents for a language."""
    seen: set[str] = set()
    chosen = (some_of(list(documents_of(folder, one, language, seen)), one.most) for one in _SOURCES)
    return some_of(list(chain.from_iterable(chosen)), MOST_DOCUMENTS)


def fit(documents: list[str]) -> RarityTable:
    """Return the rarity table of documents in one language."""
    profile = Profile.named("auto-3")
    return RarityTable.fitted(one.hashes for batch in split_batch(documents) for one in feature_hashes(profile, batch))


def main(folder: Path, target: Path) -> None:
    """Write the table."""
    tables = [fit(documents_in(folder, language)) for language in LANGUAGES]
    whole = RarityTable.joined(tables, sum(one.documents for one in tables))
    target.write_bytes(whole.content())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
