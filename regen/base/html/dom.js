// Elements. Whatever comes from a report becomes text, never markup: nothing here, and nothing that
// uses it, parses HTML.

// element("td", {class: "number"}, "12", child)
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A name of a file: with marks of its own direction it turns nothing around it.
function nameText(text) {
  return element("bdi", {class: "name"}, text);
}

// A number for people that carries its exact value, for programs that read the page.
function exact(value, text, key = null) {
  return element("data", {value: value ?? "", "data-key": key, title: typeof value === "number" ? value.toLocaleString("en") : null}, text);
}

function bytesValue(value, key = null) {
  return exact(value, formatBytes(value), key);
}

function costValue(value, unit, key = null) {
  return exact(value, formatCost(value, unit), key);
}

function button(text, onclick, properties = {}) {
  return element("button", {type: "button", onclick, ...properties}, text);
}

// A table with a caption and heads for its columns; cells are text or elements. Columns: {head, number}.
function plainTable(caption, columns, rows) {
  const head = element("tr", {}, ...columns.map((column) => element("th", {scope: "col", class: column.number ? "number" : null}, column.head)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", {class: columns[i].number ? "number" : null}, cell))));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
}

// A wide table scrolls inside of its own box, which the keyboard can reach.
function scrolling(label, ...children) {
  return element("div", {class: "scrolling", role: "region", "aria-label": label, tabindex: 0}, ...children);
}

// The table beside a chart, made when it is opened first.
function tableInstead(summary, make) {
  const details = element("details", {class: "instead"}, element("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(make());
  });
  return details;
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}
