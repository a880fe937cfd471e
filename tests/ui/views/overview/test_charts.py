from ui.views.overview.charts import union


def test_overlapping_incidents_make_one_band() -> None:
    """Bands are translucent, so overlapping bands would be darker."""
    time_ranges = [(50, 60), (0, 10), (5, 20), (20, 30), (6, 8)]
    assert union([*time_ranges, *time_ranges]) == [(0, 30), (50, 60)]
    assert union([]) == []
