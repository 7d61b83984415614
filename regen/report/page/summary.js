// The answers in numbers: does it fit, what does it cost, did it come true.

function verdict(plan) {
  const {summary} = plan;
  if (summary.budget_bytes === null) return element("p", {class: "verdict"}, "Takes ", bytesValue(summary.predicted_bytes, "summary.predicted_bytes"), "; no budget was given.");
  const room = summary.budget_bytes - summary.predicted_bytes;
  const text = summary.fits ? ["Fits: ", bytesValue(summary.predicted_bytes, "summary.predicted_bytes"), " of ", bytesValue(summary.budget_bytes, "summary.budget_bytes"), `, ${formatBytes(room)} to spare.`]
    : ["Does not fit: ", bytesValue(summary.predicted_bytes, "summary.predicted_bytes"), " is ", `${formatBytes(-room)} over the budget of `, bytesValue(summary.budget_bytes, "summary.budget_bytes"), "."];
  return element("p", {class: summary.fits ? "verdict good" : "verdict bad"}, ...text);
}

// [label, key in the summary, how it is shown]
function facts(plan) {
  const {summary, report} = plan;
  const {graph} = report;
  const bytes = (key) => bytesValue(summary[key], `summary.${key}`);
  const cost = (key) => report.cost(summary[key], `summary.${key}`);
  const rows = [
    ["Peak, predicted", bytes("predicted_bytes")],
    ["Peak, measured", summary.measured_bytes === null ? "not measured" : bytes("measured_bytes")],
    ["Fixed: parameters, state, inputs", bytesValue(graph.fixed_bytes, "graph.fixed_bytes")],
    ["Planned tensors at most", bytes("activation_peak_bytes")],
    ["Everything kept would take", bytesValue(graph.keep_all_bytes, "graph.keep_all_bytes")],
    ["No plan takes less than", bytesValue(graph.structural_bound_bytes, "graph.structural_bound_bytes")],
    ["Time, predicted", cost("cost")],
    ["Time, measured", summary.measured_seconds === null ? "not measured" : costValue(summary.measured_seconds, "second", "summary.measured_seconds")],
    ["Time with everything kept", report.cost(graph.base_cost, "graph.base_cost")],
    ["Over keeping everything", exact(summary.overhead, formatPercent(summary.overhead), "summary.overhead")],
    ["Proven at least", summary.lower_bound === null ? "not known" : cost("lower_bound")],
    ["Runs again", exact(summary.recomputed, formatCount(summary.recomputed, "op"), "summary.recomputed")],
    ["Moved to the host", bytes("offloaded_bytes")],
    ["Waits for copies", cost("wait_cost")],
    ["Steps of the plan", exact(summary.steps, summary.steps.toLocaleString("en"), "summary.steps")],
  ];
  return rows;
}

function summarySection(plan) {
  const terms = facts(plan).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return section("Summary", verdict(plan), cameTrue(plan), element("dl", {class: "facts"}, ...terms));
}

// What was measured against what was predicted.
function cameTrue(plan) {
  const {summary} = plan;
  if (summary.measured_bytes === null && summary.measured_seconds === null) return null;
  const parts = [];
  if (summary.measured_bytes !== null) parts.push(`memory ${formatPercent(summary.measured_bytes / summary.predicted_bytes - 1)}`);
  if (summary.measured_seconds !== null && plan.report.unit === "second") parts.push(`time ${formatPercent(summary.measured_seconds / summary.cost - 1)}`);
  return element("p", {}, `Measured against predicted: ${parts.join(", ")}.`);
}

// Two plans, number beside number.
function comparison(report) {
  const lists = report.plans.map(facts);
  const columns = [{head: ""}, ...report.plans.map((plan) => ({head: plan.title, number: true}))];
  const rows = lists[0].map(([name], i) => [name, ...lists.map((list) => list[i][1])]);
  return element("section", {class: "comparison"}, element("h2", {}, "The plans beside each other"), scrolling("The plans beside each other", plainTable("Numbers of the plans", columns, rows)));
}
