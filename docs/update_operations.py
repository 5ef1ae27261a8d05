"""Write the table of operations of docs/operations.md anew, from the records: python docs/update_operations.py."""

import re
from pathlib import Path

import tape

PAGE = Path(__file__).with_name("operations.md")


def main() -> None:
    """Replace what is between the marks."""
    marks = re.compile(r"(?<=<!-- ops -->\n).*(?=\n<!-- /ops -->)", re.DOTALL)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(marks.sub(lambda _: tape.op_table().strip(), text), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
