// What is on the device in a step: at first the peak, then the step under the cursor.

const ROWS_AT_FIRST = 40;

function liveTable(view) {
  const place = element("div", {class: "live"});
  let all = false;
  const write = () => place.replaceChildren(...liveRows(view, all, () => {
    all = !all;
    write();
  }));
  view.onChange((what) => { if (what === "step") write(); });
  write();
  return section("What lives there", place);
}

function liveRows(view, all, toggle) {
  const {plan, step} = view;
  const {boxes, report} = plan;
  const live = plan.liveBoxes(step).sort((a, b) => boxes.bytes[b] - boxes.bytes[a]);
  const fixed = plan.groups.groups.filter((group) => group.fixed);
  const shown = all ? live : live.slice(0, ROWS_AT_FIRST);
  const rows = [
    ...fixed.map((group) => [bytesValue(group.bytes), group.title, "", "stays for the whole step", "", ""]),
    ...shown.map((box) => liveRow(plan, box)),
  ];
  const unused = plan.groups.indexOf("unused");
  if (unused >= 0) rows.push([bytesValue(plan.stack[unused][step]), "unused between addresses", "", "", "", ""]);
  const columns = [{head: "bytes", number: true}, {head: "tensor"}, {head: "module"}, {head: "came by"}, {head: "from step"}, {head: "line"}];
  const where = step === plan.summary.peak_step ? `the peak, step ${step}` : `step ${step}`;
  const caption = `On the device at ${where}: ${formatBytes(plan.bytesAt(step))} in ${formatCount(live.length, "planned tensor")} and what is fixed`;
  const parts = [scrolling("What lives there", plainTable(caption, columns, rows))];
  if (live.length > ROWS_AT_FIRST) parts.push(button(all ? "Show the largest" : `Show all ${live.length}`, toggle));
  parts[0].dataset.step = String(step);
  return parts;
}

function liveRow(plan, box) {
  const {boxes, report} = plan;
  const source = report.sourceOf(boxes.op[box]);
  return [
    bytesValue(boxes.bytes[box], "live"),
    nameText(plan.nameOfBox(box)),
    nameText(report.pathOf(plan.moduleOfBox[box])),
    boxes.tensor[box] === null ? "the op" : boxes.origins[boxes.origin[box]],
    String(boxes.from[box]),
    nameText(source),
  ];
}
