"""How Sphinx makes pages of the documents. tools/build_docs.py calls it."""

project = "regen"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"

# Anchors of headings are GitHub's; a link to one that is not there is a warning, and so an error.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "regen"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# Pages that are opened from a disk may not read each other, so that a search shows titles and no excerpts.
html_show_search_summary = False
html_extra_path = ["extra"]
