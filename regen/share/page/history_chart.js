// A small chart of the last hour, or of less while there is less: one or two lines over time, now at the right end.

const CHART_HEIGHT = 96;
const CHART_FOOT_HEIGHT = 16;
const CHART_SCALE_WIDTH = 58;
const CHART_RANGES = [5, 15, 60];  // minutes

class HistoryChart {
  // lines: [{name, colour, key}]; format: of a value; most: the value at the top, or null: the largest.
  constructor(title, lines, format, most = null) {
    Object.assign(this, {title, lines, format, most});
    this.points = null;
    this.stepSeconds = STEP_SECONDS;
    this.place = null;  // of the point that the keyboard or the pointer is at, from the right end
    this.canvas = new Canvas(title, CHART_HEIGHT, (context, width, height) => this.draw(context, width, height));
    this.readout = element("p", {class: "reading"});
    this.node = element("figure", {class: "chart"}, element("figcaption", {}, title), this.canvas.node, this.readout);
    theme.onChange(() => this.canvas.redraw());
    this.followPointer();
    this.write();
  }

  // `points`: lists by key, or null; newest last.
  show(points, stepSeconds) {
    this.points = points;
    this.stepSeconds = stepSeconds;
    this.write();
    this.canvas.redraw();
  }

  size() {
    return this.points === null ? 0 : this.points[this.lines[0].key].length;
  }

  // How many points the chart is wide: the least range that holds all.
  range() {
    const counts = CHART_RANGES.map((minutes) => (minutes * 60) / this.stepSeconds);
    return counts.find((count) => count >= this.size()) ?? counts.at(-1);
  }

  followPointer() {
    const node = this.canvas.node;
    const steps = {ArrowLeft: 1, ArrowRight: -1, PageUp: 60, PageDown: -60, Home: HISTORY_POINTS, End: -HISTORY_POINTS};
    const moveTo = (place) => {
      this.place = place === null ? null : Math.max(0, Math.min(this.size() - 1, place));
      this.write();
      this.canvas.redraw();
    };
    node.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps)) return;
      moveTo((this.place ?? 0) + (this.place === null ? 0 : steps[event.key]));
      event.preventDefault();
    });
    node.addEventListener("pointermove", (event) => {
      const box = node.getBoundingClientRect();
      const right = (box.right - event.clientX) / Math.max(1, box.width - CHART_SCALE_WIDTH);
      moveTo(right > 1 ? null : Math.round(right * (this.range() - 1)));
    });
    node.addEventListener("pointerleave", () => moveTo(null));
    node.addEventListener("blur", () => moveTo(null));
  }

  // The numbers at a place, for those who do not see the lines.
  write() {
    const size = this.size();
    const place = this.place ?? 0;
    let text = `nothing yet; a point comes each ${this.stepSeconds} seconds`;
    if (size > 0) {
      const when = place === 0 ? "now" : `${formatAgo(place * this.stepSeconds)} ago`;
      const values = this.lines.map((line) => `${line.name} ${this.text(this.points[line.key][size - 1 - place])}`);
      text = `${when}: ${values.join(", ")}`;
    }
    this.readout.textContent = text;
    this.canvas.node.setAttribute("aria-label", `${this.title} over the last hour; ${text}. Arrow keys move in time.`);
  }

  text(value) {
    return value === null || value === undefined ? "unknown" : this.format(value);
  }

  largest() {
    let most = 0;
    for (const line of this.lines) for (const value of this.points[line.key]) most = Math.max(most, value ?? 0);
    return most;
  }

  draw(context, width, height) {
    const foot = height - CHART_FOOT_HEIGHT;
    const top = this.most ?? (this.size() > 0 ? this.largest() : 0);
    const range = this.range();
    const x = (place) => width - 1 - ((width - CHART_SCALE_WIDTH - 2) * place) / (range - 1);
    const y = (value) => foot - 1 - ((foot - 8) * value) / (top > 0 ? top : 1);
    this.drawScale(context, width, foot, top, x, y);
    if (this.size() === 0) return;
    for (const line of this.lines) this.drawLine(context, this.points[line.key], line.colour, x, y);
    if (this.place === null) return;
    context.fillStyle = theme.colour("accent");
    context.fillRect(Math.round(x(this.place)), 0, 1, foot);
  }

  drawScale(context, width, foot, top, x, y) {
    context.textAlign = "right";
    for (const value of top > 0 ? [0, top] : [0]) {
      context.fillStyle = theme.colour("grid");
      context.fillRect(CHART_SCALE_WIDTH, Math.round(y(value)), width - CHART_SCALE_WIDTH, 1);
      context.fillStyle = theme.colour("faint");
      context.fillText(this.format(value), CHART_SCALE_WIDTH - 6, Math.max(11, y(value) + 3));
    }
    context.textAlign = "center";
    for (const quarter of [1, 2, 3]) {
      const place = (this.range() * quarter) / 4;
      const at = x(place);
      context.fillStyle = theme.colour("grid");
      context.fillRect(Math.round(at), 0, 1, foot);
      context.fillStyle = theme.colour("faint");
      context.fillText(`-${formatAgo(place * this.stepSeconds)}`, at, foot + 13);
    }
    context.textAlign = "left";
  }

  drawLine(context, values, colour, x, y) {
    context.strokeStyle = theme.colour(colour);
    context.lineWidth = 1.5;
    context.beginPath();
    let drawing = false;
    values.forEach((value, i) => {
      const place = values.length - 1 - i;
      if (value === null) {
        drawing = false;
        return;
      }
      if (drawing) context.lineTo(x(place), y(value));
      else context.moveTo(x(place), y(value));
      drawing = true;
    });
    if (values.length === 1 && drawing) context.lineTo(x(0) - 2, y(values[0]));
    context.stroke();
  }
}

function formatAgo(seconds) {
  const minutes = Math.floor(seconds / 60);
  const rest = seconds % 60 === 0 ? "" : ` ${seconds % 60} s`;
  return minutes === 0 ? `${seconds} s` : `${minutes} min${rest}`;
}
