"""The verb that checks an installation: doctor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import FAILED

if TYPE_CHECKING:
    from gpu_scheduler.cli.options import Options


async def doctor(options: Options) -> int:
    """Check everything that an installation needs, and say what corrects what is wrong.

    Exit code 1 if there is a finding. What may not be read is a finding too. Nothing is written: pods are created as
    dry runs alone. -n changes nothing.
    """
    from gpu_scheduler.cli.doctor.collect import read_facts
    from gpu_scheduler.cli.doctor.examine import examine
    from gpu_scheduler.cli.doctor.findings import Result
    from gpu_scheduler.cli.doctor.views import doctor_listing, finding_view
    from gpu_scheduler.cli.output import render

    async with reached(options) as api:
        findings = examine(await read_facts(api, options.system_namespace))
    sys.stdout.write(render(doctor_listing([finding_view(each) for each in findings]), options))
    return 0 if all(each.result is Result.OK for each in findings) else FAILED
