"""How Sphinx makes the pages of build/site. tools/site.py calls it."""

project = "regen"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"

# Anchors of headings as GitHub makes them; links to them are checked.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "regen"
html_copy_source = False
html_show_copyright = False
# A page that is opened from a disk may not fetch others: results of a search are titles.
html_show_search_summary = False
