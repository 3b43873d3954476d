"""What an incident says of itself."""

import pytest

from reclaimerd.model.incident import ENDS, Stage
from tests.builders import a_process, a_ref, a_target, an_incident


@pytest.mark.parametrize("stage", Stage)
def test_ended_is_whoever_stands_at_an_end(stage: Stage) -> None:
    """The last five of the ladder, and no other."""
    assert an_incident(stage=stage).ended is (stage in ENDS)
    assert {end for end in Stage if end in ENDS} == set(list(Stage)[-5:])


def test_its_processes_are_members_and_heirs_each_once() -> None:
    """An heir that was a member already is not counted twice."""
    target = a_target(a_process(100), a_process(101))
    incident = an_incident(target, survivors=(a_ref(101), a_ref(300)))
    assert incident.processes == (a_ref(100), a_ref(101), a_ref(300))
