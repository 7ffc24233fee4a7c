"""The post-session hook: seal the image, write the reports, decide the exit code.

Imported by: plugin.  Imports: runner, reporting.
"""

from __future__ import annotations

from tribunus.errors import CertificationRejected, Interrupted, Mistrusted, NothingToJudge, TribunusError
from tribunus.image.folders import replace_file
from tribunus_certify.reporting import write_reports
from tribunus_certify.runner import Runner

PYTEST_OK, PYTEST_FAILED, PYTEST_INTERRUPTED, PYTEST_NOTHING = 0, 1, 2, 5


def finish(runner: Runner, pytest_status: int) -> int:
    """The session's exit code.  An image is written only if everything was judged and nothing refused."""
    try:
        return _finish(runner, pytest_status)
    except TribunusError as error:
        runner.summary.append(f"refused: {error}")
        return error.exit_code
    except OSError as error:
        runner.summary.append(f"refused: E_IO: {error.strerror}: {error.filename}")
        return 50


def _finish(runner: Runner, pytest_status: int) -> int:
    if pytest_status == PYTEST_INTERRUPTED:
        runner.summary.append("interrupted: the same command resumes")
        return Interrupted.exit_code
    if pytest_status == PYTEST_NOTHING:
        return NothingToJudge.exit_code
    if pytest_status not in (PYTEST_OK, PYTEST_FAILED):
        return pytest_status
    complete = runner.is_complete()
    status = pytest_status
    if runner.problem is not None:
        runner.summary.append(f"could not judge: {runner.problem}")
        status = runner.problem.exit_code
    elif not complete:
        judged = [item for item in runner.items if item.receipts]
        if not judged:
            raise NothingToJudge("no candidate was checked")
        partial = any(item.outcome.value == "not reached" for item in runner.items if not item.note)
        runner.summary.append(
            "not every check ran, so no image was made" if partial else "rejected: a signature has no admitted kernel"
        )
        status = PYTEST_OK if partial and pytest_status == PYTEST_OK else CertificationRejected.exit_code
        if any(item.outcome.value == "mistrusted" for item in runner.items):
            status = Mistrusted.exit_code
    elif pytest_status == PYTEST_OK:
        sealed = runner.seal()
        stem = runner.settings.output / runner.stem
        replace_file(stem.with_name(f"{runner.stem}.choices.json"), runner.choices(), 0o644)
        runner.summary.append(f"admitted: image {sealed.image_id[:12]} in {sealed.path}")
    runner.summary.extend(write_reports(runner))
    return status
