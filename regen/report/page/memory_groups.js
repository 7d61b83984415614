// What the memory chart stacks: the fixed tensors by what they are, gradients, activations by module,
// workspace, and what is unused between addresses.

const MOST_MODULE_GROUPS = 8;

// Categories of fixed tensors, from the bottom of the chart.
const FIXED_GROUPS = [
  ["parameter", "parameters"], ["optimizer", "optimizer"], ["gradient", "gradients for the caller"],
  ["buffer", "buffers and runtime"], ["input", "inputs"],
];

class MemoryGroups {
  constructor(report, plan) {
    this.report = report;
    this.plan = plan;
    this.groups = [];
    this.ofModule = new Map();
    const {fixed, live} = this.bytesByCategory();
    this.addFixed("caller", "held by the caller", plan.summary.caller_bytes);
    for (const [name, title] of FIXED_GROUPS) {
      this.addFixed(`fixed-${name}`, title, fixed[name] ?? 0);
    }
    if (live.optimizer > 0) this.add("update", "made by the update");
    if (live.gradient > 0) this.add("gradient", "gradients");
    for (const part of this.moduleParts()) this.addModules(part);
    this.add("workspace", "workspace");
    if (plan.layout.of_plan) this.add("unused", "unused between addresses");
  }

  add(kind, title, extra = {}) {
    this.groups.push({kind, title, index: this.groups.length, bytes: 0, ...extra});
    return this.groups.length - 1;
  }

  addFixed(kind, title, bytes) {
    if (bytes > 0) this.add(kind, title, {bytes, fixed: true});
  }

  addModules({title, modules, shade}) {
    const index = this.add("activation", title, {shade});
    for (const module of modules) this.ofModule.set(module, index);
  }

  bytesByCategory() {
    const fixed = {};
    const live = {};
    const {tensors, categories} = this.report.graph;
    for (let t = 0; t < tensors.bytes.length; t += 1) {
      const sums = tensors.fixed[t] ? fixed : live;
      const name = categories[tensors.category[t]];
      sums[name] = (sums[name] ?? 0) + tensors.bytes[t];
    }
    return {fixed, live};
  }

  // How long activations of each module fill how many bytes, its own and with those below it.
  activationAreas() {
    const {boxes} = this.plan;
    const {tensors, categories, modules} = this.report.graph;
    const own = new Float64Array(modules.name.length);
    for (let i = 0; i < boxes.from.length; i += 1) {
      const t = boxes.tensor[i];
      if (t === null || categories[tensors.category[t]] !== "activation") continue;
      own[tensors.module[t]] += boxes.bytes[i] * (boxes.to[i] - boxes.from[i]);
    }
    const all = Float64Array.from(own);
    for (let m = all.length - 1; m > 0; m -= 1) all[modules.parent[m]] += all[m];
    return {own, all};
  }

  // The tree cut where it has a few parts, none of which is most of it; a long list of brothers in runs of about
  // the same size.
  moduleParts() {
    const {own, all} = this.activationAreas();
    if (all[0] === 0) return [];
    const children = (module) => this.report.childrenOf(module).filter((child) => all[child] > 0);
    let parts = [0];
    for (;;) {
      const widest = parts.filter((m) => children(m).length > 0).sort((a, b) => all[b] - all[a])[0];
      if (widest === undefined) break;
      const inside = [...(own[widest] > 0 ? [-widest - 1] : []), ...children(widest)];
      const many = parts.length > 1 && parts.length - 1 + inside.length > MOST_MODULE_GROUPS;
      if (many && all[widest] < all[0] / 2) break;
      parts = parts.flatMap((m) => (m === widest ? inside : [m]));
      if (parts.length > MOST_MODULE_GROUPS) break;
    }
    const area = (part) => (part < 0 ? own[-part - 1] : all[part]);
    const runs = this.inRuns(parts, area);
    return runs.map((run, i) => ({title: this.runTitle(run), modules: run.flatMap((part) => this.modulesOf(part)), shade: i / Math.max(1, runs.length - 1)}));
  }

  inRuns(parts, area) {
    if (parts.length <= MOST_MODULE_GROUPS) return parts.map((part) => [part]);
    const share = parts.reduce((sum, part) => sum + area(part), 0) / MOST_MODULE_GROUPS;
    const runs = [[]];
    let filled = 0;
    for (const part of parts) {
      if (runs.at(-1).length > 0 && filled + area(part) / 2 > share * runs.length && runs.length < MOST_MODULE_GROUPS) runs.push([]);
      runs.at(-1).push(part);
      filled += area(part);
    }
    return runs;
  }

  // A part below 0 is a module without those below it.
  modulesOf(part) {
    return part < 0 ? [-part - 1] : this.report.modulesBelow(part);
  }

  runTitle(run) {
    const path = (part) => this.report.pathOf(part < 0 ? -part - 1 : part);
    const first = path(run[0]);
    return run.length === 1 ? `activations: ${first}` : `activations: ${first} … ${path(run.at(-1))}`;
  }

  // The group of a box.
  of(box) {
    const {boxes} = this.plan;
    const {tensors, categories} = this.report.graph;
    const t = boxes.tensor[box];
    if (t === null) return this.indexOf("workspace");
    const category = categories[tensors.category[t]];
    if (category === "gradient") return this.indexOf("gradient");
    if (category === "optimizer") return this.indexOf("update");
    return this.ofModule.get(tensors.module[t]) ?? this.indexOf("workspace");
  }

  indexOf(kind) {
    return this.groups.findIndex((group) => group.kind === kind);
  }
}

// Activations go through a range of hues, the rest have one each.
function colourOfGroup(group) {
  if (group.kind !== "activation") return theme.colour(`memory-${group.kind}`);
  return `hsl(${Math.round(265 - 155 * (group.shade ?? 0))} ${theme.colour("shade-saturation")} ${theme.colour("shade-lightness")})`;
}
