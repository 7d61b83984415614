// The address space over the step: every allocation a box.

class AddressChart {
  constructor(view) {
    this.view = view;
    this.plan = view.plan;
    this.drawn = 0;
    this.canvas = new Canvas(this.label(), 300, (context, width, height) => this.draw(context, width, height));
    moveWithPointerAndKeys(this.canvas, view, CHART_LEFT, (place, y) => this.click(place, y));
    this.addKeys();
  }

  label() {
    return `Addresses over the step: ${formatCount(this.plan.boxes.from.length, "box")} in ${formatBytes(this.plan.layout.bytes)}. ${KEY_HELP} Enter: the largest box of the step. n: the next box of the selection.`
      .replace("boxs", "boxes");
  }

  get top() {
    return Math.max(1, this.plan.scaleAddresses);
  }

  y(bytes, height) {
    return (height - CHART_FOOT) * (1 - bytes / this.top);
  }

  draw(context, width, height) {
    drawByteAxis(context, width, height, this.top, (bytes) => this.y(bytes, height));
    this.drawBoxes(context, width, height);
    drawPlaceAxis(context, this.view, width, height);
    drawCursor(context, this.view, width, height - CHART_FOOT);
  }

  // By colour, since a change of it costs more than a box; first what is dim, then the selection.
  drawBoxes(context, width, height) {
    const colours = this.plan.groups.groups.map((group) => theme.ofGroup(group));
    const shown = this.visible(width, height);
    this.drawn = shown.length;
    this.canvas.node.dataset.drawn = String(shown.length);
    const selects = this.view.selects;
    context.save();
    context.beginPath();
    context.rect(CHART_LEFT, 0, width - CHART_LEFT, height - CHART_FOOT);
    context.clip();
    for (const selected of selects ? [false, true] : [true]) {
      context.globalAlpha = selected ? 1 : 0.18;
      for (let group = 0; group < colours.length; group += 1) {
        context.fillStyle = colours[group];
        for (const box of shown) {
          if (box.group !== group || (selects && box.selected !== selected)) continue;
          context.fillRect(box.x, box.y, box.width, box.height);
        }
      }
    }
    if (selects) this.drawEdges(context, shown);
    context.restore();
  }

  drawEdges(context, shown) {
    context.strokeStyle = theme.colour("text");
    context.lineWidth = 1;
    for (const box of shown) if (box.selected && box.width > 3 && box.height > 3) context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
  }

  // Boxes with their pixels, without those outside, and of those narrower than a pixel only such as have a pixel
  // of their own.
  visible(width, height) {
    const {view, plan} = this;
    const {boxes} = plan;
    const scale = (width - CHART_LEFT) / (view.to - view.from);
    const [first, end] = plan.boxRange(view.axis.firstAt(view.from), view.axis.stepAt(view.to));
    const taken = new Uint8Array(Math.ceil(width + 3) * height);
    const gap = (end - first) < 4000 ? 0.5 : 0;
    const shown = [];
    for (let box = first; box < end; box += 1) {
      const from = view.axis.at(boxes.from[box]);
      const to = view.axis.at(boxes.to[box]);
      if (to < view.from || from > view.to) continue;
      const x = CHART_LEFT + Math.max(-2, (from - view.from) * scale);
      const wide = Math.max(0.7, Math.min(width + 2, CHART_LEFT + (to - view.from) * scale) - x);
      const y = this.y(boxes.address[box] + boxes.bytes[box], height);
      const high = Math.max(0.7, this.y(boxes.address[box], height) - y);
      const selected = view.selects && view.isSelected(box);
      if (wide < 1 && !selected && !takePixels(taken, Math.floor(x), y, y + high, height)) continue;
      shown.push({box, group: plan.groupOfBox[box], selected, x, y, width: Math.max(0.7, wide - (wide > 3 ? gap : 0)), height: Math.max(0.7, high - (high > 3 ? gap : 0))});
    }
    return shown;
  }

  click(place, y) {
    const step = this.view.axis.stepAt(place);
    const address = this.top * (1 - y / (this.canvas.height - CHART_FOOT));
    const {boxes} = this.plan;
    const hit = this.plan.liveBoxes(step).find((box) => boxes.address[box] <= address && address < boxes.address[box] + boxes.bytes[box]);
    this.view.setStep(step);
    this.view.selectBox(hit ?? null);
  }

  addKeys() {
    this.canvas.node.addEventListener("keydown", (event) => {
      const {boxes} = this.plan;
      if (event.key === "Enter") {
        const live = this.plan.liveBoxes(this.view.step).sort((a, b) => boxes.bytes[b] - boxes.bytes[a]);
        this.view.selectBox(live[0] ?? null);
      } else if (event.key === "n" && this.view.module !== null) {
        const next = this.plan.boxesOfModule(this.view.module).find((box) => boxes.from[box] > this.view.step);
        if (next !== undefined) this.view.setStep(boxes.from[next]);
      } else if (event.key === "Escape") {
        this.view.module = this.view.group = null;
        this.view.selectBox(null);
      }
    });
  }
}

// Marks the pixels of a column from `upper` to `lower`; false if all of them are taken.
function takePixels(taken, column, upper, lower, height) {
  const first = Math.max(0, column * height + Math.floor(Math.max(0, upper)));
  const last = Math.min(column * height + Math.ceil(Math.min(height, lower)) - 1, taken.length - 1);
  let found = false;
  for (let pixel = first; pixel <= last; pixel += 1) {
    found ||= taken[pixel] === 0;
    taken[pixel] = 1;
  }
  return found;
}
