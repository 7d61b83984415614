// What the compute queue and the two copy queues do, on the axis of the memory charts.

const LANES = ["compute", "to host", "to device"];
const LANE_HEIGHT = 26;

class TimelineChart {
  constructor(view) {
    this.view = view;
    this.plan = view.plan;
    this.lanes = this.makeLanes();
    this.canvas = new Canvas(this.label(), LANES.length * LANE_HEIGHT + CHART_FOOT, (context, width, height) => this.draw(context, width, height));
    moveWithPointerAndKeys(this.canvas, view, CHART_LEFT, (place, y) => this.click(place, y));
  }

  label() {
    const [runs, out, back] = this.lanes.map((lane) => lane.length);
    return `Timeline of the queues: ${formatCount(runs, "run")}, ${formatCount(out, "copy to the host").replace("hosts", "host")}, ${formatCount(back, "copy to the device").replace("devices", "device")}. ${KEY_HELP}`;
  }

  // For each queue its steps, which follow each other in time. By steps, a copy lies where it is started.
  makeLanes() {
    const lanes = LANES.map(() => []);
    const ran = new Set();
    const {steps} = this.plan;
    for (let step = 0; step < steps.kind.length; step += 1) {
      const lane = {c: 0, o: 1, f: 2}[steps.kind[step]];
      if (lane === undefined) continue;
      const again = lane === 0 && ran.has(steps.subject[step]);
      if (lane === 0) ran.add(steps.subject[step]);
      lanes[lane].push({step, again});
    }
    return lanes;
  }

  placesOf(item) {
    const {axis} = this.view;
    if (!axis.byTime) return [item.step, item.step + 1];
    return [this.plan.steps.start[item.step], this.plan.steps.end[item.step]];
  }

  draw(context, width, height) {
    const pixels = new Pixels(context, CHART_LEFT, width, LANES.length * LANE_HEIGHT);
    const ground = pixelColours.of(theme.colour("lane"));
    const named = [];
    this.lanes.forEach((items, lane) => {
      pixels.fill(0, (lane * LANE_HEIGHT + 2) * pixels.scale, pixels.width, ((lane + 1) * LANE_HEIGHT - 2) * pixels.scale, ground);
      named.push(...this.drawLane(pixels, items, lane));
    });
    pixels.put();
    this.drawTexts(context, named);
    drawPlaceAxis(context, this.view, width, height);
    drawCursor(context, this.view, width, LANES.length * LANE_HEIGHT);
  }

  drawTexts(context, named) {
    context.textAlign = "right";
    context.fillStyle = theme.colour("faint");
    LANES.forEach((name, lane) => context.fillText(name, CHART_LEFT - 6, lane * LANE_HEIGHT + 17));
    context.textAlign = "left";
    for (const {item, lane, x0, x1} of named) this.drawName(context, item, lane, CHART_LEFT + Math.max(0, x0), CHART_LEFT + x1);
  }

  // Of what is narrower than a pixel, one for each pixel. Returns what has room for its name, with CSS pixels.
  drawLane(pixels, items, lane) {
    const {view} = this;
    const across = pixels.width / (view.to - view.from);
    const named = [];
    for (let i = this.firstVisible(items, view.from); i < items.length;) {
      const [from, to] = this.placesOf(items[i]);
      if (from > view.to) break;
      const x0 = (from - view.from) * across;
      const x1 = (to - view.from) * across;
      const colour = pixelColours.of(theme.colour(this.colourOf(items[i], lane)), this.isDim(items[i]) ? 0.25 : 1);
      pixels.fill(x0, (lane * LANE_HEIGHT + 3) * pixels.scale, x1 - x0 > 4 ? x1 - 1 : x1, ((lane + 1) * LANE_HEIGHT - 3) * pixels.scale, colour);
      if (x1 - x0 > 60 * pixels.scale) named.push({item: items[i], lane, x0: x0 / pixels.scale, x1: Math.min(x1, pixels.width) / pixels.scale});
      i = x1 - x0 >= 1 ? i + 1 : Math.max(i + 1, this.firstVisible(items, view.from + (Math.floor(x0) + 1) / across, i));
    }
    return named;
  }

  drawName(context, item, lane, x, end) {
    context.fillStyle = theme.colour("on-queue");
    const name = this.plan.describeStep(item.step).replace(/^compute /, "");
    const room = Math.floor((end - x - 8) / 6.5);
    context.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, x + 4, lane * LANE_HEIGHT + 17);
  }

  isDim(item) {
    const {view, plan} = this;
    return view.module !== null && !plan.report.isBelow(this.moduleOf(item), view.module);
  }

  moduleOf(item) {
    const {ops, tensors} = this.plan.report.graph;
    const subject = this.plan.steps.subject[item.step];
    return this.plan.steps.kind[item.step] === "c" ? ops.module[subject] : tensors.module[subject];
  }

  colourOf(item, lane) {
    if (lane > 0) return "queue-copy";
    if (item.again) return "queue-again";
    const {ops, phases} = this.plan.report.graph;
    return `queue-${phases[ops.phase[this.plan.steps.subject[item.step]]]}`;
  }

  // The first item that ends at or after a place.
  firstVisible(items, place, from = 0) {
    let low = from;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.placesOf(items[middle])[1] < place) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  click(place, y) {
    const items = this.lanes[Math.min(LANES.length - 1, Math.floor(y / LANE_HEIGHT))];
    const hit = items?.find((item) => {
      const [from, to] = this.placesOf(item);
      return from <= place && place <= to;
    });
    this.view.setStep(hit ? hit.step : this.view.axis.stepAt(place));
  }

  legend() {
    const kinds = [["queue-forward", "forward"], ["queue-loss", "loss"], ["queue-backward", "backward"], ["queue-update", "update"], ["queue-again", "run again"], ["queue-copy", "copy"]];
    const entries = kinds.map(([colour, text]) => element("li", {}, element("span", {class: `swatch ${colour}`, "aria-hidden": "true"}), text));
    return element("ul", {class: "legends"}, ...entries);
  }

  table() {
    const {steps, report} = this.plan;
    const sum = (lane, which) => this.lanes[lane].filter(which).reduce((total, item) => total + (steps.end[item.step] - steps.start[item.step]) * steps.tick, 0);
    const row = (name, lane, which) => [name, String(this.lanes[lane].filter(which).length), report.cost(sum(lane, which))];
    const rows = [
      row("compute: first runs", 0, (item) => !item.again),
      row("compute: runs again", 0, (item) => item.again),
      ["compute: waits for copies", "", report.cost(this.plan.summary.wait_cost)],
      row("copies to the host", 1, () => true),
      row("copies to the device", 2, () => true),
    ];
    return plainTable("What the queues do in one step", [{head: "queue"}, {head: "how many", number: true}, {head: "busy", number: true}], rows);
  }
}
