// Memory over the step, stacked by what it is, with the budget, the peak and what was measured.

const CHART_LEFT = 68;  // pixels for the labels of the vertical axis
const CHART_FOOT = 20;

class MemoryChart {
  constructor(view) {
    this.view = view;
    this.plan = view.plan;
    const {summary} = this.plan;
    this.top = 1.06 * Math.max(this.plan.scaleBytes, summary.budget_bytes ?? 0, summary.measured_bytes ?? 0, 1);
    this.canvas = new Canvas(this.label(), 280, (context, width, height) => this.draw(context, width, height));
    moveWithPointerAndKeys(this.canvas, view, CHART_LEFT, (place) => view.setStep(view.axis.stepAt(place)));
  }

  label() {
    const {summary} = this.plan;
    const budget = summary.budget_bytes === null ? "" : `, budget ${formatBytes(summary.budget_bytes)}`;
    return `Memory over the step: peak ${formatBytes(summary.predicted_bytes)} at step ${summary.peak_step}${budget}. ${KEY_HELP}`;
  }

  y(bytes, height) {
    return (height - CHART_FOOT) * (1 - bytes / this.top);
  }

  draw(context, width, height) {
    const columns = visibleColumns(this.view, width - CHART_LEFT, (step) => this.plan.steps.device_bytes[step]);
    drawByteAxis(context, width, height, this.top, (bytes) => this.y(bytes, height));
    this.drawStack(context, height, columns);
    drawPlaceAxis(context, this.view, width, height);
    this.drawLines(context, width, height);
    drawCursor(context, this.view, width, height - CHART_FOOT);
  }

  drawStack(context, height, columns) {
    const base = new Float64Array(columns.length);
    for (const group of this.plan.groups.groups) {
      const bytes = this.plan.stack[group.index];
      const dim = this.view.group !== null && this.view.group !== group.index;
      context.globalAlpha = dim ? 0.25 : 1;
      context.fillStyle = theme.ofGroup(group);
      context.beginPath();
      columns.forEach((column, i) => {
        const added = bytes[column.step];
        if (added > 0) {
          const upper = this.y(base[i] + added, height);
          context.rect(column.x, upper, column.width, this.y(base[i], height) - upper);
        }
        base[i] += added;
      });
      context.fill();
    }
    context.globalAlpha = 1;
  }

  drawLines(context, width, height) {
    const {summary} = this.plan;
    const line = (bytes, text, colour, dash) => {
      if (bytes === null || bytes === undefined) return;
      const y = this.y(bytes, height);
      context.strokeStyle = context.fillStyle = theme.colour(colour);
      context.setLineDash(dash);
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(CHART_LEFT, y);
      context.lineTo(width, y);
      context.stroke();
      context.setLineDash([]);
      outlinedText(context, `${text} ${formatBytes(bytes)}`, width - 6, y + (y < 16 ? 13 : -4), "right");
    };
    line(summary.budget_bytes, "budget", "bad", [6, 3]);
    line(summary.measured_bytes, "measured", "text", [2, 3]);
    const x = placeX(this.view, this.view.axis.at(summary.peak_step), width);
    if (x < CHART_LEFT || x > width) return;
    const y = this.y(summary.predicted_bytes, height);
    context.fillStyle = theme.colour("text");
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 5, y - 8);
    context.lineTo(x + 5, y - 8);
    context.fill();
    outlinedText(context, "peak", x + 8, Math.max(12, y - 3), x > width - 60 ? "right" : "left");
  }

  legend() {
    const entries = this.plan.groups.groups.map((group) => {
      const swatch = element("span", {class: "swatch", "aria-hidden": "true"});
      const paint = () => { swatch.style.background = theme.ofGroup(group); };
      paint();
      theme.onChange(paint);
      const made = button("", () => this.view.selectGroup(group.index), {class: "legend", "aria-pressed": "false"});
      made.append(swatch, nameText(group.title));
      this.view.onChange(() => made.setAttribute("aria-pressed", String(this.view.group === group.index)));
      return element("li", {}, made);
    });
    return element("ul", {class: "legends", "aria-label": "What the memory is; a click shows where"}, ...entries);
  }

  // The highest step of each of some stretches, with the bytes of each group.
  table() {
    const groups = this.plan.groups.groups;
    const count = this.plan.steps.kind.length;
    const stretches = Math.min(40, count);
    const rows = [];
    for (let i = 0; i < stretches; i += 1) {
      const from = Math.floor((i * count) / stretches);
      const to = Math.floor(((i + 1) * count) / stretches);
      let step = from;
      for (let s = from; s < to; s += 1) if (this.plan.steps.device_bytes[s] > this.plan.steps.device_bytes[step]) step = s;
      rows.push([String(step), nameText(this.plan.describeStep(step)), bytesValue(this.plan.bytesAt(step)), ...groups.map((g) => formatBytes(this.plan.stack[g.index][step]))]);
    }
    const columns = [{head: "step", number: true}, {head: "what it does"}, {head: "all", number: true}, ...groups.map((g) => ({head: g.title, number: true}))];
    return scrolling("Memory over the step", plainTable(`Memory at the highest step of each of ${stretches} stretches of the plan`, columns, rows));
  }
}

// The steps to draw, with their pixels: every one where there is room, else one for each pixel, that
// which is highest, so that no peak is ever left out.
function visibleColumns(view, width, height) {
  const {axis} = view;
  const scale = width / (view.to - view.from);
  const first = axis.firstAt(view.from);
  const last = axis.stepAt(view.to);
  const columns = [];
  let pixel = -1;
  for (let step = first; step <= last; step += 1) {
    const x = Math.max(0, (axis.at(step) - view.from) * scale);
    const end = Math.min(width, (axis.at(step + 1) - view.from) * scale);
    const at = Math.floor(x);
    const column = columns.at(-1);
    if (column && at === pixel && end - x < 1) {
      if (height(step) > height(column.step)) column.step = step;
      column.width = Math.max(column.width, end + CHART_LEFT - column.x);
      continue;
    }
    pixel = at;
    columns.push({step, x: x + CHART_LEFT, width: Math.max(end - x, Math.min(1, width - x))});
  }
  // Neighbours touch: a stretch of nothing between two would be read as memory that is free.
  columns.forEach((column, i) => {
    const next = columns[i + 1];
    if (next) column.width = next.x - column.x;
  });
  return columns;
}

function placeX(view, place, width) {
  return CHART_LEFT + ((place - view.from) / (view.to - view.from)) * (width - CHART_LEFT);
}

function outlinedText(context, text, x, y, align = "left") {
  context.textAlign = align;
  context.lineWidth = 3;
  context.strokeStyle = theme.colour("ground");
  context.strokeText(text, x, y);
  context.fillStyle = theme.colour("text");
  context.fillText(text, x, y);
  context.textAlign = "left";
}

function drawByteAxis(context, width, height, top, y) {
  context.textAlign = "right";
  for (const tick of ticksUpTo(top, 2)) {
    context.fillStyle = theme.colour("grid");
    context.fillRect(CHART_LEFT, Math.round(y(tick)), width - CHART_LEFT, 1);
    context.fillStyle = theme.colour("faint");
    context.fillText(formatBytes(tick), CHART_LEFT - 6, Math.max(10, y(tick) + 4));
  }
  context.textAlign = "left";
}

function drawPlaceAxis(context, view, width, height) {
  const unit = view.plan.report.unit;
  const tick = view.plan.steps.tick;
  const span = view.to - view.from;
  const distance = ticksUpTo(span)[1] ?? span;
  context.fillStyle = theme.colour("faint");
  context.textAlign = "center";
  for (let place = Math.ceil(view.from / distance) * distance; place <= view.to; place += distance) {
    const x = placeX(view, place, width);
    if (x < CHART_LEFT + 20 || x > width - 24) continue;
    context.fillRect(x, height - CHART_FOOT, 1, 4);
    context.fillText(view.axis.byTime ? formatCost(place * tick, unit) : `step ${Math.round(place)}`, x, height - 4);
  }
  context.textAlign = "left";
}

function drawCursor(context, view, width, height) {
  const from = placeX(view, view.axis.at(view.step), width);
  const to = placeX(view, view.axis.at(view.step + 1), width);
  if (to < CHART_LEFT || from > width) return;
  context.fillStyle = theme.colour("cursor");
  context.fillRect(Math.max(CHART_LEFT, from - 0.5), 0, Math.max(1.5, Math.min(to, width) - Math.max(from, CHART_LEFT)), height);
}
