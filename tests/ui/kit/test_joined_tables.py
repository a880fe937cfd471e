from store.joined.joining import joined_requests
from tests.store.joined.rows import ROLES, decode, prefill
from ui.kit.joined_tables import hops_table


def test_each_hop_names_its_engine() -> None:
    """The engines of a data-parallel server have separate queues, so each hop needs its engine."""
    (found,) = joined_requests([prefill(), decode(engine=2)], {**ROLES, ("d", 2): ROLES["d", 0]})
    html = hops_table(found, lambda key: "/")
    assert ">p</a>" in html
    assert ">d/2</a>" in html
