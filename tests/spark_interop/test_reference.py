"""The generated reference is current, and names what every function raises or returns."""

from ottla.spark_interop import reference


def test_the_reference_is_that_of_the_docstrings() -> None:
    message = "run python -m ottla.spark_interop.reference"
    assert reference.PAGE.read_text() == reference.page(), message
