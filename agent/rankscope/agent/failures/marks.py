"""Puts a mark without digits for each thing in a text that is another in the next run of the same program.

Tables of patterns, tried one after the other; no mark is changed by a later pattern, nor by a second run. All
repetitions are bounded, so the time is linear in the text.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"\d{1,18}(?:\.\d{1,18})?"
_IPV4: Final = r"(?:\d{1,3}\.){3}\d{1,3}"
_IPV6: Final = r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:%\w{1,16})?"
_SOME: Final = r"\d{1,18}(?:(?:, ?|-| and )\d{1,18}){0,2048}"
_LIST: Final = rf"(?:\[{_SOME}\]|\({_SOME}\)|\{{{_SOME}\}}|{_SOME})"
_TEMPORARY: Final = r"(?<![\w/])/(?:var/tmp|tmp|dev/shm|run/user/\d{1,9}|var/folders)"
_IN_PATH: Final = r"[^\s/'\"`,;:()\[\]<>]{1,255}"
_SOURCE_FILES: Final = "".join(
    rf"(?<!\.{ending})" for ending in ("py", "pyx", "c", "cc", "cpp", "cu", "cuh", "h", "hpp", "rs", "go")
)

_NEW_NAMES: Final = (
    (r"\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b", "<uuid>"),
    # A plain name of a file is worth keeping: it says what was missing.
    (
        (
            rf"{_TEMPORARY}(?:/{_IN_PATH}){{0,32}}/"
            r"([A-Za-z]{1,32}(?:[_-][A-Za-z]{1,32}){0,8}\.[a-z]\w{0,9})"
            rf"(?![\w/])"
        ),
        r"<tmp>/\1",
    ),
    (rf"{_TEMPORARY}(?:/{_IN_PATH}){{1,32}}/?", "<tmp>"),
    (r"\btmp(?=[a-z0-9_]{0,7}[0-9_])[a-z0-9_]{8}\b", "<tmp>"),
    (r"\b(torch_|psm_|torchelastic_|pymp-)\w{4,64}", r"\1<tmp>"),
)
_TIMES: Final = (
    (
        (
            r"\b\d{4}[-/]\d\d[-/]\d\d"
            r"(?:[T_ ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?)?"
        ),
        "<time>",
    ),
    (
        (
            r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
            r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}"
            r"\d{1,2} \d\d:\d\d:\d\d(?: [A-Z]{3,4})?(?: \d{4})?\b"
        ),
        "<time>",
    ),
    (r"\b(?:\d{1,6} days?, )?\d{1,3}:\d\d:\d\d(?:[.,]\d{1,9})?\b", "<time>"),
)
_ADDRESSES: Final = (
    (r"\b0[xX][0-9A-Fa-f]{1,32}\b", "<hex>"),
    (rf"\[{_IPV6}\](?::\d{{1,5}})?", "<host>"),
    (rf"(?<![\w.:])(?:{_IPV6}|{_IPV4}|[A-Za-z][\w.-]{{0,253}})<\d{{1,5}}>", "<host>"),
    (rf"\[?(?<![\w.]){_IPV4}\]?(?::\d{{1,5}}\b|(?![\w.]))", "<host>"),
    (r"(?<![\w.:])(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{1,4}(?![\w:])", "<host>"),
    (r"(?<![\w:])(?:fe80|fd[0-9a-f]{2}|2[0-9a-f]{3})::?[0-9A-Fa-f:]{1,39}(?:%\w{1,16})?", "<host>"),
    (r"\((?:<host>|[\w.-]{1,253}), ?\d{2,5}\)", "(<host>)"),
    (r"\[[A-Za-z][\w.-]{0,252}\]:\d{2,5}\b", "<host>"),
    (r"\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.(?:local|internal|lan|svc)(?::\d{1,5})?\b", "<host>"),
    (
        (
            r"\b(host|hostname|node|server|peer|endpoint|address|addr|master_addr)([ =:]{1,3})"
            r"(?=[\w-]{0,63}\d)[A-Za-z][\w.-]{1,253}(?::\d{1,5})?"
        ),
        r"\1\2<host>",
    ),
    (
        (
            r"\b(?=localhost:|[A-Za-z][\w-]{0,62}[.-][\w.-]{0,190}:|[A-Za-z]{1,30}\d{1,9}:)[A-Za-z][\w.-]{0,253}"
            rf"{_SOURCE_FILES}:\d{{4,5}}\b"
        ),
        "<host>",
    ),
    (r"\b([Pp]orts?)([ =:]{1,3})\d{1,5}\b", r"\1\2<n>"),
)
# With the word that says what the number is.
_NUMBERED: Final = (
    (
        rf"\b((?:[Pp]arent |child )?(?:[Pp][Ii][Dd]|[Tt][Ii][Dd]|LWP)(?:\(s\)|s)?)(\)?[ =:]{{1,3}}){_LIST}",
        r"\1\2<n>",
    ),
    (r"\b(JOB|[Jj]ob|STEP) \d{1,18}(?: ON [\w.-]{1,253})?\b", r"\1 <n>"),
    (r"\b([Pp]rocess(?:es)?|[Tt]hreads?|[Tt]ask|[Ss]tepI[Dd])([ =:#]{1,2}|\[)\d{1,18}\b", r"\1\2<n>"),
    (
        r"\b(\w{0,24}(?:[Pp]rocess|[Tt]hread|Worker|PoolExecutor))-\d{1,9}(?:[_-]\d{1,9}){0,2}(?::\d{1,9})?",
        r"\1-<n>",
    ),
    (r"\b(fd|sockfd|socket)([ =:]{1,2})\d{1,9}\b", r"\1\2<n>"),
    (r"\b(cuda|xpu|npu|mps|hip):\d{1,4}\b", r"\1:<n>"),
    (r"\b(GPU|[Dd]evices?|gpu|nvidia)([ =:#]{0,2})\d{1,4}\b", r"\1\2<n>"),
    (r"\bPCI:[0-9A-Fa-f:.]{4,20}", "PCI:<n>"),
    (
        (
            r"\b((?:[Gg]lobal |[Ll]ocal |[Nn]ode |[Gg]roup |[Mm]issing )?[Rr][Aa][Nn][Kk][Ss]?|\w{0,16}_rank)"
            rf"([ =:#]{{0,3}}){_LIST}(?!\w)"
        ),
        r"\1\2<n>",
    ),
    (r"\b([Ww]orkers?|[Nn]ode|[Pp]eer|[Rr]eplica|[Ii]nstance)([ =:#-]{1,2})\d{1,9}\b", r"\1\2<n>"),
    (
        (
            r"\b((?:global[_ -]?|train[_ -]?|micro[_ -]?)?(?:steps?|iter(?:ation)?s?|epochs?|batch(?:_idx)?"
            r"|checkpoint|ckpt|attempt|round))([ =:#_-]{0,3})\d{1,18}\b"
        ),
        r"\1\2<n>",
    ),
    (
        (
            r"\b(SeqNum|SequenceNumber|seq(?:uence)?(?:[ _](?:num(?:ber)?|id))?|Numel(?:In|Out)|\w{0,64}_key"
            r"|last (?:enqueued|completed|started)(?: NCCL)? work)([ =:#]{1,2})\d{1,18}\b"
        ),
        r"\1\2<n>",
    ),
    (r"\b(block|thread): \[\d{1,9},\d{1,9},\d{1,9}\]", r"\1: <n>"),
)
# With a unit, with three decimals, or longer than any constant.
_MEASURES: Final = (
    (rf"\b([Tt]imeout|elapsed)(\(ms\))?([ =:]{{1,2}}){_NUMBER}\b", r"\1\2\3<n>"),
    (
        (
            rf"\b{_NUMBER} ?(?:ns|us|µs|ms|s|secs?|(?:milli|micro|nano)?seconds?|mins?"
            r"|minutes?|hours?|h|days?)\b"
        ),
        "<duration>",
    ),
    (rf"\b{_NUMBER} ?(?:[KMGTP]i?B|[kKMGT]B|bytes?|B)\b", "<size>"),
    (rf"\b{_NUMBER} ?%", "<n>%"),
    (r"(?<![\w.])[-+]?\d{1,18}\.\d{3,18}(?:[eE][-+]?\d{1,4})?(?![\w.])", "<x>"),
    (r"(?<![\w.])[-+]?\d{1,18}(?:\.\d{1,18})?[eE][-+]?\d{1,4}(?![\w.])", "<x>"),
    (r"\b(?=[0-9a-f]{0,64}\d)(?=[0-9a-f]{0,64}[a-f])[0-9a-f]{8,64}\b", "<hex>"),
    # What begins with a zero is a name: a part of a data set.
    (r"(?<![\w.])[1-9]\d{5,18}(?![\w.])", "<n>"),
)
_STEPS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (*_NEW_NAMES, *_TIMES, *_ADDRESSES, *_NUMBERED, *_MEASURES)
)


def with_marks(text: str) -> str:
    """``text`` with all marks."""
    for pattern, mark in _STEPS:
        text = pattern.sub(mark, text)
    return text
