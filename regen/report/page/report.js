// A report as the page reads it: the graph with its modules, and its plans.

class Report {
  constructor(document) {
    this.document = document;
    this.graph = document.graph;
    this.unit = document.graph.cost_unit;
    this.children = this.graph.modules.name.map(() => []);
    this.graph.modules.parent.forEach((parent, module) => {
      if (parent !== null) this.children[parent].push(module);
    });
    this.numberModules();
    this.plans = document.plans.map((plan, i) => new ShownPlan(this, plan, i));
  }

  // Modules below a module have the numbers from its own to its last one: a walk in the order of the tree.
  numberModules() {
    const count = this.children.length;
    this.order = new Int32Array(count);
    this.last = new Int32Array(count);
    this.level = new Int32Array(count);
    let next = 0;
    const open = [[0, 0]];
    while (open.length > 0) {
      const top = open.at(-1);
      const [module, child] = top;
      if (child === 0) this.order[module] = next++;
      if (child === this.children[module].length) {
        this.last[module] = next - 1;
        open.pop();
        continue;
      }
      top[1] += 1;
      const below = this.children[module][child];
      this.level[below] = this.level[module] + 1;
      open.push([below, 0]);
    }
  }

  childrenOf(module) {
    return this.children[module];
  }

  modulesBelow(module) {
    const found = [];
    for (let m = 0; m < this.order.length; m += 1) if (this.isBelow(m, module)) found.push(m);
    return found;
  }

  isBelow(module, above) {
    return this.order[module] >= this.order[above] && this.order[module] <= this.last[above];
  }

  pathOf(module) {
    return this.graph.modules.path[module] || "the whole network";
  }

  sourceOf(op) {
    return op === null ? "" : this.graph.ops.texts[this.graph.ops.source[op]];
  }

  cost(value, key) {
    return costValue(value, this.unit, key);
  }
}

// One plan: its steps, boxes and sums.
class ShownPlan {
  constructor(report, plan, index) {
    this.report = report;
    this.index = index;
    Object.assign(this, plan);
    this.times = queueTimes(this.steps, Math.round(this.summary.cost / this.steps.tick));
    this.groups = new MemoryGroups(report, this);
    this.groupOfBox = Int16Array.from(this.boxes.from, (_, box) => this.groups.of(box));
    this.moduleOfBox = Int32Array.from(this.boxes.op, (op) => report.graph.ops.module[op]);
    this.stack = this.stackedBytes();
    this.firsts = this.firstBoxes();
    this.highest = new Highest(this.steps.device_bytes);
  }

  // For each group, its bytes in each step.
  stackedBytes() {
    const count = this.steps.kind.length;
    const stack = this.groups.groups.map(() => new Float64Array(count + 1));
    this.boxes.from.forEach((from, box) => {
      const bytes = stack[this.groupOfBox[box]];
      bytes[from] += this.boxes.bytes[box];
      bytes[this.boxes.to[box]] -= this.boxes.bytes[box];
    });
    const used = new Float64Array(count);
    stack.forEach((bytes, i) => {
      const group = this.groups.groups[i];
      for (let step = 0, sum = group.bytes; step < count; step += 1) {
        sum += bytes[step];
        bytes[step] = sum;
        if (!group.fixed) used[step] += sum;
      }
    });
    const unused = this.groups.indexOf("unused");
    if (unused >= 0) for (let step = 0; step < count; step += 1) stack[unused][step] = this.layout.bytes - used[step];
    return stack;
  }

  // Of the planned bytes of each stretch of steps, the first box that is still there when it begins:
  // what lies before it need not be looked at.
  firstBoxes() {
    const stretch = 64;
    const count = Math.ceil(this.steps.kind.length / stretch) + 1;
    const firsts = new Int32Array(count).fill(this.boxes.from.length);
    for (let box = this.boxes.from.length - 1; box >= 0; box -= 1) {
      for (let s = Math.floor(this.boxes.from[box] / stretch); s <= Math.floor((this.boxes.to[box] - 1) / stretch); s += 1) firsts[s] = box;
    }
    return {stretch, firsts};
  }

  // The boxes that may be there in steps `from` to `to`: [first, end) of the list.
  boxRange(from, to) {
    const first = this.firsts.firsts[Math.floor(from / this.firsts.stretch)];
    let low = first;
    let high = this.boxes.from.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.boxes.from[middle] <= to) low = middle + 1;
      else high = middle;
    }
    return [first, low];
  }

  // All that is held in a step, with what the caller holds.
  bytesAt(step) {
    return this.steps.device_bytes[step] + this.summary.caller_bytes;
  }

  liveBoxes(step) {
    const [first, end] = this.boxRange(step, step);
    const live = [];
    for (let box = first; box < end; box += 1) if (this.boxes.to[box] > step) live.push(box);
    return live;
  }

  boxesOfModule(module) {
    const found = [];
    this.moduleOfBox.forEach((own, box) => {
      if (this.report.isBelow(own, module)) found.push(box);
    });
    return found;
  }

  nameOfBox(box) {
    const t = this.boxes.tensor[box];
    return t === null ? `workspace of ${this.report.graph.ops.name[this.boxes.op[box]]}` : this.report.graph.tensors.name[t];
  }

  // "compute conv1" or "release relu1".
  describeStep(step) {
    const {ops, tensors} = this.report.graph;
    const subject = this.steps.subject[step];
    const verb = {c: "compute", o: "offload", r: "release", f: "fetch"}[this.steps.kind[step]];
    return `${verb} ${verb === "compute" ? ops.name[subject] : tensors.name[subject]}`;
  }
}
