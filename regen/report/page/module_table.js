// The modules as a tree with what the plan does in each: sorted by any column, searched by name. A
// click, or Enter, makes the boxes of a module stand out in the charts.

const MODULE_COLUMNS = [
  {key: "parameter_bytes", head: "parameters", bytes: true},
  {key: "kept_bytes", head: "kept for backward", bytes: true},
  {key: "peak_bytes", head: "at the peak", bytes: true},
  {key: "recomputed_bytes", head: "recomputed", bytes: true},
  {key: "moved_bytes", head: "moved", bytes: true},
  {key: "added_cost", head: "time added"},
  {key: "cost", head: "time"},
];
const MOST_ROWS = 200;

class ModuleTable {
  constructor(view) {
    this.view = view;
    this.report = view.plan.report;
    this.totals = view.plan.modules;
    this.open = new Set([0]);
    this.sort = {key: null, descending: true};
    this.search = "";
    this.limit = MOST_ROWS;
    this.active = 0;
    if (this.report.childrenOf(0).length === 1) this.open.add(this.report.childrenOf(0)[0]);
    this.body = element("tbody", {});
    this.more = element("p", {});
    this.heads = this.makeHeads();
    view.onChange((what) => { if (what === "selection") this.write(); });
    this.write();
  }

  node() {
    const search = element("input", {type: "search", "aria-label": "Search modules", placeholder: "Search modules", autocomplete: "off"});
    search.addEventListener("input", () => {
      this.search = search.value.trim().toLowerCase();
      this.limit = MOST_ROWS;
      this.write();
    });
    const table = element("table", {role: "treegrid", "aria-label": "Modules", class: "modules"}, element("thead", {role: "rowgroup"}, element("tr", {role: "row"}, ...this.heads)), this.body);
    this.body.setAttribute("role", "rowgroup");
    this.body.addEventListener("keydown", (event) => this.key(event));
    return section("Modules", element("p", {class: "note"}, "A click shows the boxes of a module. Numbers are with the modules inside it."), search, scrolling("Modules", table), this.more);
  }

  makeHeads() {
    const name = element("th", {role: "columnheader", scope: "col"}, button("module", () => this.sortBy(null)));
    const others = MODULE_COLUMNS.map((column) => element("th", {role: "columnheader", scope: "col", class: "number", "aria-sort": "none", "data-column": column.key}, button(column.head, () => this.sortBy(column.key))));
    return [name, ...others];
  }

  sortBy(key) {
    this.sort = {key, descending: this.sort.key === key ? !this.sort.descending : true};
    for (const head of this.heads) {
      if (!head.dataset.column) continue;
      head.setAttribute("aria-sort", head.dataset.column !== key ? "none" : this.sort.descending ? "descending" : "ascending");
    }
    this.write();
  }

  sorted(modules) {
    if (this.sort.key === null) return modules;
    const values = this.totals[this.sort.key];
    const sign = this.sort.descending ? -1 : 1;
    return [...modules].sort((a, b) => sign * (values[a] - values[b]) || a - b);
  }

  // The modules of the rows: the open part of the tree, or all whose path has what is searched.
  rows() {
    if (this.search) {
      const found = [];
      this.report.graph.modules.path.forEach((path, module) => {
        if (path.toLowerCase().includes(this.search)) found.push(module);
      });
      return this.sorted(found);
    }
    const rows = [];
    const waiting = [0];
    while (waiting.length > 0) {
      const module = waiting.pop();
      rows.push(module);
      if (this.open.has(module)) waiting.push(...[...this.sorted(this.report.childrenOf(module))].reverse());
    }
    return rows;
  }

  write() {
    const focused = this.body.contains(document.activeElement);
    const rows = this.rows();
    this.shown = rows.slice(0, this.limit);
    if (!this.shown.includes(this.active)) this.active = this.shown[0] ?? 0;
    this.body.replaceChildren(...this.shown.map((module) => this.row(module)));
    this.more.replaceChildren(...this.moreText(rows.length));
    if (focused) this.rowOf(this.active)?.focus();
  }

  moreText(count) {
    if (count === 0) return ["No module has this in its name."];
    if (count <= this.limit) return [];
    return [`${this.limit} of ${formatCount(count, "module")}. `, button("Show more", () => {
      this.limit *= 4;
      this.write();
    })];
  }

  row(module) {
    const branches = this.report.childrenOf(module).length > 0 && !this.search;
    const open = this.open.has(module);
    const name = this.search ? this.report.pathOf(module) : this.report.graph.modules.name[module] || this.report.pathOf(module);
    const mark = element("span", {class: "branch", "aria-hidden": "true"}, branches ? (open ? "▾" : "▸") : "");
    const first = element("td", {role: "gridcell"}, mark, nameText(name));
    first.style.paddingInlineStart = `${(this.search ? 0 : this.report.level[module]) * 1.1 + 0.4}rem`;
    mark.addEventListener("click", (event) => {
      event.stopPropagation();
      this.toggle(module);
    });
    const made = element("tr", {
      role: "row", "data-module": module, tabindex: module === this.active ? 0 : -1,
      "aria-level": this.search ? 1 : this.report.level[module] + 1, "aria-expanded": branches ? String(open) : null,
      "aria-selected": String(this.view.module === module),
      onclick: () => this.select(module),
    }, first, ...MODULE_COLUMNS.map((column) => this.cell(column, module)));
    return made;
  }

  cell(column, module) {
    const value = this.totals[column.key][module];
    const shown = value === 0 ? exact(0, "–") : column.bytes ? bytesValue(value) : this.report.cost(value);
    shown.dataset.key = column.key;
    return element("td", {role: "gridcell", class: "number"}, shown);
  }

  rowOf(module) {
    return this.body.querySelector(`[data-module="${module}"]`);
  }

  select(module) {
    this.active = module;
    this.view.selectModule(module);
  }

  toggle(module) {
    if (this.open.has(module)) this.open.delete(module);
    else this.open.add(module);
    this.active = module;
    this.write();
  }

  focus(index) {
    const module = this.shown[Math.min(this.shown.length - 1, Math.max(0, index))];
    if (module === undefined) return;
    this.rowOf(this.active)?.setAttribute("tabindex", "-1");
    this.active = module;
    this.rowOf(module).setAttribute("tabindex", "0");
    this.rowOf(module).focus();
  }

  key(event) {
    const at = this.shown.indexOf(this.active);
    const branches = this.report.childrenOf(this.active).length > 0;
    const acts = {
      ArrowDown: () => this.focus(at + 1),
      ArrowUp: () => this.focus(at - 1),
      Home: () => this.focus(0),
      End: () => this.focus(this.shown.length - 1),
      ArrowRight: () => (branches && !this.open.has(this.active) ? this.toggle(this.active) : this.focus(at + 1)),
      ArrowLeft: () => (branches && this.open.has(this.active) ? this.toggle(this.active) : this.focus(this.shown.indexOf(this.report.graph.modules.parent[this.active] ?? 0))),
      Enter: () => this.select(this.active),
      " ": () => this.select(this.active),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }
}
