// What runs otherwise than plain PyTorch would run it, and what does not run under the plan.

function notesSection(plan) {
  return section("How it runs", islandsPart(plan), opsPart("Other algorithms than by default", plan.other_algorithms, "Every op runs by its default algorithm.", plan),
    opsPart("In place of what they read last", plan.in_place, "No op overwrites what it reads.", plan), unforeseenPart(plan));
}

function islandsPart(plan) {
  if (plan.islands.length === 0) return element("p", {}, "No part of the model runs as Python beside the plan.");
  const rows = plan.islands.map((island) => [nameText(island.name), nameText(island.source), nameText(island.reason), bytesValue(island.held_bytes), bytesValue(island.work_bytes), costValue(island.seconds, "second")]);
  const columns = [{head: "island"}, {head: "line"}, {head: "because"}, {head: "holds", number: true}, {head: "works in", number: true}, {head: "time", number: true}];
  return scrolling("Islands", plainTable("Parts that run as Python (islands)", columns, rows));
}

function opsPart(title, ids, otherwise, plan) {
  if (ids.length === 0) return element("p", {}, otherwise);
  const {ops} = plan.report.graph;
  const make = () => scrolling(title, plainTable(title, [{head: "op"}, {head: "type"}, {head: "module"}, {head: "line"}],
    ids.map((id) => [nameText(ops.name[id]), nameText(ops.texts[ops.type[id]]), nameText(plan.report.pathOf(ops.module[id])), nameText(plan.report.sourceOf(id))])));
  return tableInstead(`${title}: ${formatCount(ids.length, "op")}`, make);
}

function unforeseenPart(plan) {
  if (plan.unforeseen.length === 0) return null;
  return element("p", {}, "Allocated otherwise than recorded, and served beside the plan: ", ...plan.unforeseen.flatMap((name, i) => [i > 0 ? ", " : "", nameText(name)]), ".");
}
