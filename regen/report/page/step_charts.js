// The three charts of a plan over one axis, with the buttons that move it and a line that says what is
// at the step and in the box under the cursor.

function stepCharts(view) {
  const memory = new MemoryChart(view);
  const addresses = new AddressChart(view);
  const timeline = new TimelineChart(view);
  const charts = [memory, addresses, timeline];
  const redraw = () => charts.forEach((chart) => chart.canvas.redraw());
  view.onChange(redraw);
  theme.onChange(redraw);
  const readout = element("p", {class: "readout", role: "status", "data-key": "readout"});
  const write = () => readout.replaceChildren(...readoutOf(view));
  view.onChange((what) => { if (what !== "range") write(); });
  write();
  return section("Memory over the step",
    toolbar(view),
    memory.canvas.node, memory.legend(), readout,
    tableInstead("Memory as a table", () => memory.table()),
    element("h4", {}, "Addresses"),
    element("p", {class: "note"}, layoutNote(view.plan)),
    addresses.canvas.node,
    element("h4", {}, "Queues"),
    timeline.canvas.node, timeline.legend(),
    tableInstead("Queues as a table", () => timeline.table()));
}

function layoutNote(plan) {
  const allocations = new Set(plan.boxes.allocation).size;
  const source = plan.layout.of_plan ? "The plan's own addresses" : "The plan has no addresses: these are of a quick packing, for the picture";
  return `${source}. ${formatCount(allocations, "allocation")} in ${formatBytes(plan.layout.bytes)}; fixed tensors lie outside.`;
}

function toolbar(view) {
  const axis = button("", () => view.setByTime(!view.axis.byTime), {"aria-pressed": "false"});
  const show = () => {
    axis.textContent = "By steps";
    axis.setAttribute("aria-pressed", String(!view.axis.byTime));
  };
  view.onChange(show);
  show();
  return element("div", {class: "toolbar", role: "group", "aria-label": "Axis of the charts"},
    button("Whole step", () => view.showAll()),
    button("Zoom in", () => view.zoom(0.5, view.axis.at(view.step))),
    button("Zoom out", () => view.zoom(2, view.axis.at(view.step))),
    button("Earlier", () => view.pan(-0.5)),
    button("Later", () => view.pan(0.5)),
    button("Peak", () => view.setStep(view.plan.summary.peak_step)),
    axis);
}

function readoutOf(view) {
  const {plan, step} = view;
  const parts = [`Step ${step}: `, nameText(plan.describeStep(step)), `, ${formatBytes(plan.bytesAt(step))}`];
  const variant = plan.steps.variant[step];
  if (variant !== undefined) parts.push(", variant ", nameText(variant));
  parts.push(step === plan.summary.peak_step ? " (the peak). " : ". ");
  if (view.box !== null) parts.push(...boxText(plan, view.box));
  else if (view.module !== null) parts.push(...moduleText(view));
  return parts;
}

function boxText(plan, box) {
  const {boxes, report} = plan;
  const source = report.sourceOf(boxes.op[box]);
  return ["Box: ", nameText(plan.nameOfBox(box)), `, ${formatBytes(boxes.bytes[box])} at ${formatBytes(boxes.address[box])}, steps ${boxes.from[box]} to ${boxes.to[box]}, ${boxes.origins[boxes.origin[box]]}, module `,
    nameText(report.pathOf(plan.moduleOfBox[box])), ...(source ? [", ", nameText(source)] : []), "."];
}

function moduleText(view) {
  const found = view.plan.boxesOfModule(view.module);
  const bytes = found.reduce((sum, box) => sum + view.plan.boxes.bytes[box], 0);
  return ["Module ", nameText(view.plan.report.pathOf(view.module)), ": ", exact(found.length, `${found.length} ${found.length === 1 ? "box" : "boxes"}`, "highlighted"), ` of ${formatBytes(bytes)} together.`];
}
