// What of a plan is looked at: a stretch of the axis, a step, a module, a box. Charts and tables of a
// plan share one view and draw anew when it changes.

class View {
  constructor(plan) {
    this.plan = plan;
    this.axis = new StepAxis(plan.times);
    this.listeners = [];
    this.step = plan.summary.peak_step;
    this.module = null;
    this.box = null;
    this.group = null;
    this.showAll();
  }

  // `what`: "range", "step", "selection" or "all".
  onChange(listener) {
    this.listeners.push(listener);
  }

  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  showAll() {
    [this.from, this.to] = [0, this.axis.end];
    this.changed("range");
  }

  setByTime(byTime) {
    const steps = [this.axis.stepAt(this.from), this.axis.stepAt(this.to) + 1];
    this.axis.byTime = byTime;
    [this.from, this.to] = steps.map((step) => this.axis.at(Math.min(step, this.axis.count)));
    this.setRange(this.from, this.to);
  }

  // Never narrower than a few steps, nor beyond the ends.
  setRange(from, to) {
    const least = this.axis.end / Math.max(16, this.axis.count * 64);
    const width = Math.min(this.axis.end, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.axis.end - width);
    this.to = this.from + width;
    this.changed("range");
  }

  // `factor` below 1 shows less; `at` stays where it is.
  zoom(factor, at = (this.from + this.to) / 2) {
    this.setRange(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(fraction) {
    const shift = (this.to - this.from) * fraction;
    this.setRange(this.from + shift, this.to + shift);
  }

  setStep(step) {
    this.step = Math.min(this.axis.count - 1, Math.max(0, step));
    const [from, to] = [this.axis.at(this.step), this.axis.at(this.step + 1)];
    if (from < this.from || to > this.to) {
      const width = this.to - this.from;
      this.setRange(from - width / 2, from + width / 2);
    }
    this.changed("step");
  }

  selectModule(module) {
    this.module = this.module === module ? null : module;
    this.box = null;
    this.changed("selection");
  }

  selectBox(box) {
    this.box = box;
    this.changed("selection");
  }

  selectGroup(group) {
    this.group = this.group === group ? null : group;
    this.changed("selection");
  }

  // Whether a box is to stand out; where nothing is selected, none has to.
  get selects() {
    return this.module !== null || this.group !== null || this.box !== null;
  }

  isSelected(box) {
    if (this.box !== null) return this.box === box;
    if (this.module !== null) return this.plan.report.isBelow(this.plan.moduleOfBox[box], this.module);
    return this.group !== null && this.plan.groupOfBox[box] === this.group;
  }
}
