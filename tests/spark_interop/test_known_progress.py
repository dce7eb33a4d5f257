"""What archives and windows know of earlier runs from their files: figures, watermarks, gaps."""

from pathlib import Path

from ottla.spark_interop.pipelines import archive, windows
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.table import Entry


def test_the_summary_of_an_archive_names_its_figures() -> None:
    assert archive.labelled({"0": [3, 9, 5]}) == {"0": {"first": 3, "last": 9, "records": 5}}


def test_a_run_without_new_records_still_knows_the_watermark(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    assert windows.known_watermark(files) is None
    batches = tmp_path / windows.CHECKPOINT / "offsets"
    batches.mkdir(parents=True)
    for number, reached_ms in enumerate((1_357_084_800_123, windows.AFTER_ALL_MS)):
        (batches / str(number)).write_text(f'v1\n{{"batchWatermarkMs":{reached_ms}}}\n{{}}')
        assert windows.known_watermark(files) == "2013-01-02T00:00:00.123Z"


def test_the_watermark_after_an_interrupted_first_batch_is_the_one_that_it_reached(
    tmp_path: Path,
) -> None:
    """The next run repeats only the interrupted batch, and then closes the windows. For that batch,
    Spark reports the watermark with which it began, so the one that it reached is read from files.
    """
    files, place = LocalFiles(tmp_path), tmp_path / windows.CHECKPOINT

    def write(kind: str, number: int, name: str, reached_ms: int) -> None:
        (place / kind).mkdir(parents=True, exist_ok=True)
        (place / kind / str(number)).write_text(f'v1\n{{"{name}":{reached_ms}}}')

    write("offsets", 0, "batchWatermarkMs", 0)
    assert windows.known_watermark(files) is None
    write("commits", 0, "nextBatchWatermarkMs", 1_357_084_800_123)
    assert windows.known_watermark(files) == "2013-01-02T00:00:00.123Z"
    write("offsets", 1, "batchWatermarkMs", windows.AFTER_ALL_MS)
    write("commits", 1, "nextBatchWatermarkMs", windows.AFTER_ALL_MS)
    assert windows.known_watermark(files) == "2013-01-02T00:00:00.123Z"


def test_offsets_deleted_before_they_were_read_are_gaps() -> None:
    def gaps(log_start: int, read: list[int] | None) -> dict[str, list[int]]:
        added = {"f": Entry(1, {"0": read})} if read else {}
        return archive.gaps_of({0: log_start}, {"0": 10}, {"0": 30}, added)

    assert gaps(10, [10, 29, 20]) == {}
    assert gaps(20, [20, 29, 10]) == {"0": [10, 20]}
    assert gaps(40, None) == {"0": [10, 30]}
    assert gaps(20, [10, 29, 20]) == {}         # deleted after they were read
    assert gaps(20, [10, 29, 12]) == {"0": [10, 20]}    # deleted while they were read
    assert gaps(20, [12, 29, 18]) == {"0": [10, 12]}
