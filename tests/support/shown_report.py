"""A report as a page for the browser, and the JSON that the program prints for it."""

import json


class Shown:
    """A report as a page in the browser, and the JSON that the program prints for it."""

    def __init__(self, program, name, *arguments):
        self.arguments = arguments
        self.path = program.folder / f"{name}.html"
        self.document = json.loads(program.ok("report", *arguments, "-o", self.path, "--json"))
        self.plan = self.document["plans"][0]
        self.url = f"file://{self.path}"
