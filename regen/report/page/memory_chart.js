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
    this.drawStack(context, width, height);
    drawByteAxis(context, width, height, this.top, (bytes) => this.y(bytes, height));
    drawPlaceAxis(context, this.view, width, height);
    this.drawLines(context, width, height);
    drawCursor(context, this.view, width, height - CHART_FOOT);
  }

  drawStack(context, width, height) {
    const pixels = new Pixels(context, CHART_LEFT, width, height - CHART_FOOT);
    const columns = highestSteps(this.view, this.plan.highest, pixels.width);
    const scale = pixels.height / this.top;
    const base = new Float64Array(columns.length);
    for (const group of this.plan.groups.groups) {
      const bytes = this.plan.stack[group.index];
      const colour = pixelColours.of(colourOfGroup(group), this.view.group !== null && this.view.group !== group.index ? 0.25 : 1);
      for (let x = 0; x < columns.length; x += 1) {
        const added = bytes[columns[x]];
        if (added <= 0) continue;
        const lower = pixels.height - base[x] * scale;
        base[x] += added;
        const upper = pixels.height - base[x] * scale;
        if (lower - upper >= 0.5) pixels.fill(x, upper, x + 1, lower, colour);
      }
    }
    pixels.put();
  }

  drawLines(context, width, height) {
    const {summary} = this.plan;
    // The texts stand at the two ends: the lines are often close to each other.
    const line = (bytes, text, colour, dash, align) => {
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
      outlinedText(context, `${text} ${formatBytes(bytes)}`, align === "right" ? width - 6 : CHART_LEFT + 6, y + (y < 16 ? 13 : -4), align);
    };
    line(summary.budget_bytes, "budget", "bad", [6, 3], "right");
    line(summary.measured_bytes, "measured", "text", [2, 3], "left");
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
      const paint = () => { swatch.style.background = colourOfGroup(group); };
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

// For each pixel of the axis its highest step, so that no peak is ever left out.
function highestSteps(view, highest, width) {
  const {axis} = view;
  const columns = new Int32Array(width);
  const perPixel = (view.to - view.from) / width;
  let next = axis.stepAt(view.from);
  for (let x = 0; x < width; x += 1) {
    const first = next;
    next = axis.stepAt(view.from + (x + 1) * perPixel);
    columns[x] = highest.between(first, next);
  }
  return columns;
}

// The highest of any stretch of steps, in blocks: a stretch of thousands is answered without a look at each.
class Highest {
  constructor(values, size = 64) {
    this.values = values;
    this.size = size;
    this.blocks = new Int32Array(Math.ceil(values.length / size));
    for (let block = 0; block < this.blocks.length; block += 1) {
      this.blocks[block] = this.scan(block * size, Math.min(values.length, (block + 1) * size) - 1);
    }
  }

  scan(first, last, best = first) {
    for (let i = first; i <= last; i += 1) if (this.values[i] > this.values[best]) best = i;
    return best;
  }

  // Both ends are part of the stretch.
  between(first, last) {
    if (last - first < 2 * this.size) return this.scan(first, last);
    const from = Math.ceil(first / this.size);
    const to = Math.floor((last + 1) / this.size);
    let best = this.scan(first, from * this.size - 1);
    for (let block = from; block < to; block += 1) if (this.values[this.blocks[block]] > this.values[best]) best = this.blocks[block];
    return this.scan(to * this.size, last, best);
  }
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
