"""The post-session hook: seal the image, write the reports, decide the exit code.

Imported by: session.  Imports: runner, reporting.
"""

from __future__ import annotations

from tribunus.admission.series import OutcomeKind
from tribunus.certification.witness_record import WitnessAnswer
from tribunus.errors import CertificationRejected, InternalError, Interrupted, Mistrusted, NothingToJudge, TribunusError
from tribunus.image.folders import replace_file
from tribunus_certify.guard import guarded
from tribunus_certify.runner import Runner

PYTEST_OK, PYTEST_FAILED, PYTEST_INTERRUPTED, PYTEST_NOTHING = 0, 1, 2, 5


def finish(runner: Runner, pytest_status: int) -> int:
    """The session's exit code.  An image is written only if everything was judged and nothing refused."""
    try:
        status = guarded(lambda: _finish(runner, pytest_status))
    except TribunusError as error:
        if type(error) is not type(runner.problem):  # where the image cannot be written, the report cannot either
            runner.summary.append(f"refused: {error}")
        status = error.exit_code
    old = runner.settings.output / f"{runner.stem}.tci"
    if runner.sealed is None and old.exists():
        runner.summary.append(f"an image of an earlier session is still there: {old}")
    return status


def _finish(runner: Runner, pytest_status: int) -> int:
    if not any(item.receipts for item in runner.items):
        return _unjudged(runner, pytest_status)
    try:
        status = _answer(runner, pytest_status)
    except TribunusError as error:
        runner.problem = error
        runner.summary.append(f"refused: {error}")
        status = error.exit_code
    runner.summary.extend(_witnesses(runner))
    from tribunus_certify.reporting import write_reports

    runner.summary.extend(write_reports(runner))
    return status


def _witnesses(runner: Runner) -> list[str]:
    """What the outputs of other engines say: every one that does not agree, and how many do."""
    found = [(receipt.case, receipt.witness) for receipt in runner.program_so_far if receipt.witness is not None]
    odd = [(case, witness) for case, witness in found if witness.answer is not WitnessAnswer.AGREES]
    lines = [f"witness of case {case!r}: {witness.words}" for case, witness in odd]
    return [*lines, f"witnesses that agree: {len(found) - len(odd)} of {len(found)}"] if found else []


def _unjudged(runner: Runner, pytest_status: int) -> int:
    """The answer of a session that made no receipt, and hence no report."""
    if pytest_status == PYTEST_INTERRUPTED:
        runner.summary.append("interrupted: the same command resumes")
        return Interrupted.exit_code
    if pytest_status not in (PYTEST_OK, PYTEST_FAILED, PYTEST_NOTHING):
        return pytest_status
    if runner.problem is not None:
        runner.summary.append(f"could not judge: {runner.problem}")
        return runner.problem.exit_code
    if pytest_status == PYTEST_FAILED and all(item.note for item in runner.items):
        runner.summary.append("rejected: no candidate could be built")
        return CertificationRejected.exit_code
    raise NothingToJudge("no candidate was checked")


def _answer(runner: Runner, pytest_status: int) -> int:
    if pytest_status == PYTEST_INTERRUPTED:
        runner.summary.append("interrupted: the same command resumes")
        return Interrupted.exit_code
    if pytest_status not in (PYTEST_OK, PYTEST_FAILED):
        return pytest_status
    if runner.problem is not None:
        runner.summary.append(f"could not judge: {runner.problem}")
        return runner.problem.exit_code
    if any(item.outcome is OutcomeKind.MISTRUSTED for item in runner.items):
        runner.summary.append("could not judge: too few cases counted")
        return Mistrusted.exit_code
    if not runner.is_complete():
        return _incomplete(runner, pytest_status)
    refused = [receipt for receipt in runner.program_so_far if receipt.reason is not None]
    if pytest_status == PYTEST_FAILED and not refused:
        runner.summary.append("could not judge: a test failed by itself, not by a verdict; no image was made")
        return InternalError.exit_code
    sealed = runner.seal()
    stem = runner.settings.output / runner.stem
    replace_file(stem.with_name(f"{runner.stem}.choices.json"), runner.choices(), 0o644)
    runner.summary.append(f"admitted: image {sealed.image_id[:12]} in {sealed.path}")
    return PYTEST_OK


def _incomplete(runner: Runner, pytest_status: int) -> int:
    """A signature has no kernel: because all were refused, or because not all checks ran."""
    refused = runner.certification.refused()
    if refused:
        names = ", ".join(runner.demand_id(demand) for demand in refused)
        runner.summary.append(f"rejected: no admitted kernel for {names}; no image was made")
        return CertificationRejected.exit_code
    runner.summary.append("not every check ran, so no image was made")
    return pytest_status
