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
    this.drawBoxes(context, width, height);
    drawByteAxis(context, width, height, this.top, (bytes) => this.y(bytes, height));
    drawPlaceAxis(context, this.view, width, height);
    drawCursor(context, this.view, width, height - CHART_FOOT);
  }

  // What is selected comes last, with an edge, over what is dim.
  drawBoxes(context, width, height) {
    const {view, plan} = this;
    const {boxes} = plan;
    const pixels = new Pixels(context, CHART_LEFT, width, height - CHART_FOOT);
    const colours = [0.18, 1].map((strength) => plan.groups.groups.map((group) => pixelColours.of(colourOfGroup(group), strength)));
    const edge = pixelColours.of(theme.colour("text"));
    const across = pixels.width / (view.to - view.from);
    const up = pixels.height / this.top;
    const [first, end] = plan.boxRange(view.axis.firstAt(view.from), view.axis.stepAt(view.to));
    let drawn = 0;
    for (const selected of view.selects ? [false, true] : [true]) {
      for (let box = first; box < end; box += 1) {
        if (view.selects && view.isSelected(box) !== selected) continue;
        const x0 = (view.axis.at(boxes.from[box]) - view.from) * across;
        const x1 = (view.axis.at(boxes.to[box]) - view.from) * across;
        if (x1 < 0 || x0 > pixels.width) continue;
        const y1 = pixels.height - boxes.address[box] * up;
        const y0 = y1 - boxes.bytes[box] * up;
        drawn += 1;
        this.drawBox(pixels, x0, y0, x1, y1, colours[selected ? 1 : 0][plan.groupOfBox[box]], view.selects && selected ? edge : null);
      }
    }
    this.canvas.node.dataset.drawn = String(drawn);
    pixels.put();
  }

  // A gap separates neighbours of one colour, where there is room for one.
  drawBox(pixels, x0, y0, x1, y1, colour, edge) {
    const room = x1 - x0 > 4 && y1 - y0 > 4;
    if (edge !== null && room) {
      pixels.fill(x0, y0, x1, y1, edge);
      pixels.fill(x0 + 1, y0 + 1, x1 - 1, y1 - 1, colour);
    } else {
      pixels.fill(x0, y0, room ? x1 - 1 : x1, room ? y1 - 1 : y1, colour);
    }
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
