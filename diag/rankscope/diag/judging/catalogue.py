"""The catalogue that one look is judged with."""

from __future__ import annotations

from pathlib import Path

from rankscope.diag.classify import Catalogue
from rankscope.diag.judging.wanted import Wanted
from rankscope.diag.own_catalogue import found_catalogue, named_catalogue, user_code_paths


def catalogue_of(wanted: Wanted, job_dir: str | None = None) -> Catalogue:
    """The catalogue with the user's own files and paths.

    Raises:
        UsageError: the named file cannot be read, or has mistakes.
    """
    catalogue = found_catalogue(job_dir, say=wanted.say_once)
    if wanted.catalogue:
        catalogue = catalogue.merge(named_catalogue(Path(wanted.catalogue)))
    return catalogue.with_user_code(user_code_paths(wanted.user_code))
