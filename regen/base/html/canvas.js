// A canvas as wide as its place, sharp on every screen, drawn at most once for each frame.

class Canvas {
  // `draw(context, width, height)` in CSS pixels.
  constructor(label, height, draw) {
    this.draw = draw;
    this.height = height;
    this.width = 0;
    this.waiting = false;
    this.node = element("canvas", {role: "img", "aria-label": label, tabindex: 0});
    this.node.style.height = `${height}px`;
    new ResizeObserver(() => this.resize()).observe(this.node);
  }

  resize() {
    const scale = window.devicePixelRatio || 1;
    this.width = this.node.clientWidth;
    this.node.width = Math.round(this.width * scale);
    this.node.height = Math.round(this.height * scale);
    this.drawNow();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.waiting = false;
    if (this.width === 0) return;
    const context = this.node.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "12px system-ui, sans-serif";
    this.draw(context, this.width, this.height);
  }
}

// The colours of the theme in use. They are read from the style sheet, so that light and dark are said once.
const theme = {
  colours: new Map(),
  listeners: [],
  colour(name) {
    if (!this.colours.has(name)) this.colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
    return this.colours.get(name);
  },
  changed() {
    this.colours.clear();
    for (const listener of this.listeners) listener();
  },
  onChange(listener) {
    this.listeners.push(listener);
  },
};

// Four to seven round numbers from 0 to `end`.
function ticksUpTo(end, base = 10) {
  if (!(end > 0)) return [0];
  const rough = end / 5;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 2 ? [1, 2] : [1, 2, 5, 10];
  const step = power * (steps.find((one) => one * power >= rough) ?? steps.at(-1));
  const ticks = [];
  for (let tick = 0; tick <= end * 1.0001; tick += step) ticks.push(tick);
  return ticks;
}
